"""A join's state as bytes and back: `snapshot` encodes the windows, and the totals go with them as facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamjoin_ds.engine.storage import snapshot
from streamjoin_ds.engine.storage.bucket_grid.policy import bucketed
from streamjoin_ds.engine.storage.run_store import RunStore
from streamjoin_ds.engine.storage.window import Window, WindowForm, corrupt_state_error
from streamjoin_ds.engine.storage.window_set import JoinState
from streamjoin_ds.spec.bound.bound_join import BoundJoin

__all__ = ["opened_state", "state_blob"]


def state_blob(
    bound: BoundJoin, forms: Sequence[WindowForm], state: JoinState, windows: Sequence[Window], store: RunStore | None
) -> bytes:
    """Return a state as bytes; `windows` are its windows after all work on them. See `WindowJoin.save`."""
    expired = state.expired_rows(sum(window.rows for window in windows))
    facts: dict[str, Any] = {
        "totals": [state.matches, expired, state.pushes],
        "stored": list(state.stored),
        "null_keys": list(state.null_keys),
        "tails": [window.tail.rows for window in windows],
    }
    if any(form.bucket_policy is not None for form in forms):
        facts["buckets"] = [window.to_facts() for window in windows]
    return snapshot.encoded(bound.fingerprint, facts, [window.in_runs() for window in windows], store, state.waiting)


def opened_state(
    bound: BoundJoin, forms: Sequence[WindowForm], blob: bytes | bytearray | memoryview, store: RunStore | None
) -> JoinState:
    """Return the state that `state_blob` was given; errors as for `WindowJoin.restored`."""
    facts, windows, waiting = snapshot.decoded(bound.fingerprint, blob, forms, store)
    count = len(forms)
    stored, null_keys, tails = (snapshot.numbers(facts, name, count) for name in ("stored", "null_keys", "tails"))
    matches, _, pushes = snapshot.numbers(facts, "totals", 3)
    windows = [window.reopened(rows) for window, rows in zip(windows, tails, strict=True)]
    if tuple(of_stream.stream for of_stream in waiting) != bound.decided:
        raise corrupt_state_error()
    windows = bucketed(forms, windows, facts.get("buckets"))
    return JoinState(windows, matches, pushes, stored, null_keys, waiting=waiting)
