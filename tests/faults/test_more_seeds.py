"""The other half of `test_seeds`."""

from __future__ import annotations

import pytest

from tests.faults.test_seeds import CHUNK, SEEDS, check


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SEEDS // 2, SEEDS, CHUNK))
def test_every_schedule_is_exact(first: int) -> None:
    check(first)
