"""What the package's loggers say, and where: warnings only, until a level is asked for.

::

    streamjoin --log-level debug ──┬─► this process: its standard error
                                   └─► STREAMJOIN_DS_LOG_LEVEL ──► Spark's Python workers: Spark's own log

Every module logs under its own name, so ``logging.getLogger("streamjoin_ds.sink")`` is the sink's. A program that
configures `logging` by itself needs nothing of this module.
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
    """Writes to what is `sys.stderr` at the moment: a live display puts itself in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def log_to_stderr(level: str) -> None:
    """Have the package's loggers write all from a level on to standard error, in this process.

    Parameters
    ----------
    level : str
        One of `LEVELS`; it replaces that of an earlier call.
    """
    logger = logging.getLogger("streamjoin_ds")
    if not any(isinstance(handler, _StderrHandler) for handler in logger.handlers):
        handler = _StderrHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
        logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False  # the root's handlers, where there are any, would write each line again


def log_as_asked() -> None:
    """Go by the environment's level, where it has one; another word there changes nothing."""
    level = os.environ.get(LEVEL_VARIABLE, "").lower()
    if level in LEVELS:
        log_to_stderr(level)
