"""Cases of a parametrised test that prove what the first ones prove, in one more form: `make test-all` runs them."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["further"]


def further(*cases: Any) -> list[Any]:
    """Return the cases with the marker `long`."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long) for case in cases]
