"""What is known of the types of a join's members, before the first push: schemas, and the tables that were given."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from streamjoin_ds.engine.intake.received_rows import Rows, as_table
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.columns import names_hint, says_no_zone, without_zone, zones_of
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
        """Take the schemas that tables among the rows bring along, if that makes them whole; return whether they are.

        Other forms of rows are to be made tables before (`as_table`).
        """
        named = {name: given for name, given in rows.items() if name in self._join.member_names}
        # One dict does not tell what the next will hold.
        schemas = {name: given.schema for name, given in named.items() if isinstance(given, pa.Table)} | self.known
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
    listed = as_table(rows, f"table {name}")
    if isinstance(listed, pa.Table):
        return listed
    if schema is None:
        msg = f"table {name} has no schema"
        raise ArgumentError(msg, name=name, hint="give Table(..., schema={...}): dicts do not tell their types")
    for column, zone in zones_of(join.tables[names.index(name)].schema).items():
        if any(says_no_zone(row.get(column)) for row in listed):
            raise without_zone(column, f"table {name}", zone)
    return pa.Table.from_pylist(
        [{field.name: row[field.name] for field in schema if field.name in row} for row in listed], schema
    )
