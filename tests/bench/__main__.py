"""``python -m tests.bench``: the fixed workloads on this machine, beside their peers."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console, RenderableType

from streamjoin_ds.errors import ArgumentError, StreamJoinError
from tests.bench.suites.engine import report as engine_report
from tests.bench.suites.engine import suite as engine_suite
from tests.bench.suites.figures import page as figures_page
from tests.bench.suites.figures import suite as figures_suite
from tests.bench.suites.frames.suite import FrameSettings, measure_frames
from tests.bench.suites.live.finding import StreamSettings
from tests.bench.suites.live.report import stream_facts, stream_table
from tests.bench.suites.live.suite import LONG, MEASURES, measure_streams
from tests.bench.suites.paths import report as paths_report
from tests.bench.suites.paths.suite import Settings, measure
from tests.bench.suites.scale import report as scale_report
from tests.bench.suites.scale.case import KEYS, ScaleCase
from tests.bench.suites.scale.moving import measure_drift, measure_rates
from tests.bench.suites.scale.suite import fixed_cases, measure_scale
from tests.bench.suites.sides import LOCAL, SIDES
from tests.bench.suites.topics.suite import FORMATS, PEERS, TopicSettings, measure_topics
from tests.bench.suites.workloads import WORKLOADS

__all__ = ["command"]

_DATA = Path("../shared/data")
_REPORT_WIDTH = 132


class SuiteGroup(click.Group):
    """A group of suites; arguments that begin with no suite's name are for the suite of full paths."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default suite's name before arguments that begin with no suite's name."""
        if not args or args[0] not in self.commands:
            args = [_PATHS, *args]
        return super().parse_args(ctx, args)


_PATHS = "paths"


def _say(line: str) -> None:
    """Print a line about what is being done."""
    Console(stderr=True).print(line, style="dim", highlight=False, soft_wrap=True)


def _report(
    as_json: bool, facts: Callable[[], object], table: Callable[[], RenderableType], width: int = _REPORT_WIDTH
) -> None:
    """Print what was measured, as JSON or for a person; `width` is for where there is no terminal."""
    if as_json:
        click.echo(json.dumps(facts(), indent=1))
    else:
        Console(width=None if sys.stdout.isatty() else width).print(table())


@click.group("bench", cls=SuiteGroup, add_help_option=False)
def command() -> None:
    """Measure fixed workloads on this machine, beside their peers."""


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    peers = click.Choice([*SIDES[1:], "none"])
    options = [
        click.option("--json", "as_json", is_flag=True, help="Print the measurements as a list of JSON objects."),
        click.option(
            "--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Measured runs of each side."
        ),
        click.option(
            "--quick", is_flag=True, help="Only look whether all works: one measured run, and peers stop after 5 s."
        ),
        click.option(
            "--data",
            type=click.Path(path_type=Path),
            help=f"Folder of the recorded data.  [default: {_DATA}, if it exists]",
        ),
        click.option(
            "--peer",
            "peers",
            multiple=True,
            type=peers,
            help="Peer to measure beside; may be repeated.  [default: all]",
        ),
        click.option(
            "--rows",
            type=click.IntRange(min=100),
            help="Tuples a side of generated workloads, instead of their fixed size.",
        ),
    ]
    return functools.reduce(lambda decorated, option: option(decorated), reversed(options), command)


@command.command(_PATHS, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("workloads", nargs=-1, metavar=f"[{'|'.join(WORKLOADS)}]...")
@_options
def paths(workloads: tuple[str, ...], as_json: bool, quick: bool, runs: int, **given: Any) -> None:
    """Measure WORKLOADS (default: all) from source to committed table, beside Spark's own way and DuckDB.

    Each side does the same join on the same cores, in a process of its own. The time to start the process and the query
    is not counted. The number of matches of every run is checked against an independent count. The results are medians
    over paired runs.
    """
    data, peers = given["data"], given["peers"]
    if data is None and _DATA.is_dir():
        data = _DATA
    chosen = SIDES[1:] if not peers else tuple(peer for peer in SIDES[1:] if peer in peers)
    settings = Settings(
        runs=1 if quick else runs,
        peers=chosen,
        data=None if data is None else data.resolve(),
        generated_rows=given["rows"],
        limit_s=5 if quick else 20,
    )
    results = measure(workloads or tuple(WORKLOADS), settings, _say)
    _report(as_json, lambda: paths_report.facts(results), lambda: paths_report.table(results))


@command.command("engine", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("workloads", nargs=-1, metavar="[WORKLOADS]...")
@click.option("--json", "as_json", is_flag=True, help="Print the measurements as a list of JSON objects.")
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Runs of each contestant.")
@click.option("--quick", is_flag=True, help="Only look whether all works: one run, and windows 64 times smaller.")
def engine(workloads: tuple[str, ...], as_json: bool, runs: int, quick: bool) -> None:
    """Measure the engine alone, without Spark (default: all WORKLOADS but `product`): speed, latency, scaling, memory.

    `product` joins all of 10^6 rows with all of 10^6 others and reads the results for about a minute: it shows that
    memory is bounded, and how far the join got. Each contestant is a process of its own, pinned to its cores. It takes
    turns with its peer, or stands beside a limit of the machine that is measured in the same run. The results are
    medians over the runs.
    """
    results = engine_suite.measure(workloads, 1 if quick else runs, quick, _say)
    _report(as_json, lambda: engine_report.facts(results), lambda: engine_report.table(results))


@command.command("stream", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("measures", nargs=-1, metavar=f"[{'|'.join(MEASURES)}]...")
@click.option("--json", "as_json", is_flag=True, help="Print the measurements as a list of JSON objects.")
@click.option("--quick", is_flag=True, help="Only look whether all works: windows of seconds, and a few batches.")
@click.option(
    "--peer",
    "peers",
    multiple=True,
    type=click.Choice([*(side for side in SIDES[1:] if side != LOCAL), "none"]),  # ours reads the input to its end
    help="Peer to measure beside; may be repeated.  [default: spark-tuned, duckdb]",
)
@click.option(
    "--rate",
    type=click.IntRange(min=100),
    default=30_000,
    show_default=True,
    help="Tuples a second of each stream, for the measure `rate`.",
)
def stream(measures: tuple[str, ...], as_json: bool, quick: bool, peers: tuple[str, ...], rate: int) -> None:
    """Measure joins whose windows are full (default: all MEASURES but `rate` and `rates`, which take many minutes).

    Each is a live query in a process of its own, from source to committed table; the matches of its first batches are
    checked against an independent count. `rate` fills 15-minute windows at --rate and deletes matches as it goes; it
    needs 15 GB of disk in the folder for temporary files. `rates` lets the second stream grow to 20 times its rate, on
    16 cells, by a layout that follows the rates and by a fixed 4x4: tuples shipped, time, triggers that change layouts.
    """
    chosen = tuple(peer for peer in SIDES[1:] if peer in peers) if peers else StreamSettings().peers
    settings = StreamSettings(chosen, quick, rate)
    names = measures or tuple(name for name in MEASURES if name not in LONG)
    findings = measure_streams(names, settings, _say)
    _report(as_json, lambda: stream_facts(findings), lambda: stream_table(findings))


@command.command("kafka", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("formats", nargs=-1, metavar=f"[{'|'.join(FORMATS)}]...")
@click.option("--servers", required=True, help="Brokers, as host:port. The topics are made there, and removed.")
@click.option(
    "--messages", type=click.IntRange(min=100), default=4_000_000, show_default=True, help="Messages of each topic."
)
@click.option(
    "--partitions", type=click.IntRange(1, 1000), default=4, show_default=True, help="Partitions of each topic."
)
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Runs of each format.")
@click.option(
    "--peer",
    "peers",
    multiple=True,
    type=click.Choice(tuple(PEERS)),
    help="Also a peer's own join over its own Kafka reader, of JSON. Spark's source comes from Maven. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the measurements as a list of JSON objects.")
@click.option("--quick", is_flag=True, help="Only look whether all works: one run over 20,000 messages.")
def kafka(
    formats: tuple[str, ...],
    servers: str,
    messages: int,
    partitions: int,
    runs: int,
    peers: tuple[str, ...],
    as_json: bool,
    quick: bool,
) -> None:
    """Measure messages a second, from two topics of a broker to committed matches (default: all FORMATS).

    The messages are sent first. The matches of every run are checked against an independent count. The time until the
    first commit, in which Java and the workers start, is not counted.
    """
    unknown = next((name for name in formats if name not in FORMATS), None)
    if unknown is not None:
        msg = f"there is no benchmark of messages in '{unknown}'"
        raise ArgumentError(msg, name=unknown, hint=f"one of {', '.join(FORMATS)}")
    settings = TopicSettings(servers, formats or tuple(FORMATS), messages, partitions, runs=runs, peers=peers)
    if quick:
        settings = replace(settings, messages=10_000, batch_rows=5_000, runs=1, quick=True)
    findings = list(measure_topics(settings, _say))
    _report(as_json, lambda: stream_facts(findings), lambda: stream_table(findings))


@command.command("frames", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rows", type=click.IntRange(min=100), default=4_000_000, show_default=True, help="Rows of each stream.")
@click.option("--batches", type=click.IntRange(2, 10_000), default=16, show_default=True, help="Files of each stream.")
@click.option(
    "--keys", type=click.IntRange(min=1), default=50_000, show_default=True, help="Fewer keys make more matches."
)
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each way.")
@click.option("--json", "as_json", is_flag=True, help="Print the measurements as a list of JSON objects.")
@click.option("--quick", is_flag=True, help="Only look whether all works: one run over 4,000 rows.")
def frames(rows: int, batches: int, keys: int, runs: int, as_json: bool, quick: bool) -> None:
    """Measure rows a second from streaming DataFrames to committed matches: start(frames=...) and dataframe().

    Each batch is a Parquet file of each stream. dataframe() writes to a Delta table. The matches of every run are
    checked against an independent count. The time until the first commit is not counted.
    """
    settings = FrameSettings(rows, batches, keys, runs)
    if quick:
        settings = FrameSettings(2_000, 2, 500, 1, quick=True)
    findings = list(measure_frames(settings, _say))
    _report(as_json, lambda: stream_facts(findings), lambda: stream_table(findings))


@command.command("figures", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[FIGURES]...")
@click.option(
    "--to",
    "path",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    required=True,
    help="HTML file to write; an existing file is replaced.",
)
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    default=figures_suite.DEFAULT_RUNS,
    show_default=True,
    help="Runs of each point.",
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of the tuples.")
@click.option("--quick", is_flag=True, help="Only look whether all works: tiny windows, and two short runs.")
def figures(names: tuple[str, ...], path: Path, runs: int, seed: int, quick: bool) -> None:
    """Redraw the figures of CellJoin, PIM-Tree, DP-Join, DAB Join and LLHJ from runs of this engine on this machine.

    Writes one HTML page that needs no network. It shows each of FIGURES (default: all; for example "llhj" or
    "pim-tree-9") as a plot and as a table, and says how it was measured, what the paper reported and what differs. A
    paper takes up to about ten minutes on two cores. Every trial is checked against an independent count of the
    matches.
    """
    figures_page.load_plotly()
    if not path.absolute().parent.is_dir():
        msg = "the folder of the page to write does not exist"
        raise ArgumentError(msg, name="--to", hint="make the folder first, or give another file")
    report = figures_suite.measure_figures(names, quick, runs, seed, _say)
    path.write_text(figures_page.page(report), encoding="utf-8")
    _say(f"{path}: {len(report.drawn)} figures, {report.trials} trials, {report.wall_s:.0f} s")


@command.command("scale", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--cells", multiple=True, type=click.IntRange(1, 4096), help="Number of cells; may be repeated.")
@click.option(
    "--streams", multiple=True, type=click.IntRange(2, 5), help="Number of streams; may be repeated.  [default: 2]"
)
@click.option(
    "--ratio",
    multiple=True,
    type=click.IntRange(min=1),
    help="Rate of the last stream, over that of each other one.  [default: 1]",
)
@click.option("--keys", multiple=True, type=click.Choice(list(KEYS)), help="Distribution of the keys.  [default: all]")
@click.option(
    "--rows-per-cell", type=click.IntRange(min=100), help="Rows in a window, for each cell.  [default: 16000]"
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of the keys.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcomes as one JSON object.")
@click.option(
    "--quick",
    is_flag=True,
    help="Only look whether all works: so few cells and rows that chance outweighs the layouts.",
)
def scale(
    cells: tuple[int, ...],
    streams: tuple[int, ...],
    ratio: tuple[int, ...],
    keys: tuple[str, ...],
    rows_per_cell: int | None,
    seed: int,
    as_json: bool,
    quick: bool,
) -> None:
    """Simulate layouts of many cells: grids, ranges of a band attribute, and ranges with a grid where keys are hot.

    Nothing is joined. The simulator counts to which cells each tuple goes, and what each cell receives and would find.
    The load of a cell is 4 for each row and 1 for each pair. Beside each scheme stand the bounds that no layout can
    beat. A layout is chosen from the keys of one window and simulated on those of the next. With --cells, --streams,
    --ratio or --keys the command simulates all combinations of these, without drifting keys or changing rates. Without
    them it simulates a fixed list, drifting keys and changing rates, which takes some minutes.
    """
    per_cell = rows_per_cell or (500 if quick else 16_000)
    is_asked = bool(cells or streams or ratio or keys)
    drifts, rates = [], []
    if is_asked:
        sizes = cells or ((4, 16) if quick else (64, 1000))
        cases = [
            ScaleCase(size, count, faster, name, per_cell, seed)
            for name in keys or KEYS
            for count in streams or (2,)
            for faster in ratio or (1,)
            for size in sizes
        ]
    else:
        cases = [case for case in fixed_cases(per_cell, seed) if not quick or case.cells <= 16]
        for name, drift in (("uniform", 0.01), ("uniform", 0.1), ("zipf-values", 0.1)):
            moving = ScaleCase(16 if quick else 64, keys=name, rows_per_cell=per_cell, seed=seed, drift=drift)
            drifts += measure_drift(moving, 3 if quick else 8, _say)
        rates = [outcome for size in (16, 64, 1000) for outcome in measure_rates(size, 20)]
    outcomes = measure_scale(cases, _say)
    told = outcomes, drifts, rates
    _report(as_json, lambda: scale_report.facts(*told), lambda: scale_report.tables(*told), _REPORT_WIDTH + 20)


if __name__ == "__main__":
    try:
        command(prog_name="python -m tests.bench")
    except StreamJoinError as error:
        click.echo(f"bench: {error}", err=True)
        sys.exit(2)
