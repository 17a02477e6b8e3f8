"""Mutated messages in a form that is quick, and faults that they must find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamjoin_ds.source.kafka.formats import message_formats, registered_messages
from tests.source.message_fuzz import FORMATS, blocks, run_block


def run(kind: str, seed: int, cases: int) -> Counter[str]:
    told: Counter[str] = Counter()
    for _, block in blocks(kind, seed, 0, cases):
        told += run_block(kind, block)
    return told


@pytest.mark.parametrize("kind", FORMATS)
def test_a_mutated_message_is_a_reject_or_the_row_that_another_reader_finds(kind: str) -> None:
    told = run(kind, 5, 200)
    assert told["row"] > 40
    assert told["reject"] > 100


def _without_a_reject(*options: Any) -> Any:
    raw = _records(*options)
    return raw if raw.index is None else type(raw)(raw.table, raw.count, raw.index, raw.broken[1:])


_records = message_formats._records


def _without_sign(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    return _column(np.abs(values) if values.dtype == "<i8" else values, kind)


_column = message_formats._column


@pytest.mark.parametrize(
    ("kind", "where", "name", "fault"),
    [
        ("json", message_formats, "_records", _without_a_reject),
        ("fixed", message_formats, "_column", _without_sign),
        ("avro", registered_messages, "_others", lambda values, kind: []),
        ("protobuf", registered_messages, "_others", lambda values, kind: []),
    ],
    ids=["json", "fixed", "avro", "protobuf"],
)
def test_a_planted_fault_is_found(
    kind: str, where: Any, name: str, fault: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, fault)
    with pytest.raises(AssertionError):
        run(kind, 1, 2_000)
