"""The settings with which each life of the query is started: a restart may bring others, and some are refused by name.

The package itself must remember what the first start chose: it is in the checkpoint's ``join.json``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.errors import (
    FileChangedError,
    FileFormatError,
    FileOrderError,
    FingerprintMismatchError,
    SchemaDriftError,
    StreamJoinError,
)
from streamjoin_ds.plan import EXCHANGES, Execution, Plan
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.spec import BoundJoin
from streamjoin_ds.stream.query import LEAST_RETAINED
from tests.faults.model.case import Case
from tests.faults.model.layouts import first_layout, grids, layout_kind, relaid, whole
from tests.faults.model.schedule import ENVELOPES_FROM, Schedule

if TYPE_CHECKING:
    from tests.faults.model.world import World

__all__ = ["Settings", "kept_partitions", "make_identity", "plan_of", "refuse", "settings_of"]

_BAD_FILES = (FileChangedError, FileFormatError, FileOrderError, SchemaDriftError)


@dataclass(frozen=True)
class Settings:
    """The settings of one life.

    Attributes
    ----------
    plan : Plan
    options : dict of str to str
        Options of the source.
    may_refuse : tuple of classes
        Errors with which such a life may end; everything is then as it was before.
    must_refuse : class or None
        The error with which its start has to end.
    """

    plan: Plan
    options: dict[str, str] = field(default_factory=dict)
    may_refuse: tuple[type[StreamJoinError], ...] = ()
    must_refuse: type[StreamJoinError] | None = None


def plan_of(schedule: Schedule, case: Case, folder: Path) -> Plan:
    """Return the plan of a schedule."""
    bound = case.bound(schedule.source, folder)
    layout = first_layout(schedule, bound)
    return Plan(
        bound,
        layout,
        schedule.partitions,
        schedule.exchange,
        str(folder),
        TableSet(str(folder / "matches")).root,
        "join-model",
        state_root="" if schedule.blocks is None else str(folder / "blocks"),
        execution=Execution(merge_runs=schedule.merge_runs),
        block_bytes=schedule.blocks or 0,
        retain_batches=kept_batches(schedule, schedule.retain),
        layout_schedule=tuple(relaid(schedule, bound, layout)) if "relaid" in schedule.asks else (),
        layout_kind=layout_kind(schedule),
    )


def _with_cores(schedule: Schedule, plan: Plan, life: int) -> Plan:
    """Return a plan with another number of cells, and of partitions."""
    dice = random.Random(f"cores {life} {schedule.seed}")
    if dice.random() < 0.3:
        return plan
    cells = dice.choice((1, 2, 2, 3, 4, 6))
    if plan.bound.decided:
        layout = (
            dice.choice(grids(cells, len(plan.bound.names))) if "split" in schedule.asks else whole(plan.bound, cells)
        )
        return replace(plan, layout=layout, partitions=dice.choice((layout.cells, layout.cells, 1, 2)))
    wanted = dice.choice(grids(cells, len(plan.bound.names)))
    changes = relaid(schedule, plan.bound, wanted, dice) if "relaid" in schedule.asks else ()
    partitions = dice.choice((wanted.cells, wanted.cells, 1, 2))
    return replace(plan, wanted=wanted, partitions=partitions, layout_schedule=tuple(changes))


def kept_batches(schedule: Schedule, batches: int) -> int:
    """Return how many batches a query retains that is told to retain so many."""
    return max(batches, LEAST_RETAINED) if schedule.power else batches


def _retained(world: World, batches: int) -> int:
    """How many batches a life retains: where the checkpoint was taken back, no fewer than the first life.

    Newer versions of the state stay, and Spark counts back from the newest. So nobody takes a checkpoint back and asks
    for less of it at once.
    """
    taken_back = any(fault.kind == "back" for fault in world.fired)
    return kept_batches(world.schedule, max(batches, world.schedule.retain) if taken_back else batches)


def make_identity(plan: Plan, folder: Path) -> None:
    """Write what the first start of a query leaves in its checkpoint."""
    CheckpointIdentity.create(folder / "identity", plan.bound, plan.layout, plan.partitions)


def settings_of(world: World, life: int) -> Settings:
    """Return the settings of this life: those of the first one, or with changes in what may change."""
    schedule, plan = world.schedule, world.plan
    if world.is_settling:
        return Settings(plan)
    if "cores" in schedule.asks and life:
        plan = _with_cores(schedule, plan, life)
    if "settings" not in schedule.asks:
        return Settings(plan)
    dice = random.Random(f"settings {life} {schedule.seed}")
    identity = CheckpointIdentity.load(world.folder / "identity")
    assert identity is not None
    session_partitions = dice.randint(1, 4)
    execution = Execution(
        kernel=dice.choice(("auto", "reference")),
        threads=dice.choice((1, 1, 2)),
        pin=False,
        index=dice.choice(("auto", "scan")),
        merge_runs=dice.choice((schedule.merge_runs, 2, 4)),
    )
    stops = "quarantine" in schedule.asks and dice.random() < 0.15
    plan = replace(
        plan,
        bound=_bound(world, dice, stops=stops),
        layout=plan.layout if plan.bound.decided else identity.layout,  # the former moves with the cells
        partitions=kept_partitions(plan.partitions, session_partitions),
        execution=execution,
        exchange=dice.choice(EXCHANGES if _needs_blocks(world.case) else (*EXCHANGES, "packed")),
        block_bytes=dice.choice((plan.block_bytes, 0, 1500)),
        retain_batches=_retained(world, dice.choice((schedule.retain, 1, 3))),
        durable=schedule.power or dice.random() < 0.5,
    )
    identity.check(plan.bound)
    options = {"parts": str(dice.randint(1, 3)), "max_block_rows": str(dice.randint(2, 6))}
    if dice.random() < 0.2:
        return Settings(replace(plan, bound=_bound(world, dice, delay_us=1)), must_refuse=FingerprintMismatchError)
    return Settings(plan, options, _BAD_FILES if stops else ())


def _needs_blocks(case: Case) -> bool:
    """Whether there were two ways of the exchange when there were three: seeds stay what they are."""
    return bool(case.devices) or any(stream.unique_key for stream in case.join.streams)


def kept_partitions(of_state: int, of_session: int) -> int:
    """Return the number of partitions that Spark is told to use."""
    return of_state


def refuse(settings: Settings, folder: Path) -> None:
    """Refuse settings that a checkpoint's query may not have, as its start does.

    Raises
    ------
    FingerprintMismatchError
    """
    if settings.must_refuse is not None:
        identity = CheckpointIdentity.load(folder / "identity")
        assert identity is not None
        identity.check(settings.plan.bound)
        msg = f"a start that {settings.must_refuse.__name__} was to refuse went on"
        raise AssertionError(msg)


def _bound(world: World, dice: random.Random, *, stops: bool = False, delay_us: int = 0) -> BoundJoin:
    """Return the join with other clocks.

    They do not change what must come out: no record is between 20 and 20.1 s ahead. The largest limit of old seeds is
    30 s, which lets one more through where the first record is from the future.
    """
    join, schedule = world.case.join, world.schedule
    longer = "20100ms" if schedule.seed >= ENVELOPES_FROM else "30s"
    streams = [
        replace(
            stream,
            delay=f"{stream.delay_us + delay_us}us",
            idle_timeout=dice.choice((stream.idle_timeout, None, "5s")) if "idle" in schedule.asks else None,
            max_ahead=stream.max_ahead and dice.choice(("20s", longer)),
        )
        for stream in join.streams
    ]
    return replace(world.case, join=join.with_streams(streams)).bound(schedule.source, world.folder, stops=stops)
