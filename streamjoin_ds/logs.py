"""Where the lines of the package's loggers go, and what is said once. By default only warnings are shown.

::

    streamjoin --log-level debug ──┬─► this process: its standard error
    streamjoin --log-format json ──┴─► STREAMJOIN_DS_LOG_LEVEL, _FORMAT ──► Spark's Python workers: Spark's own log

Every module logs under its own name, so ``logging.getLogger("streamjoin_ds.sink")`` is the sink's logger. A program
that configures `logging` by itself does not need this module.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone

__all__ = ["FORMATS", "FORMAT_VARIABLE", "LEVELS", "LEVEL_VARIABLE", "Reach", "log_as_asked", "log_to_stderr"]

LEVELS = ("debug", "info", "warning", "error")
LEVEL_VARIABLE = "STREAMJOIN_DS_LOG_LEVEL"
FORMATS = ("text", "json")
FORMAT_VARIABLE = "STREAMJOIN_DS_LOG_FORMAT"

_FORMAT = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"


class _JsonFormatter(logging.Formatter):
    """A line of JSON for each record: ``time`` (UTC), ``level``, ``process``, ``logger``, ``message``, ``error``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        when = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        facts: dict[str, object] = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "process": record.process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            facts["error"] = self.formatException(record.exc_info)
        return json.dumps(facts, ensure_ascii=False)


class _StderrHandler(logging.Handler):
    """A handler that looks `sys.stderr` up for each record, because a live display replaces it for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def log_to_stderr(level: str, form: str | None = None) -> None:
    """Make the package's loggers write to standard error, in this process, whatever has this level or a higher one.

    Parameters
    ----------
    level : str
        One of `LEVELS`; it replaces the level of an earlier call.
    form : str, optional
        One of `FORMATS`; by default what the environment variable `FORMAT_VARIABLE` holds, else "text".
    """
    logger = logging.getLogger("streamjoin_ds")
    form = form or os.environ.get(FORMAT_VARIABLE, "").lower()
    formatter = _JsonFormatter() if form == "json" else logging.Formatter(_FORMAT)
    if not any(isinstance(handler, _StderrHandler) for handler in logger.handlers):
        logger.addHandler(_StderrHandler())
    for handler in logger.handlers:
        if isinstance(handler, _StderrHandler):
            handler.setFormatter(formatter)
    logger.setLevel(level.upper())
    logger.propagate = False  # else the root logger's handlers would write each line again


def log_as_asked() -> None:
    """Log at the level in the environment variable `LEVEL_VARIABLE`; do nothing where it holds none of `LEVELS`."""
    level = os.environ.get(LEVEL_VARIABLE, "").lower()
    if level in LEVELS:
        log_to_stderr(level)


class Reach:
    """Whether brokers, or a store, answer: said once when they do no more, and once when they do again.

    Parameters
    ----------
    what : str
        For what they are asked.
    say : callable
        Is given a line for people.
    meanwhile : str
        What becomes of who needs them.
    store : str
        The store's name; empty for brokers.
    clock : callable
        Seconds that only grow.
    """

    def __init__(
        self,
        what: str,
        say: Callable[[str], None],
        meanwhile: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        store: str = "",
    ) -> None:
        self._say, self._clock = say, clock
        self._away = f"{what}: {f'the store {store} does not answer' if store else 'no broker answers'}; {meanwhile}"
        self._back = f"{what}: the {f'store {store}' if store else 'broker'} is back"
        self._away_since_s: float | None = None

    @property
    def is_away(self) -> bool:
        """Whether they did not answer when they were asked last."""
        return self._away_since_s is not None

    def note(self, *, answers: bool) -> None:
        """Note whether they answered just now."""
        if answers and self._away_since_s is not None:
            away_s = self._clock() - self._away_since_s
            self._away_since_s = None
            self._say(f"{self._back}, after {away_s:.0f} s")
        elif not answers and self._away_since_s is None:
            self._away_since_s = self._clock()
            self._say(self._away)
