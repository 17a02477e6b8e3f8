"""A query that is started again when it ends by an error that time can mend: a broker or a store that was away.

::

    started ──► runs ──► ends by itself, or is stopped                     over
                 ▲   └─► an error that a restart cannot mend               over, with the error
                 │   └─► one that may pass (`passes` in errors.py),
                 │       or one of Spark's own (no memory, too), some times in a row
                 └────── a pause, twice as long each time that no batch was done: 1 s to 5 min

A restart goes on from the checkpoint, as that of the process would.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamjoin_ds.checkpoint.lock import check_not_taken_over
from streamjoin_ds.errors import WorkerMemoryError, named_in

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from streamjoin_ds.stream.local_query import LocalQuery

__all__ = ["RestartedQuery"]

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 300.0
_UNNAMED = 5  # so many errors of Spark's own in a row, without a batch between them, will not pass
_SPARKS = ("pyspark.", "py4j.")  # modules of errors that Spark and the way to it raise
_log = logging.getLogger(__name__)


class RestartedQuery:
    """A running query, and those that follow it; it is used as one `StreamingQuery`.

    What is not described here is asked of the query that runs, or ran last.

    Parameters
    ----------
    begin : callable
        Starts the query; it is told how often that was done before. An error of the first start that will not pass is
        raised.
    wait : callable, keyword-only
        Waits until an event is set, for so many seconds at most.
    """

    def __init__(
        self,
        begin: Callable[[int], StreamingQuery | LocalQuery],
        *,
        wait: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:
        self._begin, self._wait = begin, wait
        self._stopped, self._over = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._query: StreamingQuery | LocalQuery | None = None
        self._unnamed = 0
        self.restarts = 0
        failed = self._tried()
        named = None if failed is None else named_in(failed)
        if failed is not None and not (named and named[0].passes):
            raise failed
        threading.Thread(target=self._watch, args=(failed,), name="streamjoin-restart", daemon=True).start()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or self._query is None:
            raise AttributeError(name)
        return getattr(self._query, name)

    @property
    def isActive(self) -> bool:
        """Whether the query runs, or will be started again."""
        return not self._over.is_set()

    @property
    def lastProgress(self) -> Any:
        """What the running query, or the last one, has told of its last batch; None before that."""
        return None if self._query is None else self._query.lastProgress

    def stop(self) -> None:
        """End the query, and start it no more; return when it has ended."""
        self._stopped.set()
        self._end()
        self._over.wait()

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait until the query has ended for good; raise the error by which it did.

        Returns
        -------
        bool or None
            With a timeout in seconds: whether it has ended.
        """
        self._over.wait(timeout)
        if self._over.is_set() and self._error is not None:
            raise self._error
        return None if timeout is None else self._over.is_set()

    def _watch(self, failed: BaseException | None) -> None:
        """Wait for the end of each query and start the next one, until one ends for good."""
        pause_s = _FIRST_PAUSE_S
        while not self._stopped.is_set():
            if failed is None:
                failed = self._ended_by()
                if self._has_progress():
                    pause_s, self._unnamed = _FIRST_PAUSE_S, 0
            if failed is None or self._stopped.is_set() or not threading.main_thread().is_alive():
                break
            if not self._may_pass(failed):
                self._error = failed
                break
            named = named_in(failed)
            told = "the query ended and is started again in %g s (restart %d): %s"
            line = named[1] if named else type(failed).__name__
            facts = {"restarts": self.restarts + 1} | ({"code": named[0].code} if named else {})
            _log.warning(told, pause_s, self.restarts + 1, line, extra={"facts": facts})
            self._wait(self._stopped, pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            if not self._stopped.is_set():
                self.restarts += 1
                failed = self._tried()
        if self._stopped.is_set():
            self._end()  # it may have begun after `stop` had looked for it
        self._over.set()

    def _end(self) -> None:
        if self._query is not None:
            with contextlib.suppress(Exception):  # it may have ended, and Java may be gone with it
                self._query.stop()

    def _has_progress(self) -> bool:
        with contextlib.suppress(Exception):
            return self.lastProgress is not None
        return False

    def _tried(self) -> BaseException | None:
        """Start the query; return the error by which that failed."""
        try:
            self._query = self._begin(self.restarts)
        except Exception as error:
            return error
        return None

    def _ended_by(self) -> BaseException | None:
        """Wait for the end of the query that runs; return the error by which it ended, None where it was stopped."""
        assert self._query is not None, "it was started"
        try:
            self._query.awaitTermination()
            check_not_taken_over(self._query)
        except Exception as error:
            return error
        return None

    def _may_pass(self, error: BaseException) -> bool:
        named = named_in(error)
        if named is not None and named[0] is not WorkerMemoryError:  # others may have taken the memory for a moment
            return named[0].passes
        self._unnamed += 1
        is_sparks = type(error).__module__.startswith(_SPARKS) or isinstance(error, ConnectionError)
        return is_sparks and self._unnamed <= _UNNAMED
