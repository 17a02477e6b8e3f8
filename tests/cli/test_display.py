"""What is shown of a run: on whatever width, no digit of a number is left out."""

from __future__ import annotations

import json
import re
import sys
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from rich.console import Console

from streamjoin_ds.cli.display import LEDGER, Display, Totals, ledger_table
from streamjoin_ds.sink.tables import TIMESTAMP, TableSet
from streamjoin_ds.stream import commit
from streamjoin_ds.stream.commit import BatchSummary


@pytest.mark.parametrize(("streams", "width", "lines"), [(2, 80, 1), (4, 80, 1), (5, 60, 4)])
def test_the_ledger_shows_all_digits(streams: int, width: int, lines: int) -> None:
    totals = Totals(0.0)
    for place, name in enumerate(LEDGER):
        totals.ledger[name].update({f"stream{n}": 1_234_567_890 + 1_000 * n + place for n in range(streams)})
    console = Console(width=width, file=StringIO(), highlight=False)
    console.print(ledger_table(totals))
    text = console.file.getvalue()
    assert "\u2026" not in text
    rows = [
        line.strip("\u2502\u2503\n").split("\u2502") for line in text.splitlines() if line.count("\u2502") > streams
    ]
    for stream in range(streams):
        shown = "".join(re.sub(r"\W", "", row[1 + stream]) for row in rows)
        numbers = "".join(str(totals.ledger[name][f"stream{stream}"]) for name in LEDGER)
        assert sorted(shown) == sorted(numbers)
        assert len(rows) <= lines * len(LEDGER)


def test_the_end_of_a_run_says_how_many_offsets_were_lost(capsys: pytest.CaptureFixture[str]) -> None:
    for is_lost in (True, False):
        console = Console(width=200, file=StringIO(), highlight=False)
        display = Display(console, clock=lambda: 1.0, quiet=True)
        counts = [{"e": 1, "w": 2}] * 6
        for lost in ({"e": 1_200, "w": 0}, {"e": 34, "w": 0}) if is_lost else ({"e": 0, "w": 0},):
            display.batch(BatchSummary(0, 0, 0, *counts, None, {}, 0, 0, replayed=False, lost_offsets=lost))
        display.end("/data/m", "/data/c", finished=True, as_json=False)
        told = [line for line in console.file.getvalue().splitlines() if "offsets" in line]
        lost_line = "stream e: 1,234 offsets were gone before they were read; /data/m_rejects names them"
        assert told == [lost_line] * is_lost
        display.end("/data/m", "/data/c", finished=True, as_json=True)
        assert json.loads(capsys.readouterr().out)["lost_offsets"] == ({"e": 1_234} if is_lost else {})


def test_a_second_start_says_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = str(tmp_path / "m")
    told = []
    for rows, punctuation in ((3, 1_700_000_000_000_000), (0, None)):
        for path, columns in (
            (TableSet(table).matches, {"event_time": pa.array([1] * rows, TIMESTAMP)}),
            (TableSet(table).punctuations, {"punctuation": pa.array([punctuation], TIMESTAMP)}),
        ):
            write_deltalake(path, pa.table(columns), mode="overwrite")
        console = Console(width=200, file=StringIO(), highlight=False)
        display = Display(console, clock=lambda: 1.0, quiet=True)
        display.end(table, "/data/c", finished=True, as_json=False)
        told += console.file.getvalue().splitlines()
        display.end(table, "/data/c", finished=True, as_json=True)
        found = json.loads(capsys.readouterr().out)
        assert (found["batches"], found["punctuation"]) == (0, "2023-11-14T22:13:20Z" if rows else None)
    assert told == [
        "nothing new was read, 0.0 s; 3 matches are there from before; complete before 2023-11-14T22:13:20Z; "
        f"table: {table}",
        f"nothing new was read, 0.0 s; 0 matches are there from before; no punctuation yet; table: {table}",
    ]


def test_the_live_table_tells_of_rejects_and_lost_offsets() -> None:
    for rejected, lost in ((0, 0), (1_234, 0), (0, 5_678), (12, 34)):
        console = Console(width=200, file=StringIO(), highlight=False, force_terminal=True)
        counts = [{"e": 1, "w": 2}] * 3 + [{"e": 0, "w": rejected}] + [{"e": 0, "w": 0}] * 2
        with Display(console, clock=lambda: 1.0, quiet=False) as display:
            display.batch(BatchSummary(0, 0, 0, *counts, None, {}, 0, 0, replayed=False, lost_offsets={"w": lost}))
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())
        assert (f"{rejected:,}" in text and "of w: no tuples" in text) is bool(rejected)
        assert (f"{lost:,}" in text and "of w: offsets, gone" in text) is bool(lost)
        assert ("rejected" in text) is bool(rejected)


def test_the_live_table_says_how_many_bytes_a_match_takes() -> None:
    for matches, told in ((8, "; 12.5 B each"), (0, "")):
        console = Console(width=200, file=StringIO(), highlight=False, force_terminal=True)
        with Display(console, clock=lambda: 1.0, quiet=False) as display:
            size = 100 if matches else 0
            display.batch(
                BatchSummary(0, matches, 0, *[{"e": 1}] * 6, None, {}, 0, 0, replayed=False, match_bytes=size)
            )
        assert ("B each" in console.file.getvalue()) is bool(told)
        assert told in console.file.getvalue()
        assert display.totals.facts(2.0)["match_bytes"] == size


def test_a_display_that_nobody_reads_ends_the_query_and_not_the_thread_that_answers_java() -> None:
    def displayed(summary: object) -> None:
        sys.exit(1)  # as rich does where the other end of a pipe is gone

    with commit.watch(displayed), pytest.raises(BrokenPipeError):
        commit._tell_watchers(None)  # type: ignore[arg-type]
