"""Matches that a probing writes as rows: the pairs it would have filled, gathered, by every implementation."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds.errors import KernelError
from tests.kernels.oracle import KERNELS
from tests.support.examples import examples

# Columns of every width: of the window, whose first is its position and whose next two are compared, and of the probes.
KINDS = [np.int64, np.int32, np.float32, np.int8, np.int16, np.float64, np.complex128]
OWN_KINDS = [np.int64, np.float64, np.int16, np.int8, np.int32, np.complex128]
ARROW = {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64(), 16: pa.decimal128(38, 0)}
PROBES = 150


def columns_of(rng, kinds, count: int, span: int, first: int) -> list[np.ndarray]:
    values = [rng.integers(-span, span, count).astype(kind) for kind in kinds[1:]]
    return [np.arange(first, first + count, dtype=np.int64), *values]


class Case:
    """Probes and a window: a bucket grid whose oldest rows die, a run in order of arrival, and a tail with room.

    `part` is the number of the window's columns in the rows.
    """

    def __init__(self, kernel, seed: int, part: int = 1, *, rows: int = 400, span: int = 12, slice_probes=None) -> None:
        rng = np.random.default_rng(seed)
        self.kernel, self.part, self.slice_probes = kernel, part, slice_probes
        module = self.module = kernel.module
        room = [np.zeros(80 * module.GRID_CHUNK_ROWS, dtype=kind) for kind in KINDS]
        grid = module.BucketGrid(room, position=0, buckets=7, keys=[(False, 3), (True, 3.5)], stride=3)
        for begin in range(0, rows, 50):
            batch = columns_of(rng, KINDS, 50, span, begin)
            keys = [batch[1].astype(np.int64), batch[2].astype(np.float64)]
            assert grid.insert(batch, keys, 0, begin - 2 * rows // 3) == 50
        runs = [room, *(columns_of(rng, KINDS, count, span, rows + count) for count in (90, 40))]
        lo, hi = [-(10**6), -4, -4.0], [10**6, 5, 5.0]
        wide = [[run[0], run[1].astype(np.int64), run[2].astype(np.float64)] for run in runs]
        self.indexes = [
            module.BucketIndex(grid, room[:3], lo, hi, keys=(1, 2)),
            *(module.RunIndex(run, lo, hi, first=-1, second=-1, width=1) for run in wide[1:]),
        ]
        self.runs, self.window = runs, module.RunColumns(runs)
        own = [columns_of(rng, OWN_KINDS, PROBES, span, rows // 2) for _ in range(2)]
        places, numbers = rng.integers(0, 2, PROBES, dtype=np.int32), rng.permutation(PROBES).astype(np.int32)
        self.own_part = module.RunColumns(own), places, numbers
        self.left = [rng.integers(-span, span, PROBES).astype(kind) for kind in (np.int64, np.int64, np.float64)]
        kinds = [OWN_KINDS, KINDS] if part else [KINDS, OWN_KINDS]
        widths = [[np.dtype(kind).itemsize for kind in of_part] for of_part in kinds]
        # The first column is not exported: it is only there for the greatest.
        self.widths = [*widths[0][1:], *widths[1], 8]
        self.form = module.RowsForm(widths, range(1, 1 + len(self.widths)), greatest=True)

    def probing(self):
        options = {"last_rows": 33, "left_count": PROBES, "slice_probes": self.slice_probes}
        return self.module.RunsProbe(self.left, self.indexes, implementation=self.kernel.name, **options)

    def listed(self, rows) -> list[bytes]:
        """Return the rows, each with the items of all columns one after the other."""
        schema = pa.schema([(str(n), ARROW[width]) for n, width in enumerate(self.widths)])
        columns = pa.RecordBatch._import_from_c(rows.exported(), schema).columns
        if not (count := len(columns[0])):
            return []
        assert not any(column.null_count for column in columns)
        items = [
            np.frombuffer(column.buffers()[1], np.uint8, count * width, column.offset * width).reshape(count, width)
            for width, column in zip(self.widths, columns, strict=True)
        ]
        return np.concatenate(items, axis=1).view(f"V{sum(self.widths)}").ravel().tolist()

    def by_pairs(self) -> list[bytes]:
        """Return the rows as they are gathered from pairs."""
        probing, out, found = self.probing(), np.empty((3, 256), np.int32), []
        own_columns, own_places, own_rows = self.own_part
        while count := probing.fill(*out):
            probes, rows, runs = out[:, :count].copy()
            parts = [(own_columns, own_places[probes], own_rows[probes]), (self.window, runs, rows)]
            made = self.module.ArrowRows(self.form, count)
            made.gather(parts if self.part else parts[::-1])
            found += self.listed(made)
        return found

    def by_matching(self, room: int) -> tuple[list[bytes], list[int], int]:
        """Return the rows that a probing writes, how many are in each table, and how many pairs were tested."""
        probing, found, counts = self.probing(), [], []
        while not probing.is_done:
            made = self.module.ArrowRows(self.form, room)
            counts.append(made.matching(probing, self.part, self.window, self.own_part).do())
            found += self.listed(made)
        return found, counts, probing.candidates


@examples(10)
@given(
    seed=st.integers(0, 10_000),
    part=st.sampled_from([0, 1]),
    room=st.sampled_from([128, 200, 1000, 100_000]),
    slice_probes=st.sampled_from([None, 1, 17, 64]),
    span=st.sampled_from([2, 12, 60]),
)
def test_rows_are_those_of_the_pairs(seed, part, room, slice_probes, span):
    answers, tested = [], set()
    for kernel in KERNELS:
        case = Case(kernel, seed, part, span=span, slice_probes=slice_probes)
        pairs = case.by_pairs()
        rows, counts, candidates = case.by_matching(room)
        assert rows == pairs, kernel.name
        assert sum(counts) == len(rows)
        assert max(counts) <= room - kernel.module.MATCH_SLACK
        answers.append(rows)
        tested.add(candidates)
    assert all(answer == answers[0] for answer in answers)
    assert len(tested) == 1


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_the_greatest_is_the_later_of_two_moments(kernel):
    case = Case(kernel, 3)
    rows, _, _ = case.by_matching(10_000)
    begin = sum(case.widths[: len(OWN_KINDS) - 1])
    moments = [(int.from_bytes(row[begin : begin + 8], "little"), int.from_bytes(row[-8:], "little")) for row in rows]
    assert all(ours <= latest for ours, latest in moments)
    assert 0 < sum(ours < latest for ours, latest in moments) < len(moments)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_what_does_not_fit_is_refused(kernel):
    case = Case(kernel, 1)
    module, own_columns = case.module, case.own_part[0]
    places, numbers = case.own_part[1:]
    narrow = module.RunColumns([[np.zeros(rows)] for rows in (80 * 16, 90, 40)])
    fewer = module.RunColumns([[np.zeros(16, dtype=kind) for kind in KINDS] for _ in range(3)])

    def asked(room=500, part=1, window=case.window, own_part=case.own_part, form=case.form):
        return module.ArrowRows(form, room).matching(case.probing(), part, window, own_part)

    for wrong in (
        {"room": 127},
        {"part": 2},
        {"part": -1},
        {"part": 0},
        {"window": narrow},
        {"window": fewer},
        {"window": own_columns},
        {"own_part": (own_columns, places[1:], numbers[1:])},
        {"own_part": (case.window, places, numbers)},
        {"form": module.RowsForm([case.widths], [0])},
    ):
        with pytest.raises(KernelError):
            asked(**wrong)
    outside = numbers.copy()
    outside[:] = PROBES
    with pytest.raises(KernelError):
        asked(own_part=(own_columns, places, outside)).do()
    with pytest.raises(KernelError):
        asked(own_part=(own_columns, places + np.int32(2), numbers)).do()
    asked().do()
