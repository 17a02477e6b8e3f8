"""Schedules that found a bug, as small as they could be made."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from tests.faults.model.checkpoint import Checkpoint, StateDiffersError
from tests.faults.model.schedule import Fault, Schedule, plain_schedule, random_schedule
from tests.faults.planted import COMES_BACK
from tests.faults.planting import bug, planted
from tests.faults.simulate import outcome_of

# A merged run that expiry thinned out was, to the byte, a block that had left before. The block's old entry among the
# retired removed it one batch after it left for good, while Spark could still come back to a manifest that named it.
# Runs are merged level by level here: runs that are merged once are seldom thinned out.
BACK_AGAIN = Schedule(
    4828,
    layout="2x2",
    partitions=1,
    rows=25,
    batch_rows=96,
    grows=True,
    workers=1,
    faults=(Fault("freeze", 4, "driver", "punctuations logged"),),
    merge_runs=4,
)


@pytest.mark.slow
def test_a_block_that_comes_back_has_not_left() -> None:
    assert not outcome_of(BACK_AGAIN).violations
    with planted(COMES_BACK):
        assert any("BLOCK_MISSING" in text for text in outcome_of(BACK_AGAIN).violations)


# A driver stopped before it logged its first batch. It goes on when the offsets of that batch have just been purged,
# and before the state of the batch that is being done is there. Nobody can come back to what it leaves.
BETWEEN_PURGE_AND_STATE = Schedule(
    23107,
    layout="2x1",
    partitions=1,
    rows=11,
    batch_rows=8,
    blocks=None,
    workers=1,
    faults=(Fault("freeze", 0, "driver", "offsets", delay=400),),
)


def test_a_version_without_its_offsets_may_be_written_over() -> None:
    outcome = outcome_of(BETWEEN_PURGE_AND_STATE)
    assert outcome.fired["freeze"] == 1
    assert not outcome.violations


def test_a_version_whose_offsets_are_kept_may_not() -> None:
    log = Checkpoint(1)
    log.keep_state(0, 1, {0: b"a"})
    log.log_offsets(0, "0")
    for last, refused in ((1, True), (2, False)):
        log.log_offsets(last, str(last))
        log.keep_state(0, 1, {0: b"a"})
        with pytest.raises(StateDiffersError) if refused else contextlib.nullcontext():
            log.keep_state(0, 1, {0: b"b"})


def test_a_worker_may_die_while_a_stopped_task_of_it_is_yet_to_be_killed() -> None:
    faults = (
        Fault("freeze", 1, "cell", "state put", delay=10),
        Fault("kill", 1, "cell", "state put"),
        Fault("kill", 2, "cell", "matches sync"),
    )
    schedule = Schedule(
        26339,
        layout="1x1",
        partitions=1,
        exchange="reference",
        source="csv",
        rows=10,
        batch_rows=40,
        blocks=None,
        retain=1,
        workers=1,
        grows=True,
        tailed=0,
        faults=faults,
    )
    assert not outcome_of(schedule).violations


def test_blocks_of_batches_taken_back_go_though_they_are_done_again_packed() -> None:
    """The blocks are of batches before the first one that a process with another way of the exchange commits."""
    schedule = Schedule(
        300517,
        layout="1x1",
        partitions=1,
        exchange="reference",
        source="csv",
        rows=4,
        batch_rows=3,
        blocks=0,
        retain=1,
        workers=1,
        grows=False,
        tailed=3,
        faults=(Fault("back", 1, "driver", "ledger log", delay=1),),
        asks=("settings",),
    )
    assert not outcome_of(schedule).violations


@pytest.mark.parametrize("seed", [2792, 4381, 4553, 4828, 5284])
def test_schedules_that_found_a_flaw_of_the_model(seed: int) -> None:
    assert not outcome_of(plain_schedule(seed)).violations


def test_a_second_attempt_that_a_rival_s_task_had() -> None:
    """This, too, was a flaw of the model; one of 100 000 schedules met it."""
    assert not outcome_of(random_schedule(78760)).violations


def test_a_driver_under_spark_is_behind_where_its_unnamed_entry_is_purged() -> None:
    """A flaw of the model too: one without Spark is batches ahead, and the other ends as where it finds an entry."""
    slept = replace(random_schedule(2050912), faults=(Fault("freeze", 1, "driver", "spark write", delay=5),))
    outcome = outcome_of(slept)
    assert outcome.fired["freeze"] == 1
    assert not outcome.violations


# A driver that slept before it planned its first batch, until that batch's offsets were purged, cuts it anew, and finds
# other tuples late. The table of late tuples may not have a batch after it yet: only the ledger knows better.
# The delay counts steps of others, which become more with each column of a table.
SLEPT_TILL_THE_PURGE = Schedule(
    401730,
    layout="1x1",
    partitions=1,
    source="csv",
    rows=9,
    batch_rows=32,
    blocks=None,
    workers=1,
    grows=True,
    faults=(Fault("freeze", 0, "driver", "plan", delay=480),),
    asks=("idle",),
)
_NO_LOOK = bug(
    "late tuples are committed without a look at the ledger",
    (
        "sink:Committer.commit_before",
        'if self._targets["ledger"].holds(batch) and not self._check_same(batch, ledger):',
        "if False:",
    ),
)


def test_a_driver_that_slept_till_its_offsets_were_purged_adds_no_late_tuples() -> None:
    assert not outcome_of(SLEPT_TILL_THE_PURGE).violations
    with planted(_NO_LOOK):
        assert any(text.startswith("late: surplus") for text in outcome_of(SLEPT_TILL_THE_PURGE).violations)


# A driver slept in a batch, another one did it again under settings by which windows are other blocks, and the sleeper
# went on when half of the states were the other one's. Then a cell removed a block that it shared with one that still
# named it, and no start could go on.
TWO_DRIVERS_OF_UNLIKE_SETTINGS = Schedule(
    1532729,
    layout="2x2",
    partitions=2,
    exchange="reference",
    source="csv",
    rows=12,
    batch_rows=3,
    blocks=0,
    retain=1,
    workers=1,
    grows=True,
    tailed=0,
    faults=(Fault("crash", 1, "driver", "plan"), Fault("freeze", 5, "driver", "ledger write", delay=30)),
    asks=("idle", "settings", "unique"),
)
_OWN_SIZING = bug(
    "cells size blocks as their own start says",
    ("cell:Cell.run", "self.plan.sized(self.batch.sizing)", "self.plan"),
)


def test_a_batch_is_done_again_under_the_settings_of_blocks_that_it_was_planned_under() -> None:
    assert not outcome_of(TWO_DRIVERS_OF_UNLIKE_SETTINGS).violations
    with planted(_OWN_SIZING):
        assert any("BLOCK_MISSING" in text for text in outcome_of(TWO_DRIVERS_OF_UNLIKE_SETTINGS).violations)


def test_a_driver_without_spark_that_was_stopped_does_not_write_over_the_offsets_of_another() -> None:
    """Its own end of batch 0 took the place of the one that the tables held, and no driver could go on."""
    faults = (Fault("crash", 0, "driver", "metrics logged"), Fault("freeze", 0, "driver", "plan"))
    schedule = Schedule(
        2030041,
        layout="1x1",
        partitions=1,
        source="csv",
        rows=7,
        blocks=None,
        workers=1,
        faults=faults,
        asks=("local",),
    )
    assert not outcome_of(schedule).violations


def test_a_checkpoint_that_was_taken_back_is_not_told_to_retain_less_at_once() -> None:
    """A flaw of the model: Spark counts back from the newest version of the state, which may be of before."""
    assert not outcome_of(random_schedule(402394)).violations


def test_a_checkpoint_is_not_taken_back_to_a_version_that_a_move_left_out() -> None:
    """A flaw of the model: no batch could be repeated, and the newest commit went all the same."""
    assert not outcome_of(random_schedule(1950931)).violations


def test_states_over_unlike_states_may_differ() -> None:
    """A flaw of the model: what was taken back was done again in other blocks, and a late task did not go by these."""
    faults = (Fault("back", 3, "driver", "sink", delay=1), Fault("stall", 3, "cell", "begin", delay=60))
    schedule = Schedule(
        1536835,
        layout="1x1",
        partitions=1,
        exchange="reference",
        source="listed",
        rows=9,
        batch_rows=5,
        blocks=None,
        retain=3,
        workers=1,
        tailed=0,
        faults=faults,
        asks=("settings", "reduce"),
    )
    assert not outcome_of(schedule).violations


def test_a_driver_that_stops_on_a_full_disk_leaves_room_for_the_next() -> None:
    """A flaw of the model: the disk stayed full until the sleeper went on, and 40 drivers failed on it."""
    assert not outcome_of(random_schedule(910459)).violations


def test_a_disk_that_is_full_wherever_spark_writes_ends_the_query_by_name() -> None:
    """A flaw of the model: room was missed at the write itself, and nothing explained the error."""
    assert not outcome_of(random_schedule(2_040_117)).violations


def test_a_task_that_wakes_writes_its_state_where_another_driver_has_removed_the_folder() -> None:
    """A flaw of the model: the folder was made before the task fell asleep, where Hadoop makes it with the file."""
    assert not outcome_of(random_schedule(2_051_027)).violations
