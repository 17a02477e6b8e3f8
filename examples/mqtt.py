"""Two MQTT topics joined in an asyncio loop, without Spark: readings within 0.1 degrees and 2 seconds of each other.

    python examples/mqtt.py STATE_FILE

A thread plays the broker; with paho-mqtt: ``client.on_message = topics.on_message``. A second run goes on from there.
"""

import asyncio
import json
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

from streamjoin_ds import Join, JoinEngine, Stream

STREAMS = [Stream(topic, schema={"ts": "int64", "temperature": "float64"}) for topic in ("hall", "yard")]


class Topics:
    """Messages come in from any thread; matches go out in the loop, those of all that came in the meantime at once."""

    def __init__(self, engine: JoinEngine) -> None:
        self.engine, self.loop, self.rows = engine, asyncio.get_running_loop(), defaultdict(list)

    def on_message(self, client: object, userdata: object, message: SimpleNamespace) -> None:
        """Called by the MQTT client, in its own thread."""
        row = json.loads(message.payload)
        self.loop.call_soon_threadsafe(lambda: self.rows[message.topic].append(row))

    async def matches(self) -> list[dict[str, object]]:
        """Push what has come; the loop is free while the engine works."""
        rows, self.rows = self.rows, defaultdict(list)
        return (await asyncio.to_thread(self.engine.push, rows)).to_pylist()


def play(topics: Topics, first: int) -> None:
    """The broker's part: 500 readings of each topic, a tenth of a second of event time apart."""
    for number in range(first, first + 500):
        for topic, step in (("hall", 7), ("yard", 11)):
            row = {"ts": number * 100_000, "temperature": 20 + number * step % 50 / 10}
            topics.on_message(None, None, SimpleNamespace(topic=topic, payload=json.dumps(row)))


async def main(state: Path) -> None:
    """Take in some messages, print the matches, keep the state."""
    topics = Topics(JoinEngine(Join(STREAMS, "abs(hall.temperature - yard.temperature) <= 0.1", "2s")))
    if state.exists():
        topics.engine.restore(state.read_bytes())
    player = asyncio.create_task(asyncio.to_thread(play, topics, topics.engine.counters["read_rows"]["hall"]))
    while topics.rows or not player.done():
        await asyncio.sleep(0.02)  # as many messages a push as come in that time
        for match in await topics.matches():
            print(match["hall_seq"], match["yard_seq"])
    state.write_bytes(topics.engine.save())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
