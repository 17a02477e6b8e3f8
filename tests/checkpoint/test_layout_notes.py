"""Notes for the source: epochs that are over, and a sample of keys, of which nothing but a later decision comes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from streamjoin_ds.checkpoint.layout_notes import (
    epochs_over,
    forget_epochs_over,
    key_hint,
    note_epochs_over,
    note_key_hint,
)
from streamjoin_ds.plan import EpochsOver, KeyHint, SampledRows


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


def test_it_is_found_from_there_on(tmp_path: Path) -> None:
    assert epochs_over(tmp_path, [10, 20]) == EpochsOver()
    note_epochs_over(tmp_path, [10, 20], EpochsOver((0, 1), 3, 2))
    assert epochs_over(tmp_path, [10, 20]) == EpochsOver((0, 1), 3, 2)
    assert epochs_over(tmp_path, [11, 25]) == EpochsOver((0, 1), 3, 2)
    note_epochs_over(tmp_path, [30, 40], EpochsOver((2,), 3))
    assert epochs_over(tmp_path, [30, 40]) == EpochsOver((2,), 3)
    assert [path.name for path in tmp_path.iterdir()] == ["epochs_over.json"]


def test_a_checkpoint_that_was_taken_back_does_not_know_it(tmp_path: Path) -> None:
    note_epochs_over(tmp_path, [10, 20], EpochsOver((0,)))
    assert epochs_over(tmp_path, [9, 25]) == EpochsOver()


def test_it_can_be_forgotten_twice(tmp_path: Path) -> None:
    note_epochs_over(tmp_path, [10, 20], EpochsOver((0,)))
    for _ in range(2):
        forget_epochs_over(tmp_path)
        assert epochs_over(tmp_path, [11, 25]) == EpochsOver()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"over": 1}', '{"over": [0], "epoch": 1, "cells": 1, "seqs": [1, 2]}']
)
def test_a_torn_file_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "epochs_over.json").write_text(text)
    assert epochs_over(tmp_path, [10, 20]) == EpochsOver()
