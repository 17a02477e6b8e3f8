from __future__ import annotations

import pytest

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.kafka.settings import SettingsSource
from streamjoin_ds.source.kafka.topic import KafkaUrl

SECRET = "pa55word"


def test_a_url_says_all() -> None:
    url = KafkaUrl.parse(
        "kafka://a,b:9093,[::1]:9/sensors.v1?format=fixed&settings=/etc/k%20afka&settings_env=KAFKA"
        "&start=2026-01-01T00:00:00Z&on_data_loss=skip&headers=trace,device"
    )
    assert url == KafkaUrl(
        servers="a:9092,b:9093,[::1]:9",
        topic="sensors.v1",
        format="fixed",
        settings=SettingsSource("/etc/k afka", "KAFKA"),
        start="2026-01-01T00:00:00Z",
        on_data_loss="skip",
        headers=("trace", "device"),
    )


def test_avro_names_its_registry() -> None:
    url = KafkaUrl.parse("kafka://a/t?format=avro&registry=http%3A%2F%2Fregistry%3A8081")
    assert url.registry == "http://registry:8081"
    assert url.reject_schemas == ()
    assert KafkaUrl.parse("kafka://a/t?format=avro&registry=http://r&reject_schemas=77,9,77").reject_schemas == (9, 77)


def test_a_start_may_be_a_time() -> None:
    assert KafkaUrl.parse("kafka://a/t?format=json&start=2026-01-01T00:00:00Z").start_us == 1_767_225_600_000_000
    assert KafkaUrl.parse("kafka://a/t?format=json&start=latest").start_us is None


def test_what_is_not_said_has_a_default() -> None:
    assert KafkaUrl.parse("kafka://a/t?format=json") == KafkaUrl("a:9092", "t", "json")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("http://a/t?format=json", "url"),
        ("kafka:///t?format=json", "url"),
        ("kafka://a:0/t?format=json", "url"),
        ("kafka://a:99999/t?format=json", "url"),
        ("kafka://a,/t?format=json", "url"),
        (f"kafka://me:{SECRET}@a/t?format=json", "url"),
        (f"kafka://a/t?format=avro&registry=http://me:{SECRET}@r", "registry"),
        (f"kafka://a/t?format=avro&registry=http%3A%2F%2Fme%3A{SECRET}%40r", "registry"),
        (f"kafka://a/t?format=avro&registry=http://[{SECRET}", "registry"),
        ("kafka://a?format=json", "topic"),
        ("kafka://a/?format=json", "topic"),
        ("kafka://a/t/u?format=json", "topic"),
        ("kafka://a/..?format=json", "topic"),
        (f"kafka://a/{'t' * 250}?format=json", "topic"),
        ("kafka://a/t", "format"),
        ("kafka://a/t?format=xml", "format"),
        ("kafka://a/t?format=json&format=csv", "format"),
        ("kafka://a/t?format=", "format"),
        (f"kafka://a/t?format=json&sasl.password={SECRET}", "sasl.password"),
        ("kafka://a/t?format=json&on_data_loss=ignore", "on_data_loss"),
        ("kafka://a/t?format=json&headers=a,a", "headers"),
        ("kafka://a/t?format=json&start=yesterday", "start"),
        ("kafka://a/t?format=avro", "registry"),
        ("kafka://a/t?format=protobuf", "registry"),
        ("kafka://a/t?format=raw&registry=http://r", "registry"),
        ("kafka://a/t?format=json&reject_schemas=1", "reject_schemas"),
        ("kafka://a/t?format=avro&registry=http://r&reject_schemas=a", "reject_schemas"),
        ("kafka://a/t?format", "url"),
    ],
)
def test_what_is_wrong_is_named(text: str, name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        KafkaUrl.parse(text)
    assert caught.value.name == name
    assert caught.value.hint
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
