"""Schemas by their ids, from a registry with Confluent's interface. An id keeps its schema for ever."""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from urllib.parse import quote, urlsplit

from streamjoin_ds.errors import (
    ArgumentError,
    KafkaAccessError,
    KafkaSchemaError,
    KafkaUnreachableError,
    StreamJoinError,
)
from streamjoin_ds.kafka.settings import REGISTRY_PREFIX

__all__ = ["Reference", "RegisteredSchema", "SchemaRegistry"]

_LOGIN = f"{REGISTRY_PREFIX}basic.auth.user.info"
_CA = f"{REGISTRY_PREFIX}ssl.ca.location"
_ANSWER_SECONDS = 10.0
_TRIES = 3  # a registry that restarts, or a broken connection; each is an attempt of `_ANSWER_SECONDS` at most
_PAUSE_SECONDS = 0.5  # between them
_BUSY = (408, 425, 429)  # those below 500 that say: later
_MAX_BYTES = 8 << 20  # of an answer


@dataclass(frozen=True, slots=True)
class Reference:
    """Another schema that a schema needs: the name by which it does, and where it is registered."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
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
