"""Rows of the small tables that the driver writes itself: brought to their schema, and the ledger's sum checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamjoin_ds.errors import MALFORMED, ColumnError, LedgerError, TableError
from streamjoin_ds.sink.tables import BATCH_ID, PUNCTUATIONS_SCHEMA

__all__ = ["balance", "check_ledger", "conformed", "decisions", "punctuation_row", "same_records"]

_PARTS = ("stored", "late", "rejected", "filtered", "duplicates")


def balance(row: Mapping[str, Any]) -> str:
    """Return what a ledger row counts, as a text, where ``read`` is not the sum of the others; empty where it is.

    A row of an older version has no duplicates.
    """
    counts = {name: row.get(name) or 0 for name in _PARTS}
    if row["read"] == sum(counts.values()):
        return ""
    return f"read {row['read']}, {', '.join(f'{name} {count}' for name, count in counts.items())}"


def conformed(table: pa.Table, schema: pa.Schema, *, name: str, batch_id: int) -> pa.Table:
    """Return a table brought to a schema: columns are found by name, and casts lose nothing.

    Parameters
    ----------
    table : pyarrow.Table
        Exactly the columns of ``schema``, in any order.
    schema : pyarrow.Schema
        One of the fixed schemas.
    name : str, keyword-only
        What the table is called in error messages.
    batch_id : int, keyword-only
        Every row's ``batch_id`` must be this.

    Raises
    ------
    ColumnError
        A column is missing, surplus, null where a value is required, or not castable; or a row is of another batch.
    """
    if set(table.column_names) != set(schema.names) or len(table.column_names) != len(schema.names):
        wrong = sorted(set(table.column_names) ^ set(schema.names)) or [table.column_names[0]]
        message = f"the {name}'s columns are not those of its table: {wrong[0]} is missing, surplus or doubled"
        raise ColumnError(message, name=wrong[0], hint=f"exactly {', '.join(schema.names)}")
    columns = []
    for wanted in schema:
        column = table.column(wanted.name)
        if not wanted.nullable and column.null_count:
            message = f"the {name}'s column {wanted.name} holds a null"
            raise ColumnError(message, name=wanted.name, hint="give a value in every row")
        try:
            columns.append(column if column.type == wanted.type else column.cast(wanted.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            message = f"the {name}'s column {wanted.name} is {column.type} and cannot be cast to {wanted.type}"
            raise ColumnError(message, name=wanted.name, hint=f"give {wanted.type}") from error
    conformed_table = pa.Table.from_arrays(columns, schema=schema)
    if any(value != batch_id for value in conformed_table.column(BATCH_ID).to_pylist()):
        message = f"the {name} has rows of another batch than the one being committed"
        raise ColumnError(message, name=BATCH_ID, hint="commit the rows of one batch at a time")
    return conformed_table


def check_ledger(ledger: pa.Table) -> None:
    """Refuse a ledger that lost a row: for each stream ``read = stored + late + rejected + filtered + duplicates``.

    Raises
    ------
    LedgerError
        For a stream the sum is wrong; the error names the stream.
    """
    for row in ledger.to_pylist():
        if counts := balance(row):
            message = f"the ledger of stream {row['stream']} does not balance in batch {row['batch_id']}: {counts}"
            raise LedgerError(message, name=row["stream"], hint="nothing was committed; please report this as a defect")


def same_records(there: Sequence[Mapping[str, Any]], here: Sequence[Mapping[str, Any]]) -> bool:
    """Whether two lists of ledger rows, each of one batch, speak of the same records.

    The counts must be equal, and so must the decisions that both name: an older row may name none.
    """

    def counted(rows: Sequence[Mapping[str, Any]]) -> set[tuple[Any, ...]]:
        return {(row["stream"], row["read"], *(row.get(name) or 0 for name in _PARTS)) for row in rows}

    if counted(there) != counted(here):
        return False
    decided = {row["stream"]: decisions(row) for row in there}
    for row in here:
        other, own = decided[row["stream"]], decisions(row)
        if any(other[name] != own[name] for name in other.keys() & own.keys()):
            return False
    return True


def decisions(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a row of the ledger says was decided when its batch was planned; empty where it says nothing.

    Raises
    ------
    TableError
        It cannot be read.
    """
    try:
        decided = json.loads(row.get("decided") or "{}")
    except MALFORMED:
        decided = None
    if not isinstance(decided, dict):
        message = f"what the ledger's row of stream {row.get('stream')} says was decided cannot be read"
        raise TableError(message, name="decided", hint="restore the ledger from a copy, together with the checkpoint")
    return decided


def punctuation_row(
    *,
    batch_id: int,
    punctuation_us: int | None,
    watermark_us: int | None,
    matches: int,
    largest_ts_us: int | None,
    committed_at_us: int,
) -> pa.Table:
    """Return one row of the punctuations table; times are microseconds since 1970 UTC, None means "not known yet"."""
    values = [batch_id, punctuation_us, watermark_us, matches, largest_ts_us, committed_at_us]
    columns = [pa.array([value], field.type) for value, field in zip(values, PUNCTUATIONS_SCHEMA, strict=True)]
    return pa.Table.from_arrays(columns, schema=PUNCTUATIONS_SCHEMA)
