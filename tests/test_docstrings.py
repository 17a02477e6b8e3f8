"""The examples in docstrings, as doctest runs them."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("module", ["engine.join_engine", "spec.expression.predicate", "stream.join"])
def test_the_examples_of_docstrings_are_right(module: str) -> None:
    done = doctest.testmod(importlib.import_module(f"streamjoin_ds.{module}"))
    assert done.attempted
    assert not done.failed
