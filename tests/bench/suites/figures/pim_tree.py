"""PIM-Tree's Figures 8 to 13 (Shahvarani, Jacobsen: Parallel Index-based Stream Join on a Multicore CPU)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from streamjoin_ds.engine.kernels.loading import load_kernels
from tests.bench.suites.figures.panel import Extent, Panel, Series
from tests.bench.suites.figures.step_trial import STEPS
from tests.bench.suites.figures.trial import Trial
from tests.bench.suites.figures.workload import KEYS, FigureWorkload

__all__ = ["pim_tree_panels"]

_PAPER = "PIM-Tree"
_SPEED = "million tuples/s"
_WINDOW = "window, tuples a stream"
_TWO_WAY = (
    "Two streams, whole-number keys, a band that gives a tuple two matches on average (where nothing else is said), "
    "windows of equal length; tuples of both streams are counted; sort, insert, join, merge, expiry and the gathered "
    "result columns are all in the time. "
)


def pim_tree_panels(extent: Extent) -> list[Panel]:
    """Return the panels, in the paper's order."""
    return [panel for figure in (_eight, _nine, _ten, _eleven, _twelve, _thirteen) for panel in figure(extent)]


def _panel(number: str, title: str, axes: tuple[str, str], series: Iterable[Series], **told: Any) -> Panel:
    return Panel(_PAPER, number, title, *axes, tuple(series), **told)


def _both(extent: Extent, rows: int, **options: Any) -> FigureWorkload:
    return FigureWorkload((rows, rows), seed=extent.seed, **options)


def _join(extent: Extent, workload: FigureWorkload, **options: Any) -> Trial:
    return Trial(workload=workload, **{"push_rows": extent.push_rows, **extent.common, **options})


def _line(name: str, places: Sequence[Any], trial: Callable[[Any], Trial], value: str = "rows_per_second") -> Series:
    return Series(name, tuple((x, trial(x)) for x in places), value, 1e6 if value == "rows_per_second" else 1.0)


def _by_window(extent: Extent, name: str, *, self_join: bool = False, **options: Any) -> Series:
    is_scan = options.get("index") == "scan"
    rows = [rows for rows in extent.windows if not is_scan or rows <= extent.scan_window_rows]
    return _line(name, rows, lambda w: _join(extent, _both(extent, w, is_self_join=self_join), **options))


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _round_robin(extent: Extent) -> list[Series]:
    if extent.cores == 1:
        return []
    name = f"sorted runs, round robin over {extent.cores} engines of 1 thread"
    return [_by_window(extent, name, threads=extent.cores, cells=extent.cores)]


def _many(extent: Extent) -> list[int]:
    """Return the numbers of threads that are compared: one, and as many as there are cores."""
    return sorted({1, extent.cores})


def _eight(extent: Extent) -> list[Panel]:
    scans = [_by_window(extent, f"nested loop, {_threads(k)}", index="scan", threads=k) for k in _many(extent)]
    indexed = [_by_window(extent, f"sorted runs, {_threads(k)}", threads=k) for k in _many(extent)]
    grids = [_by_window(extent, f"bucket grid, {_threads(k)}", threads=k, in_grid=True) for k in _many(extent)]
    window = extent.windows[-2]
    chain = Trial("chain", _both(extent, window), 4096 if window > 1 << 14 else 256, **extent.common)
    chains = [
        _line("sorted runs, SIMD", extent.chains, lambda n: replace(chain, size=n)),
        _line("sorted runs, plain C", extent.chains, lambda n: replace(chain, size=n, kernel="scalar")),
        _line("unsorted runs, scanned", extent.chains, lambda n: replace(chain, size=n, index="scan", push_rows=256)),
    ]
    sizes = [extent.windows[-3 if len(extent.windows) > 2 else 0], extent.windows[-1]]

    def inserts(threads: int) -> list[Series]:
        def trial(rows: int) -> Callable[[int], Trial]:
            return lambda push: _join(extent, _both(extent, rows), push_rows=push, threads=threads)

        return [
            _line(f"window of {rows:,}", [p for p in extent.push_rows_each if p <= rows], trial(rows)) for rows in sizes
        ]

    depth = (
        "Our engine has no insertion depth: no tree is cut into subindexes. What decides here where a new tuple goes "
        "is the size of a push: up to 1,024 tuples go to the unsorted tail (4,096 rows), more become a sorted run of "
        "their own. "
    )
    return [
        _panel(
            "8a", "Ways to join a window", (_WINDOW, _SPEED), [*scans, *indexed, *grids, *_round_robin(extent)],
            measured=_TWO_WAY + f"Pushes of {extent.push_rows:,} tuples a stream. The nested loop is our SIMD scan "
            f"(windows up to {extent.scan_window_rows:,}); sorted runs stand for their B+-Tree, and bucket grids are "
            "what `JoinEngine` has from 65,536 tuples on; round robin deals one stream out and copies the other.",
            reported="The nested loop slows down linearly with the window, the index hardly does; round robin gives "
            "the nested loop 8 times on 16 hardware threads, the index 2.5 times.",
            is_log_x=True, is_log_y=True,
        ),
        _panel(
            "8b", "Length of the chain of runs", ("runs in the window", "million probes/s"), chains,
            measured=f"Search only: probes against a window of {window:,} tuples in a chain of that many runs, two "
            "matches a probe, one thread; 256 probes at a time where runs are scanned. Sorted runs stand for their "
            "chain of immutable B+-Trees (IB-chain). We have no chain of growing trees (B-chain); unsorted runs stand "
            "beside instead.",
            reported="Immutable trees are 50 % faster than growing ones; a chain of two is best, and search costs grow "
            "almost linearly with the length.",
            is_log_x=True, is_log_y=True,
        ),
        _panel(
            "8c", "Where new tuples go, 1 thread", ("tuples a stream in a push", _SPEED), inserts(1),
            measured=depth + _TWO_WAY,
            reported="With one thread the insertion depth matters little; the deepest is worse, as more is searched "
            "for the place to insert.",
            is_log_x=True, is_log_y=True,
        ),
        _panel(
            "8d", f"Where new tuples go, {_threads(extent.cores)}", ("tuples a stream in a push", _SPEED),
            inserts(extent.cores), measured=depth + _TWO_WAY,
            reported="With 16 threads too few subindexes (a small depth) cost much, as threads wait for each other.",
            is_log_x=True, is_log_y=True,
        ),
    ]  # fmt: skip


def _nine(extent: Extent) -> list[Panel]:
    axes = ("merge ratio (runs merged at a time)", _SPEED)
    # Small pushes fill a window slowly: the largest window is left out.
    windows = extent.windows[1:-1] or extent.windows

    def ratios(**options: Any) -> list[Series]:
        def trial(rows: int) -> Callable[[int], Trial]:
            common = {"is_steady": True, **options}
            return lambda ratio: _join(extent, _both(extent, rows), merge_runs=ratio, **common)

        return [_line(f"window of {rows:,}", extent.merge_ratios, trial(rows)) for rows in windows]

    large, small = extent.push_rows // 4, max(extent.push_rows // 32, 8)
    ratio = (
        "Their merge ratio is how large the growing tree may become, over the window, before it is merged. Ours is how "
        "many runs of like size are merged at a time: a small one copies often and leaves few runs to search, a large "
        "one the other way round; no merge makes a run that spans more than a quarter of the window. Windows are "
        "filled by such pushes from the start. "
    )
    costs = []
    window_pair = (extent.windows[-3 if len(extent.windows) > 2 else 0], extent.windows[-1])
    kernels = [("SIMD", "auto")] + ([("plain C", "scalar")] if load_kernels("auto").implementation != "scalar" else [])
    for name, title in STEPS.items():
        points = tuple(
            (f"{rows:,}, {told}", Trial("steps", _both(extent, rows), extent.push_rows, 1, kernel, **extent.common))
            for rows in window_pair
            for told, kernel in kernels
        )
        costs.append(Series(title, points, name))
    return [
        _panel(
            "9a", f"Merge ratio, {_threads(extent.cores)}", axes, ratios(threads=extent.cores, push_rows=large),
            measured=ratio + _TWO_WAY + f"Pushes of {large:,} tuples.",
            reported="With 16 threads the highest merge ratio is always best, whatever the window.", is_log_x=True,
        ),
        _panel(
            "9b", "What a tuple costs, step by step", ("window and kernel", "us a tuple"), costs,
            measured=_TWO_WAY + "One thread; the engine's own steps, called one by one and timed each. Search and scan "
            "are one pass in our kernels and cannot be told apart; gathering results is not in the paper's picture.",
            reported="Merging is 7 % and 11 % of the time for their two windows; inserts into IM- and PIM-Tree are 1.5 "
            "and 2.6 times faster than into the B+-Tree.",
            is_bars=True, is_stacked=True,
        ),
        _panel(
            "9c", "Merge ratio, new tuples through the tail, 1 thread", axes, ratios(push_rows=small),
            measured=ratio + _TWO_WAY + f"Pushes of {small:,} tuples, which gather in one unsorted tail until it is "
            "full: the nearest to their IM-Tree, whose growing part is not divided.",
            reported="IM-Tree: both very low and very high ratios are slow; the choice matters more for small windows.",
            is_log_x=True,
        ),
        _panel(
            "9d", "Merge ratio, a run a push, 1 thread", axes, ratios(push_rows=large),
            measured=ratio + _TWO_WAY + f"Pushes of {large:,} tuples, one thread.",
            reported="PIM-Tree: the same pattern as IM-Tree, faster on average.", is_log_x=True,
        ),
    ]  # fmt: skip


def _ten(extent: Extent) -> list[Panel]:
    window = extent.windows[-1]

    def rates(name: str, **options: Any) -> Series:
        return _line(name, extent.matches, lambda m: _join(extent, _both(extent, window, matches=m), **options))

    scalar = {"kernel": "scalar"}
    kinds: list[tuple[str, dict[str, Any]]] = [("SIMD", {}), ("plain C", scalar)]
    if load_kernels("auto").implementation in ("scalar", "reference"):
        kinds = kinds[:1]
    task_windows = sorted({extent.windows[-3 if len(extent.windows) > 2 else 0], extent.windows[-1]})

    def tasks(value: str) -> list[Series]:
        def trial(rows: int) -> Callable[[int], Trial]:
            return lambda n: _join(extent, _both(extent, rows), push_rows=n)

        return [_line(f"window of {rows:,}", extent.tasks, trial(rows), value) for rows in task_windows]

    task = (
        "Their task is the few tuples that a thread takes at a time; its counterpart here is a push of as many tuples "
        "of each stream to one engine with one thread. " + _TWO_WAY
    )
    no_tree = "We have no B+-Tree and no IM-Tree: beside our sorted runs stand the same runs in plain C, not vectorised"
    return [
        _panel(
            "10a", "Speed by window, 1 thread", (_WINDOW, _SPEED),
            [*(_by_window(extent, f"sorted runs, {name}", **options) for name, options in kinds),
             _by_window(extent, "sorted runs, merged two at a time", merge_runs=2)],
            measured=_TWO_WAY + f"{no_tree}, and merged as early as can be. Pushes of {extent.push_rows:,} tuples.",
            reported="PIM-Tree is fastest and the B+-Tree slowest at every window; over the B+-Tree, IM-Tree gains 50 "
            "% and PIM-Tree 63 % on average.",
            is_log_x=True,
        ),
        _panel(
            "10b", "Speed by match rate", ("matches a tuple", _SPEED),
            [*(rates(f"{name}, 1 thread", **options) for name, options in kinds),
             *(rates(f"SIMD, {_threads(k)}", threads=k) for k in _many(extent)[1:])],
            measured=_TWO_WAY + f"{no_tree}. Window of {window:,} tuples; pushes of {extent.push_rows:,}; the band is "
            "widened for more matches, and every match's result columns are gathered.",
            reported="Flat while a tuple matches little, as the search decides; from there on slower for every index, "
            "and threads gain less, as memory bandwidth decides.",
            is_log_x=True, is_log_y=True,
        ),
        _panel(
            "10c", "Speed by size of a task", ("tuples of each stream in a push", "thousand tuples/s"),
            [replace(series, per=1e3) for series in tasks("rows_per_second")],
            measured=task,
            reported="The speed grows up to four tuples a task, and little after eight.",
        ),
        _panel(
            "10d", "Latency by size of a task", ("tuples of each stream in a push", "median time of a push, us"),
            tasks("push_us"),
            measured=task + "A push returns when its matches are there, gathered; the median over the pushes of a run.",
            reported="Larger tasks and larger windows have longer latencies.",
        ),
    ]  # fmt: skip


def _eleven(extent: Extent) -> list[Panel]:
    names = {"runs": "columns of sorted runs", "tail": "unsorted tails", "resident": "growth of the whole process"}
    sizes = [rows for rows in extent.windows if rows >= 1 << 16] or list(extent.windows)
    memories = [
        Series(told, tuple((f"{rows:,}", Trial("memory", _both(extent, rows), max(extent.push_rows // 4, 64),
                                               is_fresh=True, **{**extent.common, "runs": 1})) for rows in sizes), name)
        for name, told in names.items()
    ]  # fmt: skip
    parts = (1, 3, 7, 15)
    windows = extent.windows[-3:]

    def rated(rows: int) -> Callable[[str], Trial]:
        def trial(share: str) -> Trial:
            workload = FigureWorkload((rows, rows), (1, int(share[2:])), seed=extent.seed)
            return _join(extent, workload)

        return trial

    def asymmetric(rows: int) -> Callable[[int], Trial]:
        return lambda other: _join(extent, FigureWorkload((rows, other), seed=extent.seed), threads=extent.cores)

    moved = []
    for name, value in (("loads", "loads_per_second"), ("stores", "stores_per_second")):
        workload = _both(extent, extent.windows[-1])
        points = tuple((_threads(k), _join(extent, workload, threads=k)) for k in extent.threads)
        moved.append(Series(name, points, value, 1e9))
    copy = Trial(
        "copy", FigureWorkload(seed=extent.seed), size=1 << 20 if extent.push_rows > 1024 else 1 << 16, **extent.common
    )
    moved.append(Series("copying (1 core), for comparison", (("memcpy", copy),), "bytes_per_second", 1e9))
    return [
        _panel(
            "11a", "Memory of both windows", (_WINDOW, "MiB, the largest"), memories,
            measured="Two streams of 24 bytes a tuple (time, number, key); largest while the windows are filled and "
            "have been full for as long again, each in a fresh process. Growth of the process is all of it: indexes, "
            "buffers of the feed and of merges, and what the allocator keeps. One run.",
            reported="PIM-Tree at merge ratio 1 takes almost twice the room of the B+-Tree, whatever the window; an "
            "element there has 8 bytes.",
            is_bars=True,
        ),
        _panel(
            "11b", "Unequal rates", ("rates of the two streams", _SPEED),
            [_line(f"windows of {rows:,}", [f"1:{part}" for part in parts], rated(rows)) for rows in windows],
            measured=_TWO_WAY + "Stream s has a tuple where r has 1, 3, 7, 15; both windows hold as many tuples, so "
            "that of s spans more time. One thread.",
            reported="Slightly faster the more unequal the rates are.",
        ),
        _panel(
            "11c", "Unequal windows", ("window of stream s, tuples", _SPEED),
            [_line(f"window of r {rows:,}", windows, asymmetric(rows)) for rows in windows],
            measured=_TWO_WAY + f"The mean of two matches is over both streams. {_threads(extent.cores)}.",
            reported="Slower as either window grows, less so than when both grow.", is_log_x=True,
        ),
        _panel(
            "11d", "Memory traffic of the join", ("threads", "GB/s"), moved,
            measured="A guest system cannot read this machine's memory controllers. Instead: bytes that the join "
            "cannot do without by its own counters (keys of the pairs it tests, new tuples, result columns; no merges, "
            f"no searches), over the time it took: a lower bound. Window of {extent.windows[-1]:,} tuples. Beside it "
            "what one core copies from memory.",
            reported="They measured up to 43 GB/s; stores are 22 % of the traffic with one thread, 16 % with many.",
            is_bars=True, is_stacked=True,
        ),
    ]  # fmt: skip


def _twelve(extent: Extent) -> list[Panel]:
    window = extent.windows[-1]

    def by_threads(name: str, self_join: bool) -> Series:
        workload = _both(extent, window, is_self_join=self_join)
        return _line(name, extent.threads, lambda k: _join(extent, workload, threads=k))

    skewed = [
        Series(
            _threads(k),
            tuple((keys, _join(extent, _both(extent, window, keys=keys), threads=k)) for keys in KEYS),
            per=1e6,
        )
        for k in _many(extent)
    ]
    selves = [_by_window(extent, f"self-join, {_threads(k)}", self_join=True, threads=k) for k in _many(extent)]
    slow = _by_window(extent, "self-join, plain C, 1 thread", self_join=True, kernel="scalar")
    self_join = "In a self-join each tuple comes once and is counted on both sides; a pair is found from both. "
    return [
        _panel(
            "12a", "Scaling with threads", ("threads", _SPEED),
            [by_threads("two streams", False), by_threads("self-join", True)],
            measured=_TWO_WAY + self_join + f"Window of {window:,} tuples. Our threads share out the probes of a push "
            "and nothing is locked, so there is no line without concurrency control: it is that of one thread.",
            reported="Concurrency control costs nearly 40 % and 26 %; eight threads give 4.6 and 4 times one, sixteen "
            "(hyper-threads) 5.7 and 5.",
        ),
        _panel(
            "12b", "Distributions of the keys", ("distribution", _SPEED), skewed,
            measured=_TWO_WAY + f"Window of {window:,} tuples; the band is set for two matches under each "
            "distribution.",
            reported="Uniform keys are fastest, by 2 % and 4 % over Gaussian and gamma on average.", is_bars=True,
        ),
        _panel(
            "12c", "Self-join by window", (_WINDOW, _SPEED), [*selves, slow],
            measured=_TWO_WAY + self_join + "Plain C stands where the paper has its slower index, the B+-Tree.",
            reported="Threads do not pay for the smallest windows; beyond, 16 of them give 4 times the one of "
            "PIM-Tree, 7 times that of the B+-Tree.",
            is_log_x=True,
        ),
    ]  # fmt: skip


def _thirteen(extent: Extent) -> list[Panel]:
    window = extent.drift_window_rows
    drifts = []
    for drift in extent.drifts:
        workload = _both(
            extent, window, keys="gaussian", is_self_join=True, drift=drift, drift_rows=(5 * window, 15 * window)
        )
        options = {**extent.common, "runs": min(extent.runs, 3), "push_rows": min(extent.push_rows, window // 32)}
        drifts.append((drift, Trial("drift", workload, threads=extent.cores, **options)))
    shifting = (
        f"A self-join over a window of {window:,} tuples, Gaussian keys (0.5, 0.125): the mean stays for 4 windows of "
        "tuples, moves for 10, stays for 4; at drift 1 it moves by 1, eight standard deviations, within a window's "
        "length (our text of the paper lacks its formula; the speed is our own). "
    )
    return [
        _panel(
            "13a", "Where new keys fall while they drift", ("ranges, most hit first, %", "tuples, times even share"),
            [Series(f"drift {drift:g}", ((None, trial),), "inserts") for drift, trial in drifts],
            measured=shifting + "Counted: into which of 256 ranges, which cut the largest run of the window into equal "
            "parts, the tuples of the middle phase fall. Our engine does not insert by range, so no such skew can slow "
            "it; the picture shows what a tree would face.",
            reported="Without drift all subindexes are hit alike; at the fastest drift 77 % of the inserts fall into "
            "one of 1,024 subindexes, and 70 % of them get almost none.",
            is_log_y=False,
        ),
        _panel(
            "13b", "Speed while the keys drift", ("tuples so far, in windows", _SPEED),
            [Series(f"drift {drift:g}", ((None, trial),), "rows_per_second", 1e6) for drift, trial in drifts],
            measured=shifting + f"{_threads(extent.cores)}; each point is half a window of tuples, the median of "
            f"{min(extent.runs, 3)} runs. While keys drift, fewer of those in the window are near: the matches go "
            "down.",
            reported="Slow drifts cost nearly nothing; moderate ones bring speed down to 35 % on average, fast ones to "
            "16 %, by waiting for locks; it recovers when the keys stay.",
        ),
        _panel(
            "13c", "Threads and partitioning by window", (_WINDOW, _SPEED),
            [_by_window(extent, "plain C, 1 thread", kernel="scalar"),
             *(_by_window(extent, f"SIMD, {_threads(k)}", threads=k) for k in _many(extent)), *_round_robin(extent),
             *(_by_window(extent, f"bucket grid, {_threads(k)}", threads=k, in_grid=True) for k in _many(extent))],
            measured=_TWO_WAY + "There is no Bw-tree. In its place: plain C for the slower index, and round robin.",
            reported="16 threads give 3.7 times one thread with PIM-Tree on average and 7.5 times the B+-Tree, nothing "
            "for small windows; blocking merges are slightly faster; PIM-Tree is 2.2 times the Bw-tree.",
            is_log_x=True,
        ),
    ]  # fmt: skip
