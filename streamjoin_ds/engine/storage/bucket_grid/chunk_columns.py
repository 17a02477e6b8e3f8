"""The columns that the chunks of a bucket grid have, and the memory for them.

::

    run_schema    _ts int64   x float32   k decimal128   name string   note int32 with a null
                     |           |             |              └─────────────┴──► payload
    chunks          _ts          x          k, =<key>                            =payload: each row's number there
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin_ds.engine.arrays.keys import is_stored, key_dtype
from streamjoin_ds.engine.arrays.memory import ColumnMemory
from streamjoin_ds.engine.columns import fixed_width
from streamjoin_ds.engine.storage.run_form import RunForm
from streamjoin_ds.spec.key_values import is_float, item_dtype

__all__ = ["PAYLOAD_NUMBER", "chunk_columns", "key_column_name", "payload_names"]

# The column with each row's number in the payload.
PAYLOAD_NUMBER = "=payload"


def payload_names(form: RunForm, tuples: pa.RecordBatch) -> frozenset[str]:
    """Return the columns of these tuples that go to the payload: those that have no fixed width, or have nulls.

    The values of keys are never among them, nor are the tuples' numbers.
    """
    columns = zip(form.run_schema, tuples.columns, strict=True)
    return frozenset([field.name for field, column in columns if not fixed_width(field.type) or column.null_count])


def chunk_columns(form: RunForm, chunks: int, payload: frozenset[str]) -> dict[str, npt.NDArray[Any]]:
    """Return uninitialised columns for so many chunks, and their names.

    They are the form's own columns that are not in the payload, then keys that are none of these, then, where there is
    a payload, the rows' numbers in it.
    """
    rows = chunks * int(form.kernels.module.GRID_CHUNK_ROWS)
    own = [field for field in form.run_schema if field.name not in payload]
    dtypes: dict[str, np.dtype[Any]] = {field.name: item_dtype(field.type) for field in own}
    for number, key in enumerate(form.keys):
        name = key_column_name(form, number)
        if name.startswith("="):
            dtypes[name] = key_dtype(key.kind)
        elif is_float(key.kind):
            dtypes[name] = np.dtype(np.float64 if pa.types.is_float64(form.run_schema.field(name).type) else np.float32)
    if payload:
        dtypes[PAYLOAD_NUMBER] = np.dtype(np.int32)
    memory = ColumnMemory(rows * sum(dtype.itemsize for dtype in dtypes.values()), len(dtypes))
    return {name: memory.column(rows, dtype) for name, dtype in dtypes.items()}


def key_column_name(form: RunForm, number: int) -> str:
    """Return the column whose items, of the key's kind in 4 or 8 bytes, are its values; ``=<number>`` if none is."""
    key = form.keys[number]
    name = f"_key_{number}" if is_stored(key.kind) else form.columns[number]
    kind, types = form.run_schema.field(name).type, pa.types
    floats = types.is_float64(kind) or types.is_float32(kind)
    ints = types.is_int64(kind) or types.is_int32(kind) or types.is_timestamp(kind) or types.is_date32(kind)
    return name if (floats if is_float(key.kind) else ints) else f"={number}"
