"""Object stores and file systems of other machines: opened once in a process, with bounded patience.

What fails there is said in a few words. Credentials and endpoints come from where the tools of each file system look
for them: variables of the environment, or their own files. So no location holds a secret, and neither does what holds a
location: plans, offsets, logs.

Arrow can only list a whole folder, and puts an object without a condition. So botocore lists the keys of an S3 bucket
after a key, and puts an object of S3 on a condition: that there is none yet, or that it is still as it was seen.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import xxhash
from pyarrow import fs

from streamjoin_ds.errors import (
    ArgumentError,
    DependencyMissingError,
    StoreAccessError,
    StoreUnreachableError,
    StreamJoinError,
)

__all__ = [
    "FAILURES",
    "S3_SCHEMES",
    "Conditional",
    "S3Keys",
    "answers",
    "asked",
    "failed",
    "heeds_no_conditions",
    "keys_of",
    "open_remote",
    "reason_of",
    "remote_root",
    "s3_client",
    "s3_endpoint",
    "s3_region",
    "store_of",
    "tag_of",
]

_log = logging.getLogger(__name__)

FAILURES = (OSError, pa.ArrowException)
"""What Arrow raises for a request that failed: its own where a file system lacks an operation, or a path is invalid."""
S3_SCHEMES = ("s3", "s3a")
CONNECT_S = 5.0  # seconds in which a connection must be made
SILENCE_S = 10.0  # seconds in which an answer must begin, or go on
ATTEMPTS = 4  # tries of a request; the waits between them are the SDK's
_GOOGLE_SCHEMES = ("gs", "gcs")
_GOOGLE_S = 15.0  # of a request with its retries; Arrow's own are 15 minutes
_DELAYED_OPEN = "allow_delayed_open"  # an option of Arrow's S3 URIs: a small file is one request, not three
# What the SDK says of a failed request, and what that means for the user.
_ACCESS = (
    "ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "INVALID_CLIENT_TOKEN_ID", "SIGNATURE_DOES_NOT_MATCH", "EXPIRED_TOKEN",
    "INVALID_SIGNATURE", "MISSING_AUTHENTICATION_TOKEN", "UNRECOGNIZED_CLIENT", "REQUEST_TIME_TOO_SKEWED",
    "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "HTTP response code: 403", "(403)",
    "InvalidToken", "INVALID_TOKEN",
)  # fmt: skip
# What is said where there are no credentials, and where each file system looks for them.
_NO_CREDENTIALS = {
    "Unable to locate credentials": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "could not be found": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "OAuth2 access token": "name a key file in GOOGLE_APPLICATION_CREDENTIALS, or log in by gcloud",
    "DefaultAzureCredential": "set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or log in by az",
}
_CONNECTION = ("Could not connect", "Connection was closed", "timeout", "Connection broken", "ended early")
_BUCKET = ("NO_SUCH_BUCKET", "NoSuchBucket")
_REGION = ("PermanentRedirect", "HTTP response code: 301", "AuthorizationHeaderMalformed", "(301)")
_CONFLICTS = 5  # how often a put is tried again that met another one in the making


def open_remote(location: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URI, and the path in it. Escapes in the URI's path are resolved.

    Raises
    ------
    ArgumentError
        Arrow does not know the file system, or there is no folder in the URI. It may hold a secret, so it is not shown.
    StoreUnreachableError
        The file system cannot be reached.
    DependencyMissingError
        The libraries of Hadoop are not found.
    """
    scheme, authority, path = _parts(location)
    query = ""
    if "?" in path:
        path, _, query = path.partition("?")
    path = unquote(path).rstrip("/")
    if not path.strip("/"):
        why = "no folder in the URI"
        raise _unknown(why)
    files, prefix = _opened(scheme, authority, query, os.getpid())
    return files, prefix + path


def remote_root(location: str) -> tuple[fs.FileSystem, str, str]:
    """Return a location's file system, its root as locations have it, and as paths in the file system have it.

    What follows the root is the same in both: percent signs stay as they are, as in Hadoop's paths.

    Raises
    ------
    ArgumentError, StoreUnreachableError, DependencyMissingError
        See `open_remote`.
    """
    scheme, authority, _ = _parts(location)
    files, prefix = _opened(scheme, authority, "", os.getpid())
    return files, f"{scheme}://{authority}/", prefix


def answers(location: str, patience_s: float) -> bool:
    """Whether the store of a location answers just now, be it that it refuses.

    S3 is asked once, and has so many seconds to connect and as many to answer. Others have their client's patience.
    """
    scheme, authority, path = _parts(location)
    try:
        files, prefix = _opened(scheme, authority, path.partition("?")[2], os.getpid(), patience_s)
        files.get_file_info(prefix.rstrip("/") or "/")
    except StoreUnreachableError:
        return False
    except StreamJoinError:  # it cannot be opened: that the store is away is not what is wrong
        return True
    except FAILURES as error:
        return not isinstance(failed(error, store_of(location), "does not answer"), StoreUnreachableError)
    return True


def store_of(location: str) -> str:
    """Return the name of the store in which something lies, without credentials: ``s3://bucket``."""
    scheme, _, rest = location.partition("://")
    authority = rest.partition("/")[0].partition("?")[0].rpartition("@")[2]
    return f"{'s3' if scheme in S3_SCHEMES else scheme}://{authority}"


def _parts(location: str) -> tuple[str, str, str]:
    scheme, separator, rest = location.partition("://")
    authority, _, path = rest.partition("/")
    if not separator or not (authority or path) or (scheme in S3_SCHEMES and not authority):
        why = "no URI"
        raise _unknown(why)
    return scheme, authority, path


@lru_cache(maxsize=32)
def _opened(
    scheme: str, authority: str, query: str, process_id: int, patience_s: float | None = None
) -> tuple[fs.FileSystem, str]:
    """Return a file system, and what a path in it begins with."""
    del process_id  # a connection does not survive a fork
    try:
        if scheme in S3_SCHEMES and not query and "@" not in authority:
            return _s3(authority, patience_s), f"{authority}/"
        scheme = "s3" if scheme in S3_SCHEMES else scheme
        query = query or (f"retry_limit_seconds={patience_s or _GOOGLE_S:g}" if scheme in _GOOGLE_SCHEMES else "")
        uri = f"{scheme}://{authority}/x"
        if scheme == "s3" and _DELAYED_OPEN not in query:
            with contextlib.suppress(pa.ArrowInvalid):  # an older Arrow lacks the option; a bad URI fails below
                files, path = fs.FileSystem.from_uri(f"{uri}?{query}{'&' if query else ''}{_DELAYED_OPEN}=true")
                return files, path.removesuffix("x")
        files, path = fs.FileSystem.from_uri(f"{uri}?{query}" if query else uri)
        return files, path.removesuffix("x")
    except (pa.ArrowException, ValueError, TypeError, ImportError) as error:
        raise _unknown(type(error).__name__) from None
    except OSError as error:
        if "libjvm" in str(error) or "libhdfs" in str(error):
            msg = f"{scheme}:// needs Java and the libraries of Hadoop, and one is not found"
            hint = "set JAVA_HOME, HADOOP_HOME, and CLASSPATH to what `hadoop classpath --glob` prints"
            raise DependencyMissingError(msg, name=scheme, hint=hint) from None
        msg = f"the file system of {scheme}:// does not answer: {reason_of(error)}"
        hint = "check this machine's connection, its credentials, and the variables that name the file system's address"
        raise StoreUnreachableError(msg, name=scheme, hint=hint) from None


def _s3(bucket: str, patience_s: float | None) -> fs.FileSystem:
    endpoint = s3_endpoint()
    options: dict[str, Any] = {}
    if endpoint:
        scheme, separator, host = endpoint.rpartition("://")
        options = {"endpoint_override": host.rstrip("/"), "scheme": scheme if separator else "https"}
    authorities = os.environ.get("AWS_CA_BUNDLE")
    if authorities:
        options["tls_ca_file_path"] = authorities
    return fs.S3FileSystem(
        region=s3_region() or ("us-east-1" if endpoint else fs.resolve_s3_region(bucket)),
        connect_timeout=patience_s or CONNECT_S,
        request_timeout=patience_s or SILENCE_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1 if patience_s else ATTEMPTS),
        allow_delayed_open=True,
        **options,
    )


def s3_endpoint() -> str:
    """Return the URL of the S3 service that the environment names; empty: that of Amazon."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def s3_region() -> str:
    """Return the region that the environment names; empty where it names none."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""


@contextlib.contextmanager
def asked(location: str, what: str) -> Iterator[None]:
    """Raise what Arrow raises meanwhile as `failed` has it, but FileNotFoundError as it is."""
    try:
        yield
    except (FileNotFoundError, StreamJoinError):
        raise
    except FAILURES as error:
        raise failed(error, location, what) from None


def failed(error: Exception, location: str, what: str) -> StreamJoinError:
    """Return the error for a request that failed: which setting is wrong, or that the file system does not answer.

    Parameters
    ----------
    error : Exception
        What Arrow or the file system's client raised.
    location : str
        Where the request went; it must hold no secret.
    what : str
        What was to be done, for example "cannot be listed".
    """
    text, parts = str(error), urlsplit(location)
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    if any(mark in text for mark in _BUCKET):
        msg = f"{location} {what}: there is no bucket of this name ({place})"
        return StoreAccessError(msg, name=place, hint="correct the bucket's name, or AWS_ENDPOINT_URL")
    if any(mark in text for mark in _REGION):
        msg = f"{location} {what}: the bucket is in another region"
        return StoreAccessError(msg, name="AWS_REGION", hint="set the variable AWS_REGION to the bucket's region")
    without = next((hint for mark, hint in _NO_CREDENTIALS.items() if mark in text), None)
    if without is not None:
        msg = f"{location} {what}: there are no credentials"
        return StoreAccessError(msg, name=place, hint=without)
    if any(mark in text for mark in _ACCESS):
        msg = f"{location} {what}: the credentials are refused, or lack this right ({reason_of(error)})"
        hint = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, and what they may do in the bucket"
        return StoreAccessError(msg, name=place, hint=hint)
    msg = f"{location} {what}: {reason_of(error)}"
    where = "AWS_ENDPOINT_URL and AWS_REGION" if parts.scheme in S3_SCHEMES else "the location's host"
    hint = f"check this machine's connection, and {where}; start again when it answers: nothing is lost"
    return StoreUnreachableError(msg, name=place, hint=hint)


def reason_of(error: Exception) -> str:
    """Return the reason in a few words. A file system's whole message may hold secrets, so it is not shown."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    found = re.search(r"AWS Error ([A-Z_]+)", str(error))
    if found:
        return found[1].lower().replace("_", " ")
    return "network connection" if any(mark in str(error) for mark in _CONNECTION) else "the file system refuses"


def tag_of(tag: str | bytes) -> int:
    """Return a number for an entity tag, 0 for none: the same for the same tag, however it is quoted."""
    plain = (tag.decode("utf-8", "replace") if isinstance(tag, bytes) else tag).strip('"')
    return xxhash.xxh3_64_intdigest(plain.encode()) >> 1 if plain else 0


def _unknown(why: str) -> ArgumentError:
    msg = f"Arrow cannot open the location ({why})"
    hint = "give a path, or a URI such as s3://bucket/folder (docs/sources/object-stores.md)"
    return ArgumentError(msg, name="location", hint=hint)


class S3Keys:
    """The keys of one bucket.

    Parameters
    ----------
    root : str
        ``s3://bucket/``.
    client : botocore client
        Lists them.
    """

    def __init__(self, root: str, client: Any) -> None:
        self._root, self._client = root, client
        self._bucket = root.partition("://")[2].strip("/")

    def listed(self, folder: str, after: str) -> Iterator[tuple[str, int, int, int, bool]]:
        """Yield what lies in a folder, in the order of the names: name, size, time in ns, tag, whether it is a folder.

        Parameters
        ----------
        folder : str
            A key without a slash at its ends; "" is the whole bucket.
        after : str
            Only later names; "": all.

        Raises
        ------
        StoreUnreachableError, StoreAccessError
            The bucket cannot be listed.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        prefix = f"{folder.strip('/')}/" if folder.strip("/") else ""
        options = {"StartAfter": f"{prefix}{after}"} if after else {}
        try:
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=prefix, Delimiter="/", **options
            )
            for page in pages:
                for one in page.get("CommonPrefixes", ()):
                    if name := one["Prefix"][len(prefix) :].rstrip("/"):
                        yield name, 0, 0, 0, True
                for one in page.get("Contents", ()):
                    if name := one["Key"][len(prefix) :]:
                        yield name, one["Size"], int(one["LastModified"].timestamp() * 1e9), tag_of(one["ETag"]), False
        except (BotoCoreError, ClientError) as error:
            raise failed(error, f"{self._root}{folder}", "cannot be listed") from None


def keys_of(root: str) -> S3Keys | None:
    """Return the keys of a bucket; None where the file system is another one, or there is no botocore.

    Raises
    ------
    StoreAccessError
        There are no credentials.
    """
    if root.partition("://")[0] not in S3_SCHEMES:
        return None
    client = s3_client(root)
    return None if client is None else S3Keys(root, client)


def s3_client(root: str) -> Any | None:
    """Return a client of S3 with this package's patience; None where botocore is not installed.

    Raises
    ------
    StoreAccessError
        There are no credentials for `root`.
    """
    try:
        import botocore.session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, NoCredentialsError
    except ImportError:
        _log.warning("each look at a folder on S3 lists all of it: pip install 'streamjoin-ds[s3]' lists what is new")
        return None
    retries = {"total_max_attempts": ATTEMPTS, "mode": "standard"}
    patience = Config(connect_timeout=CONNECT_S, read_timeout=SILENCE_S, retries=retries)
    endpoint, region = s3_endpoint() or None, s3_region() or None
    if region is None and endpoint is not None:
        region = "us-east-1"
    session = botocore.session.get_session()
    try:
        if session.get_credentials() is None:
            raise NoCredentialsError
        return session.create_client("s3", region, endpoint_url=endpoint, config=patience)
    except (BotoCoreError, ValueError) as error:
        raise failed(error, root, "cannot be opened") from None


def heeds_no_conditions(condition: str) -> ArgumentError:
    """Return the error for a store that does not heed a condition of a put."""
    msg = f"the object store of the checkpoint does not heed conditions ({condition}), so it cannot be locked"
    hint = "use a store that does, as Amazon S3 and newer versions of MinIO do, or a checkpoint on a shared disk"
    return ArgumentError(msg, name="checkpoint", hint=hint)


class Conditional:
    """One object of S3 that is put on conditions."""

    def __init__(self, location: str) -> None:
        self._location = location
        scheme, _, rest = location.partition("://")
        self._bucket, _, self._key = rest.partition("/")
        self._client: Any = s3_client(f"{scheme}://{self._bucket}/")
        if self._client is None:
            msg = "a checkpoint in an object store needs botocore, for its lease"
            raise DependencyMissingError(msg, name="botocore", hint="pip install 'streamjoin-ds[s3]'")

    def put(self, data: bytes, *, if_none: bool = False, if_tag: str | None = None) -> str | None:
        """Put the object and return its entity tag; None where the condition does not hold.

        None does not say that nothing was put. Where an answer is lost the client asks again, and then the object may
        be there as this call has put it. So whoever must know reads it, and looks whether it is its own.

        Raises
        ------
        ArgumentError
            The store says that it knows no such condition.
        StoreUnreachableError, StoreAccessError
            The store does not answer, or refuses. The object may have been put all the same.
        """
        name, condition = ("IfNoneMatch", "*") if if_none else ("IfMatch", if_tag)
        for _ in range(_CONFLICTS):
            tag, status = self._put({name: condition}, data)
            if status != 409:  # another put or a removal was under way, which does not decide the condition
                break
        if status == 501:
            raise heeds_no_conditions("If-None-Match" if if_none else "If-Match")
        return tag

    def _put(self, condition: dict[str, str | None], data: bytes) -> tuple[str | None, int]:
        """Put the object; return its entity tag, and the status where the condition is why it was not put."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = self._client.put_object(Bucket=self._bucket, Key=self._key, Body=data, **condition)
            return str(answer["ETag"]), 200
        except (BotoCoreError, ClientError) as error:
            status = int(getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            if status not in (404, 409, 412, 501):
                raise failed(error, self._location, "cannot be written") from None
            return None, status

    def get(self) -> tuple[bytes, str | None]:
        """Return what the object holds, and its entity tag; None where it is not there."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._key)
            return answer["Body"].read(), str(answer["ETag"])
        except (BotoCoreError, ClientError) as error:
            if getattr(error, "response", {}).get("Error", {}).get("Code") in ("NoSuchKey", "404"):
                return b"", None
            raise failed(error, self._location, "cannot be read") from None
