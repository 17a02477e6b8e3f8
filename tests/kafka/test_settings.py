from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.kafka.settings import OWN_SETTINGS, Settings, SettingsSource

SECRET = "pa55word"


def test_a_file_and_the_environment_say_settings(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("# ours\n\nsecurity.protocol = SASL_SSL\nsasl.password=${PASSWORD}\nclient.id=a=b\n")
    environment = {"PASSWORD": SECRET, "MORE": "client.id=other\n"}
    assert dict(SettingsSource(str(file)).read(environment)) == {
        "security.protocol": "SASL_SSL",
        "sasl.password": SECRET,
        "client.id": "a=b",
    }
    assert SettingsSource(str(file), "MORE").read(environment)["client.id"] == "other"
    assert dict(SettingsSource().read({})) == {}


def test_no_text_shows_a_value() -> None:
    settings = Settings({"sasl.password": SECRET})
    assert SECRET not in repr(settings) + str(settings) + f"{settings}"
    with pytest.raises(TypeError, match="not sent"):
        pickle.dumps(settings)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"sasl.password {SECRET}", "settings"),
        (f"{SECRET.upper()}=x", "settings"),
        ("sasl.password=${NOT_SET}", "sasl.password"),
        *((f"{name}=x", name) for name in OWN_SETTINGS),
    ],
)
def test_a_line_is_refused_by_name(tmp_path: Path, text: str, name: str) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text(text)
    with pytest.raises(ArgumentError) as caught:
        SettingsSource(str(file)).read({})
    assert caught.value.name == name
    assert SECRET not in str(caught.value).lower()
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_missing_variable_are_named(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"none\.properties"):
        SettingsSource(str(tmp_path / "none.properties")).read({})
    with pytest.raises(ArgumentError, match="NOT_SET"):
        SettingsSource(variable="NOT_SET").read({})


def test_a_consumer_reads_committed_messages_whatever_the_user_says() -> None:
    made = Settings({"group.id": "ours", "fetch.min.bytes": "1"}).of_consumer("broker:9092")
    assert {name: made[name] for name in OWN_SETTINGS} == OWN_SETTINGS
    assert made["bootstrap.servers"] == "broker:9092"
    assert made["group.id"] == "ours"


def test_the_registrys_settings_are_not_librdkafkas() -> None:
    settings = Settings({"schema.registry.basic.auth.user.info": f"me:{SECRET}", "client.id": "c"})
    assert "schema.registry.basic.auth.user.info" in settings
    assert not [name for name in settings.of_consumer("a:1") if name.startswith("schema.")]
