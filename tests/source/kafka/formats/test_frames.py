from __future__ import annotations

import json
from importlib import import_module

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import KernelError
from streamjoin_ds.source.kafka.formats.message_formats import FRAMED, byte_ends, frame_objects
from tests.support.examples import examples

native = import_module("streamjoin_ds._kernels.messages").frame_objects

PIECES = [b"{", b"}", b"[", b"]", b'"', b"\\", b"\n", b"\r", b" ", b":", b",", b"1", b'"a"', b'{"a":1}', b"\xff", b"\0"]
MESSAGES = st.lists(st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join), max_size=8)


@examples(400)
@given(MESSAGES)
def test_the_kernel_and_its_twin_agree(values: list[bytes]) -> None:
    data, ends = byte_ends(pa.array(values, pa.binary()))
    lines, found = native(data, ends)
    twin_lines, twin_found = frame_objects(data, ends)
    assert found.tolist() == twin_found.tolist()
    assert lines.tobytes() == twin_lines.tobytes()


@examples(300)
@given(MESSAGES)
def test_a_framed_message_is_a_line_of_its_own(values: list[bytes]) -> None:
    lines, found = frame_objects(*byte_ends(pa.array(values, pa.binary())))
    kept = [value for value, what in zip(values, found, strict=True) if what == FRAMED]
    assert lines.tobytes().count(b"\n") == len(kept)
    for value, line in zip(kept, lines.tobytes().split(b"\n"), strict=False):
        assert len(line) == len(value.strip(b" \t\r\n"))
    for value, what in zip(values, found, strict=True):
        try:
            is_object = isinstance(json.loads(value), dict)
        except (ValueError, RecursionError):
            is_object = False
        assert what == FRAMED or not is_object  # no object is refused


@pytest.mark.parametrize("frame", [native, frame_objects], ids=["native", "twin"])
@pytest.mark.parametrize(
    ("value", "what"),
    [
        (b'{"a":1}', 0),
        (b' \n{"a":\r\n[1,{"b":"}\\"{"}]}\t', 0),
        (b"", 1),
        (b" \n", 1),
        (b"null", 2),
        (b"[{}]", 2),
        (b'\xef\xbb\xbf{"a":1}', 2),
        (b'{"a":1', 3),
        (b'{"a":"1}', 3),
        (b'{"a":"\\', 3),
        (b"{}{}", 4),
        (b"{} null", 4),
        (b"{}}", 4),
        (b'{"a":"\n"}', 5),
        (b'{"a":"\\\n"}', 5),
    ],
)
def test_what_a_message_is(frame: object, value: bytes, what: int) -> None:
    _, found = frame(*byte_ends(pa.array([b"{}", value, b"{}"], pa.binary())))  # type: ignore[operator]
    assert found.tolist() == [0, what, 0]


def test_the_kernel_refuses_ends_that_are_not_within_the_data() -> None:
    data = np.zeros(4, np.uint8)
    for ends in ([0, 5], [-1, 2], [3, 1]):
        with pytest.raises(KernelError):
            native(data, np.array(ends, np.int32))
    with pytest.raises(KernelError):
        native(data, np.zeros(0, np.int32))
