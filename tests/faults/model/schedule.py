"""Schedules: what a run is given, and the faults that it meets. They are printed in one line, read back, and shrunk."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

__all__ = [
    "ALIKE_FROM",
    "ASKS",
    "BOTH_FROM",
    "CHANGES_FROM",
    "CLOCKS_FROM",
    "CLOCKS_WRITTEN_FROM",
    "CRASH_POINTS",
    "DEALT_FROM",
    "EACH_FROM",
    "ENVELOPES_FROM",
    "FOUND_FROM",
    "HEADS_FROM",
    "HOWS_FROM",
    "KINDS",
    "LAYOUTS_FROM",
    "LOCALS_FROM",
    "LOCAL_POINTS",
    "NEAREST_FROM",
    "PARTS_FROM",
    "RANGES_FROM",
    "REDUCES_FROM",
    "SELVES_FROM",
    "SERVED_FROM",
    "SHAPES_FROM",
    "SHARED_FROM",
    "SPLIT_FROM",
    "TABLES_FROM",
    "TURNS_FROM",
    "TURNS_WITH_ALL_FROM",
    "UNIQUES_FROM",
    "UPKEEP_POINTS",
    "VALUES_FROM",
    "ZONES_FROM",
    "Fault",
    "Schedule",
    "asking",
    "plain_schedule",
    "power_schedule",
    "random_schedule",
    "shrunk",
]

# The names of ARCHITECTURE.md, "Crash points". C8 of batch n is in the planning of batch n + 1.
CRASH_POINTS = {
    "C1": ("driver", "offsets"),
    "C2": ("driver", "offsets logged"),
    "C3": ("cell", "state kept"),
    "C4": ("driver", "sink"),
    "C5": ("driver", "matches log"),
    "C6": ("driver", "matches logged"),
    "C7": ("driver", "commits logged"),
    "C8": ("driver", "plan"),
}
_TABLES = ("late", "rejects", "ledger", "metrics", "punctuations")
POINTS = {
    "driver": (
        *("plan", "offsets", "offsets logged", "source commit", "purge", "sink", "sink done", "commits"),
        *("commits logged", "matches log", "matches logged"),
        *(f"{table} {step}" for table in _TABLES for step in ("log", "logged")),
        *(f"{table} {step}" for table in _TABLES[2:] for step in ("open", "write", "rename")),
    ),
    "read": ("begin", "exchange write", "exchange rename", "end"),
    "cell": (
        *("begin", "state put", "state kept"),
        *(f"block {step}" for step in ("write", "sync", "rename", "remove")),
        *(f"{table} {step}" for table in ("matches", "late") for step in ("open", "write", "sync", "rename")),
    ),
}
WRITES = {
    "driver": tuple(f"{table} {step}" for table in _TABLES[2:] for step in ("open", "write", "log")),
    "read": ("exchange write",),
    "cell": ("block write", "matches open", "matches write", "late write"),
}
KINDS = {
    "crash": "driver and workers die (kill -9)",
    "kill": "a Python worker dies; Spark tries its task again",
    "stall": "a task stops, another attempt takes its place, and it goes on later: a zombie attempt, a late write",
    "twice": "two attempts of a task run to their end (speculation)",
    "freeze": "the driver stops, another one takes its place, and it goes on later: a zombie driver",
    "full": "no room on the disk from here on, until the query has stopped",
    "back": "the driver dies, and the checkpoint is taken back by some of the batches that it retains",
}

# What the join of a run may ask for beside a band within a time window of each stream; see `asks`.
ASKS = {
    "count": "the last k tuples of each stream, in place of a time",
    "periodic": "windows that come every T and look back W, some across a lag",
    "three": "three streams",
    "where": "conditions on a stream alone",
    "residual": "a condition that is no band, beside a band or in its place",
    "self": "one input under two names or more",
    "idle": "streams that fall silent, for longer than they may hold up the others",
    "future": "records that are further ahead than they may be",
    "quarantine": "folders of files, some of them bad: what cannot be read is set aside",
    "settings": "restarts under other settings, some of which are refused by name",
    "upkeep": "compaction, checkpoints of the logs, their cleaning, VACUUM",
    "relaid": "layouts that change while the query runs",
    "cores": "restarts with more and with fewer cells",
    "ranges": "layouts of ranges of a band attribute: at the start, among those that change, or by the keys",
    "parted": "streams of many partitions, files or folders, that come and fall silent when they like",
    "found": "a condition whose bounds are columns, beside a band or in its place",
    "how": "rows of tuples without a partner, or with one: left, right, full, semi and anti joins",
    "nearest": "rows of tuples with their nearest partners alone",
    "tables": "a table beside the streams, whose rows change between batches",
    "reduce": "in place of pairs a row for each tuple, with aggregates over its partners",
    "unique": "streams whose tuples come twice, with keys that tell",
    "each": "semi and anti joins of three streams, whose first has partners in each of the others by itself",
    "split": "rows of one tuple in layouts that deal its partners to several cells, whose answers are put together",
    "values": "columns of texts, decimals, times and booleans, with nulls; NaN and infinities beside them",
    "devices": "streams whose devices have clocks of their own: one is slow, one falls silent, one comes late",
    "served": "windows that live on in a window server, which may be killed, or passed by",
    "local": "drivers without Spark, and Spark's between them",
}
# Steps of the upkeep, for the tables that have files in every batch.
_UPKEEP = ("compact", "replace", "replace done", "compact done", "summary", "summary done", "clean", "vacuum", "remove")
UPKEEP_POINTS = tuple(f"{table} {step}" for table in ("matches", "ledger") for step in _UPKEEP)

# Steps of a driver without Spark at its own files.
LOCAL_POINTS = ("plan", "offsets", "offsets logged", "spark write", "spark name", "spark rename", "spark remove")


@dataclass(frozen=True)
class Fault:
    """One fault, at the `nth` time that a process of this kind, working for this batch, comes to this point.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    delay : int
        For a process that stops: after how many steps of others it goes on. For "twice": which attempt counts.
        For "back": by how many batches the checkpoint is taken back.
    """

    kind: str
    batch: int
    actor: str
    point: str
    nth: int = 0
    delay: int = 0

    def __str__(self) -> str:
        delay = f" delay {self.delay}" if self.delay else ""
        return f"{self.kind} at batch {self.batch} {self.actor} '{self.point}' {self.nth}{delay}"


@dataclass(frozen=True)
class Schedule:
    """One run: its input, its plan, its faults.

    Parameters
    ----------
    seed : int
        Determines the input, and what Spark leaves open: the order of rows, tasks and reports, and a task's worker.
    rows : int
        Records of each stream: the first ones of those that the seed gives.
    blocks : int or None
        Bytes from which a run is a block; None: there is no folder of blocks.
    tailed : int
        Rows up to which a batch goes to a window's tail, and is no run.
    asks : tuple of str
        Some of `ASKS`; none: a plain join, as all schedules were at first.
    merge_runs : int or None
        The forced merge ratio of the cells' windows; None: what suits windows in blocks.
    power : bool
        Whether the power may be cut. Everything that must be is then forced to the device, and Spark's files are files.
        A fault of the kind "cut" comes at the step of the run that its `nth` says.
    """

    seed: int
    layout: str = "1x2"
    partitions: int = 2
    exchange: str = "reference"
    source: str = "csv"
    rows: int = 24
    batch_rows: int = 12
    blocks: int | None = 0
    retain: int = 1
    workers: int = 2
    grows: bool = False
    tailed: int = 0
    faults: tuple[Fault, ...] = ()
    asks: tuple[str, ...] = ()
    merge_runs: int | None = None
    power: bool = False

    def to_text(self) -> str:
        """Return the schedule as one line of JSON."""
        facts = asdict(self)
        if self.merge_runs is None:
            del facts["merge_runs"]
        if not self.power:
            del facts["power"]
        return json.dumps(facts, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Schedule:
        """Return the schedule that `to_text` wrote, also before there were asks."""
        facts = json.loads(text)
        faults = tuple(Fault(**fault) for fault in facts["faults"])
        return cls(**{**facts, "faults": faults, "asks": tuple(facts.get("asks", ()))})

    def __str__(self) -> str:
        facts = {name: value for name, value in asdict(self).items() if name != "faults"}
        lines = [", ".join(f"{name} {value}" for name, value in facts.items())]
        return "\n".join(lines + [f"  {fault}" for fault in self.faults] + [f"  replay: {self.to_text()}"])


_OTHERS = ("three", "where", "residual")
# What is refused for streams of many partitions.
_NOT_PARTED = ("count", "quarantine", "devices")
# What is refused for streams whose devices have clocks, or is not drawn with them: files that are set aside.
_NOT_OF_DEVICES = ("parted", "quarantine")
# What is refused for streams with a key of unique rows.
_NOT_UNIQUE = ("count", "future", "quarantine")
# What a join that decides tuples at their horizon cannot have: other windows, more streams, another layout.
_NOT_DECIDED = ("count", "periodic", "three", "relaid", "ranges")
# A stream that no row shows reads few columns, and then a file with another header may be a good one.
_NOT_EACH = (*(name for name in _NOT_DECIDED if name != "three"), "nearest", "tables", "reduce", "quarantine")
# What a row of the results is about.
_OF_ROWS = ("how", "each", "nearest", "reduce", "tables")
SELVES_FROM = 20_000
"""Seeds before this one are what they were before schedules had self-joins."""
CLOCKS_FROM = 40_000
"""Seeds before this one are what they were before streams could be idle, or records from the future."""
CHANGES_FROM = 200_000
"""Seeds before this one are what they were before there were bad files, restarts under other settings, and upkeep."""
LAYOUTS_FROM = 600_000
"""Seeds before this one are what they were before layouts changed."""
CORES_FROM = 700_000
"""Seeds before this one are what they were before restarts had more or fewer cells."""
RANGES_FROM = 800_000
"""Seeds before this one are what they were before there were layouts of ranges."""
PARTS_FROM = 900_000
"""Seeds before this one are what they were before streams could have partitions."""
FOUND_FROM = 1_000_000
"""Seeds before this one are what they were before conditions could find."""
HOWS_FROM = 1_100_000
"""Seeds before this one are what they were before joins had rows of one tuple alone."""
NEAREST_FROM = 1_200_000
"""Seeds before this one are what they were before joins had nearest partners."""
TABLES_FROM = 1_300_000
"""Seeds before this one are what they were before there were tables beside streams."""
REDUCES_FROM = 1_400_000
"""Seeds before this one are what they were before joins summed up a tuple's partners."""
UNIQUES_FROM = 1_500_000
"""Seeds before this one are what they were before streams had keys of unique rows."""
BOTH_FROM = 1_650_000
"""Seeds before this one are what they were before streams of partitions had such keys, or records from the future."""
EACH_FROM = 1_700_000
"""Seeds before this one are what they were before semi and anti joins had three streams."""
ALIKE_FROM = 1_703_000
"""Seeds before this one are what they were before streams of partitions had self-joins."""
DEALT_FROM = 1_706_000
"""Seeds before this one are what they were before tuples that wait could go to another number of cells."""
SPLIT_FROM = 1_708_000
"""Seeds before this one are what they were before cells put their answers about one tuple together."""
SHARED_FROM = 1_722_000
"""Seeds before this one are what they were before these were of nearest partners, aggregates, three streams too."""
VALUES_FROM = 1_900_000
"""Seeds before this one are what they were before there were columns of other types than whole numbers and floats."""
ZONES_FROM = 1_930_000
"""Seeds before this one are what they were before columns had zones, and processes of their own."""

HEADS_FROM = 1_960_000
"""Seeds before this one are what they were before files of CSV had other lines than one before their records."""
SHAPES_FROM = 1_980_000
"""Seeds before this one are what they were before files of CSV had other encodings, delimiters and null texts."""
CLOCKS_WRITTEN_FROM = 1_990_000
"""Seeds before this one are what they were before times were written in other forms, and by the clocks of zones."""
TURNS_FROM = 2_010_000
"""Seeds before this one are what they were before such a clock changed while the rows last."""
ENVELOPES_FROM = 2_020_000
"""Seeds before this one are what they were before devices had clocks, and columns were computed, or within JSON."""
LOCALS_FROM = 2_030_000
"""Seeds before this one are what they were before there were drivers without Spark."""
SERVED_FROM = 2_040_000
"""Seeds before this one are what they were before windows lived on in a server."""
TURNS_WITH_ALL_FROM = 2_050_000
"""Seeds from `ENVELOPES_FROM` to before this one have no clocks that change."""


def random_schedule(seed: int) -> Schedule:
    """Return the schedule of a seed: 0 to 5 faults, mostly 1 to 3; two seeds in five have a plain join.

    A plain join is that of `plain_schedule`. From `SELVES_FROM` on every fifth is a self-join as well. From
    `CLOCKS_FROM` on every fourth has streams that fall silent, and every fourth records from the future. From
    `CHANGES_FROM` on every fourth has folders with bad files, four in ten restart under other settings, and one in
    twelve has its tables looked after. From `LAYOUTS_FROM` on the layout of seven in ten changes while they run. From
    `CORES_FROM` on six in ten restart with more and fewer cells. From `RANGES_FROM` on six in ten have layouts of
    ranges. From `PARTS_FROM` on half have streams of many partitions, but for those that ask what these cannot have.
    From `FOUND_FROM` on half have a condition whose bounds are columns.
    From `HOWS_FROM` on half have rows of one tuple alone, and then nothing that these cannot have. From `NEAREST_FROM`
    on a third have nearest partners. From `TABLES_FROM` on half have a table beside the streams, and neither of these.
    From `REDUCES_FROM` on half have aggregates over a tuple's partners, and nothing of these.
    From `UNIQUES_FROM` on half have streams whose tuples come twice. From `BOTH_FROM` on that goes with partitions, and
    so do records from the future.
    From `EACH_FROM` on a third have semi and anti joins of three streams. From `ALIKE_FROM` on more than a third are
    self-joins over partitions. From `DEALT_FROM` on restarts of joins whose tuples wait for their horizon have more and
    fewer cells too. From `SPLIT_FROM` on a third have rows of one tuple, and the layouts of most of these deal its
    partners to several cells. From `SHARED_FROM` on four in ten have nearest partners or aggregates, and most of those
    have such layouts too, as most joins of three such streams do. From `VALUES_FROM` on half have columns of every
    type, and what a row is about is drawn anew: no kind of row is rare. From `ZONES_FROM` on the times among these may
    be declared in another zone than UTC, and each driver is in a zone of its own. From `HEADS_FROM` on a growing
    file may begin with lines that are passed over, and with a header of several lines or none. From `SHAPES_FROM` on
    it may have another encoding, blanks or another sign between its fields, and texts for null. From
    `CLOCKS_WRITTEN_FROM` on its times may be written in a form of `time_format`, by the clock of a zone. From
    `TURNS_FROM` on that clock may change within the run, and the rows may be hourly. From
    `ENVELOPES_FROM` on four in ten have devices with clocks of their own, and columns may be computed of others, stand
    within JSON, or in elements of its arrays. From `LOCALS_FROM` on four in ten have drivers without Spark. From
    `SERVED_FROM` on two in three have a window server.
    """
    dice = random.Random(f"schedule {seed}")
    asks = () if dice.random() < 0.4 else _random_asks(dice)
    if seed >= SELVES_FROM and dice.random() < 0.2:
        asks = (*asks, "self")
    if seed >= CLOCKS_FROM:
        asks = (*asks, *(name for name in ("idle", "future") if dice.random() < 0.25))
    if seed >= CHANGES_FROM:
        shares = {"quarantine": 0.25, "settings": 0.4, "upkeep": 0.08}
        asks = (*asks, *(name for name, share in shares.items() if dice.random() < share))
    if seed >= LAYOUTS_FROM and dice.random() < 0.7:
        asks = (*asks, "relaid")
    if seed >= CORES_FROM and dice.random() < 0.6:
        asks = (*asks, "cores")
    if seed >= RANGES_FROM and dice.random() < 0.6:
        asks = (*asks, "ranges")
    if seed >= PARTS_FROM and dice.random() < 0.5:
        asks = (*asks, "parted")
    if seed >= FOUND_FROM and dice.random() < 0.5:
        asks = (*asks, "found")
    if seed >= HOWS_FROM and dice.random() < 0.5:
        asks = (*asks, "how")
    if seed >= NEAREST_FROM and "how" not in asks and dice.random() < 0.7:
        asks = (*asks, "nearest")
    if seed >= TABLES_FROM and dice.random() < 0.5:
        asks = (*(name for name in asks if name not in ("how", "nearest")), "tables")
    if seed >= REDUCES_FROM and dice.random() < 0.5:
        asks = (*(name for name in asks if name not in ("how", "nearest", "tables")), "reduce")
    if seed >= UNIQUES_FROM and dice.random() < 0.5:
        asks = (*asks, "unique")
    if seed < BOTH_FROM:
        asks = tuple(name for name in asks if name != "parted" or "unique" not in asks)
        asks = tuple(name for name in asks if name != "future" or "parted" not in asks)
    if seed >= EACH_FROM and dice.random() < 0.3:
        asks = (*asks, "each")
    if seed >= ALIKE_FROM and dice.random() < 0.3:
        asks = (*asks, "self", "parted")
    if seed < ALIKE_FROM and "parted" in asks:
        asks = tuple(name for name in asks if name != "self")
    if seed < DEALT_FROM and {"how", "nearest", "reduce", "each"} & {*asks}:
        asks = tuple(name for name in asks if name != "cores")
    if seed >= SPLIT_FROM:
        if dice.random() < 0.3:
            asks = (*(name for name in asks if name not in ("nearest", "tables", "reduce", "each")), "how")
        if "how" in asks and dice.random() < 0.8:
            asks = (*asks, "split")
    if seed >= SHARED_FROM:
        if dice.random() < 0.4:
            one = dice.choice(("nearest", "reduce"))
            asks = (*(name for name in asks if name not in ("how", "nearest", "tables", "reduce", "each")), one)
        if {"nearest", "reduce", "each"} & {*asks} and dice.random() < 0.8:
            asks = (*asks, "split")
    elif "each" in asks:
        asks = tuple(name for name in asks if name != "split")
    if seed >= VALUES_FROM:
        asks = tuple(name for name in asks if name not in (*_OF_ROWS, "split"))
        asks = (*asks, *(name for name in dice.choices((*_OF_ROWS, ""), (7, 2, 3, 3, 2, 4)) if name))
        asks = (*asks, *(name for name, share in {"split": 0.7, "values": 0.5}.items() if dice.random() < share))
    if seed >= ENVELOPES_FROM and dice.random() < 0.4:
        asks = (*(name for name in asks if name not in _NOT_OF_DEVICES), "devices")
    if seed >= SERVED_FROM and dice.random() < 2 / 3:
        asks = (*asks, "served")
    if seed >= LOCALS_FROM and dice.random() < 0.4:
        asks = (*asks, "local")
    return asking(plain_schedule(seed), asks) if asks else plain_schedule(seed)


def power_schedule(seed: int, cuts: int = 0) -> Schedule:
    """Return a schedule with power cuts beside the faults of the seed; if `cuts` is 0 there are one to three."""
    dice = random.Random(f"power {seed}")
    schedule = random_schedule(seed)
    schedule = replace(schedule, asks=tuple(name for name in schedule.asks if name != "cores"))
    others = tuple(fault for fault in schedule.faults if fault.kind != "back" and dice.random() < 0.5)
    times = sorted(dice.randint(1, 900) for _ in range(cuts or dice.choice((1, 1, 2, 3))))
    faults = tuple(Fault("cut", 0, "any", "step", time, dice.randrange(1 << 20)) for time in times)
    return replace(schedule, faults=(*others, *faults), power=True)


def asking(schedule: Schedule, asks: tuple[str, ...]) -> Schedule:
    """Return the schedule of a plain join with these asks added."""
    if "each" in asks:
        asks = tuple(name for name in asks if name not in _NOT_EACH)
        asks = (*(name for name in asks if name not in ("how", "three")), "how", "three")
    if "reduce" in asks:
        asks = tuple(name for name in asks if name not in ("how", "nearest"))
    if {"how", "nearest", "reduce"} & {*asks} and "each" not in asks:
        asks = tuple(name for name in asks if name not in (*_NOT_DECIDED, "tables"))
    if not {"how", "nearest", "reduce", "each"} & {*asks}:
        asks = tuple(name for name in asks if name != "split")
    if "unique" in asks:
        asks = tuple(name for name in asks if name not in _NOT_UNIQUE)
    if "devices" in asks:
        asks = tuple(name for name in asks if name not in _NOT_OF_DEVICES)
        more = random.Random(f"of devices {schedule.seed}")
        schedule = replace(schedule, source="csv", grows=schedule.grows or more.random() < 0.6)
    if "parted" in asks:
        asks = tuple(name for name in asks if name not in _NOT_PARTED)
        if "three" in asks and "each" not in asks:  # such a join keeps its layout
            asks = tuple(name for name in asks if name not in ("relaid", "cores", "ranges"))
        more = random.Random(f"parted {schedule.seed}")
        schedule = replace(schedule, source="csv", grows=schedule.grows or more.random() < 0.6)
    if "three" in asks:
        dice = random.Random(f"three {schedule.seed}")
        layout = dice.choice(("1x1x1", "1x2x1", "2x1x1", "1x1x2", "2x1x2"))
        schedule = replace(schedule, layout=layout, rows=min(schedule.rows, 14), batch_rows=max(schedule.batch_rows, 6))
    if "idle" in asks:  # only streams over files that grow can be silent
        schedule = replace(schedule, source="csv", grows=True)
    if "future" in asks:
        schedule = replace(schedule, source="csv")
    more = random.Random(f"changes {schedule.seed}")
    if "self" in asks:
        asks = tuple(name for name in asks if name != "quarantine")  # a self-join over bad files is refused
    if "quarantine" in asks:  # a file can come late, or change, only while files come
        schedule = replace(schedule, source="csv", grows=schedule.grows or more.random() < 0.6)
    if {"settings", "cores"} & {*asks} and not schedule.faults:  # otherwise nothing would start again
        schedule = replace(schedule, faults=(Fault("crash", more.randrange(3), "driver", "offsets logged"),))
    if "local" in asks:
        asks = tuple(name for name in asks if name != "cores")  # the move of Spark's files is not modelled
        schedule = replace(schedule, faults=schedule.faults + tuple(_local_faults(schedule.seed)))
    if {"relaid", "ranges"} & {*asks}:  # one cell has one layout
        cells = ("1x2x1", "2x1x2", "2x1x2") if "three" in asks else ("1x2", "2x2", "2x2", "1x6")
        schedule = replace(schedule, layout=random.Random(f"relaid {schedule.seed}").choice(cells))
    if "split" in asks:
        cells = ("1x2", "2x1", "2x2", "2x2", "3x2", "1x4")
        cells = ("1x2x1", "1x1x2", "2x2x1", "1x2x2", "2x1x2") if "three" in asks else cells
        schedule = replace(schedule, layout=random.Random(f"split {schedule.seed}").choice(cells))
    if "upkeep" in asks:
        schedule = replace(schedule, faults=schedule.faults + tuple(_upkeep_faults(more)))
    return replace(schedule, asks=tuple(name for name in ASKS if name in asks))


def _upkeep_faults(dice: random.Random) -> Iterator[Fault]:
    for _ in range(dice.choice((1, 1, 2))):
        kind = dice.choice(("freeze", "freeze", "crash", "full"))
        delay = dice.choice((20, 60, 150, 400)) if kind == "freeze" else 0
        yield Fault(kind, dice.randrange(1, 5), "driver", dice.choice(UPKEEP_POINTS), 0, delay)


def _local_faults(seed: int) -> Iterator[Fault]:
    dice = random.Random(f"local {seed}")
    for _ in range(dice.choice((1, 1, 2, 3))):
        kind = dice.choice(("freeze", "freeze", "crash", "crash", "full"))
        delay = dice.choice((5, 20, 60, 150, 400)) if kind == "freeze" else 0
        actor, nth = dice.choice(("driver", "driver", "cell")), dice.choice((0, 0, 1))
        yield Fault(kind, dice.randrange(6), actor, dice.choice(LOCAL_POINTS), nth, delay)


def _random_asks(dice: random.Random) -> tuple[str, ...]:
    asks: tuple[str, ...] = ()
    while not asks:
        window = dice.choice((None, "count", "periodic"))
        asks = tuple(name for name in ASKS if name == window or (name in _OTHERS and dice.random() < 0.3))
    return asks


def plain_schedule(seed: int) -> Schedule:
    """Return the schedule that a seed had before there were asks: two streams, a band or an equality, a time window."""
    dice = random.Random(seed)
    rows = dice.choice((12, 18, 24, 30))
    schedule = Schedule(
        seed,
        layout=dice.choice(("1x1", "1x1", "1x2", "2x1", "1x2", "2x2")),
        partitions=dice.choice((1, 2)),
        exchange=dice.choice(("reference", "reference", "reference", "packed", "packed", "packed")),
        source=dice.choice(("csv", "listed", "listed")),
        rows=rows,
        batch_rows=dice.choice((3, 5, 8) if rows == 12 else (8, 10, 12, 16)),
        blocks=dice.choice((0, 0, 0, 1500, 1 << 40, None)),
        retain=dice.choice((1, 1, 2, 3)),
        workers=dice.choice((1, 2, 3)),
        tailed=(0, 0, 3, 1_024)[seed // 2 % 4],
    )
    schedule = replace(schedule, grows=schedule.source == "csv" and dice.random() < 0.4)
    batches = -(-2 * rows // schedule.batch_rows)
    count = dice.choices(range(6), (1, 5, 5, 4, 2, 1))[0]
    return replace(schedule, faults=tuple(_random_fault(dice, batches) for _ in range(count)))


def _random_fault(dice: random.Random, batches: int) -> Fault:
    kind = dice.choices(tuple(KINDS), (6, 3, 5, 2, 6, 2, 2))[0]
    batch = dice.randrange(batches)
    actor = dice.choices(("driver", "read", "cell"), (4, 1, 3))[0]
    if kind in ("kill", "stall", "twice") and actor == "driver":
        actor = dice.choice(("read", "cell", "cell"))
    point = dice.choice((WRITES if kind == "full" else POINTS)[actor])
    if kind == "twice":
        point = "begin"
    nth = dice.choice((0, 0, 0, 1, 1, 2, 3))
    if actor == "driver":
        nth = dice.choice((0, 0, 0, 0, 1)) if "write" in point else 0
    if kind in ("stall", "freeze"):
        delay = dice.choice((1, 2, 5, 20, 60, 150, 400))
    else:
        delay = dice.randrange(3) if kind == "twice" else dice.randint(1, 3) if kind == "back" else 0
    return Fault(kind, batch, actor, point, nth, delay)


def shrunk(schedule: Schedule, fails: Callable[[Schedule], bool], most: int = 150) -> Schedule:
    """Return a schedule that still fails and of which nothing can be left out, after at most `most` runs."""
    runs = 0
    while runs < most:
        for smaller in _smaller(schedule):
            runs += 1
            if fails(smaller):
                schedule = smaller
                break
            if runs >= most:
                break
        else:
            break
    return schedule


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    """Yield simpler schedules, the simplest first."""
    faults = schedule.faults
    if faults:
        yield replace(schedule, faults=())
    for gone in range(len(faults)):
        yield replace(schedule, faults=faults[:gone] + faults[gone + 1 :])
    for gone in range(len(schedule.asks)):
        yield replace(schedule, asks=schedule.asks[:gone] + schedule.asks[gone + 1 :])
    plain = Schedule(0, layout="1x1", partitions=1, rows=1, batch_rows=1 << 10, blocks=None, workers=1)
    for name in ("layout", "partitions", "exchange", "source", "blocks", "retain", "workers", "grows"):
        value = getattr(plain, name)
        if getattr(schedule, name) != value:
            yield replace(schedule, **{name: value})
    for rows in (schedule.rows // 2, schedule.rows * 3 // 4, schedule.rows - 1):
        if 0 < rows < schedule.rows:
            yield replace(schedule, rows=rows)
    if schedule.batch_rows < 2 * schedule.rows:
        yield replace(schedule, batch_rows=2 * schedule.batch_rows)
    for place, fault in enumerate(faults):
        for change in ({"delay": 1}, {"delay": fault.delay // 2}, {"nth": 0}, {"batch": fault.batch - 1}):
            name, value = next(iter(change.items()))
            if 0 <= value < getattr(fault, name):
                yield replace(schedule, faults=(*faults[:place], replace(fault, **change), *faults[place + 1 :]))
