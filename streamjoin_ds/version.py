"""The version of this package that runs."""

from functools import cache

__all__ = ["version"]


@cache
def version() -> str:
    """Return the installed version, or ``0+source`` where the package is on the path but not installed."""
    # Imported here: it imports a parser of e-mails, which takes 20 ms, and no worker needs it.
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("streamjoin-ds")
    except PackageNotFoundError:
        return "0+source"
