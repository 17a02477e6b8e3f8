"""The joins that runs ask for: streams, predicates and windows of every kind that there is."""

from __future__ import annotations

import random
from dataclasses import dataclass

from streamjoin_ds.spec import CountWindow, Files, Join, Nearest, PeriodicWindow, Stream, TimeWindow, WindowKind
from streamjoin_ds.spec.row_kind import DIRECTIONS, HOWS, has_pairs
from tests.faults.model import values
from tests.faults.model.beside import asked_table
from tests.faults.model.schedule import ENVELOPES_FROM, Schedule

__all__ = ["Asked", "asked_of"]

_NAMES = ("l", "r", "s")  # in ascending order: the ledger is read in the order of names
_TICK_US = 250_000

# Each text has places for two streams' names. Beside it are the columns whose null keeps a tuple out; a residual may
# have none.
_BANDS = (
    ("abs({0}.x - {1}.x) <= 1", "x"),
    ("abs({0}.y - {1}.y) <= 0.5", "y"),
    ("{0}.x = {1}.x", "x"),
)
_RESIDUALS = (
    ("{0}.y <> {1}.y", "y"),
    ("{0}.x + {1}.x > 0 AND {0}.y + 0.25 <= {1}.y * 2", "xy"),
    ("({0}.x + {1}.x > 1 OR {0}.y < {1}.y)", ""),
    ("NOT ({0}.x = 0 AND {1}.y >= 0.5)", ""),
    ("({0}.y IS NULL OR {1}.x IS NULL OR {0}.y + {1}.y < 1.5)", ""),
)
# Distances of nearest partners; most of them tie, and some are null.
_DISTANCES = ("abs({0}.ts - {1}.ts)", "abs({0}.y - {1}.y)", "{0}.x - {1}.x", "{0}.y * {1}.y", "{0}.x")
# Conditions whose bounds are columns: they find as well.
_FINDING = (
    ("abs({0}.x - {1}.x) <= {0}.y + {1}.y", "xy"),
    ("{0}.x <= {1}.x + {1}.y AND {1}.x - {0}.y <= {0}.x + 1", "xy"),
    ("({0}.y - {1}.y) * ({0}.y - {1}.y) + ({0}.x - {1}.x) * ({0}.x - {1}.x) <= 2", "xy"),
    ("{0}.x < {1}.x", "x"),
    ("{0}.y IS NOT DISTINCT FROM {1}.y", ""),
    ("{0}.ts >= {1}.ts - INTERVAL 750 MILLISECONDS", ""),
)
# Aggregates over partners: what depends on the order in which floats are added, or partners come, is among them.
_REDUCE = {
    "n": "count(*)",
    "known": "count({1}.y)",
    "total": "sum({1}.x)",
    "thirds": "sum({1}.y / 3)",
    "mean": "avg({0}.y - {1}.y)",
    "spread": "stddev({1}.y / 7)",
    "least": "min({1}.y)",
    "by": "arg_min({1}.x, abs({0}.x - {1}.x))",
    "last": "last({1}.x)",
    "half": "quantile({1}.x, 0.5)",
    "some": "collect({1}.x, 3)",
}
_WHERES = ("x <> 1", "y <= 0.5 OR y IS NULL", "y IS NOT NULL", "x + y < 1.5")


@dataclass(frozen=True)
class Asked:
    """A join whose streams have no source yet.

    Attributes
    ----------
    compared : dict of str to tuple of str
        For each stream the columns, a letter each, whose null keeps a tuple from joining. Several texts are several
        ways of having partners: a tuple that has a null in each of them joins nothing.
    inputs : dict of str to str
        For each stream the one whose records it has: itself, or in a self-join an earlier one.
    """

    join: Join
    compared: dict[str, tuple[str, ...]]
    inputs: dict[str, str]


def asked_of(schedule: Schedule) -> Asked:
    """Return the join of a schedule: a function of its seed and of what it asks for."""
    # Old seeds keep their meaning: `dice` still draws what two streams had before there was more to ask for.
    dice, more = random.Random(f"case {schedule.seed}"), random.Random(f"asks {schedule.seed}")
    names = _NAMES if "three" in schedule.asks else _NAMES[:2]
    delays = [dice.choice((0, 1_000_000, 2_000_000)) for _ in _NAMES[:2]]
    extents = [dice.choice((500_000, 1_000_000, 2_000_000, 4_000_000)) for _ in _NAMES[:2]]
    parts = [(dice.choice(_BANDS), names[:2])]
    delays.append(more.choice((0, 1_000_000)))
    extents.append(more.choice((500_000, 1_000_000, 2_000_000)))
    if "three" in schedule.asks:
        part = (more.choice(_BANDS), more.choice((("l", "s"), ("r", "s"), ("s", "l"))))
        parts.append(part if "each" not in schedule.asks or "l" in part[1] else (part[0], ("l", "s")))
    if "residual" in schedule.asks:
        pair = more.choice((("l", "r"), ("r", "l"), (names[-1], "l")))
        parts.append((more.choice(_RESIDUALS), pair))
        if more.random() < 0.3:
            del parts[0]  # no band between these two: all within the window are candidates
    if "found" in schedule.asks:
        finding = random.Random(f"found {schedule.seed}")
        if finding.random() < 0.6:
            parts = [part for part in parts if part[0] not in _BANDS]
        parts.append((finding.choice(_FINDING), finding.choice((("l", "r"), ("r", "l"), (names[-1], "l")))))
    if "values" in schedule.asks:
        valued = random.Random(f"valued {schedule.seed}")
        parts = [
            (valued.choice(values.BANDS) if one in _BANDS and valued.random() < 0.8 else one, p) for one, p in parts
        ]
        if valued.random() < 0.4:
            parts.append((valued.choice(values.RESIDUALS), valued.choice((("l", "r"), ("r", "l"), (names[-1], "l")))))
    # A stream that no row shows reads few columns, and then a file with another header may be a good one.
    hows = HOWS[1:4] if "quarantine" in schedule.asks else HOWS[4:] if "each" in schedule.asks else HOWS[1:]
    how = random.Random(f"how {schedule.seed}").choice(hows) if "how" in schedule.asks else "inner"
    compared = dict.fromkeys(names, "")
    for (_, columns), pair in parts:
        for name, own in _sides(columns, pair).items():
            compared[name] = "".join(sorted({*compared[name], *own}))
    is_any = "each" in schedule.asks and how == "anti"
    of_each = tuple(
        "".join(_sides(columns, pair).get("l", "") for (_, columns), pair in parts if other in pair)
        for other in names[1:]
    )
    several = {"l": of_each} if is_any else {}
    on = [text.format(*pair) for (text, _), pair in parts]
    wheres: dict[str, str] = {}
    if "where" in schedule.asks:
        texts = (*_WHERES, *values.WHERES) if "values" in schedule.asks else _WHERES
        wheres = {name: more.choice(texts) for name in more.sample(names, more.randint(1, len(names)))}
        if more.random() < 0.3 and not is_any:  # of whose partners? It is refused
            on.append("l.y < 1.25")  # on one stream alone, so it acts as its `where`
    tables = []
    if "tables" in schedule.asks:
        table, (text, columns), name = asked_table(schedule.seed, names)
        tables.append(table)
        on.append(text)
        compared[name] = "".join(sorted({*compared[name], *columns}))
    inputs, include = dict(zip(names, names, strict=True)), False
    if "self" in schedule.asks:
        selves = random.Random(f"selves {schedule.seed}")
        same = names if len(names) == 2 else selves.choice((("l", "r"), ("r", "s"), ("l", "s"), names))
        inputs |= dict.fromkeys(same, same[0])
        include = selves.random() < 0.25
    # The oracle asks which streams are over one input. Where the input lies is said later (`Case.bound`).
    sources = {name: f"{inputs[name]}.csv" if "self" in schedule.asks else None for name in names}
    clocks = random.Random(f"clocks {schedule.seed}")
    timeouts = {name: clocks.choice((None, "3s", "3s", "8s")) if "idle" in schedule.asks else None for name in names}
    aheads = {name: clocks.choice((None, "20s", "20s")) if "future" in schedule.asks else None for name in names}
    parted = random.Random(f"parted streams {schedule.seed}")
    ways = {name: parted.choice(("file", "file", "folder", None)) for name in names}
    if "parted" not in schedule.asks:
        ways = dict.fromkeys(names)
    elif not any(ways.values()):
        ways["l"] = "file"
    ways = {name: ways[inputs[name]] for name in names}  # an input is read in one way
    sources |= {name: f"{inputs[name]}.csv" for name in names if ways[name]}
    by_device = random.Random(f"streams of devices {schedule.seed}")
    devices = {name: by_device.choice((True, True, False)) for name in names}
    if "devices" in schedule.asks:
        devices["l"] |= not any(devices.values())
        ways |= {name: ["k"] for name in names if devices[inputs[name]]}
        sources |= {name: f"{inputs[name]}.csv" for name in names if ways[name]}
    keyed = random.Random(f"keys {schedule.seed}")
    of_keys = values.KEYS if "values" in schedule.asks else ("x", "x,y", "x,y", "y", "x,y,ts")
    keys = {name: keyed.choice((*of_keys, None)) for name in names}
    if "unique" not in schedule.asks:
        keys = dict.fromkeys(names)
    elif not any(keys.values()):
        keys["l"] = "x,y"
    streams = [
        Stream(
            name, sources[name] and Files(sources[name], partition_by=ways[name]), delay=f"{delay}us",
            where=wheres.get(name), idle_timeout=timeouts[name], max_ahead=aheads[name], unique=keys[name],
        )
        for name, delay in zip(names, delays, strict=False)
    ]  # fmt: skip
    nearest = None
    if "nearest" in schedule.asks:
        near = random.Random(f"nearest {schedule.seed}")
        distances = values.DISTANCES if "values" in schedule.asks else _DISTANCES
        by = near.choice(distances).format(*near.choice((names, names[::-1])))
        how, nearest = near.choice(("inner", "left")), Nearest(near.choice((1, 1, 2, 3)), by, near.choice(DIRECTIONS))
    reduce: dict[str, str] = {}
    if "reduce" in schedule.asks:
        sums = random.Random(f"reduce {schedule.seed}")
        how = sums.choice(("inner", "left"))
        # With a column of its own each stream is read whole: a file with another header may be a good one otherwise.
        every = _REDUCE | values.REDUCE if "values" in schedule.asks else _REDUCE
        chosen = {"known", "some", *sums.sample([*every], 4 + (len(every) - len(_REDUCE)) // 2)}
        reduce = {name: text.format(*names) for name, text in every.items() if name in chosen}
    shown = names if has_pairs(how) and not reduce else names[:1]
    select = [f"{name}.{column}" for name in shown for column in ("ts", "x")] if wheres else None
    if "values" in schedule.asks:
        select = [f"{name}.{column}" for name in shown for column in ("ts", "x", "y", *values.NAMES)]
    if "devices" in schedule.asks and select is not None:
        select += [f"{name}.k" for name in shown]
    if select is None and schedule.seed >= ENVELOPES_FROM:  # else what is written for the columns is among the results
        select = [f"{name}.{column}" for name in shown for column in ("ts", "x", "y")]
    if select is not None and tables:
        select += ["z.zone"]
    if select is not None and random.Random(f"calculated {schedule.seed}").random() < 0.5:
        select += [f"{shown[0]}.x * 2 AS twice", f"{shown[0]}.x - {shown[-1]}.x AS gap"]
    kept = {"include_self_pairs": include, "how": how, "nearest": nearest, "tables": tables, "reduce": reduce}
    join = Join(streams, on, _window(schedule, names, extents, more), select, **kept)  # type: ignore[arg-type]
    return Asked(join, {name: (columns,) for name, columns in compared.items()} | several, inputs)


def _sides(columns: str, pair: tuple[str, ...]) -> dict[str, str]:
    """Return for each stream of a pair the columns whose null keeps its tuples out."""
    first, _, second = columns.partition("|")
    return dict(zip(pair, (first, second or first), strict=True))


def _window(schedule: Schedule, names: tuple[str, ...], extents: list[int], more: random.Random) -> WindowKind:
    if "count" in schedule.asks:
        return CountWindow(tuple(more.choice((0, 1, 2, 3, 5, 8, 12)) for _ in names))
    if "periodic" in schedule.asks:
        every = more.choice((1, 2, 4, 6)) * _TICK_US
        lags = (0, *(more.choice((0, 0, 1, -1, 2)) for _ in names[1:]))
        return PeriodicWindow(every, tuple(more.choice((2, 3, 4, 6, 8, 12)) * _TICK_US for _ in names), lags)
    return TimeWindow.of({name: f"{extent}us" for name, extent in zip(names, extents, strict=False)}, names)
