"""What is known of the types of a join's members, before the first push: schemas, and the tables that were given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from streamjoin_ds.engine.intake.received_rows import Rows, schema_of
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.columns import names_hint
from streamjoin_ds.spec.join_parts import JoinParts

__all__ = ["KnownSchemas", "given_table"]


class KnownSchemas:
    """The schemas of a join's streams and tables, as far as they are known.

    Parameters
    ----------
    join : JoinParts
    given : mapping of name to pyarrow.Schema
        They go before those that streams and tables declare.
    """

    def __init__(self, join: JoinParts, given: Mapping[str, pa.Schema]) -> None:
        self._join = join
        schemas = {member.name: given.get(member.name, member.schema) for member in join.members}
        self.known = {name: schema for name, schema in schemas.items() if isinstance(schema, pa.Schema)}

    @property
    def are_whole(self) -> bool:
        """Whether no member's schema lacks."""
        return len(self.known) == len(self._join.members)

    def learn(self, rows: Mapping[str, Rows]) -> bool:
        """Take the schemas that rows bring along, if that makes them whole; return whether they are."""
        found = {name: schema_of(given) for name, given in rows.items() if name in self._join.member_names}
        schemas = {name: schema for name, schema in found.items() if schema is not None} | self.known
        if len(schemas) == len(self._join.members):
            self.known = schemas
        return self.are_whole

    def missing(self) -> ArgumentError:
        """Return the error that names a member without a schema."""
        name = next(name for name in self._join.member_names if name not in self.known)
        what = "stream" if name in self._join.names else "table"
        hint = "give Stream(..., schema={...}) or JoinEngine(join, schemas), or push tables of all streams first"
        if what == "table":
            hint = "give Table(..., schema={...}), or call use_table with a table, a record batch or a pandas frame"
        return ArgumentError(f"{what} {name} has no schema", name=name, hint=hint)


def given_table(join: JoinParts, name: str, rows: Rows, schema: pa.Schema | None) -> pa.Table:
    """Return the rows of a table, in whatever form they were given.

    Raises
    ------
    ArgumentError
        The join has no such table, or the rows have no known form.
    """
    names = [table.name for table in join.tables]
    if name not in names:
        msg = f"the join has no table '{name}'"
        raise ArgumentError(msg, name=name, hint=names_hint(name, names, "its tables are"))
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if hasattr(rows, "dtypes"):
        return pa.Table.from_pandas(rows, preserve_index=False)
    listed = [rows] if isinstance(rows, Mapping) else rows
    if not isinstance(listed, Sequence) or not all(isinstance(row, Mapping) for row in listed):
        msg = f"the rows of table {name} have no known form"
        raise ArgumentError(msg, name=name, hint="a pyarrow table or record batch, a pandas frame, or a list of dicts")
    if schema is None:
        msg = f"table {name} has no schema"
        raise ArgumentError(msg, name=name, hint="give Table(..., schema={...}): dicts do not tell their types")
    return pa.Table.from_pylist(
        [{field.name: row[field.name] for field in schema if field.name in row} for row in listed], schema
    )
