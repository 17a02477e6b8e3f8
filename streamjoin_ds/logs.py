"""Where the lines of the package's loggers go. Only warnings are shown until a level is asked for.

::

    streamjoin --log-level debug ──┬─► this process: its standard error
                                   └─► STREAMJOIN_DS_LOG_LEVEL ──► Spark's Python workers: Spark's own log

Every module logs under its own name, so ``logging.getLogger("streamjoin_ds.sink")`` is the sink's logger. A program
that configures `logging` by itself does not need this module.
"""

from __future__ import annotations

import logging
import os
import sys

__all__ = ["LEVELS", "LEVEL_VARIABLE", "log_as_asked", "log_to_stderr"]

LEVELS = ("debug", "info", "warning", "error")
LEVEL_VARIABLE = "STREAMJOIN_DS_LOG_LEVEL"

_FORMAT = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"


class _StderrHandler(logging.Handler):
    """A handler that looks `sys.stderr` up for each record, because a live display replaces it for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def log_to_stderr(level: str) -> None:
    """Make the package's loggers write to standard error, in this process, whatever has this level or a higher one.

    Parameters
    ----------
    level : str
        One of `LEVELS`; it replaces the level of an earlier call.
    """
    logger = logging.getLogger("streamjoin_ds")
    if not any(isinstance(handler, _StderrHandler) for handler in logger.handlers):
        handler = _StderrHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
        logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False  # else the root logger's handlers would write each line again


def log_as_asked() -> None:
    """Log at the level in the environment variable `LEVEL_VARIABLE`; do nothing where it holds none of `LEVELS`."""
    level = os.environ.get(LEVEL_VARIABLE, "").lower()
    if level in LEVELS:
        log_to_stderr(level)
