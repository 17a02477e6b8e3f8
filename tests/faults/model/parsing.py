"""Arrow's reader of CSV is asked once for the same bytes of a run, since its answer is a function of them.

The planner, each task, each attempt and each driver parse the same lines. What they make of the table is their own
work.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv

__all__ = ["remembering_csv"]


def remembering_csv() -> Any:
    """Return a module to use in place of ``pyarrow.csv``, for one run."""
    known: dict[tuple[Any, ...], pa.Table | str] = {}

    def read_csv(source: pa.BufferReader, read: Any, parse: Any, convert: Any) -> pa.Table:
        data = source.read()
        types = tuple((name, convert.column_types.get(name)) for name in convert.include_columns)
        written = parse.delimiter, parse.quote_char, parse.escape_char, convert.decimal_point, *convert.null_values
        key = (data, tuple(read.column_names), parse.invalid_row_handler is None, written, types)
        found = known.get(key)
        if found is None:
            try:
                found = arrow_csv.read_csv(pa.BufferReader(data), read, parse, convert)
            except pa.ArrowInvalid as error:
                found = str(error)
            known[key] = found
        if isinstance(found, str):
            raise pa.ArrowInvalid(found)
        return found

    return SimpleNamespace(**{**vars(arrow_csv), "read_csv": read_csv})
