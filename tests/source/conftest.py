from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.s3 import S3, forget, served


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with served(tmp_path_factory.mktemp("s3")) as s3:
        yield s3


@pytest.fixture
def s3(server: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    forget()
    yield server
    server.line.left_bytes = None
    forget()
