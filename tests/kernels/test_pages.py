"""What fills Parquet's pages: the kernels write the bytes of their twins, which `tests/sink/test_pages.py` has read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin_ds._kernels import native as engine_kernels
from streamjoin_ds._kernels import pages as native
from streamjoin_ds.errors import KernelError
from streamjoin_ds.sink import page_values as twin
from tests.support.examples import examples


@st.composite
def numbers(draw):
    """Return int32 or int64 of any width, in runs or not."""
    dtype = draw(st.sampled_from([np.int32, np.int64]))
    limits = np.iinfo(dtype)
    rows, shift = draw(st.integers(0, 700)), draw(st.integers(0, limits.bits - 1))
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = chance.integers(limits.min, limits.max, rows, dtype=dtype, endpoint=True) >> shift
    return np.repeat(values, chance.integers(1, 300, rows))[:3_000] if draw(st.booleans()) else values


@examples(300)
@given(numbers())
def test_the_kernels_write_the_bytes_of_their_twins(values):
    wanted = twin.pack_differences(values)
    for is_wide in {False, "avx2" in engine_kernels.implementations()}:
        found = native.pack_differences(values, is_wide)
        assert (found is None) == (wanted is None)
        assert found is None or found.tobytes() == wanted.tobytes()
    found, wanted = native.pack_runs(values), twin.pack_runs(values)
    assert (found is None) == (wanted is None)
    assert found is None or [part.tobytes() for part in found] == [part.tobytes() for part in wanted]


@pytest.mark.parametrize("module", [native, twin], ids=["native", "twin"])
@pytest.mark.parametrize(
    "values",
    [[1, 2], np.arange(4.0), np.arange(4, dtype=np.uint64), np.arange(4, dtype=np.int16), np.arange(8)[::2],
     np.arange(4).reshape(2, 2), np.frombuffer(bytes(33), np.uint8)[1:].view(np.int64)],
)  # fmt: skip
def test_only_plain_numbers_are_packed(module, values):
    for pack in (module.pack_differences, module.pack_runs):
        with pytest.raises(KernelError, match="plain ndarray") as raised:
            pack(values)
        assert raised.value.name == "values"


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("run_rows", [1, 2, 40])
@pytest.mark.parametrize("rows", [4_112, 9_000, 20_000])
def test_runs_that_begin_late_are_found(dtype, run_rows, rows):
    values = np.concatenate([np.arange(4_100), np.arange(rows).repeat(run_rows)[:rows]]).astype(dtype)
    for given_values in (values, values[::-1].copy(), values[:4_100]):
        found, wanted = native.pack_runs(given_values), twin.pack_runs(given_values)
        assert (found is None) == (wanted is None)
        assert found is None or [part.tobytes() for part in found] == [part.tobytes() for part in wanted]
