"""Long logs in a process that may open few files, as on most systems."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from streamjoin_ds.sink.log import LogEntry, put_entry
from streamjoin_ds.sink.maintenance import Maintenance

_LOOK = """
import json, resource, sys
allowed, most, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
held = [open("/dev/null") for _ in range(60)]
from streamjoin_ds.errors import TableError
from streamjoin_ds.sink.compaction import compact
from streamjoin_ds.sink.reader import complete
said = []
for work in (compact, complete):
    try:
        work(path)
        said.append("")
    except TableError as error:
        said.append(str(error))
print(json.dumps([*said, resource.getrlimit(resource.RLIMIT_NOFILE)[0]]))
"""


@pytest.fixture
def long_log(join, committer) -> str:
    """The path of a table whose log has 1 500 entries."""
    for batch_id in range(3):
        join.commit(committer, batch_id)
    for version in range(4, 1_500):
        assert put_entry(join.tables.matches, version, LogEntry("WRITE", version))
    return join.tables.matches


def looked(path: str, allowed: int, most: int) -> tuple[list[str], int]:
    """What three readers of a table's log say in a process that may open few files, and how many it may in the end."""
    arguments = [sys.executable, "-c", _LOOK, str(allowed), str(most), path]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    *said, allowed_files = json.loads(done.stdout)
    return said, allowed_files


@pytest.mark.slow
def test_a_process_allows_itself_more(long_log: str) -> None:
    assert looked(long_log, 1_024, 4_096) == (["", ""], 4_096)
    # Spark keeps an open file of each query that ran: a long session needs more than a log does.
    assert looked(long_log, 1_024, 16_384) == (["", ""], 16_384)


@pytest.mark.slow
def test_one_that_may_not_says_what_to_set(long_log: str) -> None:
    said, _ = looked(long_log, 512, 512)
    assert len(said) == 2
    for text in said:
        assert "open files" in text
        assert "ulimit -n 4096" in text
        assert long_log in text


@pytest.mark.slow
def test_the_log_is_given_a_checkpoint_where_it_was_too_long_before(long_log: str, join) -> None:
    tended = Maintenance(join.tables, background=False)
    tended.run_round()
    assert tended.failures == 0
    assert looked(long_log, 512, 512) == (["", ""], 512)
