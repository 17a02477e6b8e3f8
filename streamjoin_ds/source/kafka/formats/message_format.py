"""What a format of messages does, and what all of them share."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin_ds.source.records import RawRecords, clipped

__all__ = ["NO_VALUE", "MessageFormat", "is_null", "message_text", "utf8_values", "value_text"]

NO_VALUE = "a message without a value"


class MessageFormat(Protocol):
    """Reads the values of messages."""

    def read(self, values: pa.BinaryArray) -> RawRecords:
        """Return the records of messages: one for each, readable or broken."""


def value_text(value: bytes | None) -> str:
    """Return a message's bytes as text where they are UTF-8, else as ``0x`` and hexadecimal digits."""
    if value is None:
        return ""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "0x" + value.hex()


def message_text(value: bytes | None) -> str:
    """Return a message's `value_text` for a reject, which is cut where it is long."""
    return clipped(value_text(value))


def is_null(values: pa.Array) -> np.ndarray:
    """Return which values are null."""
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)


def utf8_values(values: pa.BinaryArray) -> tuple[pa.StringArray, list[int]]:
    """Return bytes as texts, and the places of those that are not UTF-8, which are null among the texts."""
    try:
        return values.cast(pa.string()), []
    except pa.ArrowInvalid:
        broken = [place for place, value in enumerate(values.to_pylist()) if value is not None and not _is_utf8(value)]
    is_good = np.ones(len(values), np.bool_)
    is_good[broken] = False
    masked = pc.if_else(pa.array(is_good), values, pa.scalar(None, values.type))
    return masked.cast(pa.string()), broken


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
