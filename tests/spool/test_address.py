"""Addresses and secrets: each wrong one is named, and no secret is in any text."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spool.address import Address, Secrets, secrets_of

ADDRESSES = {
    "mqtt://broker/a/+/#": Address("mqtt", "broker", 1883, "a/+/#"),
    "mqtts://10.0.0.1:99/$share/g/a?b%20#": None,
    "mqtts://10.0.0.1:99/a?b%20": Address("mqtts", "10.0.0.1", 99, "a?b%20"),
    "mqtt://[::1]:1//a": Address("mqtt", "::1", 1, "/a"),
    "http://0.0.0.0:8080/in": Address("http", "0.0.0.0", 8080, "/in"),
    "https://h": Address("https", "h", 443, "/"),
    "http://127.0.0.1:0/": Address("http", "127.0.0.1", 0, "/"),
    "mqtt://h:0/a": None,
    "mqtt://h/": None,
    "mqtt://h": None,
    "mqtt://h/a+/b": None,
    "mqtt://h/#/b": None,
    "mqtt://h:x/a": None,
    "mqtt://h:70000/a": None,
    "mqtt:///a": None,
    "h/a": None,
    "ftp://h/a": None,
    "kafka://h/a": Address("kafka", "h", 9092, "a", "h:9092"),
    "kafka://h:1,[::1]:2/a.b-c?start=latest&settings=%2Fx": Address(
        "kafka", "h", 1, "a.b-c", "h:1,[::1]:2", {"start": "latest", "settings": "/x"}
    ),
    "kafka://h/": None,
    "kafka://h/a/b": None,
    "kafka://h:0/a": None,
    "kafka:///a": None,
    "kafka://h/a?x=1": None,
    "kafka://h/a?settings=a&settings=b": None,
    "kafka://h/a?start=": None,
    "kafka://h/a?start=now": None,
}


@pytest.mark.parametrize("text", ADDRESSES)
def test_an_address_is_read_or_refused_by_name(text: str) -> None:
    expected = ADDRESSES[text]
    if expected is not None:
        assert Address.parse(text) == expected
        return
    with pytest.raises(ArgumentError) as refused:
        Address.parse(text)
    assert refused.value.name in ("address", "topic", "settings", "start")
    assert refused.value.hint


def test_an_address_with_a_password_is_refused_without_showing_it() -> None:
    with pytest.raises(ArgumentError, match="holds a user or password") as refused:
        Address.parse("mqtt://someone:sEcReT@broker/a")
    assert "sEcReT" not in str(refused.value)
    assert "someone" not in str(refused.value)
    assert "STREAMJOIN_INTAKE_PASSWORD" in refused.value.hint


def test_secrets_come_from_a_file_and_else_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "secrets.toml"
    file.write_text('user = "me"\npassword = "sEcReT"\n')
    environment = {"STREAMJOIN_INTAKE_USER": "other", "STREAMJOIN_INTAKE_TOKEN": "sEcReT2"}
    found = secrets_of(file, environment)
    assert found == Secrets(user="me", password="sEcReT", token="sEcReT2")
    assert repr(found) == "Secrets()"
    assert secrets_of(None, environment).user == "other"


@pytest.mark.parametrize("text", ["user = sEcReT", "passwordd = 'sEcReT'", "password = 5", "\xff"])
def test_a_wrong_file_of_secrets_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "secrets.toml"
    file.write_text(text, "latin-1")
    with pytest.raises(ArgumentError) as refused:
        secrets_of(file, {})
    assert refused.value.name == "--secrets"
    assert "sEcReT" not in str(refused.value)
    assert refused.value.__cause__ is None
    with pytest.raises(ArgumentError):
        secrets_of(tmp_path / "none", {})
