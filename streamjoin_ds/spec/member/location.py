"""A source at a location: a path or a URL, which stands in plans, checkpoints and errors, so it holds no secret."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.member.option_key import OptionKey, options_of

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["KAFKA_PREFIX", "Located", "check_choices", "check_location", "location_text"]

KAFKA_PREFIX = "kafka://"
_STORE_SCHEMES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")


class Located:
    """A source at a path or a URL: the text that says where it is, and the checks of what it says."""

    __slots__ = ()

    def __str__(self) -> str:
        """Return the path or the URL."""
        return str(getattr(self, _place_of(type(self))))  # type: ignore[arg-type]

    def __fspath__(self) -> str:
        """Return the path, so that what opens a path opens the source."""
        return str(self)

    @property
    def partition_kind(self) -> str | None:
        """What a partition of the stream is; None: it has one order."""
        return None

    @property
    def device_columns(self) -> tuple[str, ...]:
        """The columns of `partition_by`, whose values have clocks of their own; none: each order has one clock."""
        given = getattr(self, "partition_by", None)
        return given if isinstance(given, tuple) else ()

    def checked(self, stream: str) -> Self:
        """Return the source with its options in one form each.

        Raises
        ------
        ArgumentError
            A value is none of those that there are; the error names the option, and the stream.
        """
        place = _place_of(type(self))  # type: ignore[arg-type]
        location = location_text(getattr(self, place), stream)
        check_location(location, f"stream {stream}")
        keys = options_of(type(self))
        check_choices({name: getattr(self, name) for name in keys}, keys, stream)
        found: Self = replace(self, **{place: location})  # type: ignore[type-var]
        return found


@cache
def _place_of(kind: type) -> str:
    """Return the name of the first field of a kind of source: where it is."""
    return fields(kind)[0].name


def location_text(location: object, stream: str) -> str:
    """Return a path or a URL as a text.

    Raises
    ------
    ArgumentError
        It is neither a text nor path-like.
    """
    text = os.fspath(location) if isinstance(location, os.PathLike) else location
    if not isinstance(text, str):
        msg = f"the source of stream {stream} is neither a path nor a generator"
        raise ArgumentError(msg, name=stream, hint="a file or directory, or Generator(...)")
    return text


def check_choices(given: Mapping[str, Any], keys: Mapping[str, OptionKey], stream: str) -> None:
    """Refuse a value that is none of the few that its option has; None is one where it is the default.

    Raises
    ------
    ArgumentError
    """
    for name, value in given.items():
        valid = keys[name].one_of
        if valid and value is not None and value not in valid:
            msg = f"stream {stream} has an unknown {name}"
            raise ArgumentError(msg, name=name, hint=f"one of {', '.join(valid)}")


def check_location(source: str, owner: str) -> None:
    """Refuse a location that holds credentials, or that of an object store with options.

    Parameters
    ----------
    source : str
        A path or a URL.
    owner : str
        What it is the location of, for the message: "stream e".

    Raises
    ------
    ArgumentError
        It does; nothing of the location is repeated.
    """
    scheme, separator, rest = source.partition("://")
    if not separator:
        return
    if source.startswith(KAFKA_PREFIX):
        _check_topic(rest, owner)
    elif scheme in _STORE_SCHEMES:
        _check_store(scheme, rest, owner)


def _check_store(scheme: str, rest: str, owner: str) -> None:
    user = rest.partition("/")[0].rpartition("@")[0]
    if "?" in rest or (user and (":" in user or scheme.startswith("s3"))):
        msg = f"the location of {owner} holds credentials or options, which do not belong there"
        hint = (
            "give s3://bucket/folder alone; AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL, "
            "or AWS_PROFILE, say the rest (docs/sources/object-stores.md)"
        )
        raise ArgumentError(msg, name="source", hint=hint)


def _check_topic(rest: str, owner: str) -> None:
    place, _, query = rest.partition("?")
    if "@" in place.partition("/")[0]:
        msg = f"the URL of {owner} holds credentials, which do not belong there"
        hint = "write sasl.username and sasl.password into a file, and name the file: settings=FILE"
        raise ArgumentError(msg, name="url", hint=hint)
    for parameter, value in parse_qsl(query):
        if parameter == "registry" and _has_login(value):
            msg = f"the registry of {owner} holds credentials, which do not belong there"
            hint = "a login is a setting of the file that settings=FILE names: "
            hint += "schema.registry.basic.auth.user.info=user:password"
            raise ArgumentError(msg, name="registry", hint=hint)


def _has_login(url: str) -> bool:
    try:
        return "@" in urlsplit(url).netloc
    except ValueError:  # it is no URL, so nobody can tell what of it is a secret
        return True
