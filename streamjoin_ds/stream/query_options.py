"""How to run a join: what no row of its result depends on."""

from __future__ import annotations

from dataclasses import dataclass

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.plan import DEFAULT_EXECUTION, Execution
from streamjoin_ds.source.delay_bound import max_delay_us
from streamjoin_ds.spec import duration_us
from streamjoin_ds.stream.run_keys import RUN_KEYS, keys_of
from streamjoin_ds.stream.sensor_options import checked_reader_options

__all__ = ["QueryOptions"]


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """How to run a join; no option changes a row of its result. `StreamJoin.start` says what each one means."""

    available_now: bool = False
    trigger: str | None = None
    max_rows_per_batch: int | None = None
    max_delay: str | None = None
    layout: str = "auto"
    exchange: str = "auto"
    execution: Execution = DEFAULT_EXECUTION
    source_options: tuple[tuple[str, str], ...] = ()
    durable: bool = True
    take_over: bool = False
    cells: int | None = None
    restart: bool = False
    restarts: int = 0  # how often the query was started again before

    def __post_init__(self) -> None:
        for name in keys_of("start", "plan"):
            if getattr(self, name) is not None:
                RUN_KEYS[name].check_value(getattr(self, name), name)
        if self.available_now and self.trigger is not None:
            msg = "available_now and trigger exclude each other"
            raise ArgumentError(
                msg,
                name="trigger",
                hint="give one: available_now reads what is there and then stops, a trigger goes on",
            )
        if self.trigger is not None:
            duration_us(self.trigger, "trigger")
        if self.max_delay is not None:
            _check_delay(max_delay_us(self.max_delay), self.trigger)
        object.__setattr__(self, "source_options", tuple(checked_reader_options(dict(self.source_options)).items()))


def _check_delay(bound_us: int, trigger: str | None) -> None:
    if trigger is not None and duration_us(trigger, "trigger") >= bound_us:
        msg = "trigger is not shorter than max_delay: a tuple may wait that long before its batch begins"
        raise ArgumentError(
            msg, name="max_delay", hint="give a shorter trigger, or none: the next batch then follows at once"
        )
