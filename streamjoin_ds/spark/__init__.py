"""Starts Spark for this package, and removes what its processes leave behind.

::

    session ──► java                    which Java, and its process, which ends when this process ends
       ├──► jars, class_archive         files that are made once for this machine
       └──► local_files                 temporary folders, logs that stay small, the user's cache
    workers ──► session                 whether the workers run this package, and which folders they see
"""
