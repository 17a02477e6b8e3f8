"""An operator beside the join: ``python -m tests.faults.soak.tending ROOT COMMAND...`` runs a command of the package.

``vacuum`` and ``repair`` read the windows' manifests through Spark; here they read the soak's own `Checkpoint`, or, of
queries without Spark, what these keep.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from streamjoin_ds.cli.checkpoint import repair, vacuum
from streamjoin_ds.plan import cell_labels
from tests.faults.soak.checkpoint import Checkpoint

_COMMANDS = {"vacuum": vacuum, "repair": repair}
_TRIES = 20


def state_rows(_session: Any, folder: Path, batch: int | None = None) -> list[tuple[int, int, bytes]]:
    """Return label, partition and state row of each cell.

    It is used in place of `streamjoin_ds.checkpoint.inspection.state_rows`.
    """
    from streamjoin_ds.checkpoint.identity import CheckpointIdentity
    from streamjoin_ds.checkpoint.inspection import last_commit

    identity, checkpoint = CheckpointIdentity.load(folder), Checkpoint(folder, 0)
    assert identity is not None
    labels = cell_labels(identity.partitions, identity.partitions)
    for turn in range(_TRIES):
        number = last_commit(folder) if batch is None else batch
        try:
            return [(labels[cell], cell, blob) for cell, blob in checkpoint.states(number)]
        except (FileNotFoundError, OSError):  # the state was purged meanwhile: the join is some batches further
            if batch is not None or turn + 1 == _TRIES:
                raise
    raise AssertionError


def main() -> None:
    root, command, *arguments = sys.argv[1:]
    with pytest.MonkeyPatch.context() as patch:
        if not (Path(root) / "local").exists():
            patch.setattr("streamjoin_ds.checkpoint.inspection.state_rows", state_rows)
        patch.setattr("streamjoin_ds.spark.session.spark_session", lambda *_, **__: None)
        _COMMANDS[command].main([str(Path(root) / "checkpoint"), *arguments])


if __name__ == "__main__":
    main()
