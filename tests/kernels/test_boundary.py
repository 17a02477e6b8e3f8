"""What the boundary refuses, with a KernelError that names the argument, before any loop runs."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from streamjoin_ds._kernels import native
from streamjoin_ds.engine.kernels import twins
from streamjoin_ds.errors import KernelError
from tests.kernels.oracle import COMPILED, lay_out

FLOATS = np.arange(4.0)
INTS = np.arange(4)
ORDER = np.arange(4, dtype=np.int32)
UNALIGNED = np.frombuffer(bytes(33), dtype=np.uint8)[1:].view(np.float64)
each_module = pytest.mark.parametrize("module", [twins, native], ids=["twin", "native"])


def read_only(array):
    copy = array.copy()
    copy.flags.writeable = False
    return copy


NOT_COLUMNS = [
    pytest.param([0.0, 1.0, 2.0, 3.0], id="list"),
    pytest.param(FLOATS.astype(np.float32), id="float32"),
    pytest.param(INTS.astype(np.int32), id="int32"),
    pytest.param(INTS.astype(np.uint64), id="uint64"),
    pytest.param(INTS.astype(">i8"), id="big-endian"),
    pytest.param(INTS.astype("M8[us]"), id="datetime64"),
    pytest.param(INTS.astype(object), id="object"),
    pytest.param(np.arange(8.0)[::2], id="strided"),
    pytest.param(FLOATS.reshape(2, 2), id="two-dimensional"),
    pytest.param(UNALIGNED, id="unaligned"),
]


@each_module
@pytest.mark.parametrize("column", NOT_COLUMNS)
def test_only_plain_columns(module, column):
    for call in (
        lambda: module.grid_buckets(column, 1, 0),
        lambda: module.probe_buckets(column, 0, 1, 1),
        lambda: module.grid_order(None, column),
        lambda: module.Scan([column], [FLOATS], [0.0], [1.0]),
        lambda: module.Scan([FLOATS], [column], [0.0], [1.0]),
    ):
        with pytest.raises(KernelError) as caught:
            call()
        assert caught.value.name in {"column", "left_first", "second", "left", "right"}


SCANS = [
    pytest.param([FLOATS], [INTS], [0], [1], {}, "right", id="kinds differ"),
    pytest.param([FLOATS, FLOATS[:3]], [FLOATS, FLOATS], [0, 0], [1, 1], {}, "left", id="left lengths"),
    pytest.param([FLOATS, FLOATS], [FLOATS, FLOATS[:3]], [0, 0], [1, 1], {}, "right", id="right lengths"),
    pytest.param([FLOATS], [FLOATS], [0, 0], [1], {}, "left", id="bounds missing"),
    pytest.param([FLOATS] * 17, [FLOATS] * 17, [0] * 17, [1] * 17, {}, "left", id="17 conditions"),
    pytest.param([FLOATS], [FLOATS], [float("nan")], [1], {}, "lo", id="NaN bound"),
    pytest.param([FLOATS], [FLOATS], [0], ["1"], {}, None, id="text bound"),
    pytest.param([FLOATS], [FLOATS], [0], [10**400], {}, "hi", id="huge bound"),
    pytest.param([INTS], [INTS], [0.5], [1], {}, "lo", id="float bound for int"),
    pytest.param([], [], [], [], {}, "left", id="no counts"),
    pytest.param([], [], [], [], {"left_count": 1}, "right", id="no right count"),
    pytest.param([], [], [], [], {"left_count": -1, "right_count": 1}, "left", id="negative count"),
    pytest.param([], [], [], [], {"left_count": 2**31, "right_count": 1}, "left", id="too many rows"),
    pytest.param([FLOATS], [FLOATS], [0], [1], {"left_count": 5}, "left", id="count against length"),
    pytest.param([FLOATS], [FLOATS], [0], [1], {"implementation": "sse"}, "implementation", id="implementation"),
]


@each_module
@pytest.mark.parametrize(("left", "right", "lo", "hi", "options", "name"), SCANS)
def test_scan_refuses(module, left, right, lo, hi, options, name):
    if name is None:
        hi, name = [object()], "hi"
    with pytest.raises(KernelError) as caught:
        module.Scan(left, right, lo, hi, **options)
    assert caught.value.name == name


def grid_options(**changes):
    layout = lay_out([FLOATS, INTS], [FLOATS, INTS], [-1.0, -1], [1.0, 1], first=0, second=1, width=2.0)
    return {"left": layout.left, "right": layout.right, "lo": [-1.0, -1], "hi": [1.0, 1], **layout.options, **changes}


GRIDS = [
    ({"first": 2}, "first"),
    ({"first": -2}, "first"),
    ({"second": 5}, "second"),
    ({"width": 0.0}, "width"),
    ({"width": float("inf")}, "width"),
    ({"width": float("nan")}, "width"),
    ({"bucket_ids": None}, "bucket_ids"),
    ({"bucket_starts": None}, "bucket_ids"),
    ({"bucket_ids": np.arange(3, dtype=np.int32)}, "bucket_ids"),
    ({"bucket_ids": np.arange(9)}, "bucket_starts"),
    ({"bucket_starts": np.zeros(0, dtype=np.int64)}, "bucket_starts"),
    ({"bucket_starts": np.array([0, 2, 3])}, "bucket_starts"),
    ({"probe_order": np.arange(4)}, "probe_order"),
    ({"probe_order": np.arange(3, dtype=np.int32)}, "probe_order"),
    ({"left": [FLOATS[::-1].copy(), INTS]}, "left"),
    ({"first": -1, "left": [FLOATS, INTS[::-1].copy()]}, "left"),
]


@each_module
@pytest.mark.parametrize(("changes", "name"), GRIDS)
def test_grid_probe_refuses(module, changes, name):
    assert module.GridProbe(**grid_options()).fill(np.empty(64, np.int32), np.empty(64, np.int32)) == 10
    with pytest.raises(KernelError) as caught:
        module.GridProbe(**grid_options(**changes))
    assert caught.value.name == name


@each_module
def test_probes_in_nan_order(module):
    probes = [np.array([1.0, float("nan"), 2.0])]
    order = np.arange(3, dtype=np.int32)
    with pytest.raises(KernelError, match="not sorted"):
        module.GridProbe(probes, probes, [0], [1], first=-1, second=0, width=1, bucket_ids=None, bucket_starts=None,
                         probe_order=order)  # fmt: skip


OUTPUTS = [
    (np.empty(63, np.int32), np.empty(63, np.int32)),
    (np.empty(64, np.int32), np.empty(65, np.int32)),
    (np.empty(64, np.int64), np.empty(64, np.int32)),
    (np.empty(64, np.int32), np.empty(128, np.int32)[::2]),
    (np.empty(64, np.int32), read_only(np.empty(64, np.int32))),
]


@each_module
@pytest.mark.parametrize(("out_probe", "out_row"), OUTPUTS)
def test_fill_refuses(module, out_probe, out_row):
    for join in (module.Scan([FLOATS], [FLOATS], [0], [1]), module.GridProbe(**grid_options())):
        with pytest.raises(KernelError):
            join.fill(out_probe, out_row)


@each_module
def test_layout_functions_refuse(module):
    descending = np.array([2, 1])
    cases = [
        ("width", lambda: module.grid_buckets(FLOATS, 0.0, 0.0)),
        ("width", lambda: module.grid_buckets(INTS, 0, 0)),
        ("width", lambda: module.grid_buckets(INTS, 1.5, 0)),
        ("width", lambda: module.grid_buckets(INTS, 2**63, 0)),
        ("width", lambda: module.probe_buckets(INTS, 0, 1, -1)),
        ("buckets", lambda: module.grid_order(INTS[:3], FLOATS)),
        ("buckets", lambda: module.grid_order(FLOATS, FLOATS)),
        ("sorted_buckets", lambda: module.bucket_directory(descending)),
        ("sorted_buckets", lambda: module.bucket_directory(FLOATS)),
        ("column", lambda: module.gather([1, 2], ORDER)),
        ("column", lambda: module.gather(np.zeros(4, dtype="S3"), ORDER)),
        ("column", lambda: module.gather(np.zeros(4, dtype=object), ORDER)),
        ("column", lambda: module.gather(np.arange(8)[::2], ORDER)),
        ("order", lambda: module.gather(FLOATS, np.arange(4))),
        ("order", lambda: module.gather(FLOATS, np.array([0, 4], dtype=np.int32))),
        ("order", lambda: module.gather(FLOATS, np.array([-1, 0], dtype=np.int32))),
        ("order", lambda: module.gather(FLOATS[:0], np.array([0], dtype=np.int32))),
        ("out", lambda: module.gather(FLOATS, ORDER, np.empty(3))),
        ("column", lambda: module.step_starts(ORDER)),
        ("left", lambda: module.RunsProbe([FLOATS] * 17, [])),
        ("seconds", lambda: module.merge_order(None, [])),
        ("seconds", lambda: module.merge_order([], [INTS])),
        ("seconds", lambda: module.merge_order(None, [INTS, FLOATS])),
        ("seconds", lambda: module.merge_order(None, [ORDER])),
        ("buckets", lambda: module.merge_order([INTS[:3]], [INTS])),
        ("buckets", lambda: module.merge_order([FLOATS], [INTS])),
        ("out", lambda: module.gather(FLOATS, ORDER, np.empty(4, np.int64))),
        ("out", lambda: module.gather(FLOATS, ORDER, read_only(FLOATS))),
    ]
    for name, call in cases:
        with pytest.raises(KernelError) as caught:
            call()
        assert caught.value.name == name


@each_module
def test_an_error_never_shows_a_value(module):
    with pytest.raises(KernelError) as caught:
        module.Scan([INTS], [INTS], ["s3cret"], [1])
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("kernel", COMPILED, ids=lambda kernel: kernel.name)
def test_a_directory_that_lies_reads_nothing_outside(kernel):
    """A directory of the right length with wrong contents may lead to any rows, but only to rows that exist."""
    options = grid_options()
    out_probe, out_row = np.empty(64, np.int32), np.empty(64, np.int32)
    far = 2**40
    for starts in ([0, far, 4], [-far, -far, 4], [far, -far, 4], [4, 0, 4]):
        joined = kernel.grid_probe(**{**options, "bucket_starts": np.array(starts)})
        while written := joined.fill(out_probe, out_row):
            assert out_row[:written].min() >= 0
            assert out_row[:written].max() < 4


def test_one_object_serves_one_thread_at_a_time():
    """The loop runs without the GIL. A second caller is refused, and nothing is corrupted."""
    left, right = np.zeros(20_000), np.ones(200_000)
    scan = native.Scan([left], [right], [5.0], [6.0])
    ready = threading.Event()
    refused = []

    def fill():
        ready.set()
        try:
            scan.fill(np.empty(64, np.int32), np.empty(64, np.int32))
        except KernelError:
            refused.append(threading.current_thread())

    other = threading.Thread(target=fill)
    other.start()
    ready.wait()
    fill()
    other.join()
    assert len(refused) == 1
    assert scan.candidates == len(left) * len(right)


@pytest.mark.parametrize("kernel", COMPILED, ids=lambda kernel: kernel.name)
def test_steps_that_lie_read_nothing_outside(kernel):
    right = [np.arange(64, dtype=np.int64)]
    options = {"first": -1, "second": 0, "width": 1}
    count = len(kernel.module.step_starts(right[0]))
    for value in (-5, 64, 2**31 - 1, -(2**31)):
        steps = np.full(count, value, dtype=np.int32)
        index = kernel.module.RunIndex(right, [-1], [1], **options, steps=steps)
        out = np.empty((3, 64), dtype=np.int32)
        probing = kernel.module.RunsProbe([np.arange(100)], [index], implementation=kernel.name)
        while written := probing.fill(*out):
            assert out[1, :written].min() >= 0
            assert out[1, :written].max() < 64
    with pytest.raises(KernelError, match="steps"):
        kernel.module.RunIndex(right, [-1], [1], **options, steps=np.zeros(count + 1, dtype=np.int32))
