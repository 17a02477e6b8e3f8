"""Which version of this package runs."""

from functools import cache

__all__ = ["version"]


@cache
def version() -> str:
    """Return the installed version; ``0+source`` where the package lies on the path and is not installed."""
    # Imports a parser of e-mails: 20 ms that no worker needs.
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("streamjoin-ds")
    except PackageNotFoundError:
        return "0+source"
