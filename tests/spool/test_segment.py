"""Frames: what was written is read, and nothing else is, wherever the bytes are cut or changed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.spool.segment import FRAME_BYTES, HEADER_BYTES, frames_of, header, header_facts, mark, walk
from tests.support.examples import examples

MESSAGES = st.lists(st.tuples(st.binary(max_size=5), st.binary(max_size=60)), min_size=1, max_size=8)
SALT = 0x1234_5678_9ABC_DEF0


def written(groups: list[list[tuple[bytes, bytes]]]) -> tuple[bytes, list[int]]:
    """Return the bytes of groups with a mark after each, and where the marks end."""
    data, ends, number = b"", [], 0
    for group in groups:
        data += b"".join(frames_of(group, number, 1_000 + number, SALT))
        number += len(group)
        data += mark(number, SALT)
        ends.append(len(data))
    return data, ends


@examples(100)
@given(st.lists(MESSAGES, max_size=4))
def test_what_was_written_is_read(groups: list[list[tuple[bytes, bytes]]]) -> None:
    data, ends = written(groups)
    found = walk(data, SALT, 0, ended=True)
    messages = [message for group in groups for message in group]
    assert list(zip(found.topics(), found.payloads, strict=True)) == messages
    assert found.numbers() == list(range(len(messages)))
    assert (found.end, found.marked_end, found.marked_count) == (len(data), len(data), len(messages))
    assert found.following == (len(messages) if ends else None)
    assert not found.damaged
    assert len(data) == sum(FRAME_BYTES + len(t) + len(p) for t, p in messages) + FRAME_BYTES * len(ends)


@examples(100)
@given(st.lists(MESSAGES, min_size=1, max_size=4), st.data())
def test_a_prefix_holds_a_prefix(groups: list[list[tuple[bytes, bytes]]], data: st.DataObject) -> None:
    whole, ends = written(groups)
    cut = data.draw(st.integers(0, len(whole)))
    messages = [message for group in groups for message in group]
    for ended in (False, True):
        found = walk(whole[:cut], SALT, 0, ended=ended)
        assert list(zip(found.topics(), found.payloads, strict=True)) == messages[: len(found.payloads)]
        assert found.marked_end == max([end for end in ends if end <= cut], default=0)
        assert not found.damaged
        found.cut_at_mark()
        assert found.end == found.marked_end
        assert len(found.payloads) == sum(len(g) for g, end in zip(groups, ends, strict=True) if end <= cut)


@examples(200)
@given(st.lists(MESSAGES, min_size=1, max_size=4), st.data())
def test_changed_bytes_give_no_record_that_was_not_written(
    groups: list[list[tuple[bytes, bytes]]], data: st.DataObject
) -> None:
    whole, _ = written(groups)
    changed = bytearray(whole)
    for at in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=4)):
        changed[at] ^= data.draw(st.integers(1, 255))
    found = walk(bytes(changed), SALT, 0, ended=True)
    messages = dict(enumerate(message for group in groups for message in group))
    good = [place for place in range(len(found.numbers())) if place not in found.damaged]
    assert all(messages[found.numbers()[p]] == (found.topics()[p], found.payloads[p]) for p in good)
    numbers = [found.numbers()[place] for place in good]
    assert numbers == sorted(set(numbers))


def test_a_payload_that_is_a_frame_is_a_payload() -> None:
    inner = b"".join(frames_of([(b"t", b"evil")], 0, 5, SALT + 1))  # who publishes does not know the salt
    data = b"".join(frames_of([(b"t", inner)], 0, 5, SALT))
    torn = data[:-3]
    assert walk(torn, SALT, 0, ended=True).payloads == []
    changed = bytearray(data + mark(1, SALT))
    changed[5] ^= 1
    found = walk(bytes(changed), SALT, 0, ended=True)
    assert len(found.damaged) == 1
    assert b"evil" in found.payloads[0]


def test_a_header_is_known_again_and_a_changed_one_is_not() -> None:
    data = header(SALT, 17)
    assert len(data) == HEADER_BYTES
    assert header_facts(data + b"more") == (SALT, 17)
    assert header_facts(data[:-1]) is None
    for at in range(HEADER_BYTES):
        assert header_facts(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) is None


def test_large_payloads_are_pieces_by_themselves_and_small_ones_share_them() -> None:
    large = b"x" * (1 << 20)
    messages = [(b"t", b"a"), (b"t", large), (b"t", b"b"), (b"t", b""), *[(b"t", b"c")] * 25_000]
    pieces = list(frames_of(messages, 3, 5, SALT))
    assert any(piece is large for piece in pieces), "it is not copied"
    assert len(pieces) < 10
    found = walk(b"".join(pieces), SALT, 0, ended=True)
    assert list(zip(found.topics(), found.payloads, strict=True)) == messages
    assert not found.damaged
    assert found.following == 3 + len(messages)
