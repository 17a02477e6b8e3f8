"""A stream: a name, where its tuples come from, which column is its event time, and how late one may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from streamjoin_ds.errors import ArgumentError, ColumnError
from streamjoin_ds.spec.duration import Duration, duration_text, duration_us
from streamjoin_ds.spec.predicate import stream_name

__all__ = ["FORMATS", "TIME_UNITS", "Generator", "Stream"]

FORMATS = ("auto", "csv", "json", "parquet")
TIME_UNITS = ("s", "ms", "us", "ns")


@dataclass(frozen=True, slots=True)
class Generator:
    """A generated stream: the name of a generator and its parameters (see `streamjoin_ds.source.generator`).

    The tuples are a function of the parameters alone: same parameters, same tuples.
    """

    name: str
    parameters: Mapping[str, int | float | str] = field(default_factory=dict)

    def to_facts(self) -> dict[str, object]:
        return {"generator": self.name, "parameters": dict(sorted(self.parameters.items()))}


@dataclass(frozen=True, slots=True)
class Stream:
    """One input of a join.

    Parameters
    ----------
    name : str
        Letters, digits and underscores; prefixes the stream's columns in the result.
    source : str, Generator or None
        A file, a directory that grows (CSV, JSON lines, Parquet; gz), or a generator. None where the tuples are
        handed over: `JoinEngine.push`, `StreamJoin.dataframe`.
    time : str
        The column of the event time. Tuples without one are rejected and counted.
    delay : str or timedelta
        How far behind the largest time before it in its own stream a tuple may be; older ones are late (contract).
    schema : pyarrow.Schema or mapping of column to Arrow type name, optional
        Columns and their types; inferred from the first file where not given.
    format : {"auto", "csv", "json", "parquet"}
        Of the files; "auto" goes by the name.
    time_unit : {"s", "ms", "us", "ns"}
        Of the time column where it holds integers.
    """

    name: str
    source: str | Generator | None = None
    time: str = "ts"
    delay: Duration = "0s"
    schema: pa.Schema | Mapping[str, str] | None = None
    format: str = "auto"
    time_unit: str = "us"

    def __post_init__(self) -> None:
        stream_name(self.name)
        if self.source is not None and not isinstance(self.source, (str, Generator)):
            object.__setattr__(self, "source", _path_text(self.source, self.name))
        if not isinstance(self.time, str) or not self.time:
            msg = f"stream {self.name} does not say which column is its event time"
            raise ArgumentError(msg, name=self.name, hint="time='ts'")
        object.__setattr__(self, "delay", duration_text(duration_us(self.delay, f"delay of {self.name}")))
        for value, valid, what in ((self.format, FORMATS, "format"), (self.time_unit, TIME_UNITS, "time_unit")):
            if value not in valid:
                msg = f"{what} of stream {self.name} is not known"
                raise ArgumentError(msg, name=what, hint=f"one of {', '.join(valid)}")
        if self.schema is not None:
            object.__setattr__(self, "schema", _schema(self.schema, self.name))
            check_time_column(self.schema, self)  # type: ignore[arg-type]

    @property
    def delay_us(self) -> int:
        """The allowed delay in microseconds."""
        return duration_us(self.delay, f"delay of {self.name}")

    def to_facts(self) -> dict[str, object]:
        """The stream as plain JSON values; `Stream.from_facts` is the way back."""
        source = self.source.to_facts() if isinstance(self.source, Generator) else self.source
        schema = self.schema
        return {
            "name": self.name,
            "source": source,
            "time": self.time,
            "delay_us": self.delay_us,
            "format": self.format,
            "time_unit": self.time_unit,
            "schema": None if schema is None else {f.name: str(f.type) for f in schema},  # type: ignore[union-attr]
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, object]) -> Stream:
        """The stream that `to_facts` described."""
        source = facts["source"]
        if isinstance(source, Mapping):
            source = Generator(source["generator"], source["parameters"])
        return cls(
            name=str(facts["name"]),
            source=source,  # type: ignore[arg-type]
            time=str(facts["time"]),
            delay=f"{facts['delay_us']}us",
            schema=facts["schema"],  # type: ignore[arg-type]
            format=str(facts["format"]),
            time_unit=str(facts["time_unit"]),
        )


def check_time_column(schema: pa.Schema, stream: Stream) -> None:
    """Refuse a schema whose time column is missing or cannot be an event time."""
    if stream.time not in schema.names:
        msg = f"stream {stream.name} has no column '{stream.time}'"
        raise ColumnError(msg, name=stream.time, hint=f"its columns are {', '.join(schema.names)}")
    kind = schema.field(stream.time).type
    if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind) or pa.types.is_date(kind)):
        msg = f"column '{stream.time}' of stream {stream.name} cannot be an event time: its type is {kind}"
        raise ColumnError(msg, name=stream.time, hint="a timestamp, a date, or an integer with time_unit")


def _path_text(source: object, name: str) -> str:
    try:
        return source.__fspath__()  # type: ignore[attr-defined,no-any-return]
    except AttributeError:
        msg = f"the source of stream {name} is neither a path nor a generator"
        raise ArgumentError(msg, name=name, hint="a file or directory, or Generator(...)") from None


def _schema(schema: pa.Schema | Mapping[str, str], name: str) -> pa.Schema:
    if isinstance(schema, pa.Schema):
        return schema
    fields = []
    for column, text in schema.items():
        try:
            fields.append(pa.field(column, arrow_type(text)))
        except (ValueError, KeyError):
            msg = f"column '{column}' of stream {name} is given a type that is not known"
            raise ColumnError(msg, name=column, hint="an Arrow type: int64, double, string, timestamp[us, tz=UTC]") from None
    return pa.schema(fields)


def arrow_type(text: str) -> pa.DataType:
    """The Arrow type that `str(type)` printed; timestamps and decimals included."""
    text = text.strip()
    if text.startswith("timestamp[") and text.endswith("]"):
        unit, _, zone = text[len("timestamp[") : -1].partition(",")
        return pa.timestamp(unit.strip(), tz=zone.replace("tz=", "").strip() or None)
    if text.startswith("decimal128(") and text.endswith(")"):
        precision, scale = (int(part) for part in text[len("decimal128(") : -1].split(","))
        return pa.decimal128(precision, scale)
    return pa.type_for_alias({"timestamp": "timestamp[us]", "float": "float32"}.get(text, text))
