"""Checks that the schema takes every TOML file that the command line takes in these tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from streamjoin_ds.cli import explain, run
from streamjoin_ds.request.join_keys import json_schema, tomllib
from streamjoin_ds.request.request import Request, request_of


@pytest.fixture(autouse=True)
def _schema_takes_what_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(config: Path | None, given: Mapping[str, Any]) -> Request:
        request = request_of(config, given)
        if config is not None:
            jsonschema.validate(tomllib.loads(config.read_text()), json_schema())
        return request

    for module in (run, explain):
        monkeypatch.setattr(module, "request_of", checked)
