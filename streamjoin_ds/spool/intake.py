"""One intake: a source, a folder, and what is said of them while it runs."""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from streamjoin_ds.errors import ArgumentError, SpoolError
from streamjoin_ds.spool.address import Address, Secrets
from streamjoin_ds.spool.http_server import HttpIntake
from streamjoin_ds.spool.kafka_client import KafkaClient
from streamjoin_ds.spool.mqtt_client import MqttClient, client_name
from streamjoin_ds.spool.mqtt_packets import Taken
from streamjoin_ds.spool.segment import MAX_PAYLOAD_BYTES, sync_folder
from streamjoin_ds.spool.writer import Counts, SpoolLimits, SpoolWriter, line, write_status

__all__ = ["Intake"]

_log = logging.getLogger(__name__)
_ID_FILE = ".intake.json"


class Intake:
    """Takes messages from an address into a folder until it is told to stop.

    Parameters
    ----------
    address : Address
        Where they come from.
    folder : Path
        Where they go.
    secrets : Secrets
        What the source asks for.
    limits : SpoolLimits
        Sizes and ages of segments.
    accept : {"json", "lines", "influx", "senml", "anything"} or None
        Of an HTTP source: what bodies hold (`HttpIntake`); None is "json".
    is_open : bool
        Of an HTTP source: whether others than this machine may post without a token and without TLS.
    every_s : float
        Seconds between two lines of counts and two status files.
    say : callable
        Takes a line of counts.
    """

    def __init__(
        self,
        address: Address,
        folder: Path,
        secrets: Secrets,
        limits: SpoolLimits,
        *,
        accept: str | None = None,
        is_open: bool = False,
        every_s: float = 10.0,
        say: Callable[[str], None] = print,
    ) -> None:
        for name, is_given in (("--accept", accept is not None), ("--open", is_open)):
            if is_given and address.kind != "http":
                msg = f"{name} is of http:// and https://, where strangers post"
                raise ArgumentError(msg, name=name, hint="leave it out: what a broker gives is kept as it is")
        self._address, self._folder, self._secrets, self._limits = address, folder, secrets, limits
        self._accept, self._is_open = accept or "json", is_open
        self._every_s, self._say = every_s, say
        self._stopped = False
        self._began_s = self._said_s = time.monotonic()
        self._before = Counts()
        self.counts = Counts()

    def stop(self) -> None:
        """End soon, as from a signal's handler: what was taken is kept and acknowledged first."""
        self._stopped = True

    def run(self) -> Counts:
        """Take messages until `stop` is called, and return what was counted.

        Raises
        ------
        SpoolInUseError, SpoolError
            The folder is in use, cannot be written, or is another source's.
        IntakeError
            The source refuses, or cannot be reached at the start.
        """
        with SpoolWriter(self._folder, self._limits) as writer:
            state = "failed"
            is_new = not (self._folder / _ID_FILE).exists()
            try:
                identity = _identity(self._folder, self._address)
                writer.remove_old()
                self._write_status(writer, "running")
                if self._address.kind == "kafka":
                    self._run_kafka(writer, identity)
                elif self._address.is_mqtt:
                    self._run_mqtt(writer, identity)
                else:
                    self._run_http(writer)
                state = "ended"
            finally:
                if is_new and not self.counts.connects and not writer.next_number:
                    # Nothing came, and no broker keeps anything for it: a wrong address must not claim the folder.
                    (self._folder / _ID_FILE).unlink(missing_ok=True)
                self._write_status(writer, state)
        self._say(line(self.counts, self._before, time.monotonic() - self._said_s, self._elapsed_s()))
        return self.counts

    def _run_http(self, writer: SpoolWriter) -> None:
        HttpIntake(
            self._address,
            self._secrets,
            writer,
            self.counts,
            lambda: self._tick(writer),
            accept=self._accept,
            is_open=self._is_open,
        ).run()

    def _run_mqtt(self, writer: SpoolWriter, identity: str) -> None:
        counts = self.counts

        def keep(taken: Taken) -> None:
            self._keep(writer, taken.messages, taken.oversized, taken.flags)
            counts.repeated += taken.repeated
            counts.unsafe += taken.unsafe

        def tick() -> bool:
            counts.connects = client.connects
            return self._tick(writer)

        name = client_name(identity, self._address.topic)
        client = MqttClient(self._address, self._secrets, name, keep, tick)
        try:
            client.run()
        finally:
            counts.connects = client.connects

    def _run_kafka(self, writer: SpoolWriter, identity: str) -> None:
        counts = self.counts

        def keep(messages: Sequence[tuple[bytes, bytes]]) -> None:
            large = [(topic, len(payload)) for topic, payload in messages if len(payload) > MAX_PAYLOAD_BYTES]
            fitting = [each for each in messages if len(each[1]) <= MAX_PAYLOAD_BYTES] if large else messages
            self._keep(writer, fitting, large)

        def tick() -> bool:
            counts.connects, counts.lost_offsets = client.connects, client.lost_offsets
            return self._tick(writer)

        client = KafkaClient(self._address, self._secrets, f"streamjoin-intake-{identity}", keep, tick)
        try:
            client.run()
        finally:
            counts.connects, counts.lost_offsets = client.connects, client.lost_offsets

    def _keep(
        self,
        writer: SpoolWriter,
        messages: Sequence[tuple[bytes, bytes]],
        oversized: Sequence[tuple[bytes, int]],
        flags: Sequence[int] = (),
    ) -> None:
        """Write messages, and count them. Topic and size of those that are too large are logged: they are left out."""
        counts = self.counts
        if messages:
            writer.append(messages, flags)
            counts.messages += len(messages)
            counts.payload_bytes += sum([len(payload) for _, payload in messages])
            counts.syncs += 1
            counts.last_received_us = time.time_ns() // 1000
        for topic, size in oversized:
            counts.oversized += 1
            place = topic.decode(errors="replace")
            _log.warning("a message of %d bytes of %r is left out: %d bytes at most", size, place, MAX_PAYLOAD_BYTES)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def _tick(self, writer: SpoolWriter) -> bool:
        now_s = time.monotonic()
        if now_s - self._said_s >= self._every_s:
            writer.remove_old()
            self._write_status(writer, "running")
            self._say(line(self.counts, self._before, now_s - self._said_s, self._elapsed_s()))
            self._said_s, self._before = now_s, replace(self.counts)
        return not self._stopped

    def _write_status(self, writer: SpoolWriter, state: str) -> None:
        self.counts.removed_segments = writer.removed_segments
        facts = {"next_number": writer.next_number, "segment": writer.segment_name}
        write_status(self._folder, state, self.counts, **facts, written_us=time.time_ns() // 1000)


def _identity(folder: Path, address: Address) -> str:
    """Return the folder's own name, which its broker's session has too. A folder has one source.

    Raises
    ------
    SpoolError
        The folder is that of another topic or path.
    """
    path, kind = folder / _ID_FILE, address.kind
    if path.exists():
        try:
            facts = json.loads(path.read_text())
            identity, source = str(facts["id"]), (str(facts["kind"]), str(facts["topic"]))
        except (ValueError, KeyError, TypeError):
            msg = f"the file {path} is damaged"
            raise SpoolError(msg, name=str(path), hint="restore it, or use a new folder") from None
        if source != (kind, address.topic):
            msg = f"the folder {folder} takes in another topic or path"
            raise SpoolError(msg, name=str(folder), hint="use a folder for each: what waits for this one would be lost")
        return identity
    identity = uuid.uuid4().hex
    aside = path.with_suffix(".new")
    with aside.open("w") as file:
        json.dump({"id": identity, "kind": kind, "topic": address.topic}, file)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    sync_folder(folder)  # before the broker keeps anything for this name
    return identity
