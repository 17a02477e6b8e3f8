"""Starts Spark for this package, and removes what its processes leave behind.

::

    session ──► jvm ──► java, scratch            which Java; its temporary files; it ends when this process ends
       ├──► jars, class_archive ──► user_cache   files that are made once for this machine
       ├──► worker_python, worker_check          the workers' Python, and whether they run this package
       └──► spark_log ──► holding                logs that stay small; files that living processes hold by a lock
    visibility                                   which folders the workers see
"""
