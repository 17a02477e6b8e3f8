"""What is shown of a run: on whatever width, no digit of a number is left out."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from streamjoin_ds.cli.display import ledger_table
from streamjoin_ds.cli.totals import LEDGER, Totals


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
