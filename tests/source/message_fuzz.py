"""Mutated messages of topics and spools, in blocks with unbroken ones, read by this package and a second time.

::

    .venv/bin/python -m tests.source.message_fuzz --format avro --cases 100000 --seed 1

A block has a schema, which is drawn, and some messages: each is a valid one, or one with bytes or values changed. What
they hold is read again by what shares nothing with the decoders here: Python's `json` and the rules of
`tests.source.message_rules`, fastavro's reader in plain Python, google.protobuf, `struct`. Each message must be
exactly the row of that reading, or a reject that is kept with its bytes where that has none. A block is a function of
the seed, the format and its number.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamjoin_ds.errors import KafkaSchemaError
from streamjoin_ds.source.files.json_lines import JsonLines
from streamjoin_ds.source.files.text_blocks import SpoolRecords, parse_spooled
from streamjoin_ds.source.kafka.formats.message_records import MessageRecords
from streamjoin_ds.source.kafka.formats.registered_messages import RegisteredSchema, SchemaRegistry
from streamjoin_ds.source.records import MAX_TEXT, Chunk, inside_form
from streamjoin_ds.spec.columns import as_declared, compared_type
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spool.segment import frames_of, mark, walk
from tests.source.drawn_messages import Drawn, FixedDrawn, JsonDrawn
from tests.source.kafka.formats.messages import messages_of
from tests.source.message_rules import canonical
from tests.source.registered_messages import AvroDrawn, ProtobufDrawn

__all__ = ["FORMATS", "blocks", "run_block"]

FORMATS: dict[str, type[Drawn]] = {
    "json": JsonDrawn,
    "spool": JsonDrawn,
    "fixed": FixedDrawn,
    "avro": AvroDrawn,
    "protobuf": ProtobufDrawn,
}
_MESSAGES = 30  # of a block; two thirds of them are mutated
BLOCK_CPU_S = 2.0
_PIECES = (
    b"\0", b"\x7f", b"\x80", b"\xff", b"\n", b"\r", b"\t", b" ", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":",
    b"null", b"true", b"NaN", b"-Infinity", b"Inf", b"-0", b"1e400", b"-1", b"1.50", b"1e2", b"1e-60", b"12345",
    b'"x"', b'""', b'"\\ud800"', b'"\\udc00"', b'"\\u0000"', b'"2024-02-30"', b'"2024-02-29T23:59:59.9999999+14:00"',
    b'"5"', b"9223372036854775808", b"[]", b"{}", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"[" * 3000, b"9" * 5000,
    b"\x80" * 12, b"\xff" * 9 + b"\x01",
)  # fmt: skip


@dataclass
class Block:
    """Messages of one schema, and what each is when it is read a second time: its row, or None."""

    drawn: Drawn
    values: list[bytes | None]
    rows: list[dict[str, Any] | None]
    odd: set[int] = field(default_factory=set)
    mutated: int = 0


class _Registry(SchemaRegistry):
    """A registry that holds what a block drew; time passes while somebody waits."""

    def __init__(self, held: dict[int, RegisteredSchema]) -> None:
        self.now = 0.0
        super().__init__("http://registry", {}, clock=lambda: self.now, wait=self._pass)
        self._held = held

    def _pass(self, seconds: float) -> None:
        self.now += seconds

    def _answer(self, path: str) -> RegisteredSchema | int:
        return self._held.get(int(path.rpartition("/")[2].partition("?")[0]), 404)


def mutated(draw: random.Random, value: bytes, others: list[bytes], cuts: Callable[[bytes], list[int]]) -> bytes:
    """Return a message with bytes changed, cut out, repeated, or put in; half of the changes are at its `cuts`."""
    data = bytearray(value)
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        places = cuts(bytes(data)) if draw.random() < 0.5 else []
        at = draw.choice(places) if places else draw.randrange(len(data) + 1)
        end = min((place for place in places if place > at), default=at + draw.choice([1, 1, 2, 8]))
        match draw.randrange(8):
            case 0 if at < len(data):
                data[at] ^= 1 << draw.randrange(8)
            case 1 if at < len(data):
                data[at] = draw.randrange(256)
            case 2:
                data[at:end] = b""
            case 3:
                data[at:at] = data[at:end]
            case 4:
                del data[at:]
            case 5:
                other = draw.choice(others)
                begin = draw.randrange(len(other) + 1)
                data[at:end] = other[begin : begin + draw.choice([1, 4, 16, 400])]
            case 6:
                data[at:end] = draw.choice(_PIECES)
            case _:
                data[at:at] = draw.choice(_PIECES)
    return bytes(data)


def blocks(kind: str, seed: int, first: int, cases: int) -> Iterator[tuple[int, Block]]:
    """Yield blocks from number `first` on, until they hold so many mutated messages."""
    number = first
    while cases > 0:
        draw = random.Random(f"{kind}/{seed}/{number}")
        drawn = FORMATS[kind](draw)
        whole = [drawn.message() for _ in range(_MESSAGES)]
        values: list[bytes | None] = list(whole)
        changed = draw.sample(range(_MESSAGES), _MESSAGES * 2 // 3)
        for place in changed:
            values[place] = mutated(draw, whole[place], whole, drawn.cuts)
        if draw.random() < 0.1 and kind != "spool":
            values[draw.randrange(_MESSAGES)] = None
        block = Block(drawn, values, [], mutated=len(changed))
        for place, value in enumerate(values):
            row, is_odd = drawn.reading(value) if value is not None else (None, False)
            block.rows.append(row)
            if is_odd:
                block.odd.add(place)
        yield number, block
        cases -= len(changed)
        number += 1


def _readers(kind: str, block: Block) -> Iterator[tuple[int, Chunk]]:
    """Yield the block as it is read: whole, and in two pieces by a reader that has read before."""
    drawn = block.drawn
    declared = drawn.schema
    stream = Stream("e", "kafka://b:1/t", time="ts", time_unit=drawn.unit, schema=declared)
    wanted = pa.schema([each.with_type(compared_type(each.type, each.name)) for each in declared])
    middle = len(block.values) // 3
    if kind == "spool":
        form = JsonLines(as_declared(wanted, declared), "ts")
        for begin, end in ((0, None), (0, middle), (middle, None)):
            payloads = [(b"t", value or b"") for value in block.values[begin:end]]
            data = b"".join(frames_of(payloads, 0, 5, 7))
            data += mark(len(payloads), 7)
            records = SpoolRecords.among(data, walk(data, 7, 0, ended=True))
            raw = parse_spooled(records, form, wanted, file="kafka:t/3", at_file_start=False)
            lines = 100 + 2 * np.arange(begin, begin + records.count)
            yield begin, inside_form(raw, stream, wanted, 0, "kafka:t/3", lines, records.record_text)
        return
    messages = messages_of(block.values)
    registry = _Registry(drawn.registered) if drawn.registered else None
    records_of = MessageRecords(kind, stream, wanted, "t", registry)
    if drawn.registered and (
        unknown := {n for v in block.values if v and (n := _id_of(v)) is not None} - set(drawn.registered)
    ):
        with pytest.raises(KafkaSchemaError, match="|".join(map(str, unknown))):
            records_of.chunk(messages, 3, 0)
        records_of = MessageRecords(kind, stream, wanted, "t", registry, unknown)
    for begin, piece in ((0, messages), (0, messages.slice(0, middle)), (middle, messages.slice(middle))):
        yield begin, records_of.chunk(piece, 3, 0)


def _id_of(value: bytes) -> int | None:
    number = int.from_bytes(value[1:5], "big")
    return number if len(value) >= 5 and value[0] == 0 and number < 1 << 31 else None


def run_block(kind: str, block: Block) -> Counter[str]:
    """Read a block in all ways and compare; return how many messages became what."""
    told: Counter[str] = Counter()
    for begin, chunk in _readers(kind, block):
        found: dict[int, dict[str, Any]] = {}
        columns = {name: canonical(chunk.tuples.column(name)) for name in chunk.tuples.schema.names if name != "_seq"}
        for at, place in enumerate(chunk.tuples.column("_seq").to_pylist()):
            assert place not in found, f"message {begin + place} is two rows"
            found[place] = {name: values[at] for name, values in columns.items()}
        rejects = {reject.seq: reject for reject in chunk.rejects}
        assert len(rejects) == len(chunk.rejects)
        assert not set(rejects) & set(found), "a row and a reject"
        assert sorted([*rejects, *found]) == list(range(chunk.count)), "a message is lost"
        for place in range(chunk.count):
            value, row = block.values[begin + place], block.rows[begin + place]
            is_odd = begin + place in block.odd
            where = f"message {begin + place}, {_shown(value)}"
            if place in found:
                assert row is not None, f"{where}: an invented row {found[place]}"
                assert found[place] == row, f"{where}: {found[place]} instead of {row}"
            else:
                reject = rejects[place]
                assert row is None or is_odd, f"{where}: refused ({reject.column}: {reject.reason}) instead of {row}"
                assert reject.reason
                assert (reject.file, reject.line) == ("kafka:t/3", 100 + 2 * (begin + place))
                assert reject.text == _kept_text(kind, value), where
            if begin == 0 and chunk.count == len(block.values):
                told["row" if place in found else "reject, read otherwise" if row is not None else "reject"] += 1
    return told


def _shown(value: bytes | None) -> str:
    text = repr(value)
    return text if len(text) < 1000 else f"{text[:500]} ... {text[-500:]}"


def _kept_text(kind: str, value: bytes | None) -> str:
    value = value or b""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = value.decode("utf-8", "replace") if kind == "spool" else "0x" + value.hex()
    more = len(text) - MAX_TEXT
    return f"{text[:MAX_TEXT]} ... ({more} more characters)" if more > 0 else text


def main() -> None:
    """Run a campaign, and print what it took."""
    parser = argparse.ArgumentParser(prog="python -m tests.source.message_fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--format", choices=FORMATS, action="append", help="one or more; else all")
    parser.add_argument("--cases", type=int, default=100_000, help="mutated messages of each format")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first block; a block that failed: --cases 1"
    )
    asked = parser.parse_args()
    faulthandler.enable()
    logging.getLogger("streamjoin_ds").setLevel(logging.CRITICAL)
    sys.set_int_max_str_digits(0)  # the second reading knows long numbers
    for kind in asked.format or FORMATS:
        for _, block in blocks(kind, 0, 0, 1):
            run_block(kind, block)  # libraries are loaded
        told: Counter[str] = Counter()
        began_s, slowest, before_kib = time.process_time(), (0.0, 0), 0
        done = 0
        for number, block in blocks(kind, asked.seed, asked.first, asked.cases):
            faulthandler.dump_traceback_later(60, exit=True)  # wall time: a hang inside a library
            block_s = time.process_time()
            try:
                told += run_block(kind, block)
            except BaseException:
                print(f"block {number} failed: --format {kind} --seed {asked.seed} --first {number} --cases 1")
                raise
            slowest = max(slowest, (time.process_time() - block_s, number))
            assert slowest[0] < BLOCK_CPU_S, slowest
            done += block.mutated
            if not before_kib and done >= min(2_000, asked.cases // 2):
                before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        faulthandler.cancel_dump_traceback_later()
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        counts = ", ".join(f"{count} {name}" for name, count in sorted(told.items()))
        print(
            f"{kind}: {done} mutated messages, seed {asked.seed}: {counts}; {time.process_time() - began_s:.0f} CPU s; "
            f"the slowest block ({slowest[1]}) {slowest[0] * 1e3:.0f} ms; memory {peak_kib >> 10} MiB at most, "
            f"{(peak_kib - before_kib) / 1024:.1f} MiB more than at the beginning",
            flush=True,
        )
        assert peak_kib - before_kib < 64 << 10


if __name__ == "__main__":
    main()
