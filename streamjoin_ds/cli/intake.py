"""``streamjoin intake``: keeps messages that come once in a folder that is read as often as is needed."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import click

from streamjoin_ds.duration import duration_us
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spool.address import Address, secrets_of
from streamjoin_ds.spool.intake import Intake
from streamjoin_ds.spool.writer import SpoolLimits

__all__ = ["command"]

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


@click.command("intake")
@click.argument("address", metavar="ADDRESS")
@click.option("--to", "folder", required=True, metavar="FOLDER", help="Where the messages go: a stream's source.")
@click.option(
    "--secrets",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML with user, password, token, ca_file, certificate_file, key_file. By default the environment: "
    "STREAMJOIN_INTAKE_USER and so on.",
)
@click.option("--segment-size", default="128MiB", show_default=True, metavar="SIZE", help="A larger file is ended.")
@click.option("--segment-time", default="1h", show_default=True, metavar="DURATION", help="An older file is ended.")
@click.option("--keep", metavar="DURATION", help="Remove files that are older, read or not.  [default: keep all]")
@click.option("--keep-size", metavar="SIZE", help="Remove the oldest files beyond this size, read or not.")
@click.option("--every", default="10s", show_default=True, metavar="DURATION", help="Time between two lines of counts.")
@click.option(
    "--accept",
    type=click.Choice(["json", "lines", "influx", "senml", "anything"]),
    help="Of HTTP: what bodies hold: JSON, JSON lines whatever their type says, line protocol (also at PATH/write and "
    "PATH/api/v2/write), packs of SenML, or any bytes; others are refused.  [default: json]",
)
@click.option("--open", "is_open", is_flag=True, help="Of HTTP: let other machines post without a token or TLS.")
@click.option("--quiet", is_flag=True, help="Print no counts; _status.json in the folder has them.")
def command(
    address: str,
    folder: str,
    secrets: Path | None,
    segment_size: str,
    segment_time: str,
    keep: str | None,
    keep_size: str | None,
    every: str,
    accept: str | None,
    is_open: bool,
    quiet: bool,
) -> None:
    """Take in the messages of ADDRESS until SIGTERM or Ctrl-C, and keep them in a folder.

    ADDRESS is mqtt://BROKER:1883/TOPIC/FILTER (mqtts:// with TLS), a subscription at QoS 1 in a session that the broker
    keeps; http://127.0.0.1:8080/PATH (https://), to which JSON lines, or one JSON a request, are posted; or
    kafka://BROKER:9092/TOPIC?settings=FILE, whose offsets are committed for a consumer group of the folder's own. A
    message is acknowledged once it is on the device. So none is lost that a broker kept, and after a crash some come
    twice.

    The folder is then a stream's source: --stream e=FOLDER. A column spool_received, spool_topic or spool_number of its
    schema is when a message came, its topic, and its number; of MQTT spool_retained and spool_qos are how it came.
    """
    limits = SpoolLimits(
        segment_bytes=_size_bytes(segment_size, "--segment-size"),
        segment_s=_seconds(segment_time, "--segment-time"),
        kept_s=None if keep is None else _seconds(keep, "--keep"),
        kept_bytes=None if keep_size is None else _size_bytes(keep_size, "--keep-size"),
    )
    every_s = _seconds(every, "--every")
    intake = Intake(
        Address.parse(address),
        Path(folder),
        secrets_of(secrets),
        limits,
        accept=accept,
        is_open=is_open,
        every_s=every_s,
        say=(lambda _: None) if quiet else (lambda line: click.echo(line)),
    )
    before = {number: signal.signal(number, lambda *_: intake.stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        intake.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _seconds(text: str, name: str) -> float:
    seconds = duration_us(text, name) / 1e6
    if not seconds:
        msg = f"{name} must be longer than 0"
        raise ArgumentError(msg, name=name, hint="for example 1h")
    return seconds


def _size_bytes(text: str, name: str) -> int:
    read = re.fullmatch(r"([0-9]{1,12})\s*([A-Za-z]*)", text.strip())
    if read is None or read[2].upper() not in _UNITS or not int(read[1]):
        msg = f"{name} is no size"
        raise ArgumentError(msg, name=name, hint="for example 128MiB or 10GB")
    return int(read[1]) * _UNITS[read[2].upper()]
