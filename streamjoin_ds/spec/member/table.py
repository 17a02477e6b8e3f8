"""A table beside streams: its name, where its rows are, and how often a new version is looked for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from streamjoin_ds.duration import Duration, duration_text, duration_us
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.columns import TS, schema_from_text, schema_text
from streamjoin_ds.spec.expression.predicate import stream_name
from streamjoin_ds.spec.expression.tree import Expression, expression_facts, expression_from
from streamjoin_ds.spec.member.files import Files, NullValues
from streamjoin_ds.spec.member.option_key import LIST, TABLE, OptionKey, option, options_of
from streamjoin_ds.spec.member.stream import checked_condition, checked_schema

__all__ = ["DEFAULT_FINISHED_AFTER", "DEFAULT_REFRESH", "TABLE_FORMATS", "TABLE_KEYS", "Table"]


DEFAULT_REFRESH = "1m"
DEFAULT_FINISHED_AFTER = "2s"
TABLE_FORMATS = ("auto", "delta", "parquet", "orc", "avro", "arrow", "csv", "json")


# How a file of text is written: options of a table that mean what they mean to `Files`.
_OF_TEXT = (
    *("delimiter", "skip_lines", "header", "decimal", "thousands", "null_values", "quote", "escape"),
    *("widths", "comment", "encoding", "records"),
)


def _as_of_files(name: str) -> Any:
    """Return the field of an option that files have too."""
    known = Files.__dataclass_fields__[name]
    return field(default=known.default, metadata=known.metadata)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a join (ARCHITECTURE.md, "A stream and a table"): its rows are there whatever the time is.

    Parameters
    ----------
    name : str
        As of a stream: it becomes the prefix of the table's columns in the result.
    source : str or None
        A Delta table, whose newest version is joined, or a file (Parquet, ORC, Avro, Arrow, CSV, JSON lines), whose
        bytes are its version. Replace a file by renaming a whole one onto it: of one that is written in place only
        `finished_after` says when it is whole. None if the caller hands over the rows: `JoinEngine.use_table`, frames
        of `StreamJoin.start` and `StreamJoin.dataframe`.
    refresh : str or timedelta
        A new version is looked for when a batch is planned and the last look is at least so long ago. "0s": at each
        batch. It may differ at each restart.
    schema : pyarrow.Schema or mapping of column to Arrow type name, optional
        Columns and their types; by default those of the Delta table, or inferred from the file.
    where : str or Expression, optional
        A condition such as ``"is_active"``. Rows for which it is not TRUE are left out.
    format : {"auto", "delta", "parquet", "orc", "avro", "arrow", "csv", "json"}
        "auto" goes by the file's name, and knows a Delta table by its folder.
    finished_after : str or timedelta
        A file is a version once it has not been changed for so long; until then the version before is joined. "0s": at
        once. An empty file is not there yet. The first start waits for a file that is being written, a minute longer at
        most. Versions of Delta tables, and files in an object store, are whole when they appear.
    delimiter, skip_lines, header, decimal, thousands, null_values, quote, escape, widths, comment, encoding, records
        How a file of text is written; see `Files`. A field of CSV in quotes may hold line ends.
    """

    name: str
    source: str | None = option(
        None,
        "A Delta table, or a file of Parquet, ORC, Avro, Arrow, CSV or JSON lines.",
        note="[required]",
        example="zones.parquet",
    )
    refresh: Duration = option(
        DEFAULT_REFRESH, "How often a new version is looked for; 0s: for each batch.", example="5m"
    )
    schema: pa.Schema | Mapping[str, str] | None = option(
        None,
        "Columns and their Arrow types.",
        (TABLE,),
        "[default: the table's, or inferred from the file]",
        example={"id": "int64", "most": "double"},
    )
    where: str | Expression | None = option(
        None, "A condition on the rows; others are left out.", (str, LIST), "[default: all]", example="is_active"
    )
    format: str = option("auto", "Format of the file.", note="[default: auto, by the name]", one_of=TABLE_FORMATS)
    finished_after: Duration = option(
        DEFAULT_FINISHED_AFTER,
        "Time without a change after which the file is a new version; 0s: at once. As a flag zones=30s.",
        example="30s",
    )

    delimiter: str = _as_of_files("delimiter")
    skip_lines: int = _as_of_files("skip_lines")
    header: int | bool = _as_of_files("header")
    decimal: str = _as_of_files("decimal")
    thousands: str | None = _as_of_files("thousands")
    null_values: NullValues = _as_of_files("null_values")
    quote: str = _as_of_files("quote")
    escape: str | None = _as_of_files("escape")
    widths: Sequence[int] | str | None = _as_of_files("widths")
    comment: str | None = _as_of_files("comment")
    encoding: str = _as_of_files("encoding")
    records: str | None = _as_of_files("records")
    # The columns that are paths into others; a join that is bound knows them.
    nested: tuple[str, ...] = ()

    # What a binding asks of a stream. Inside, a row of a table has the smallest of all times (`NO_TIME`).
    time: ClassVar[str] = TS
    time_unit: ClassVar[str] = "us"

    def __post_init__(self) -> None:
        stream_name(self.name)
        source = os.fspath(self.source) if isinstance(self.source, os.PathLike) else self.source
        if source is not None and (not isinstance(source, str) or not source):
            msg = f"the source of table {self.name} is no path"
            hint = "a Delta table or a file; to hand rows over: use_table(...), or frames={...} with source=None"
            raise ArgumentError(msg, name=self.name, hint=hint)
        object.__setattr__(self, "source", source)
        for name in ("refresh", "finished_after"):
            given_us = duration_us(getattr(self, name), f"{name} of {self.name}")
            object.__setattr__(self, name, duration_text(given_us))
        if self.format not in TABLE_FORMATS:
            msg = f"table {self.name} has an unknown format"
            raise ArgumentError(msg, name="format", hint=f"one of {', '.join(TABLE_FORMATS)}")
        read = self.files.checked(self.name)
        for name in _OF_TEXT:
            object.__setattr__(self, name, getattr(read, name))
        if self.schema is not None:
            object.__setattr__(self, "schema", checked_schema(self.schema, self.name))
        if self.where is not None:
            object.__setattr__(self, "where", checked_condition(self.where, self.name))

    @property
    def files(self) -> Files:
        """How its file is read, where that is one of text."""
        options = {name: getattr(self, name) for name in _OF_TEXT}
        has_quotes = self.quote != "none" and self.widths is None
        return Files(self.source or self.name, quoted_lines="read" if has_quotes else "reject", **options)

    @property
    def text_facts(self) -> dict[str, Any]:
        """How its file is written, as plain JSON values; nothing of what is as by default."""
        found = {name: getattr(self, name) for name in _OF_TEXT}
        plain = {name: [*value] if isinstance(value, tuple) else value for name, value in found.items()}
        return {name: value for name, value in plain.items() if value != Files.__dataclass_fields__[name].default}

    @property
    def location(self) -> str | None:
        """Where its rows are: as of a stream."""
        return self.source

    @property
    def refresh_us(self) -> int:
        """How many microseconds a version is joined before a new one is looked for."""
        return duration_us(self.refresh, f"refresh of {self.name}")

    @property
    def finished_after_us(self) -> int:
        """For how many microseconds a file that is a version has not been changed."""
        return duration_us(self.finished_after, f"finished_after of {self.name}")

    def to_facts(self) -> dict[str, object]:
        """Return the table as plain JSON values; `Table.from_facts` makes the table of them again."""
        return {
            "name": self.name,
            "source": self.source,
            "refresh_us": self.refresh_us,
            "schema": None if self.schema is None else schema_text(self.schema),
            "where": None if self.where is None else expression_facts(self.where),  # type: ignore[arg-type]
            "format": self.format,
            "finished_after_us": self.finished_after_us,
            **self.text_facts,
            **({"nested": [*self.nested]} if self.nested else {}),
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Table:
        """Return the table that `to_facts` described."""
        return cls(
            facts["name"],
            facts["source"],
            f"{facts['refresh_us']}us",
            None if facts["schema"] is None else schema_from_text(facts["schema"]),
            None if facts["where"] is None else expression_from(facts["where"]),
            facts["format"],
            f"{facts['finished_after_us']}us" if "finished_after_us" in facts else DEFAULT_FINISHED_AFTER,
            nested=tuple(facts.get("nested", ())),
            **{name: facts[name] for name in _OF_TEXT if name in facts},
        )


TABLE_KEYS: dict[str, OptionKey] = options_of(Table)
