"""The file with a sample of keys: whatever happens to it, nothing but a later decision comes of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from streamjoin_ds.checkpoint.layout_notes import key_hint, note_key_hint
from streamjoin_ds.plan import KeyHint, SampledRows


def a_hint(*seqs: int) -> KeyHint:
    tables = (pa.table({"seq": [1, seq - 1], "ts": [10, 20], "key0": [0.5, None]}) for seq in seqs)
    return KeyHint(tuple(SampledRows(table, 0.25) for table in tables))


def test_it_comes_back(tmp_path: Path) -> None:
    note_key_hint(tmp_path, a_hint(5, 7))
    note_key_hint(tmp_path, a_hint(6, 8))
    found = key_hint(tmp_path, (6, 9))
    assert found is not None
    assert found.seqs == (6, 8)
    assert [sample.threshold for sample in found.streams] == [0.25, 0.25]
    assert found.streams[1].rows.to_pydict() == a_hint(6, 8).streams[1].rows.to_pydict()
    assert [path.name for path in tmp_path.iterdir()] == ["key_sample.arrow"]


def test_it_says_nothing_of_earlier_records(tmp_path: Path) -> None:
    note_key_hint(tmp_path, a_hint(5, 7))
    assert key_hint(tmp_path, (5, 6)) is None
    assert key_hint(tmp_path, (5,)) is None
    whatever = key_hint(tmp_path)
    assert whatever is not None
    assert whatever.seqs == (5, 7)


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "other"])
def test_a_file_that_is_lost_or_damaged_says_nothing(tmp_path: Path, damage: str) -> None:
    note_key_hint(tmp_path, a_hint(5, 7))
    path = tmp_path / "key_sample.arrow"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    written = {"cut": bytes(data[:40]), "flipped": bytes(data), "other": b"no block at all", "gone": None}[damage]
    if written is not None:
        path.write_bytes(written)
    assert key_hint(tmp_path, (5, 7)) is None
