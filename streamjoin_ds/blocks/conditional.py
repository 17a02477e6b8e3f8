"""An object of S3 that is put only on a condition: that there is none yet, or that it is still as it was seen."""

from __future__ import annotations

from typing import Any

from streamjoin_ds.blocks.key_listing import s3_client
from streamjoin_ds.blocks.remote import failed
from streamjoin_ds.errors import DependencyMissingError

__all__ = ["Conditional"]


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
        """Put the object and return its entity tag; None where the condition does not hold."""
        from botocore.exceptions import BotoCoreError, ClientError

        condition = {"IfNoneMatch": "*"} if if_none else {"IfMatch": if_tag}
        try:
            answer = self._client.put_object(Bucket=self._bucket, Key=self._key, Body=data, **condition)
            return str(answer["ETag"])
        except ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") in (404, 409, 412):
                return None
            raise failed(error, self._location, "cannot be written") from None
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

    def remove(self) -> None:
        """Remove the object."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self._client.delete_object(Bucket=self._bucket, Key=self._key)
        except (BotoCoreError, ClientError) as error:
            raise failed(error, self._location, "cannot be removed") from None
