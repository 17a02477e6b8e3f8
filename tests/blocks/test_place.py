"""The one rule for what is a path of this machine; tables, blocks and checkpoints use it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streamjoin_ds.blocks.place import absolute_location, is_local, local_path


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/data/x", "/data/x"),
        ("data/x", "data/x"),
        ("file:/data/x", "/data/x"),
        ("file:///data/x", "/data/x"),
        ("file:///data/a%20b", "/data/a%20b"),  # not unescaped, as in Hadoop's paths
        ("a:b", "a:b"),  # a name with a colon, since no slash follows
        ("line\nbreak", "line\nbreak"),
    ],
)
def test_a_path_of_this_machine(location: str, path: str) -> None:
    assert local_path(location) == Path(path)
    assert is_local(location)
    assert absolute_location(location) == os.path.abspath(path)


@pytest.mark.parametrize("location", ["s3://bucket/x", "hdfs://host:8020/x", "abfss://c@a.net/x", "file://nas/x"])
def test_what_lies_elsewhere_stays_as_it_is_written(location: str) -> None:
    assert local_path(location) is None
    assert not is_local(location)
    assert absolute_location(location) == location
