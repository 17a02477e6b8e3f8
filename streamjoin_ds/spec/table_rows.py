"""The rows of one version of a table, made ready for the join."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamjoin_ds.errors import ColumnError, SchemaDriftError
from streamjoin_ds.spec.bound.bound_join import BoundJoin
from streamjoin_ds.spec.columns import names_hint
from streamjoin_ds.spec.inside import table_to_inside
from streamjoin_ds.spec.nested_path import inner_column

__all__ = ["table_rows"]


def table_rows(bound: BoundJoin, number: int, given: pa.Table) -> pa.RecordBatch:
    """Return the rows of a table's version in the inside form, without those that its conditions leave out.

    Parameters
    ----------
    bound : BoundJoin
    number : int
        The table's number: its place among the members of the join.
    given : pyarrow.Table
        All rows of the version. The ``_seq`` of a row is its place here.

    Returns
    -------
    pyarrow.RecordBatch
        Of ``bound.tuple_schema(number)``, in the order of `given`.

    Raises
    ------
    ColumnError
        A column is missing.
    SchemaDriftError
        Values do not fit their column's type, or a time is out of range: a table has no rejects.
    """
    name, schema = bound.member_names[number], bound.read_schemas[number]
    whole, nested = given.combine_chunks(), bound.join.members[number].nested

    def column(wanted: pa.Field) -> pa.Array:
        inner = inner_column(whole, wanted.name) if wanted.name in nested else None
        if inner is not None and wanted.name not in whole.column_names:
            return inner
        if whole.column_names.count(wanted.name) != 1:
            msg = f"table {name} has no column '{wanted.name}', or has it twice"
            raise ColumnError(msg, name=wanted.name, hint=names_hint(wanted.name, whole.column_names, "it has"))
        found = whole.column(wanted.name)
        return (
            found.chunk(0)
            if found.num_chunks == 1
            else pa.concat_arrays(found.chunks)
            if found.num_chunks
            else (pa.array([], found.type))
        )

    found = table_to_inside(column, schema, name, whole.num_rows, bound.join.members[number].schema)
    if found.refused:
        _, refused, reason = found.refused[0]
        msg = f"column '{refused}' of table {name} holds {reason}"
        raise SchemaDriftError(msg, name=refused, hint="mend the table, or leave such rows out in a view of it")
    read = bound.read_schema(number)
    numbers = pa.array(np.arange(whole.num_rows, dtype=np.int64))
    columns = [pa.array(found.ts), numbers, *(found.columns[field.name] for field in list(read)[2:])]
    rows = pa.RecordBatch.from_arrays(columns, schema=read)
    mask = bound.let_through(number, rows)
    rows = rows if mask is None else rows.filter(pa.array(mask))
    return rows.select(bound.tuple_schema(number).names).replace_schema_metadata(None)
