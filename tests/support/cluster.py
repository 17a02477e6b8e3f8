"""A standalone Spark cluster on this machine: a master and workers of one core each, from the pip package."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

from streamjoin_ds.spark.java import find_java
from tests.support.class_archive import archive_options, spark_classes

_HOST = "127.0.0.1"
_START_S = 60.0


@dataclass
class Cluster:
    """The address and the processes of a cluster.

    A worker that is added with `hidden` folders sees an empty folder in place of each.
    """

    folder: Path
    master: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add_master(self) -> None:
        port = _free_port()
        self._launch("master", "Master", "--host", _HOST, "--port", str(port), "--webui-port", "0")
        self.master = f"spark://{_HOST}:{port}"
        _wait(lambda: _listens(port), "the master to listen")

    def add_worker(self, *hidden: Path) -> subprocess.Popen[bytes]:
        """Add a worker of one core; it gets a mount namespace of its own if it is not to see some folders."""
        name = f"worker{len(self.processes)}"
        (self.folder / name).mkdir()
        arguments = ["--host", _HOST, "--cores", "1", "--memory", "1g", "--webui-port", "0"]
        arguments += ["--work-dir", str(self.folder / name), self.master]
        process = self._launch(name, "Worker", *arguments, hidden=hidden)
        log = self.folder / f"{name}.log"
        _wait(lambda: b"Successfully registered" in log.read_bytes(), "a worker to register")
        return process

    def executors(self) -> list[psutil.Process]:
        """Return the Java processes that run tasks."""
        return [
            child
            for process in self.processes
            for child in psutil.Process(process.pid).children(recursive=True)
            if any("CoarseGrainedExecutorBackend" in part for part in child.cmdline())
        ]

    def _launch(self, name: str, role: str, *arguments: str, hidden: tuple[Path, ...] = ()) -> subprocess.Popen[bytes]:
        home = Path(pyspark.__file__).parent
        java = find_java().home / "bin" / "java"
        command = [str(java), "-cp", spark_classes(), *archive_options(), "-Xmx512m"]
        command += [f"org.apache.spark.deploy.{role.lower()}.{role}", *arguments]
        if hidden:
            mounts = " && ".join(f"mount -t tmpfs none '{path}'" for path in hidden)
            command = [
                "unshare",
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                f'{mounts} && exec "$@"',
                "sh",
                *command,
            ]
        with (self.folder / f"{name}.log").open("wb") as log:
            environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
            environment["SPARK_SCALA_VERSION"] = "2.13"  # otherwise it looks for a build tree
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        self.processes.append(process)
        return process


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster with a master, to which a test adds workers. All of its processes end with the context."""
    folder.mkdir()
    made = Cluster(folder)
    try:
        made.add_master()
        yield made
    finally:
        for process in reversed(made.processes):
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()
            process.kill()
            process.wait()


def may_mount() -> bool:
    """Whether this user may make a mount namespace, for which root is needed."""
    probe = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "mount -t tmpfs none /mnt"]
    try:
        return subprocess.run(probe, capture_output=True, check=False, timeout=30).returncode == 0
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((_HOST, port)) == 0


def _wait(ready, what: str) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + _START_S
    while not ready():
        if time.monotonic() > end:
            msg = f"waited {_START_S:.0f} s for {what}"
            raise TimeoutError(msg)
        time.sleep(0.05)
