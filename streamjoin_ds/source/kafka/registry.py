"""Schemas by their ids, from a registry with Confluent's interface. An id keeps its schema for ever."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from streamjoin_ds.errors import ArgumentError, KafkaAccessError, KafkaUnreachableError
from streamjoin_ds.kafka.settings import REGISTRY_PREFIX

__all__ = ["Reference", "RegisteredSchema", "SchemaRegistry"]

_LOGIN = f"{REGISTRY_PREFIX}basic.auth.user.info"
_CA = f"{REGISTRY_PREFIX}ssl.ca.location"
_ANSWER_SECONDS = 10.0
_TRIES = 3  # a registry that restarts, or a broken connection; each is an attempt of `_ANSWER_SECONDS` at most
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
    """Asks a registry, each id once.

    Parameters
    ----------
    url : str
        ``http://`` or ``https://``, without credentials.
    settings : mapping of str to str
        ``schema.registry.basic.auth.user.info`` is ``user:password``; ``schema.registry.ssl.ca.location`` a file.

    Raises
    ------
    ArgumentError
        The URL is none, or holds credentials.
    """

    def __init__(self, url: str, settings: Mapping[str, str], answer_seconds: float = _ANSWER_SECONDS) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            msg = "the URL of the schema registry is none, or holds credentials"
            hint = f"registry=http://registry:8081; a login is a setting: {_LOGIN}=user:password"
            raise ArgumentError(msg, name="registry", hint=hint)
        self._url = url.rstrip("/")
        self._login = settings.get(_LOGIN, "")
        self._ca = settings.get(_CA)
        self._answer_seconds = answer_seconds
        self._known: dict[str, RegisteredSchema | None] = {}

    def schema(self, number: int, *, serialized: bool = False) -> RegisteredSchema | None:
        """Return the schema with an id; None where the registry has none.

        Raises
        ------
        KafkaAccessError, KafkaUnreachableError
        """
        return self._schema(f"schemas/ids/{number}", serialized=serialized)

    def version(self, subject: str, version: int) -> RegisteredSchema | None:
        """Return a version of a subject, serialized; None where the registry has none. Errors are those of `schema`."""
        return self._schema(f"subjects/{quote(subject, safe='')}/versions/{version}", serialized=True)

    def _schema(self, path: str, *, serialized: bool) -> RegisteredSchema | None:
        path += "?format=serialized" if serialized else ""
        if path not in self._known:
            self._known[path] = self._asked(path)
        return self._known[path]

    def _asked(self, path: str) -> RegisteredSchema | None:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if self._login:
            headers["Authorization"] = "Basic " + base64.b64encode(self._login.encode()).decode()
        request = urllib.request.Request(f"{self._url}/{path}", headers=headers)
        code = 0
        for _ in range(_TRIES):
            try:
                context = ssl.create_default_context(cafile=self._ca) if self._url.startswith("https") else None
                with urllib.request.urlopen(request, timeout=self._answer_seconds, context=context) as answer:
                    facts = json.loads(answer.read(_MAX_BYTES))
                needed = tuple(
                    Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
                    for one in facts.get("references") or ()
                )
                return RegisteredSchema(str(facts.get("schemaType", "AVRO")), str(facts["schema"]), needed)
            except urllib.error.HTTPError as error:  # noqa: PERF203 - three turns at most
                code = error.code
                if code < 500:
                    break
            except (OSError, ValueError, KeyError, AttributeError, TypeError):
                code = 0
        if code == 404:
            return None
        if code in (401, 403):
            msg = "the schema registry refuses this user"
            raise KafkaAccessError(msg, name=_LOGIN, hint=f"correct {_LOGIN}=user:password in the settings")
        msg = "the schema registry does not answer" + (f": HTTP {code}" if code else "")
        hint = f"correct registry= in the URL, or start the registry; for its certificate set {_CA}"
        raise KafkaUnreachableError(msg, name="registry", hint=hint)
