"""What a record costs to plan and to read, in each form that files often have, beside Arrow's reader of CSV."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv

from streamjoin_ds import Files, Join, Stream
from streamjoin_ds.source.stream_source import open_feed
from streamjoin_ds.stream.source_facts import bound_join

pytestmark = pytest.mark.bench

ROWS = 100_000
_MOMENTS = [datetime(2024, 3, 5, 9, tzinfo=timezone.utc) + timedelta(milliseconds=1237 * n) for n in range(ROWS)]
_FIELDS = [(n % 997, f"{n * 7919 % 10**6 / 1000:.3f}", f"dev-{n % 500}") for n in range(ROWS)]


def _csv(form: str, delimiter: str = ",", quote: str = "") -> Callable[[], str]:
    def text() -> str:
        times = [str(int(m.timestamp())) if form == "%s" else m.strftime(form) for m in _MOMENTS]
        rows = [
            delimiter.join([f"{quote}{at}{quote}", str(number), value, f"{quote}{name}{quote}"])
            for at, (number, value, name) in zip(times, _FIELDS, strict=True)
        ]
        return "\n".join([delimiter.join(("ts", "id", "x", "name")), *rows, ""])

    return text


def _lines(line: str) -> Callable[[], str]:
    told = zip(_MOMENTS, _FIELDS, strict=True)
    return lambda: "".join([line.format(m.isoformat(), int(m.timestamp() * 1e9), *fields) for m, fields in told])


FORMS: dict[str, tuple[str, Callable[[], str], dict[str, Any], dict[str, Any], float]] = {
    "local times": ("a.csv", _csv("%Y-%m-%d %H:%M:%S.%f"), {}, {}, 8),
    "nanoseconds": ("a.csv", _csv("%Y-%m-%dT%H:%M:%S.%f123Z"), {}, {}, 8),
    "seconds since 1970": ("a.csv", _csv("%s"), {}, {"time_unit": "s"}, 8),
    "strptime": ("a.csv", _csv("%d.%m.%Y %H:%M:%S"), {}, {"time_format": "%d.%m.%Y %H:%M:%S"}, 10),
    "a zone": ("a.csv", _csv("%Y-%m-%d %H:%M:%S"), {}, {"timezone": "Europe/Berlin"}, 10),
    "quotes and semicolons": ("a.csv", _csv("%Y-%m-%dT%H:%M:%SZ", ";", '"'), {"delimiter": ";"}, {}, 8),
    "blanks": ("a.txt", _csv("%Y-%m-%dT%H:%M:%SZ", "  "), {"format": "csv", "delimiter": "blanks"}, {}, 20),
    "JSON": ("a.jsonl", _lines('{{"ts":"{0}","id":{2},"x":{3},"name":"{4}"}}\n'), {}, {}, 20),
    "InfluxDB": ("a.lp", _lines("m,name={4} id={2}i,x={3} {1}\n"), {}, {"time": "time", "time_unit": "ns"}, 60),
    "Prometheus": ("a.prom", _lines('x{{name="{4}"}} {3} {1}\n'), {}, {"time": "time", "time_unit": "ns"}, 60),
}


def _cpu_s(work: Callable[[], object]) -> float:
    least = math.inf
    for _ in range(3):
        begun = time.process_time()
        work()
        least = min(least, time.process_time() - begun)
    return least


@pytest.mark.parametrize("form", FORMS)
def test_a_record_costs_a_few_times_what_arrow_takes(tmp_path: Path, form: str) -> None:
    plain = _csv("%Y-%m-%dT%H:%M:%SZ")().encode()
    of_arrow_s = _cpu_s(lambda: csv.read_csv(pa.BufferReader(plain), csv.ReadOptions(use_threads=False)))
    name, text, of_files, of_stream, most = FORMS[form]
    (tmp_path / name).write_text(text())
    stream = Stream("e", Files(tmp_path / name, **of_files), **of_stream)
    others = Stream("w", Files(tmp_path / name, **of_files), **of_stream)
    schema = bound_join(Join([stream, others], "e.name = w.name", "1s")).read_schemas[0]

    def read() -> None:
        feed = open_feed(stream, schema)
        feed.freeze()
        start = feed.initial()
        feed.frontier(start, ROWS)
        assert sum(chunk.tuples.num_rows for chunk in feed.read(start, feed.advance(start, ROWS))) == ROWS

    times = _cpu_s(read) / of_arrow_s
    print(f"{form}: {times:.1f} times Arrow's reader")
    assert times < most
