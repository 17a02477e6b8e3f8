"""What is known of a join's sources before it runs: the columns that they have, and the rates of their streams.

At a first start the columns are those that the sources have now. At a restart they are those that the checkpoint
recorded. A rate is what its user said, or is found in the input.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pyarrow as pa

from streamjoin_ds.blocks.place import is_local
from streamjoin_ds.checkpoint.identity import CheckpointIdentity
from streamjoin_ds.errors import ArgumentError, FileFormatError, FileMissingError, SchemaDriftError, StreamJoinError
from streamjoin_ds.source.delta.delta_feed import with_table
from streamjoin_ds.source.files.csv_lines import check_csv_types
from streamjoin_ds.source.files.file_names import format_of
from streamjoin_ds.source.stream_source import UNANSWERED, first_records, infer_schema, sampled_rate
from streamjoin_ds.source.table_versions import table_schema
from streamjoin_ds.spec import BoundJoin, Join, Stream, Table, bind
from streamjoin_ds.spec.columns import without_zone, zones_of
from streamjoin_ds.spec.member.files import Files
from streamjoin_ds.spec.member.source import DeltaRows
from streamjoin_ds.spec.member.stream import checked_rate
from streamjoin_ds.spec.nested_path import with_inner

__all__ = ["KnownRates", "bound_join", "first_seen", "known_rates", "located"]

_FIRST_RECORDS = 1000  # that are looked at for their offsets
# Found rates that differ by at most this factor are taken as equal: the noise of a first file must not turn a layout.
_NOISE = 1.2


def bound_join(join: Join) -> BoundJoin:
    """Return the join, bound to the schemas that its sources have now.

    Raises
    ------
    ArgumentError
        A stream has no source.
    ColumnError
        As for `bind`; or a column of a CSV file has a type that no field of it holds.
    """
    for stream in join.streams:
        if stream.source is None:
            msg = f"stream {stream.name} has no source"
            raise ArgumentError(
                msg,
                name=stream.name,
                hint="give a file, a folder or a generator; or use frames=, dataframe() or JoinEngine",
            )
    join = _with_tables(join)
    with ThreadPoolExecutor(len(join.streams)) as pool:  # 64 MB of a text take most of a second
        schemas = dict(zip(join.names, pool.map(infer_schema, join.streams), strict=True))
    bound = bind(join, schemas | {table.name: table_schema(table) for table in join.tables})
    for member, schema in zip(join.members, bound.written_schemas, strict=True):
        files = member if isinstance(member, Table) else member.source
        if isinstance(files, (Table, Files)) and format_of(str(member.location), files.format) == "csv":
            check_csv_types(schema, member.name)
    for stream, schema in zip(bound.join.streams, bound.read_schemas, strict=False):
        _check_offsets(stream, schema)
    return bound


def _check_offsets(stream: Stream, schema: pa.Schema) -> None:
    """Refuse a stream none of whose first records says the offset that a column in a foreign zone needs.

    Where some do, the others are rejects.
    """
    zones = zones_of(stream.schema)
    if not zones:
        return
    try:
        found = first_records(stream, schema, _FIRST_RECORDS)
    except SchemaDriftError:  # it names the column
        raise
    except (StreamJoinError, OSError, pa.ArrowException):  # the join's own reader reports it
        return
    columns = {reject.column for chunk in found for reject in chunk.rejects}
    if columns & set(zones) and not any(chunk.tuples.num_rows for chunk in found):
        column = min(columns & set(zones))
        raise without_zone(column, f"stream {stream.name}", zones[column])


def _with_tables(join: Join) -> Join:
    streams = [with_table(stream) for stream in join.streams]
    return join.with_streams(streams)


def _is_relative(path: str) -> bool:
    return is_local(path) and not path.startswith("file:")


def located(join: Join) -> Join:
    """Return the join with absolute paths, and with the formats of tables.

    Spark's Java process and its workers may have another current folder.
    """
    streams = [
        replace(stream, source=replace(stream.source, path=os.path.abspath(stream.source.path)))
        if isinstance(stream.source, (Files, DeltaRows)) and _is_relative(stream.source.path)
        else stream
        for stream in join.streams
    ]
    tables = [
        replace(table, source=os.path.abspath(table.source))
        if table.source is not None and _is_relative(table.source)
        else table
        for table in join.tables
    ]
    return _with_tables(join.with_streams(streams, tables))


def first_seen(join: Join, identity: CheckpointIdentity) -> Mapping[str, pa.Schema]:
    """Return the types that a checkpoint recorded; columns that it did not record get those the source has now.

    A source of which nothing can be told any more has the columns that were recorded: its first file may be gone, or
    what is in it now may be broken. Whatever cannot be read is found when it is. Columns that came to a folder since
    are no columns of a result that has all of them, and one that is gone stays one.
    """
    recorded = dict(zip(identity.bound.member_names, identity.bound.written_schemas, strict=True))
    schemas = {}
    for stream in join.streams:
        known = recorded.get(stream.name, pa.schema([]))
        try:
            # A topic's newest messages may have other columns by now, or be gone.
            found = known if stream.is_topic and stream.schema is None and known.names else infer_schema(stream)
        except (FileFormatError, FileMissingError):
            if not known.names:
                raise
            found = known
        if isinstance(stream.source, Files) and stream.schema is None and known.names:
            more = [] if f"{stream.name}.*" in join.select else [f for f in found if f.name not in known.names]
            schemas[stream.name] = pa.schema([*known, *more])
            continue
        schemas[stream.name] = pa.schema([known.field(f.name) if f.name in known.names else f for f in found])
        own = next((one for one in identity.bound.join.streams if one.name == stream.name), stream)
        schemas[stream.name] = with_inner(schemas[stream.name], known, own.nested)
    for table in join.tables:
        known = recorded.get(table.name, pa.schema([]))
        found = table_schema(table, known)
        there = pa.schema([known.field(f.name) if f.name in known.names else f for f in found])
        own_table = next((one for one in identity.bound.join.tables if one.name == table.name), table)
        schemas[table.name] = with_inner(there, known, own_table.nested)
    return schemas


@dataclass(frozen=True, slots=True)
class KnownRates:
    """Rates of a join's streams, in their order.

    Attributes
    ----------
    per_s : tuple of float
        Tuples a second; all 1 where nothing is known of any stream.
    origins : tuple of str
        For each stream "said", "found" or "unknown". An unknown rate is taken as the mean of the others.
    unanswered : mapping of str to StreamJoinError
        The first stream whose source does not answer, or refuses to, and why; empty where all answer.
    """

    per_s: tuple[float, ...]
    origins: tuple[str, ...]
    unanswered: Mapping[str, StreamJoinError] = field(default_factory=dict)

    @property
    def are_known(self) -> bool:
        """Whether anything is known of any stream."""
        return any(origin != "unknown" for origin in self.origins)


def known_rates(bound: BoundJoin, given: Mapping[str, float] | None = None) -> KnownRates:
    """Return the rates that a layout is chosen by.

    Parameters
    ----------
    bound : BoundJoin
        A stream's own ``rate`` counts, or else what the first records of its input tell.
    given : mapping of str to float, optional
        Tuples a second by stream; these win.

    Raises
    ------
    ArgumentError
        A name is no stream's, or a rate is no positive number.
    """
    given = given or {}
    for name in given:
        if name not in bound.names:
            msg = f"a rate is given for {name}, which is not a stream of the join"
            raise ArgumentError(msg, name="rates", hint=f"its streams are {', '.join(bound.names)}")
    said = [checked_rate(given.get(stream.name, stream.rate), stream.name) for stream in bound.join.streams]
    unanswered: dict[str, StreamJoinError] = {}
    found = [
        rate if rate is not None or stream.source is None else _found(stream, schema, unanswered)
        for rate, stream, schema in zip(said, bound.join.streams, bound.schemas, strict=False)
    ]
    origins = tuple(
        "said" if one is not None else "unknown" if other is None else "found"
        for one, other in zip(said, found, strict=True)
    )
    known = [rate for rate in found if rate is not None]
    if not known:
        return KnownRates((1.0,) * len(found), origins, unanswered)
    mean = sum(known) / len(known)
    rates = [mean if rate is None else rate for rate in found]
    return KnownRates(tuple(rates if "said" in origins else _smoothed(rates)), origins, unanswered)


def _found(stream: Stream, schema: pa.Schema, unanswered: dict[str, StreamJoinError]) -> float | None:
    """Return the rate at which a stream's input begins; None where it cannot be told. Note why a source is silent.

    The input is read only for streams whose rate is not said: its files may be large, or far away. After one source
    that does not answer no other is asked: each may take as long.
    """
    if unanswered:
        return None
    try:
        return sampled_rate(stream, schema)
    except UNANSWERED as error:
        unanswered[stream.name] = error
        return None


def _smoothed(rates: Sequence[float]) -> list[float]:
    """Return the rates; where they are nearly equal, their mean for each stream."""
    if max(rates) <= min(rates) * _NOISE:
        return [sum(rates) / len(rates)] * len(rates)
    return list(rates)
