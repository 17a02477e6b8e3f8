"""Schemas by their ids, from a registry with Confluent's interface. An id keeps its schema for ever."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from streamjoin_ds.errors import ArgumentError, KafkaAccessError, KafkaUnreachableError
from streamjoin_ds.kafka.settings import REGISTRY_PREFIX

__all__ = ["RegisteredSchema", "SchemaRegistry"]

_LOGIN = f"{REGISTRY_PREFIX}basic.auth.user.info"
_CA = f"{REGISTRY_PREFIX}ssl.ca.location"
_ANSWER_SECONDS = 10.0
_TRIES = 3  # a registry that restarts, or a broken connection; each is an attempt of `_ANSWER_SECONDS` at most
_MAX_BYTES = 8 << 20  # of an answer


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as it was registered: its kind (AVRO, PROTOBUF, JSON) and its text."""

    kind: str
    text: str


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
        self._known: dict[int, RegisteredSchema | None] = {}

    def schema(self, number: int) -> RegisteredSchema | None:
        """Return the schema with an id; None where the registry has none.

        Raises
        ------
        KafkaAccessError, KafkaUnreachableError
        """
        if number not in self._known:
            self._known[number] = self._asked(number)
        return self._known[number]

    def _asked(self, number: int) -> RegisteredSchema | None:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if self._login:
            headers["Authorization"] = "Basic " + base64.b64encode(self._login.encode()).decode()
        request = urllib.request.Request(f"{self._url}/schemas/ids/{number}", headers=headers)
        code = 0
        for _ in range(_TRIES):
            try:
                context = ssl.create_default_context(cafile=self._ca) if self._url.startswith("https") else None
                with urllib.request.urlopen(request, timeout=self._answer_seconds, context=context) as answer:
                    facts = json.loads(answer.read(_MAX_BYTES))
                return RegisteredSchema(str(facts.get("schemaType", "AVRO")), str(facts["schema"]))
            except urllib.error.HTTPError as error:  # noqa: PERF203 - three turns at most
                code = error.code
                if code < 500:
                    break
            except (OSError, ValueError, KeyError, AttributeError):
                code = 0
        if code == 404:
            return None
        if code in (401, 403):
            msg = "the schema registry refuses this user"
            raise KafkaAccessError(msg, name=_LOGIN, hint=f"correct {_LOGIN}=user:password in the settings")
        msg = "the schema registry does not answer" + (f": HTTP {code}" if code else "")
        hint = f"correct registry= in the URL, or start the registry; for its certificate set {_CA}"
        raise KafkaUnreachableError(msg, name="registry", hint=hint)
