"""The process in which trials are done, one after the other; a trial may also ask for a process of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from types import TracebackType

from streamjoin_ds.bench.figures.trial import Trial, TrialOutcome
from streamjoin_ds.errors import BenchError

__all__ = ["Workers"]

_CLOSE_WITHIN_S = 10.0  # seconds that a process has to end before it is killed


class Workers:
    """Does trials; as a context manager it ends its process."""

    def __init__(self) -> None:
        self._common: _Worker | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._common is not None:
            self._common.end()

    def done(self, trial: Trial) -> TrialOutcome:
        """Do a trial in a process that is pinned, meanwhile, to as many cores as the trial has threads.

        Raises
        ------
        BenchError
            The trial failed, or its engine found another number of matches than the independent count.
        """
        if trial.is_fresh:
            worker = _Worker()
            try:
                return verified(trial, worker.done(trial))
            finally:
                worker.end()
        if self._common is None:
            self._common = _Worker()
        return verified(trial, self._common.done(trial))


def verified(trial: Trial, outcome: TrialOutcome) -> TrialOutcome:
    """Return the outcome, if the engine found as many matches as there are.

    Raises
    ------
    BenchError
        The engine found another number.
    """
    if outcome.found != outcome.expected:
        found, expected = f"{outcome.found:,} matches", f"{outcome.expected:,}"
        msg = f"a trial of kind {trial.kind} finds {found}, but an independent count {expected}"
        raise BenchError(msg, name=trial.kind, hint="no measurement is valid until both agree")
    return outcome


class _Worker:
    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by end)
        command = [sys.executable, "-m", "streamjoin_ds.bench.figures.child"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._log, text=True)

    def done(self, trial: Trial) -> TrialOutcome:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = ""
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps(trial.to_facts()) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            last = (self._log.read().strip().splitlines() or ["it printed nothing"])[-1]
            msg = f"a trial of kind {trial.kind} ended: {last}"
            raise BenchError(msg, name=trial.kind, hint="its process has ended; check that there is enough memory")
        facts = json.loads(line)
        curves = {name: [(x, y) for x, y in curve] for name, curve in facts["curves"].items()}
        spans = [(begin, end) for begin, end in facts["checked_us"]]
        return TrialOutcome(facts["numbers"], curves, facts["found"], facts["expected"], spans)

    def end(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
        try:
            self._process.wait(_CLOSE_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
