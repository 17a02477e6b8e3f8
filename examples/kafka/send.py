"""Makes the topics `hall` and `yard` of four partitions each, and sends readings to them; one message is broken."""

from __future__ import annotations

import argparse
import json
import math

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 4
START_US = 1_700_000_000_000_000


def reading(topic: str, number: int) -> dict[str, float]:
    """Return a reading: ten a second, the two topics half a degree apart, in waves."""
    temperature = 20 + 5 * math.sin(number / 50) + (0.5 if topic == "yard" else 0)
    return {"number": number, "ts": START_US + number * 100_000, "temperature": round(temperature, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", default="127.0.0.1:9092")
    parser.add_argument("--readings", type=int, default=5_000, help="of each topic (5000)")
    given = parser.parse_args()
    admin = AdminClient({"bootstrap.servers": given.servers})
    there = admin.list_topics(timeout=30).topics
    new = [NewTopic(name, PARTITIONS, 1) for name in ("hall", "yard") if name not in there]
    for made in (admin.create_topics(new) if new else {}).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": given.servers})
    for number in range(given.readings):
        for topic in ("hall", "yard"):
            value = json.dumps(reading(topic, number)).encode()
            producer.produce(topic, value, partition=number % PARTITIONS)
        producer.poll(0)
        if number % 10_000 == 0:
            producer.flush()
    producer.produce("hall", b"no reading", partition=0)
    print(f"{given.readings} readings of each topic, {producer.flush(60)} not sent")


if __name__ == "__main__":
    main()
