"""The Spark session that this package starts when its caller brings none, and the Python of its workers.

The workers run the Python of this process, without PySpark's zip. Spark puts its own ``pyspark.zip`` before all other
folders of a worker's path. A zip holds no compiled modules, so each of the five Python processes of a starting query
compiles PySpark anew. That takes 0.4 s of 0.5 s for each, one after the other. If this Python has the same PySpark as a
package, a wrapper takes the zips out of the worker's path.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from streamjoin_ds.engine.core_lease import usable_core_count
from streamjoin_ds.errors import ArgumentError, DependencyMissingError, SessionError
from streamjoin_ds.logs import LEVEL_VARIABLE
from streamjoin_ds.machine import memory_limit_bytes
from streamjoin_ds.spark.class_archive import ClassArchive, archive_setting
from streamjoin_ds.spark.jars import delta_jars
from streamjoin_ds.spark.java import QUICK_COMPILER, environment, find_java, launch, spark_home
from streamjoin_ds.spark.local_files import keep_small, new_log, trusted_cache, write_executable
from streamjoin_ds.spark.release import checkpoint_files_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "LOG_PATH_KEY",
    "configured",
    "is_own",
    "living",
    "note_join",
    "own_gateway",
    "session_log_path",
    "spark_session",
    "usable_core_count",
    "worker_python",
]

_log = logging.getLogger(__name__)

_WRAPPER = """#!/bin/sh
set -f
path=
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
        {zips}) ;;
        *) path=$path${{path:+:}}$entry ;;
    esac
done
unset IFS
PYTHONPATH=$path exec {python} "$@"
"""
_FIND = "import pyspark, py4j; print(pyspark.__path__[0]); print(py4j.__path__[0])"
_FIND_WITHIN_S = 60  # seconds that this Python may take to say where it finds PySpark
LOG_PATH_KEY = "spark.streamjoin_ds.logPath"
# Attempts at a task: Spark's default on a cluster. `local[n]` alone means one, so a dead worker would end the query.
_TASK_FAILURES = 4
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# By setting: what stands between the value set here and the caller's. For any other setting the caller's value wins.
_JOINED_BY = {
    _JAVA_OPTIONS: " ",
    "spark.jars": ",",
    "spark.sql.extensions": ",",
}
# Settings for a local master only: a cluster's workers must be able to call the driver.
_ON_THIS_MACHINE = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Java and its Python workers talk by sockets in the file system: a trigger takes 60 ms less than by TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # Workers begin with what a join imports; see there.
    "spark.python.daemon.module": "streamjoin_ds.spark.worker_daemon",
}
# What was started in this process: the "session", the "request" that it was made for, its "gateway" to Java, Java's
# "log", and whether a "join" was started.
_started: dict[str, Any] = {}


def worker_python(spark_home: Path) -> str:
    """Return the value of ``spark.pyspark.python`` for workers on this machine.

    Parameters
    ----------
    spark_home : Path
        Folder of the Spark that will start them.

    Returns
    -------
    str
        A wrapper in the user's cache; or this Python itself, if its PySpark is not that Spark's, or the wrapper cannot
        be kept.
    """
    zips = sorted((spark_home / "python" / "lib").glob("*.zip"))
    cache = trusted_cache()
    if not zips or cache is None:
        return sys.executable
    text = _WRAPPER.format(zips="|".join(shlex.quote(str(path)) for path in zips), python=shlex.quote(sys.executable))
    wrapper = cache / f"python-{xxhash.xxh3_64_hexdigest(text.encode())}"
    try:
        if not wrapper.exists() or wrapper.read_text(encoding="utf-8") != text:
            if not _finds_itself(spark_home):
                return sys.executable
            write_executable(wrapper, text)
    except OSError:
        return sys.executable
    return str(wrapper) if os.access(wrapper, os.X_OK) else sys.executable


def _finds_itself(spark_home: Path) -> bool:
    """Whether a new process of this Python finds that Spark's Python package, and py4j, without the zips."""
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _FIND], capture_output=True, text=True, timeout=_FIND_WITHIN_S, check=False
        )
    except subprocess.TimeoutExpired:  # a slow disk: workers start with this Python, a little later
        return False
    folders = [Path(line) for line in asked.stdout.splitlines()]
    return len(folders) == 2 and all(folder.is_dir() for folder in folders) and folders[0].samefile(spark_home)


def spark_session(
    app_name: str = "streamjoin",
    *,
    master: str | None = None,
    delta: bool = True,
    log_path: str | os.PathLike[str] | None = None,
    conf: Mapping[str, str] | None = None,
    driver_memory: str | None = None,
    jar_cache_path: str | os.PathLike[str] | None = None,
    java_home: str | os.PathLike[str] | None = None,
    class_archive: bool = True,
    quick_compiler: bool = False,
    session: SparkSession | None = None,
) -> SparkSession:
    """Start a Spark session set up for this package; Spark itself writes nothing on the terminal.

    Parameters
    ----------
    app_name : str
        The application's name.
    master : str, optional
        Default ``local[n,4]``, n being `usable_core_count`. 4 is the number of attempts at a task: the work of a worker
        that dies is done again.
    delta : bool
        Whether the session has Delta's jars, SQL extension and catalog. The jars come from a cache that is filled at
        the first use.
    log_path : path, optional
        File to which Spark's Java process and its Python workers append. Default: a new file in the folder for
        temporary files; `session_log_path` tells its name. When it has more than 16 MiB, its end is copied to
        ``<name>.1`` and it is emptied. Of the default files whose processes are gone, the newest five stay.
    conf : mapping of str to str, optional
        More Spark configuration. It wins over the defaults here; Java options, jars and SQL extensions are added to
        them instead.
    driver_memory : str, optional
        Heap of the Java process, as Spark writes it ("2g"). Default: a quarter of the memory, but at least 512 MiB and
        at most 2 GiB: tuples do not pass through it.
    jar_cache_path, java_home : path, optional
        The folder in which the Delta jars are kept, and the Java to use. Default: `default_cache_path` and `find_java`.
    class_archive : bool
        Whether to start Java with the archive of its classes from the user's cache (3 s sooner). If there is none, and
        this process has started a join, one is made in the background as this process ends. Only with a local master.
    quick_compiler : bool
        Whether Java compiles with its quick compiler (C1) alone. A join whose streams the package reads itself gives
        Java little to do, so the other one costs more than it brings: half of Java's CPU time at the start, and in the
        first hundred batches. Leave it where rows pass through Java: DataFrames, SQL. The command line has it.
    session : SparkSession, optional
        A session of the caller. It is returned untouched, and all other arguments are ignored.

    Returns
    -------
    SparkSession
        A new session, or the running one of an earlier call with the same arguments (`app_name`, `log_path`,
        `class_archive` and `quick_compiler` may differ).

    Raises
    ------
    SessionError
        The process already has a session or a Java process that was not started here with these arguments.
    ArgumentError
        A value in `conf` is not a text.
    JavaMissingError, JarsMissingError, DependencyMissingError, SparkStartError
        Something that the session needs is missing; the hint says what to do.

    Notes
    -----
    This sets a manager for the checkpoint's files that fits a local or shared POSIX file system: it forks no process
    for a rename, which saves a third of a small trigger. With a checkpoint in an object store, set
    ``spark.sql.streaming.checkpointFileManagerClass`` as its vendor says.
    """
    if session is not None:
        return session
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession as Session
    except ImportError as error:
        message = "The package pyspark is not installed, or not whole."
        raise DependencyMissingError(message, name="pyspark", hint="pip install 'streamjoin-ds[spark]'") from error

    request = (master, delta, tuple(sorted((conf or {}).items())), driver_memory, str(jar_cache_path), str(java_home))
    running = _running_session(request)
    if running is not None:
        return running
    home = find_java(home=java_home).home
    # After `stop()` Spark keeps its Java process, and so that process keeps its log.
    gateway = _started.get("gateway")
    log = _log_file(log_path) if gateway is None else _started["log"]
    settings = _settings(app_name, master, driver_memory, log)
    if delta:
        cache = Path(jar_cache_path) if jar_cache_path is not None else None
        _add(settings, _delta_settings(delta_jars(cache, java_home=home)))
    if quick_compiler:
        _add(settings, {_JAVA_OPTIONS: QUICK_COMPILER})
    _add(settings, conf or {})
    if gateway is None and class_archive and settings["spark.master"].startswith("local"):
        _add(settings, _class_archive_settings(home, settings))
    with environment(PYSPARK_PYTHON=settings["spark.pyspark.python"]):
        if gateway is None:
            gateway = launch(settings, log, home)
            keep_small(log)
        SparkContext(conf=SparkConf().setAll(list(settings.items())), gateway=gateway)
    started = Session.builder.config(map=dict(settings)).getOrCreate()
    arguments: dict[str, Any] = {
        "app_name": app_name, "master": master, "delta": delta, "log_path": log, "conf": conf,
        "driver_memory": driver_memory, "jar_cache_path": jar_cache_path, "java_home": java_home,
        "class_archive": class_archive, "quick_compiler": quick_compiler,
    }  # fmt: skip
    _started.update(session=started, request=request, gateway=gateway, log=log, arguments=arguments)
    atexit.register(_stop, started)
    return started


def session_log_path(session: SparkSession) -> Path | None:
    """Return the file that a session's Java process writes to; None if `spark_session` did not start the session."""
    path = session.conf.get(LOG_PATH_KEY, None)
    return Path(path) if path else None


def is_own(session: SparkSession) -> bool:
    """Whether `spark_session` started this session in this process."""
    ours = _started.get("session")
    return ours is not None and getattr(session, "_sc", None) is ours._sc


def living(session: SparkSession) -> SparkSession:
    """Return a session; where its Java process has ended and `spark_session` started it, a new one like it."""
    process = getattr(own_gateway(), "proc", None)
    if process is None or process.poll() is None or not is_own(session):
        return session
    from pyspark import SparkContext
    from pyspark.sql import SparkSession as Session

    _log.warning("Spark's Java process has ended (status %d): another one is started", process.returncode)
    with contextlib.suppress(Exception):  # it has nobody to tell
        session.stop()
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    Session._instantiatedSession = Session._activeSession = None
    arguments = _started["arguments"]
    _started.clear()
    return spark_session(**arguments)


def note_join() -> None:
    """Note that this process has started a join: only then is an archive of Java's classes made as it ends."""
    _started["join"] = True


@contextlib.contextmanager
def configured(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Give a session these settings, and restore its own afterwards."""
    before = {key: session.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            session.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, old)


def own_gateway() -> Any:
    """Return the gateway to the Java process that `spark_session` started; None before the first start."""
    return _started.get("gateway")


def _running_session(request: tuple[Any, ...]) -> SparkSession | None:
    """Return the running session if an earlier call with the same request made it; None if the process has none.

    Raises
    ------
    SessionError
        The process has another session, or a Java process that was started with other settings.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession as Session

    ours, asked = _started.get("session"), _started.get("request")
    active = Session.getActiveSession()
    hint = "pass that session (session=...), stop it first, or use another process."
    if active is not None and active is not ours:
        message = "This process already has a Spark session."
        raise SessionError(message, name="session", hint=hint)
    alive = active is not None or SparkContext._active_spark_context is not None
    if alive and asked == request:
        return ours
    if alive or (SparkContext._gateway is not None and asked != request):
        message = "This process already has Spark's Java process, started with other settings."
        raise SessionError(message, name="session", hint=hint)
    return None


def _settings(app_name: str, master: str | None, driver_memory: str | None, log: Path) -> dict[str, str]:
    cores = usable_core_count()
    master = master or f"local[{cores},{_TASK_FAILURES}]"
    local = master.startswith("local")
    python = worker_python(spark_home()) if local else os.environ.get("PYSPARK_PYTHON", sys.executable)
    level = os.environ.get(LEVEL_VARIABLE)
    return {
        "spark.app.name": app_name,
        "spark.master": master,
        LOG_PATH_KEY: str(log),
        "spark.driver.memory": driver_memory or _default_driver_memory(),
        # Stopping a query inside a Python foreachBatch recurses deep in Spark's error classifier.
        _JAVA_OPTIONS: "-Xss64m",
        **(_ON_THIS_MACHINE if local else {}),
        **({f"spark.executorEnv.{LEVEL_VARIABLE}": level} if level else {}),
        # Without this, Python data sources start `python3` from PATH, which may lack our packages.
        "spark.pyspark.python": python,
        "spark.pyspark.driver.python": sys.executable,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.shuffle.compress": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
        "spark.sql.streaming.checkpointFileManagerClass": checkpoint_files_class(),
    }


def _delta_settings(jars: list[Path]) -> dict[str, str]:
    return {
        "spark.jars": ",".join(str(jar) for jar in jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
    }


def _class_archive_settings(java_home: Path, settings: Mapping[str, str]) -> dict[str, str]:
    archive = ClassArchive.of(java_home, spark_home())
    if archive is None:
        return {}
    if archive.path() is None:
        # Registered before Java is started, so it runs after Java's end.
        atexit.register(_make_archive, archive)
    return archive_setting(archive, settings)


def _make_archive(archive: ClassArchive) -> None:
    if _started.get("join"):
        archive.make(wait=False)


def _add(settings: dict[str, str], more: Mapping[str, object]) -> None:
    for name, value in more.items():
        if not isinstance(value, str):
            message = f"The Spark setting {name} is not a text."
            raise ArgumentError(message, name=name, hint='write it as Spark does: "true", "200", "2g".')
        separator = _JOINED_BY.get(name)
        both = separator is not None and name in settings
        settings[name] = f"{settings[name]}{separator}{value}" if both else value


def _log_file(log_path: str | os.PathLike[str] | None) -> Path:
    if log_path is None:
        return new_log()
    path = Path(log_path).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _default_driver_memory() -> str:
    return f"{max(512, min(2048, memory_limit_bytes() // 4 // 2**20))}m"


def _stop(session: SparkSession) -> None:
    """Stop queries and context at exit, before the Java process ends; else Spark's Python threads print traces."""
    # Py4J logs a broken connection, by its own logger and by the root's, for whatever is still referenced or running
    # by then (a batch function in its own thread). Nobody can act on that.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: record.module not in {"java_gateway", "clientserver"})
    with contextlib.suppress(Exception):
        for query in session.streams.active:
            query.stop()
    with contextlib.suppress(Exception):
        session.stop()
