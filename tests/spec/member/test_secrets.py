"""Locations that hold a secret: a stream has none, since it stands in plans, offsets, checkpoints and errors."""

from __future__ import annotations

import pytest

from streamjoin_ds import Stream
from streamjoin_ds.errors import ArgumentError

SECRET = "hunter2canary"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (f"s3://me:{SECRET}@bucket/folder", "source"),
        (f"s3://bucket/folder?secret_key={SECRET}", "source"),
        (f"hdfs://me:{SECRET}@name:9000/folder", "source"),
        (f"kafka://me:{SECRET}@broker/topic?format=json", "url"),
        (f"kafka://broker/topic?format=avro&registry=http://me:{SECRET}@registry:8081", "registry"),
        (f"kafka://broker/topic?format=avro&registry=https%3A%2F%2Fme%3A{SECRET}%40registry", "registry"),
        (f"kafka://broker/topic?format=avro&registry=http://[{SECRET}", "registry"),
    ],
)
def test_a_secret_is_refused_before_there_is_a_stream(source: str, name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Stream("e", source)
    assert caught.value.name == name
    assert SECRET not in f"{caught.value} {caught.value.hint}"
    assert caught.value.__cause__ is None


def test_what_is_no_secret_is_taken() -> None:
    for source in (
        "kafka://broker/topic?format=avro&registry=http://registry:8081",
        "kafka://broker/topic@2?format=json",
        "hdfs://me@name:9000/folder",
        "abfss://container@account.dfs.core.windows.net/folder",
        "s3://bucket/a@b",
        "folder/a@b?c",
    ):
        assert Stream("e", source).location == source
