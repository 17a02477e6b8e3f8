"""Interruptions while the engine is at work: exceptions at any line, and calls between two chunks."""

from __future__ import annotations

import ctypes
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin_ds.engine
from streamjoin_ds import Join, JoinEngine, Stream, band
from streamjoin_ds.errors import ArgumentError
from tests.engine.streams import engine_options

SCHEMA = {"ts": "int64", "x": "float64", "name": "string"}
FOLDER = str(Path(streamjoin_ds.engine.__file__).parent)


class Thrown(BaseException):
    """An exception that no code expects, like that of Ctrl-C."""


def engine_of(names: str = "ew", window: str = "3ms", **options: Any) -> JoinEngine:
    streams = [Stream(name, schema=SCHEMA, delay="5us" if name == "e" else "0s") for name in names]
    bands = [band(f"{one}.x", f"{other}.x", 0.5) for one, other in pairwise(names)]
    return JoinEngine(Join(streams, bands, window), **engine_options(**options))


def pushes_of(names: str, sizes: tuple[int, ...]) -> list[dict[str, pa.Table]]:
    """Return pushes of these sizes, with nulls in every second one and a late tuple now and then."""
    rng, pushes, begin = np.random.default_rng(len(sizes)), [], 0
    for number, size in enumerate(sizes):
        push = {}
        for name in names:
            times = begin + np.sort(rng.integers(0, max(size, 2), size))
            times[-1] -= 3 if size > 3 else 0
            texts = [None if number % 2 and n % 7 == 0 else f"n{n}" for n in range(size)]
            columns = {"ts": times, "x": rng.random(size) * (size * 8 + 50), "name": pa.array(texts, pa.string())}
            push[name] = pa.table(columns)
        begin += size
        pushes.append(push)
    return pushes


def rows_of(results: pa.Table) -> list[str]:
    return sorted(map(str, results.to_pylist()))


def living(engine: JoinEngine, window_us: int) -> list[list[int]]:
    """Return the numbers of the tuples of each stream that can still match, sorted; each must be there once."""
    found = []
    for window in engine._windows.windows:
        numbers = []
        for run in window.runs:
            is_alive = run.tuples.column("_ts").to_numpy() >= (engine.watermark or 0) - window_us
            numbers += run.tuples.column("_seq").to_numpy()[is_alive].tolist()
        assert len(set(numbers)) == len(numbers)
        found.append(sorted(numbers))
    return found


def counted(engine: JoinEngine) -> dict[str, Any]:
    names = ("read_rows", "late_rows", "rejected_rows", "filtered_rows", "stored_rows", "null_keys", "matches")
    return {name: engine.counters[name] for name in names}


class Lines:
    """A trace function that counts the lines of the engine that a call runs through, and throws at one of them."""

    def __init__(self, at: int | None = None, thrown: type[BaseException] = Thrown) -> None:
        self.count, self._at, self._thrown = 0, at, thrown

    def called(self, frame: Any, event: str, told: object) -> Any:
        return self._line if frame.f_code.co_filename.startswith(FOLDER) else None

    def _line(self, frame: Any, event: str, told: object) -> Any:
        if event == "line":
            self.count += 1
            if self.count == self._at:
                raise self._thrown
        return self._line

    def run(self, work: Callable[[], pa.Table]) -> bool:
        """Run a call; return whether it came to its end."""
        before = sys.gettrace()
        sys.settrace(self.called)
        try:
            work()
        except (Thrown, MemoryError):
            return False
        finally:
            sys.settrace(before)
        return True


CASES = [
    pytest.param("ew", (1, 1, 30, 1), {}, id="few"),
    pytest.param("ew", (300, 1500, 1, 1200, 1100), {"bucket_rows": 500}, id="grids"),
    pytest.param("ew", (3000,) * 4, {"bucket_rows": 500, "threads": 2, "cores": ()}, id="grids-threads"),
    pytest.param("ew", (3000,) * 3, {"bucket_rows": 10**9, "threads": 2, "cores": ()}, id="runs-threads"),
    pytest.param("ewq", (700, 1200, 5, 1100), {"bucket_rows": 400}, id="three"),
]


def throw_everywhere(names: str, sizes: tuple[int, ...], options: dict[str, Any], points: int) -> None:
    window_us = 3000
    pushes = pushes_of(names, sizes)
    straight = engine_of(names, **options)
    expected = [rows_of(straight.push(push)) for push in pushes]
    assert any(expected)
    chance, undone, done = random.Random(0), 0, 0
    for number, push in enumerate(pushes):

        def begun(number: int = number) -> JoinEngine:
            engine = engine_of(names, **options)
            for earlier in pushes[:number]:
                engine.push(earlier)
            return engine

        lines, engine = Lines(), begun()
        assert lines.run(lambda engine=engine, push=push: engine.push(push))
        # The last line always, when the push is in: whether chance draws such a line depends on all others.
        for at in sorted({*chance.sample(range(1, lines.count + 1), min(points, lines.count)), lines.count}):
            engine = begun()
            before = counted(engine)
            is_whole = Lines(at).run(lambda engine=engine, push=push: engine.push(push))
            is_out = counted(engine) == before
            undone, done = undone + is_out, done + (not is_out and not is_whole)
            if is_out:  # nothing of the push is in
                assert rows_of(engine.push(push)) == expected[number], at
            for later in range(number + 1, len(pushes)):
                assert rows_of(engine.push(pushes[later])) == expected[later], at
            assert counted(engine) == counted(straight), at
            assert living(engine, window_us) == living(straight, window_us), at
    assert undone > done, "most lines come before a push is in"
    assert done or max(sizes) < 100


@pytest.mark.slow
@pytest.mark.parametrize(("names", "sizes", "options"), CASES)
def test_a_push_that_is_thrown_out_of_is_in_or_not(names: str, sizes: tuple[int, ...], options: dict[str, Any]) -> None:
    throw_everywhere(names, sizes, options, points=5)


@pytest.mark.campaign
@pytest.mark.parametrize(("names", "sizes", "options"), CASES)
def test_a_push_may_be_thrown_out_of_anywhere(names: str, sizes: tuple[int, ...], options: dict[str, Any]) -> None:
    throw_everywhere(names, sizes, options, points=600)


@pytest.mark.slow
def test_exceptions_that_another_thread_sends_find_a_push_in_or_not() -> None:
    """Such exceptions, as timeouts send them, come at whatever instruction the interpreter looks for them."""
    names, sizes = "ew", (700, 1500, 1100, 1300)
    pushes = pushes_of(names, sizes)
    straight = engine_of(names, bucket_rows=500)
    expected = [rows_of(straight.push(push)) for push in pushes]
    thrown = 0
    for delay_us in range(0, 8000, 400):
        engine, sent = engine_of(names, bucket_rows=500), threading.Event()
        me, begin = threading.get_ident(), threading.Event()

        def send(
            me: int = me, begin: threading.Event = begin, sent: threading.Event = sent, delay_us: int = delay_us
        ) -> None:
            begin.wait()
            threading.Event().wait(delay_us / 1e6)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(me), ctypes.py_object(Thrown))
            sent.set()

        sender = threading.Thread(target=send)
        sender.start()
        number = 0
        try:
            begin.set()
            while number < len(pushes):
                engine.push(pushes[number])
                number += 1
            while True:
                sent.wait(0.01)
        except Thrown:
            thrown += 1
        sender.join()
        read = engine.counters["read_rows"]["e"]
        done = [sum(sizes[:n]) for n in range(len(sizes) + 1)].index(read)
        assert done in (number, number + 1)
        for later in range(done, len(pushes)):
            assert rows_of(engine.push(pushes[later])) == expected[later]
        assert counted(engine) == counted(straight)
        assert living(engine, 3000) == living(straight, 3000)
    assert thrown == 20


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_memory_that_runs_out_takes_nothing_and_leaves_nothing(threads: int) -> None:
    """Memory runs out at any line. A push that says so is not in; one that goes on without the memory is exact."""
    sizes, chance = (300, 1500, 1200, 1100, 1300), random.Random(threads)
    options = {"bucket_rows": 500, "threads": threads, "cores": ()}
    pushes, straight = pushes_of("ew", sizes), engine_of(**options)
    expected = [rows_of(straight.push(push)) for push in pushes]
    for number in (1, 3):
        lines, refused = Lines(), 0
        for at in (None, *(chance.random() for _ in range(16))):
            engine = engine_of(**options)
            for earlier in pushes[:number]:
                engine.push(earlier)
            before, found = counted(engine), []
            one = lines if at is None else Lines(1 + int(at * lines.count), MemoryError)
            is_said = not one.run(lambda e=engine, f=found, n=number: f.append(e.push(pushes[n])))  # type: ignore[misc]
            refused += is_said
            if is_said:
                assert counted(engine) == before
                found.append(engine.push(pushes[number]))
            assert rows_of(found[0]) == expected[number]
            for later in range(number + 1, len(pushes)):
                assert rows_of(engine.push(pushes[later])) == expected[later]
            assert counted(engine) == counted(straight)
            assert living(engine, 3000) == living(straight, 3000)
        assert refused


LIMITED = """
import resource, numpy as np, pyarrow as pa
from streamjoin_ds import Join, JoinEngine, Stream, band
schema = {"ts": "int64", "x": "float64"}
streams = [Stream(name, schema=schema) for name in "ew"]
engine = JoinEngine(Join(streams, [band("e.x", "w.x", 0.5)], "1d"), bucket_rows=20_000)
rng, begin = np.random.default_rng(0), 0
for number in range(60):
    if number == 4:  # address space for what is there, and not for what is foreseen
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (70 << 20), resource.RLIM_INFINITY))
    rows = {n: pa.table({"ts": begin + np.arange(8000), "x": rng.random(8000) * 1e6}) for n in "ew"}
    begin += 8000
    if number == 59:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    engine.push(rows)
print(engine.counters["matches"], engine.counters["state_rows"], len(engine.save()) > 0)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space")
def test_a_window_that_may_not_reserve_what_it_foresees_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    matches, rows, has_state = done.stdout.split()
    assert (int(rows), has_state) == (960_000, "True")
    keys = np.random.default_rng(0).random((60, 2, 8000)) * 1e6
    left, right = np.sort(keys[:, 0].ravel()), np.sort(keys[:, 1].ravel())
    inside = np.searchsorted(right, left + 0.5, "right") - np.searchsorted(right, left - 0.5, "left")
    # The engine compares differences, this compares with sums: a rounding may differ.
    assert abs(int(matches) - int(inside.sum())) <= 3


def product(**options: Any) -> tuple[JoinEngine, dict[str, pa.Table]]:
    """Return a join without a condition, and a push for it that comes in many chunks."""
    streams = [Stream(name, schema={"ts": "int64"}, delay="1s") for name in "ew"]
    table = pa.table({"ts": np.arange(400)})
    return JoinEngine(Join(streams, (), "1s"), chunk_rows=4096, **engine_options(**options)), {"e": table, "w": table}


def test_what_is_saved_between_two_chunks_is_what_was_before_the_push() -> None:
    engine, rows = product()
    engine.push({"e": rows["e"].slice(0, 10)})
    before, watermark = engine.save(), engine.watermark
    chunks = engine.push_chunks(rows)
    first = next(chunks).num_rows
    assert engine.save() == before
    assert engine.watermark == watermark
    assert engine.counters["read_rows"] == {"e": 10, "w": 0}
    again, _ = product()
    again.restore(engine.save())
    assert again.push(rows).num_rows == first + sum(chunk.num_rows for chunk in chunks) == 410 * 400
    assert again.save() == engine.save()


def test_who_reads_on_after_a_restore_is_told() -> None:
    engine, rows = product()
    engine.push({"e": rows["e"].slice(0, 10)})
    saved = engine.save()
    chunks = engine.push_chunks(rows)
    next(chunks)
    engine.restore(saved)
    with pytest.raises(ArgumentError, match="restored"):
        list(chunks)
    assert engine.save() == saved
    assert engine.push(rows).num_rows == 410 * 400


def test_a_push_that_is_still_held_is_in_the_way_until_it_is_closed() -> None:
    engine, rows = product()
    chunks = engine.push_chunks(rows)
    next(chunks)
    with pytest.raises(ArgumentError, match="a push is running"):
        engine.push(rows)
    chunks.close()
    assert list(chunks) == []
    assert engine.counters["read_rows"] == {"e": 0, "w": 0}
    next(engine.push_chunks(rows))  # nobody holds this one
    untouched = engine.push_chunks(rows)  # this one is held, and not begun
    assert engine.push(rows).num_rows == 160_000
    assert sum(chunk.num_rows for chunk in untouched) == 3 * 160_000


@pytest.mark.slow
def test_a_save_in_another_thread_is_of_a_whole_push(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(bucket_rows=300)
    pushes = pushes_of("ew", (700,) * 12)
    saved: list[bytes] = []
    over = threading.Event()

    def save() -> None:
        while not over.is_set():
            saved.append(engine.save())

    saving = threading.Thread(target=save)
    saving.start()
    try:
        expected = [rows_of(engine.push(push)) for push in pushes]
    finally:
        over.set()
        saving.join()
    tried = 0
    for blob in dict.fromkeys(saved):
        again = engine_of(bucket_rows=300)
        again.restore(blob)
        done = again.counters["read_rows"]["e"] // 700
        assert counted(again)["stored_rows"]["w"] + again.counters["late_rows"]["w"] == 700 * done
        for number in range(done, len(pushes)):
            assert rows_of(again.push(pushes[number])) == expected[number]
        tried += 1
    assert tried


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
def test_a_signal_handler_that_asks_inside_a_push_is_refused() -> None:
    """The handler would wait for the push that it interrupts."""
    engine, rows = product()
    told: list[ArgumentError] = []

    def handle(*_: object) -> None:
        try:
            engine.save()
        except ArgumentError as error:
            told.append(error)

    def raising(real: Callable[..., Iterator[pa.Table]] = engine._join.push) -> Callable[..., Iterator[pa.Table]]:
        def push(*given: Any, **named: Any) -> Iterator[pa.Table]:
            signal.raise_signal(signal.SIGUSR1)
            return real(*given, **named)

        return push

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        engine._join.push = raising()  # type: ignore[method-assign]
        assert engine.push(rows).num_rows == 160_000
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert [error.name for error in told] == ["engine"]
    assert engine.counters["read_rows"] == {"e": 400, "w": 400}
