"""What a client of Kafka tells of brokers that it does not reach."""

from __future__ import annotations

import pytest

from streamjoin_ds.kafka.client import ClientErrors, refusal


class Told:
    """An error as confluent-kafka gives it to a callback."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return self._text


@pytest.mark.parametrize(
    ("name", "text", "address"),
    [
        ("_RESOLVE", "kafka:9092/1: Failed to resolve 'kafka:9092': Name or service not known", "kafka:9092"),
        ("_TRANSPORT", "sasl_ssl://kafka-2:9093/2: Connect to ipv4#10.0.0.2:9093 failed: refused", "kafka-2:9093"),
        ("_TRANSPORT", "localhost:9092/bootstrap: Connect to ipv4#127.0.0.1:9092 failed: refused", None),
        ("_ALL_BROKERS_DOWN", "1/1 brokers are down", None),
    ],
)
def test_a_broker_that_advertises_an_address_that_is_not_reached_is_told(
    name: str, text: str, address: str | None
) -> None:
    errors = ClientErrors()
    errors(Told(name, text))
    assert errors.advertised == address
    told = refusal(errors.cause(), "readings", errors.advertised)
    assert ("advertised.listeners" in str(told)) == (address is not None)
    assert (address or "correct the URL's host:port") in str(told)
