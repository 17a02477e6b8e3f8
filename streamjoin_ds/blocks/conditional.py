"""An object of S3 that is put only on a condition: that there is none yet, or that it is still as it was seen."""

from __future__ import annotations

from typing import Any

from streamjoin_ds.blocks.key_listing import s3_client
from streamjoin_ds.blocks.object_store import failed
from streamjoin_ds.errors import ArgumentError, DependencyMissingError

__all__ = ["Conditional", "heeds_no_conditions"]

_CONFLICTS = 5  # how often a put is tried again that met another one in the making


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
        except ClientError as error:
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            if status not in (404, 409, 412, 501):
                raise failed(error, self._location, "cannot be written") from None
            return None, status
        except BotoCoreError as error:
            raise failed(error, self._location, "cannot be written") from None

    def get(self) -> tuple[bytes, str | None]:
        """Return what the object holds, and its entity tag; None where it is not there."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._key)
            return answer["Body"].read(), str(answer["ETag"])
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in ("NoSuchKey", "404"):
                return b"", None
            raise failed(error, self._location, "cannot be read") from None
        except BotoCoreError as error:
            raise failed(error, self._location, "cannot be read") from None
