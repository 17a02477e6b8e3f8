"""Messages with Confluent's frame: a zero byte, the id of the schema in four bytes, and what that describes.

Schemas come by their ids from a registry with Confluent's interface. An id keeps its schema for ever.
"""

from __future__ import annotations

import base64
import json
import logging
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from http.client import HTTPException
from typing import Any, Protocol, TypeAlias
from urllib.parse import quote, urlsplit
from uuid import UUID

import numpy as np
import pyarrow as pa
from msgspec import Struct

from streamjoin_ds.errors import (
    ArgumentError,
    KafkaAccessError,
    KafkaSchemaError,
    KafkaUnreachableError,
    StreamJoinError,
)
from streamjoin_ds.kafka.settings import REGISTRY_PREFIX
from streamjoin_ds.source.kafka.formats.message_formats import NO_VALUE, message_text
from streamjoin_ds.source.records import RawRecords
from streamjoin_ds.spec.columns import foreign_zone, not_of_type, says_no_zone
from streamjoin_ds.spec.nested_path import inner_path, inner_value
from streamjoin_ds.spec.nested_values import is_list, is_nested

__all__ = [
    "NO_FRAME",
    "SCHEMA",
    "Codec",
    "Reader",
    "Reference",
    "RegisteredMessages",
    "RegisteredSchema",
    "SchemaRegistry",
    "schema_id",
    "unframed",
    "unframing",
]

_log = logging.getLogger(__name__)

_LOGIN = f"{REGISTRY_PREFIX}basic.auth.user.info"
_CA = f"{REGISTRY_PREFIX}ssl.ca.location"
_ANSWER_SECONDS = 10.0
_TRIES = 3  # a registry that restarts, or a broken connection; each is an attempt of `_ANSWER_SECONDS` at most
_PAUSE_SECONDS = 0.5  # between them
_BUSY = (408, 425, 429)  # those below 500 that say: later
_MAX_BYTES = 8 << 20  # of an answer
SCHEMA = "{schema}"  # stands in a codec's reasons for the schema and its id
_FRAME_BYTES = 5
NO_FRAME = "no schema's id before the value"
_LARGEST_ID = (1 << 31) - 1  # a registry's ids are positive int32
# How long schemas are asked for that the registry says it does not have. Of several registries those that follow learn
# of a schema some moments after it was registered, and so does one that starts while it reads its topic.
_PATIENCE_SECONDS = 10.0
_LEAST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 0.1, 2.0  # each pause is twice the one before it
_MOST_MISSING = 20  # schemas that are missed and asked for together, at most
# Returns the fields of the bytes after the frame, or why they have none.
Reader: TypeAlias = Callable[[bytes], "dict[str, Any] | str"]


class Reference(Struct, frozen=True):
    """Another schema that a schema needs: the name by which it does, and where it is registered."""

    name: str
    subject: str
    version: int


class RegisteredSchema(Struct, frozen=True):
    """A schema as it was registered: its kind (AVRO, PROTOBUF, JSON), its text, and what it needs.

    Where a schema of Protobuf was asked for as serialized, the text is its file's descriptor in base64.
    """

    kind: str
    text: str
    references: tuple[Reference, ...] = ()


class SchemaRegistry:
    """Asks a registry. What it gives is kept; that it has no such schema is asked again each time.

    Parameters
    ----------
    url : str
        ``http://`` or ``https://``, without credentials.
    settings : mapping of str to str
        ``schema.registry.basic.auth.user.info`` is ``user:password``; ``schema.registry.ssl.ca.location`` a file.
    answer_seconds : float
        How long one answer may take.
    clock : callable
        Seconds that only grow.
    wait : callable
        Waits so many seconds.

    Raises
    ------
    ArgumentError
        The URL is none, or holds credentials.
    """

    def __init__(
        self,
        url: str,
        settings: Mapping[str, str],
        answer_seconds: float = _ANSWER_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            msg = "the URL of the schema registry is none, or holds credentials"
            hint = f"registry=http://registry:8081; a login is a setting: {_LOGIN}=user:password"
            raise ArgumentError(msg, name="registry", hint=hint)
        self._url = url.rstrip("/")
        self._login = settings.get(_LOGIN, "")
        self._ca = settings.get(_CA)
        self._answer_seconds = answer_seconds
        self.clock, self.wait = clock, wait
        self._known: dict[str, RegisteredSchema] = {}

    def schema(self, number: int, *, serialized: bool = False) -> RegisteredSchema:
        """Return the schema with an id.

        Raises
        ------
        KafkaSchemaError
            The registry has none now. It may have one soon.
        KafkaAccessError, KafkaUnreachableError
        """
        return self._schema(f"schemas/ids/{number}", f"schema {number}", serialized=serialized)

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """Return a version of a subject, serialized. Errors are those of `schema`."""
        what = f"version {version} of subject {subject}"
        return self._schema(f"subjects/{quote(subject, safe='')}/versions/{version}", what, serialized=True)

    def latest(self, subject: str, *, serialized: bool = False) -> RegisteredSchema | None:
        """Return the last version of a subject; None where the registry has no such subject."""
        path = f"subjects/{quote(subject, safe='')}/versions/latest{'?format=serialized' * serialized}"
        try:
            return self._asked(path, f"version of subject {subject}")
        except KafkaSchemaError:
            return None

    def _schema(self, path: str, what: str, *, serialized: bool) -> RegisteredSchema:
        path += "?format=serialized" if serialized else ""
        if path not in self._known:
            self._known[path] = self._asked(path, what)
        return self._known[path]

    def _asked(self, path: str, what: str) -> RegisteredSchema:
        found = self._answer(path)
        for _ in range(_TRIES - 1):
            if isinstance(found, RegisteredSchema) or (0 < found < 500 and found not in _BUSY):
                break
            self.wait(_PAUSE_SECONDS)
            found = self._answer(path)
        if isinstance(found, RegisteredSchema):
            return found
        raise _refused(found, what)

    def _answer(self, path: str) -> RegisteredSchema | int:
        """Return a schema, or the status of HTTP with which it was refused; 0 where no answer can be read."""
        headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if self._login:
            headers["Authorization"] = "Basic " + base64.b64encode(self._login.encode()).decode()
        request = urllib.request.Request(f"{self._url}/{path}", headers=headers)
        try:
            context = ssl.create_default_context(cafile=self._ca) if self._url.startswith("https") else None
            with urllib.request.urlopen(request, timeout=self._answer_seconds, context=context) as answer:
                facts = json.loads(answer.read(_MAX_BYTES))
            needed = tuple(
                Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
                for one in facts.get("references") or ()
            )
            return RegisteredSchema(str(facts.get("schemaType", "AVRO")), str(facts["schema"]), needed)
        except urllib.error.HTTPError as error:
            return error.code
        except (OSError, HTTPException, ValueError, KeyError, AttributeError, TypeError, RecursionError):
            return 0


def _refused(code: int, what: str) -> StreamJoinError:
    if code == 404:
        msg = f"the schema registry has no {what}"
        hint = "register it; where registry= in the URL is another one's, correct that"
        return KafkaSchemaError(msg, name="registry", hint=hint)
    if code in (401, 403):
        msg = "the schema registry refuses this user"
        return KafkaAccessError(msg, name=_LOGIN, hint=f"correct {_LOGIN}=user:password in the settings")
    msg = "the schema registry does not answer" + (f": HTTP {code}" if code else "")
    hint = f"correct registry= in the URL, or start the registry; for its certificate set {_CA}"
    return KafkaUnreachableError(msg, name="registry", hint=hint)


class Codec(Protocol):
    """One kind of schemas, read by a library."""

    @property
    def kind(self) -> str:
        """The registry's name of the kind."""

    @property
    def name(self) -> str:
        """The kind's name in reasons."""

    def schema(self, registry: SchemaRegistry, number: int) -> RegisteredSchema:
        """Return the schema with an id, in the form that `reader` reads. Errors are those of the registry."""

    def reader(self, found: RegisteredSchema, registry: SchemaRegistry) -> Reader:
        """Return what reads the values of a schema. An exception means that it cannot be read, but the registry's own.

        An exception of the reader means that the bytes are no value of the schema.
        """


class RegisteredMessages:
    """Messages that are records, each with the schema that its writer registered.

    A field is found by its name. One that a schema does not have is a null, as an absent key of a JSON object is. A
    value of another type than the column's makes the message a reject. A registry that does not answer, or does not
    know an id, is an error: nothing is rejected for what only this reader was told. Ids that are no schema's are named
    in the URL, and messages with them are rejects for every reader.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns to read, with their inside types.
    time : str
        The time column: a number, a text, or a timestamp or date of the kind.
    registry : SchemaRegistry
    codec : Codec
    rejected : collection of int
        Ids that are no schema's. They are not asked for.
    """

    def __init__(
        self, schema: pa.Schema, time: str, registry: SchemaRegistry, codec: Codec, rejected: Collection[int] = ()
    ) -> None:
        self._schema, self._time = schema, time
        self._registry, self._codec = registry, codec
        self._readers: dict[int, Reader | str] = {
            number: f"schema {number} is in reject_schemas" for number in rejected
        }

    def read(self, values: pa.BinaryArray) -> RawRecords:
        """See `MessageFormat.read`.

        Raises
        ------
        KafkaSchemaError
            The registry has no schema with the id that some messages name.
        KafkaAccessError, KafkaUnreachableError
        """
        given = values.to_pylist()
        self._learn({number for number in map(schema_id, given) if number is not None and number not in self._readers})
        records: list[dict[str, Any]] = []
        index: list[int] = []
        broken: dict[int, tuple[str, str]] = {}
        for place, value in enumerate(given):
            found = self._record(value)
            if isinstance(found, str):
                broken[place] = ("", found)
            else:
                records.append(found)
                index.append(place)
        columns = []
        for field in self._schema:
            is_inner = inner_path(field.name) is not None
            held = [inner_value(one, field.name) if is_inner else one.get(field.name) for one in records]
            if field.name == self._time:
                column, wrong = _times(held, zoned=foreign_zone(field.type) is not None)
            else:
                column, wrong = _typed(held, field.type)
            columns.append(column)
            for at in wrong:
                broken.setdefault(index[at], (field.name, not_of_type(field.type)))
        table = pa.table(columns, names=self._schema.names) if columns else pa.table({"": index}).select([])
        kept = np.array(index, np.int64)
        is_good = ~np.isin(kept, np.fromiter(broken, np.int64, len(broken)))
        if not is_good.all():
            table, kept = table.filter(pa.array(is_good)), kept[is_good]
        told = [
            (place, column, reason, message_text(values[place].as_py())) for place, (column, reason) in broken.items()
        ]
        return RawRecords(table, len(values), kept if told else None, sorted(told))

    def _record(self, value: bytes | None) -> dict[str, Any] | str:
        """Return a message's fields, or why it has none."""
        if value is None:
            return NO_VALUE
        number = schema_id(value)
        if number is None:
            return NO_FRAME
        reader = self._readers[number]
        if isinstance(reader, str):
            return reader
        try:
            return reader(value[_FRAME_BYTES:])
        except Exception:  # the decoder's errors are of any kind: IndexError, struct.error, UnicodeDecodeError, ...
            return f"not a value of schema {number}"

    def _learn(self, numbers: Collection[int]) -> None:
        """Ask for the schemas with these ids, again for a while where the registry has them not."""
        registry, pause = self._registry, _LEAST_PAUSE_SECONDS
        until = registry.clock() + _PATIENCE_SECONDS
        while numbers:
            missing: list[int] = []
            for number in sorted(numbers):
                try:
                    self._readers[number] = self._reader(number)
                except KafkaSchemaError:  # noqa: PERF203 - each schema is asked for by itself
                    missing.append(number)
                    if len(missing) == _MOST_MISSING:
                        break
            if missing and registry.clock() >= until:
                raise _no_schemas(missing)
            if missing:
                if pause == _LEAST_PAUSE_SECONDS:
                    _log.warning("%s; asked again", _no_schemas(missing))
                registry.wait(pause)
                pause = min(2 * pause, _MOST_PAUSE_SECONDS)
            numbers = [number for number in numbers if number not in self._readers]

    def _reader(self, number: int) -> Reader | str:
        found = self._codec.schema(self._registry, number)
        if found.kind != self._codec.kind:
            return f"schema {number} is not {self._codec.name}"
        try:
            reader = self._codec.reader(found, self._registry)
        except StreamJoinError:  # the registry's: nothing is rejected for it
            raise
        except Exception:  # libraries have several, and a schema that cannot be read is the message's fault
            return f"schema {number} cannot be read"

        def read(data: bytes) -> dict[str, Any] | str:
            record = reader(data)
            return record.replace(SCHEMA, f"schema {number}") if isinstance(record, str) else record

        return read


def schema_id(value: bytes | None) -> int | None:
    """Return the id of a message's schema; None where the message has no frame."""
    if value is None or len(value) < _FRAME_BYTES or value[0]:
        return None
    number = int.from_bytes(value[1:_FRAME_BYTES], "big")
    return number if number <= _LARGEST_ID else None


def unframing(
    is_framed: bool, rejected: Collection[int]
) -> Callable[[pa.BinaryArray], tuple[pa.Array, dict[int, tuple[str, str]]]] | None:
    """Return what takes the frames off messages (`unframed`); None where they have none."""
    return partial(unframed, rejected=rejected) if is_framed else None


def unframed(values: pa.BinaryArray, rejected: Collection[int]) -> tuple[pa.Array, dict[int, tuple[str, str]]]:
    """Return messages without their frames, and by place what is wrong with those that have none, which are null.

    Parameters
    ----------
    values : pyarrow.BinaryArray
    rejected : collection of int
        Ids that are no schema's.
    """
    kept: list[bytes | None] = []
    broken: dict[int, tuple[str, str]] = {}
    for place, value in enumerate(values.to_pylist()):
        number = schema_id(value)
        kept.append(None if value is None or number is None or number in rejected else value[_FRAME_BYTES:])
        if value is not None and number is None:
            broken[place] = ("", NO_FRAME)
        elif number in rejected:
            broken[place] = ("", f"schema {number} is in reject_schemas")
    return pa.array(kept, pa.binary()), broken


def _no_schemas(numbers: list[int]) -> KafkaSchemaError:
    ids = ",".join(map(str, numbers))
    what = f"schema {ids}" if len(numbers) == 1 else f"schemas {ids}"
    hint = (
        "correct registry= in the URL, or register what is missing, with all that it needs; if messages with "
        f"such an id are another producer's, make them rejects: reject_schemas={ids} in the URL"
    )
    return KafkaSchemaError(f"the schema registry does not have {what}", name="registry", hint=hint)


def _typed(values: list[Any], kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Return values as an array, and the places of those that are not of its type."""
    if pa.types.is_string(kind):  # Avro's uuid
        values = [str(value) if type(value) is UUID else value for value in values]
    wrong = _others(values, kind)
    if foreign_zone(kind) is not None:
        wrong += [place for place, value in enumerate(values) if says_no_zone(value)]
    try:
        if not wrong:
            return pa.array(values, kind), []
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    wrong = sorted({*wrong, *(place for place, value in enumerate(values) if not _fits(value, kind))})
    kept: list[Any] = list(values)
    for place in wrong:
        kept[place] = None
    return pa.array(kept, kind), wrong


def _others(values: list[Any], kind: pa.DataType) -> list[int]:
    """Return the places of values that are of another kind than a type's: Arrow takes 5.5 for 5, and 5 for a date."""
    taken = _values_of(kind)
    if not is_nested(kind):
        if set(map(type, values)) <= taken:
            return []
        return [place for place, value in enumerate(values) if type(value) not in taken]
    return [place for place, value in enumerate(values) if not _is_of(value, kind)]


def _values_of(kind: pa.DataType) -> frozenset[type]:
    """Return the classes of a type's values, None's too."""
    types = pa.types
    for is_kind, classes in (
        (types.is_integer, (int,)),
        (types.is_floating, (float, int)),
        (types.is_boolean, (bool,)),
        (types.is_decimal, (Decimal, int)),
        (types.is_date, (date,)),
        (types.is_timestamp, (datetime,)),
        (is_list, (list,)),
        (types.is_struct, (dict,)),
    ):
        if is_kind(kind):
            return frozenset((type(None), *classes))
    return frozenset((type(None), str, bytes))


def _is_of(value: Any, kind: pa.DataType) -> bool:
    if type(value) not in _values_of(kind):
        return False
    if isinstance(value, list):
        return not _others(value, kind.value_type)
    if isinstance(value, dict):
        return all(_is_of(value.get(field.name), field.type) for field in kind)
    return True


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


def _times(values: list[Any], *, zoned: bool) -> tuple[pa.Array, list[int]]:
    """Return event times in a form that `event_times` reads: all numbers, or texts where they are mixed.

    Where a time without an offset is none (`zoned`), times are texts too, which show their offsets.
    """
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int}:
        found = _typed(values, pa.int64())
        if not found[1]:
            return found
    if len(kinds) == 1 and kinds <= {datetime} and not zoned:
        return pa.array(values, pa.timestamp("us", tz="UTC")), []
    return pa.array([None if value is None else _time_text(value) for value in values], pa.string()), []


def _time_text(value: Any) -> str:
    return str(value.isoformat() if hasattr(value, "isoformat") else value)
