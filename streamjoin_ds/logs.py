"""Where the lines of the package's loggers go, and what is said once. By default only warnings are shown.

::

    streamjoin --log-level debug ──┬─► this process: its standard error
    streamjoin --log-format json ──┴─► STREAMJOIN_DS_LOG_LEVEL, _FORMAT ──► Spark's Python workers: Spark's own log

As JSON a line is an object. A record may have more facts than its message says: ``extra={"facts": {...}}``. Of the
script `streamjoin` every line of standard error is one then, also what others print there.

Every module logs under its own name, so ``logging.getLogger("streamjoin_ds.sink")`` is the sink's logger. A program
that configures `logging` by itself does not need this module.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TextIO

from streamjoin_ds.errors import named_in

__all__ = [
    "FORMATS",
    "FORMAT_VARIABLE",
    "LEVELS",
    "LEVEL_VARIABLE",
    "Reach",
    "has_json_lines",
    "log_as_asked",
    "log_to_stderr",
    "write_json_lines",
]

LEVELS = ("debug", "info", "warning", "error")
LEVEL_VARIABLE = "STREAMJOIN_DS_LOG_LEVEL"
FORMATS = ("text", "json")
FORMAT_VARIABLE = "STREAMJOIN_DS_LOG_FORMAT"

_FORMAT = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"


class _JsonFormatter(logging.Formatter):
    """A line of JSON for each record: ``time`` (UTC), ``level``, ``process``, ``logger``, ``message``.

    Behind them come the record's own facts, and of an exception its ``code``, where it is one of this package, and its
    trace as ``error``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        when = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        facts: dict[str, object] = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "process": record.process,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            named = named_in(record.exc_info[1])
            facts |= {} if named is None else {"code": named[0].code}
            facts["error"] = self.formatException(record.exc_info)
        return json.dumps(facts, ensure_ascii=False, default=str)


class _JsonLines(io.TextIOBase):
    """A standard error whose lines are objects: a line that somebody prints becomes the message of one."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._lock, self._rest = stream, threading.Lock(), ""

    def write(self, text: str) -> int:
        """Write the lines that end in a text; the rest of it waits for its end."""
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line.strip():
                printed = logging.LogRecord("streamjoin_ds", logging.INFO, "", 0, line.rstrip(), None, None)
                self.write_line(_JsonFormatter().format(printed))
        return len(text)

    def write_line(self, line: str) -> None:
        """Write a line that is an object already."""
        self._stream.write(line + "\n")
        self._stream.flush()

    def flush(self) -> None:
        """Do nothing: each line is flushed when it ends."""

    def writable(self) -> bool:
        """Whether it can be written to."""
        return True

    def fileno(self) -> int:
        """Return the descriptor, for processes that write to it themselves."""
        return self._stream.fileno()


class _StderrHandler(logging.Handler):
    """A handler that looks `sys.stderr` up for each record, because a live display replaces it for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            line = self.format(record)
            if isinstance(sys.stderr, _JsonLines) and isinstance(self.formatter, _JsonFormatter):
                sys.stderr.write_line(line)
            else:
                sys.stderr.write(line + "\n")
                sys.stderr.flush()
        except Exception:
            self.handleError(record)


def write_json_lines() -> None:
    """Make every line that this process writes to standard error a JSON object."""
    if not has_json_lines():
        sys.stderr = _JsonLines(sys.stderr)


def has_json_lines() -> bool:
    """Whether every line that this process writes to standard error is a JSON object."""
    return isinstance(sys.stderr, _JsonLines)


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
