"""What the partitions of two topics are sent: a function of the seed and of the round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamjoin_ds import Stream, StreamJoin, band

__all__ = ["NAMES", "Load", "topics_join"]

NAMES = ("l", "r")
START_US = 1_700_000_000_000_000
# A stream has a message in a millisecond. A window of ten seconds holds 10 000 of each, of which one or two match.
STEP_US = 1_000
WINDOW_US = 10_000_000
DELAY_US = 2_000_000
KEYS = 40_000
_MOST_BACK_US = 3 * DELAY_US
_BACK_SHARE = 0.03
_POISON_SHARE = 0.003
_LAG_US = 8_000_000
_SILENCE_ROUNDS = 40
_AHEAD_US = 10**12  # of aborted messages: whoever read one would find all others late
_SCHEMA = {"ts": "int64", "n": "int64", "x": "int64"}


@dataclass(frozen=True)
class Load:
    """The messages of two topics, round by round.

    The second partition of each topic lags behind the others in event time. The first one of the right topic is silent
    in every third stretch of rounds. A partition that is added begins in the past.

    Attributes
    ----------
    seed : int
    partitions : tuple of int
        How many each topic has.
    messages : int
        Of a partition and a round.
    """

    seed: int
    partitions: tuple[int, int]
    messages: int = 100

    def is_silent(self, side: int, partition: int, number: int) -> bool:
        """Whether a partition is sent nothing in a round."""
        return side == 1 and partition == 0 and number // _SILENCE_ROUNDS % 3 == 1

    def values(self, side: int, partition: int, number: int, aborted: bool = False) -> list[bytes | None]:
        """Return the messages of a partition in a round; those of a transaction that is aborted are far ahead."""
        random = np.random.default_rng([self.seed, side, partition, number, aborted])
        of_round_us = self.messages * self.partitions[side] * STEP_US
        times_us = START_US + number * of_round_us + random.integers(0, of_round_us, self.messages)
        back_us = random.integers(0, _MOST_BACK_US, self.messages)
        times_us -= np.where(random.random(self.messages) < _BACK_SHARE, back_us, 0)
        is_behind = partition == 1 or partition >= self.partitions[side]
        times_us += _AHEAD_US * aborted - _LAG_US * is_behind
        keys = random.integers(0, KEYS, self.messages)
        first = number * self.messages
        rows = zip(times_us.tolist(), range(first, first + self.messages), keys.tolist(), strict=True)
        found: list[bytes | None] = [b'{"ts":%d,"n":%d,"x":%d}' % row for row in rows]
        for place in np.flatnonzero(random.random(self.messages) < _POISON_SHARE).tolist():
            found[place] = poisoned(found[place] or b"", int(random.integers(0, 7)))
        return found


def poisoned(value: bytes, kind: int) -> bytes | None:
    """Return a message that cannot be read, made of one that can; of the last kind its event time still counts."""
    kinds = (
        value[: len(value) // 2],
        value + value,
        b"",
        None,
        value.replace(b'"ts"', b'"t\xff"'),
        b"[" + value + b"]",
        value[: value.rindex(b":") + 1] + b'"none"}',
    )
    return kinds[kind]


def topics_join(servers: str, topics: tuple[str, str], idle_timeout: str = "2s") -> StreamJoin:
    """Return the join over two topics."""
    streams = [
        Stream(
            name,
            f"kafka://{servers}/{topic}?format=json",
            schema=pa.schema([(column, kind) for column, kind in _SCHEMA.items()]),
            delay=f"{DELAY_US}us",
            idle_timeout=idle_timeout,
        )
        for name, topic in zip(NAMES, topics, strict=True)
    ]
    return StreamJoin(streams, on=band("l.x", "r.x", 1), window=f"{WINDOW_US}us", select=["l.n", "l.x", "r.n", "r.x"])
