"""The options of a stream that say how a folder is read: its sub-folders, the order of its files, when one is whole."""

from __future__ import annotations

from typing import Protocol

from streamjoin_ds.duration import Duration, duration_text, duration_us
from streamjoin_ds.errors import ArgumentError

__all__ = [
    "FILE_ORDER",
    "FOLDER_OPTIONS",
    "SUB_FOLDERS",
    "FolderStream",
    "check_folder_options",
    "finished_after_text",
    "folder_facts",
    "refused_option",
]

SUB_FOLDERS = ("skip", "read")
FILE_ORDER = ("name", "modified")
# The options, with the values that say nothing.
FOLDER_OPTIONS = {"sub_folders": "skip", "file_order": "name", "finished_after": None}


class FolderStream(Protocol):
    """What these checks ask of a `Stream`; each property is that of the stream."""

    @property
    def name(self) -> str:
        """The stream's name."""

    @property
    def source(self) -> object:
        """Where its tuples come from."""

    @property
    def format(self) -> str:
        """The format of its files."""

    @property
    def partition_by(self) -> str | None:
        """What a partition of it is."""

    @property
    def file_order(self) -> str:
        """The order of its files."""

    @property
    def is_topic(self) -> bool:
        """Whether the source is a topic of Kafka."""


def folder_facts(stream: FolderStream) -> dict[str, object]:
    """Return the options of folders that are not at their defaults, as plain JSON values."""
    facts = {name: getattr(stream, name) for name in FOLDER_OPTIONS}
    return {name: value for name, value in facts.items() if value != FOLDER_OPTIONS[name]}


def finished_after_text(given: Duration | None, name: str) -> str | None:
    """Return the duration as a text; "0s" is one: a file counts as finished at once."""
    if given is None:
        return None
    return duration_text(duration_us(given, f"finished_after of {name}"))


def check_folder_options(stream: FolderStream) -> None:
    """Refuse an option of folders whose value is unknown, or that says nothing about the stream's source.

    Raises
    ------
    ArgumentError
        The error names the option.
    """
    for name, valid in (("sub_folders", SUB_FOLDERS), ("file_order", FILE_ORDER)):
        if getattr(stream, name) not in valid:
            msg = f"stream {stream.name} has an unknown {name}"
            raise ArgumentError(msg, name=name, hint=f"one of {', '.join(valid)}")
    for name in folder_facts(stream):
        if not isinstance(stream.source, str) or stream.is_topic or stream.format in ("delta", "results"):
            raise refused_option(stream.name, name, "reads no folder of files")
    if stream.file_order == "modified":
        if stream.format == "spool":
            raise refused_option(stream.name, "file_order", "reads a spool, whose segments have an order of their own")
        if stream.partition_by == "file":
            msg = f"stream {stream.name} has no order among its files, so it cannot have file_order"
            hint = "leave it out, or leave out partition_by=file"
            raise ArgumentError(msg, name="file_order", hint=hint)


def refused_option(stream: str, name: str, why: str) -> ArgumentError:
    """Return the error for an option that the stream cannot have."""
    return ArgumentError(f"stream {stream} {why}, so it cannot have {name}", name=name, hint=f"leave {name} out")
