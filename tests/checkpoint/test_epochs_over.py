"""What the driver leaves for the source: which epochs are over, and from which records on."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamjoin_ds.checkpoint.layout_notes import epochs_over, forget_epochs_over, note_epochs_over
from streamjoin_ds.plan import EpochsOver


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
