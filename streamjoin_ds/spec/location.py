"""Where a stream's tuples come from: a text that stands in plans, checkpoints and errors, so it has no secret."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from streamjoin_ds.errors import ArgumentError

__all__ = ["KAFKA_PREFIX", "check_location"]

KAFKA_PREFIX = "kafka://"
_STORE_SCHEMES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")


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
