"""The folder of a Java process's temporary files goes with the process or at the next start; no other folder goes."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from streamjoin_ds.spark.local_files import Scratch, remove_dead_scratch

LATER_S = 1e11  # thousands of years


def test_it_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    scratch = Scratch.new(tmp_path)
    (scratch.path / "spark-1").mkdir()
    (scratch.path / "spark-1" / "x").write_text("")
    scratch.remove()
    assert list(tmp_path.iterdir()) == []


def test_it_stays_as_long_as_its_java_process_lives(tmp_path: Path) -> None:
    """The process that made it was killed, but the one that it had started still lives."""
    scratch = Scratch.new(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True, pass_fds=[scratch.descriptor]
    )
    os.close(scratch.descriptor)
    assert remove_dead_scratch(tmp_path, LATER_S) == []
    child.communicate("\n")
    assert remove_dead_scratch(tmp_path, LATER_S) == [scratch.path]


def test_only_those_that_are_certainly_ours_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = Scratch.new(tmp_path)
    os.close(dead.descriptor)
    (tmp_path / "spark-1").mkdir()
    (tmp_path / "streamjoin-java-none").mkdir()  # it has no lock
    (tmp_path / "streamjoin-java-link").symlink_to(tmp_path / "spark-1")
    (tmp_path / "streamjoin-java-elsewhere").mkdir()
    (tmp_path / "streamjoin-java-elsewhere" / "lock").write_text("another machine")
    assert remove_dead_scratch(tmp_path, time.time()) == []  # they are too young to go
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: 4_711)
        assert remove_dead_scratch(tmp_path, LATER_S) == []
    assert remove_dead_scratch(tmp_path, LATER_S) == [dead.path]
    assert len(list(tmp_path.iterdir())) == 4


def test_sockets_lie_elsewhere_where_their_names_would_be_too_long(tmp_path: Path) -> None:
    for length, fits in ((60, True), (61, False)):
        folder = Path(tempfile.mkdtemp(prefix="x" * (length - 13), dir="/tmp"))  # `mkdtemp` adds eight
        assert len(str(folder)) == length
        scratch = Scratch.new(folder)
        expected = folder if fits else Path("/tmp")
        assert scratch.socket_folder == expected
        assert scratch.settings()["spark.python.unix.domain.socket.dir"] == str(expected)
        scratch.remove()
        folder.rmdir()


_SESSION = """
import os, sys, tempfile
from pathlib import Path
from streamjoin_ds import spark_session
if __name__ == "__main__":
    spark_session("scratch", master="local[1]", delta=False, class_archive=False).range(3).count()
    (folder,) = Path(tempfile.gettempdir()).glob("streamjoin-java-*")
    print(sorted({path.name.split("-")[0] for path in folder.iterdir()}))
    if "killed" in sys.argv:
        os._exit(1)
"""


@pytest.mark.spark
@pytest.mark.long
def test_a_session_leaves_nothing_but_its_log(tmp_path: Path) -> None:
    (tmp_path / "session.py").write_text(_SESSION)
    folder = Path(tempfile.mkdtemp(prefix="s", dir="/tmp"))  # a short path, since the paths of sockets must be short
    environment = {name: text for name, text in os.environ.items() if name != "SPARK_LOCAL_DIRS"} | {
        "TMPDIR": str(folder)
    }
    for flags in (["killed"], []):
        done = subprocess.run(
            [sys.executable, str(tmp_path / "session.py"), *flags],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert "artifacts" in done.stdout
        assert "blockmgr" in done.stdout
        left = {path.name.rsplit("-", 1)[0] for path in folder.iterdir() if not path.name.startswith(".")}
        if flags:
            # As if it had ended a while ago.
            (dead,) = folder.glob("streamjoin-java-*")
            with (dead / "lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # waits until Java has ended, which sees that it is alone
            os.utime(dead, (1, 1))
        else:
            assert left == {"streamjoin-spark"}
    shutil.rmtree(folder)
