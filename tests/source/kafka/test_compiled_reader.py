"""The border of the compiled reader: what it refuses, and that it links nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from streamjoin_ds.errors import ArgumentError, KernelError
from streamjoin_ds.kafka.settings import Settings
from streamjoin_ds.source.kafka.message_sources import NativeSource, librdkafka_path, native_messages
from tests.source.kafka.sources import SOURCES, MakeSource
from tests.support.kafka import free_port

pytest.importorskip("confluent_kafka")
SECRET = "pa55word"


def test_librdkafka_is_found_at_run_time_and_not_linked() -> None:
    assert Path(librdkafka_path()).is_file()
    needed = subprocess.run(["readelf", "-d", native_messages().__file__], capture_output=True, text=True, check=True)
    assert "librdkafka" not in needed.stdout


def test_a_library_without_its_functions_is_named() -> None:
    module = native_messages()
    assert module.load_librdkafka("/no/such/library.so") == "librdkafka"
    assert module.load_librdkafka("libm.so.6") == "rd_kafka_conf_new"
    assert module.load_librdkafka(librdkafka_path()) is None


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.setting", SECRET),
        ("fetch.wait.max.ms", SECRET),
        ("security.protocol", SECRET),
    ],
)
def test_a_setting_that_librdkafka_refuses_is_named_without_its_value(
    source: MakeSource, name: str, value: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        source(f"127.0.0.1:{free_port()}", Settings({name: value}), "t", 0)
    assert caught.value.name == name
    assert SECRET not in f"{caught.value} {caught.value.__cause__} {caught.value.__context__}"


def test_a_closed_consumer_and_wrong_room_are_refused() -> None:
    source = NativeSource(f"127.0.0.1:{free_port()}", Settings({}), "t", 0)
    module = native_messages()
    consumer = module.Consumer({"group.id": "g"}, "t", 0, ("a",))
    with pytest.raises(KernelError, match="each header"):
        consumer.fetch(1, 0, module.Messages(1, [1, 1]))
    consumer.close()
    consumer.close()
    with pytest.raises(KernelError, match="closed"):
        consumer.seek(0)
    for rows, room in [(0, [1, 1]), (1, [1]), (1, [0, 1]), (1, [1, 1 << 31])]:
        with pytest.raises(KernelError):
            module.Messages(rows, room)
    source.close()
