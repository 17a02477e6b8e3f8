"""Spark as this package starts it, and what its processes leave.

::

    session ──► jvm ──► java, scratch            a Java, its folder of temporary files, its end with ours
       ├──► jars, class_archive ──► user_cache   what is made once for this machine
       ├──► worker_python, worker_check          the workers' Python, and whether they run this package
       └──► spark_log ──► holding                logs that stay small; what living processes hold by a lock
    visibility                                   which folders the workers see
"""
