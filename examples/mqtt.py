"""Two MQTT topics joined in an asyncio loop, without Spark: readings within 0.1 degrees and 2 seconds of each other.

    pip install streamjoin-ds 'paho-mqtt>=2'
    python examples/mqtt.py BROKER_HOST PORT STATE_FILE

A message on the topics hall and yard is {"number": 1, "ts": MICROSECONDS, "temperature": 20.5}; each sensor numbers its
readings upwards. The broker keeps the session (QoS 1), and a reading is acknowledged once it is in the saved state. So
whatever breaks off, no reading is lost, and one that comes again is known by its number. Matches found since the last
save may be printed twice.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import paho.mqtt.client as mqtt

from streamjoin_ds import Join, JoinEngine, Stream

SCHEMA = {"number": "int64", "ts": "int64", "temperature": "float64"}
STREAMS = [Stream(topic, schema=SCHEMA) for topic in ("hall", "yard")]


async def main(host: str, port: int, state: Path) -> None:
    """Join the readings that come until SIGTERM or Ctrl-C, and print the numbers of those that match."""
    engine = JoinEngine(Join(STREAMS, "|hall.temperature - yard.temperature| <= 0.1", "2s"))
    last = {"hall": 0, "yard": 0}
    if state.exists():
        head, _, saved = state.read_bytes().partition(b"\n")
        last = json.loads(head)
        engine.restore(saved)
    loop, came, stop = asyncio.get_running_loop(), asyncio.Queue(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)

    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "streamjoin-example", clean_session=False, manual_ack=True)
    client.on_connect = lambda *_: client.subscribe([("hall", 1), ("yard", 1)])
    client.on_message = lambda _client, _data, message: loop.call_soon_threadsafe(came.put_nowait, message)
    client.connect(host, port)
    client.loop_start()  # starts the client's thread, which receives messages and reconnects
    while not stop.is_set():
        await asyncio.sleep(0.02)  # one push takes all messages of this time
        messages = [came.get_nowait() for _ in range(came.qsize())]
        rows = {"hall": [], "yard": []}
        for message in messages:
            row = reading(message)
            if row is not None and row["number"] > last[message.topic]:  # a smaller number was sent again
                rows[message.topic].append(row)
                last[message.topic] = row["number"]
        for match in (await asyncio.to_thread(engine.push, rows)).to_pylist():  # the event loop stays free
            print(match["hall_number"], match["yard_number"], flush=True)
        if messages:
            save(state, json.dumps(last).encode() + b"\n" + engine.save())
        for message in messages:
            client.ack(message.mid, message.qos)
    client.disconnect()
    client.loop_stop()


def reading(message: mqtt.MQTTMessage) -> dict[str, float] | None:
    """Return the reading in a message; None, and a line on standard error, if there is none."""
    try:
        row = json.loads(message.payload)
        return {"number": int(row["number"]), "ts": int(row["ts"]), "temperature": float(row["temperature"])}
    except (ValueError, TypeError, KeyError) as error:
        print(f"no reading on {message.topic}: {error!r}", file=sys.stderr)
        return None


def save(state: Path, data: bytes) -> None:
    """Write the state as a whole or not at all; it is on the device before anything is acknowledged."""
    with (aside := state.with_suffix(".new")).open("wb") as file:
        file.write(data)
        os.fsync(file.fileno())
    aside.replace(state)
    folder = os.open(state.absolute().parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
