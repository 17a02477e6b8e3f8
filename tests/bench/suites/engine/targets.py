"""The bounds that the engine must reach on two cores of one machine: the table of measures, in the report's order."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MEASURES", "Contestant", "Measure"]


@dataclass(frozen=True, slots=True)
class Contestant:
    """What is measured: a case of `cases`, with the rows of its windows, the cores, and the pushes of a run."""

    case: str
    window_rows: int
    cores: int = 1
    pushes: int = 20


@dataclass(frozen=True, slots=True)
class Measure:
    """One line of the report.

    Attributes
    ----------
    workload, name, unit : str
        Names of the workload and the measure, and the unit of its values.
    contestant : Contestant
        What is measured.
    value : str
        Name of the number that is taken from what a run measured.
    peer_name : str
        What is measured beside it; "" for nothing.
    peer : Contestant or None
        The peer, which is run in turns with the contestant.
    peer_value : str
        Name of the peer's number. If there is a peer's name but no peer, one of the contestant's own numbers: a roof.
    ratio : bool
        Whether the bounds are for the value over the peer's, not for the value itself.
    at_least, at_most : float or None
        The bounds, included.
    compared_pushes : int
        How many pushes of a run, from the first on, must give contestant and peer as many matches. DuckDB is timed on
        these alone. 0: nothing is compared.
    opt_in : bool
        Whether it is measured only if its workload is named.
    """

    workload: str
    name: str
    unit: str
    contestant: Contestant
    value: str
    peer_name: str = ""
    peer: Contestant | None = None
    peer_value: str = ""
    ratio: bool = False
    at_least: float | None = None
    at_most: float | None = None
    compared_pushes: int = 0
    opt_in: bool = False

    def held(self, value: float, peer_value: float | None) -> float:
        """Return the number that the bounds are for."""
        return value / peer_value if self.ratio and peer_value else value


_LLHJ_ROWS = 4_605_300
_LLHJ = "band2d-llhj"
_ONE_TUPLE = Contestant("one-tuple", 750_000, 1, 10_000)
_SECOND = Contestant("band2d-1s", _LLHJ_ROWS, 1, 30)
_HUNDREDTH = Contestant("band2d-10ms", _LLHJ_ROWS, 1, 1000)

_PRODUCT = Contestant("product", 1_000_000, 1, 4_000)

MEASURES = (
    Measure(_LLHJ, "speedup_1s_batches", "times", _SECOND, "rows_per_second", "duckdb",
            Contestant("duckdb-1s", _LLHJ_ROWS, 2), "rows_per_second", True, at_least=6,
            compared_pushes=10),
    Measure(_LLHJ, "real_time_10ms_batches", "times", _HUNDREDTH, "real_time", "duckdb",
            Contestant("duckdb-10ms", _LLHJ_ROWS, 2), "real_time", at_least=3, compared_pushes=10),
    Measure("band1d-2^20", "rows_per_second", "rows/s", Contestant("band1d", 1 << 20, 2, 60), "rows_per_second",
            at_least=3.5e6),
    Measure("band1d-2^23", "rows_per_second", "rows/s", Contestant("band1d", 1 << 23, 2, 60), "rows_per_second",
            at_least=3.5e6),
    # PIM-Tree's windows are counts. The rule is as exact; each tuple carries one more number, and is tested by one more
    # condition.
    Measure("band1d-count-2^20", "rows_per_second", "rows/s", Contestant("band1d-count", 1 << 20, 2, 60),
            "rows_per_second", at_least=3.5e6),
    Measure("band1d-count-2^23", "rows_per_second", "rows/s", Contestant("band1d-count", 1 << 23, 2, 60),
            "rows_per_second", at_least=3.5e6),
    Measure("nested-loop", "pairs_per_second", "pairs/s", Contestant("nested-loop", 1 << 14, 1, 1), "pairs_per_second",
            "roof", None, "roof_per_second", True, at_least=0.6),
    Measure("nested-loop", "unrolled", "pairs/s", Contestant("nested-loop", 1 << 14, 1, 1), "pairs_per_second",
            "not unrolled", None, "rolled_per_second"),
    Measure("nested-loop", "simd", "pairs/s", Contestant("nested-loop", 1 << 14, 1, 1), "pairs_per_second",
            "plain C, not vectorised", None, "scalar_per_second"),
    Measure("gather", "matches_per_second", "matches/s", Contestant("gather", 4_600_000, 1, 3), "matches_per_second",
            at_least=25e6),
    Measure("equi-join", "rows_per_second", "rows/s", Contestant("equal-int", 1 << 23, 2, 60), "rows_per_second",
            at_least=5e6),
    Measure("equi-join", "two_columns", "rows/s", Contestant("equal-pair", 1 << 20, 2, 60), "rows_per_second"),
    Measure("equi-join", "strings", "rows/s", Contestant("equal-string", 1 << 20, 2, 60), "rows_per_second"),
    Measure("growing", "slowest_push", "ms", Contestant("growing", 1 << 22, 1, 1), "slowest_push_ms", "median push",
            None, "median_push_ms"),
    Measure("one-tuple", "push_p50", "us", _ONE_TUPLE, "p50_us", at_most=50),
    Measure("one-tuple", "push_p99", "us", _ONE_TUPLE, "p99_us", at_most=500),
    Measure("one-tuple", "push_longest", "us", _ONE_TUPLE, "longest_us"),
    Measure("one-tuple", "engine_push_p50", "us", Contestant("one-dict", 750_000, 1, 5_000), "p50_us"),
    Measure("band1d", "growth_2^16_to_2^24", "us/row", Contestant("band1d", 1 << 24, 1, 60), "us_per_row", "2^16",
            Contestant("band1d", 1 << 16, 1, 60), "us_per_row", True, at_most=3),
    Measure("band1d-2^23", "threads_2_over_1", "rows/s", Contestant("band1d", 1 << 23, 2, 60), "rows_per_second",
            "1 thread", Contestant("band1d", 1 << 23, 1, 60), "rows_per_second", True, at_least=1.8),
    Measure(_LLHJ, "threads_2_over_1", "rows/s", Contestant("band2d-1s", _LLHJ_ROWS, 2, 30), "rows_per_second",
            "1 thread", _SECOND, "rows_per_second", True),
    *(
        Measure("threads", f"threads_{cores}_over_1", "rows/s", Contestant("band2d-10s", _LLHJ_ROWS, cores, 20),
                "rows_per_second", "1 thread", Contestant("band2d-10s", _LLHJ_ROWS, 1, 20), "rows_per_second", True,
                opt_in=True)
        for cores in (2, 4, 8, 16)
    ),
    Measure("periodic", "rows_per_second", "rows/s", Contestant("periodic", 1 << 18, 2, 20), "rows_per_second"),
    Measure("periodic", "threads_2_over_1", "rows/s", Contestant("periodic", 1 << 18, 2, 20), "rows_per_second",
            "1 thread", Contestant("periodic", 1 << 18, 1, 20), "rows_per_second", True, at_least=1.5),
    Measure("three-streams", "rows_per_second", "rows/s", Contestant("three-streams", 1 << 18, 2, 20),
            "rows_per_second"),
    Measure("three-streams", "threads_2_over_1", "rows/s", Contestant("three-streams", 1 << 18, 2, 20),
            "rows_per_second", "1 thread", Contestant("three-streams", 1 << 18, 1, 20), "rows_per_second", True,
            at_least=1.5),
    # Batches about ten times as large: then Python's part of a push is small beside that of the kernels.
    Measure("band1d-2^23", "threads_2_over_1_large", "rows/s", Contestant("band1d-large", 1 << 23, 2, 6),
            "rows_per_second", "1 thread", Contestant("band1d-large", 1 << 23, 1, 6), "rows_per_second", True),
    Measure(_LLHJ, "threads_2_over_1_large", "rows/s", Contestant("band2d-10s", _LLHJ_ROWS, 2, 3), "rows_per_second",
            "1 thread", Contestant("band2d-10s", _LLHJ_ROWS, 1, 3), "rows_per_second", True),
    Measure("intervals", "speedup_8192_pushes", "times", Contestant("intervals", 1_000_000, 1, 60), "rows_per_second",
            "duckdb, grid", Contestant("duckdb-intervals", 1_000_000, 1), "rows_per_second", True, at_least=1,
            compared_pushes=5),
    Measure("intervals", "at_once", "rows/s", Contestant("intervals-at-once", 1_000_000, 2, 3), "rows_per_second",
            "duckdb, grid", Contestant("duckdb-intervals-at-once", 1_000_000, 2, 3), "rows_per_second", True,
            compared_pushes=3),
    # It needs a package that no extra brings (`tests.bench.suites.engine.polars`).
    Measure("intervals-polars", "at_once", "rows/s", Contestant("intervals-at-once", 1_000_000, 2, 3),
            "rows_per_second", "polars, join_where", Contestant("polars-intervals-at-once", 1_000_000, 2, 3),
            "rows_per_second", True, compared_pushes=3, opt_in=True),
    # Four partners a tuple in a window.
    *(
        Measure("outer", f"{how}_over_inner", "us/row", Contestant(f"band2d-{how}", 1_000_000, 1, 60), "us_per_row",
                "inner", Contestant("band2d-1s", 1_000_000, 1, 60), "us_per_row", True,
                at_most=1.5 if how == "left" else None)
        for how in ("left", "full", "anti")
    ),
    Measure(_LLHJ, "nearest_over_inner", "us/row", Contestant("band2d-nearest", _LLHJ_ROWS, 1, 3), "us_per_row",
            "inner", Contestant("band2d-10s", _LLHJ_ROWS, 1, 3), "us_per_row", True, at_most=1),
    Measure(_LLHJ, "nearest_over_inner_1s", "us/row", Contestant("band2d-nearest-1s", _LLHJ_ROWS, 1, 30), "us_per_row",
            "inner", Contestant("band2d-1s", _LLHJ_ROWS, 1, 30), "us_per_row", True, at_most=1),
    # About 1 860 partners a tuple: a window that is filled by pairs takes minutes.
    Measure("counted", "counts_over_pairs", "rows/s", Contestant("band2d-counted", _LLHJ_ROWS, 1, 5), "rows_per_second",
            "pairs", Contestant("band2d-wide", _LLHJ_ROWS, 1, 5), "rows_per_second", True, at_least=5, opt_in=True),
    Measure("memory", "bytes_per_row", "B", Contestant("memory", 1_000_000, 1, 1), "bytes_per_row", "columns", None,
            "column_bytes_per_row", True),
    Measure("memory-llhj", "bytes_per_row", "B", Contestant("memory", _LLHJ_ROWS, 1, 1), "bytes_per_row", "columns",
            None, "column_bytes_per_row", True, at_most=1.3),
    Measure("product", "rows_per_second", "rows/s", _PRODUCT, "rows_per_second", opt_in=True),
    Measure("product", "memory_grown", "MiB", _PRODUCT, "grown_mib", "input and a chunk", None, "held_mib", True,
            at_most=3, opt_in=True),
    Measure("product", "progress", "%", _PRODUCT, "progress", "results found", None, "found", True, at_least=0.99,
            at_most=1.01, opt_in=True),
)  # fmt: skip
