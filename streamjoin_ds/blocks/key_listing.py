"""The keys of an S3 bucket after a key, by botocore: Arrow can only list a whole folder."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from streamjoin_ds.blocks.object_store import (
    ATTEMPTS,
    CONNECT_S,
    S3_SCHEMES,
    SILENCE_S,
    failed,
    s3_endpoint,
    s3_region,
    tag_of,
)

__all__ = ["S3Keys", "keys_of", "s3_client"]

_log = logging.getLogger(__name__)


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
