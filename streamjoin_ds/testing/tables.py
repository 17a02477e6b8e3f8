"""The contract of tables beside streams, in plain Python (ARCHITECTURE.md, "A stream and a table")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

import pyarrow as pa

from streamjoin_ds.spec.expression.predicate import Band
from streamjoin_ds.spec.expression.tree import streams_of
from streamjoin_ds.spec.join import Join
from streamjoin_ds.testing.oracle import band_holds, oracle_join
from streamjoin_ds.testing.sums import oracle_aggregates
from streamjoin_ds.testing.values import oracle_value

__all__ = ["beside_tables", "oracle_table_join"]

Rows: TypeAlias = "Sequence[Mapping[str, Any]] | pa.Table"


def oracle_table_join(
    join: Join,
    streams: Mapping[str, Rows],
    tables: Mapping[str, Rows] | Sequence[Mapping[str, Rows]],
    *,
    ends: Sequence[Mapping[str, int]] = (),
    **known: Any,
) -> list[dict[str, Any]]:
    """Return the results of a join of streams and tables over whole streams.

    Parameters
    ----------
    join : Join
    streams, ends, known
        As for `oracle_join`.
    tables : mapping of name to rows, or sequence of such mappings
        The rows of each table: of the only version, or for each batch of `ends` those of its version.

    Returns
    -------
    list of dict
        As `oracle_join`, with ``<table>_<column>`` and ``<table>_seq`` of each table. A result has the version of the
        batch that brought the last of its tuples. Sorted as those of the streams, then by the rows' places.
    """
    return beside_tables(join, oracle_join(join, streams, ends=ends, **known), streams, tables, ends=ends)


def beside_tables(
    join: Join,
    found_results: Sequence[Mapping[str, Any]],
    streams: Mapping[str, Rows],
    tables: Mapping[str, Rows] | Sequence[Mapping[str, Rows]],
    *,
    ends: Sequence[Mapping[str, int]] = (),
) -> list[dict[str, Any]]:
    """Return results of the streams alone, each with the rows of the tables that it meets (`oracle_table_join`)."""
    results = []
    for found in found_results:
        tuples = {name: _listed(streams[name])[found[f"{name}_seq"]] for name in join.names}
        batch = max(sum(end[name] <= found[f"{name}_seq"] for end in ends) for name in join.names)
        version = tables if isinstance(tables, Mapping) else tables[batch]
        rows = [list(enumerate(_listed(version[table.name]))) for table in join.tables]
        if join.row_kind.at_once:
            results += _of_one(join, found, tuples, rows[0])
            continue
        for chosen in product(*rows):
            places = {table.name: place for table, (place, _) in zip(join.tables, chosen, strict=True)}
            picked = {table.name: row for table, (_, row) in zip(join.tables, chosen, strict=True)}
            if all(_stands(join, name, {**tuples, **picked}) for name in picked):
                columns = {f"{name}_{column}": value for name, row in picked.items() for column, value in row.items()}
                results.append({**found, **columns, **{f"{name}_seq": place for name, place in places.items()}})
    return results


def _of_one(
    join: Join,
    found: Mapping[str, Any],
    tuples: Mapping[str, Mapping[str, Any]],
    rows: Sequence[tuple[int, Mapping[str, Any]]],
) -> list[dict[str, Any]]:
    """Return the results of a tuple whose partners are rows of a table: with `how`, or summed up."""
    (name,) = [table.name for table in join.tables]
    own = [one for one in join.predicates if not isinstance(one, Band) and streams_of(one) == join.names]
    may = all(oracle_value(join, one, tuples) is True for one in own)
    partners = [(place, row) for place, row in rows if may and _stands(join, name, {**tuples, name: row})]
    if join.reduce:
        sums = oracle_aggregates(join, tuples[join.names[0]], [(0, place, row) for place, row in partners])
        return [{**found, **sums}] if partners or join.how == "left" else []
    if join.how in ("semi", "anti"):
        return [{**found}] if bool(partners) == (join.how == "semi") else []
    if join.nearest is not None:
        partners = _nearest(join, tuples, partners)
    kept: list[tuple[int | None, Mapping[str, Any]]] = [*partners]
    kept = kept or ([(None, {})] if join.how == "left" else [])
    made = [{**found, **{f"{name}_{c}": value for c, value in row.items()}, f"{name}_seq": n} for n, row in kept]
    if join.nearest is not None and join.nearest.k > 1:
        made = [{**row, "rank": rank if partners else None} for rank, row in enumerate(made, 1)]
    return made


def _nearest(
    join: Join, tuples: Mapping[str, Mapping[str, Any]], partners: Sequence[tuple[int, Mapping[str, Any]]]
) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the nearest of a tuple's rows: by the distance, then by their places."""
    assert join.nearest is not None, "the join asks for the nearest"
    assert join.nearest.by is not None, "a table has no event times"
    ranked = []
    for place, row in partners:
        distance = oracle_value(join, join.nearest.by, {**tuples, join.tables[0].name: row})
        if distance is not None and distance == distance:
            ranked.append((distance, place, row))
    return [(place, row) for _, place, row in sorted(ranked, key=lambda one: one[:2])[: join.nearest.k]]


def _stands(join: Join, name: str, rows: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether all conditions that name a table hold, its own `where` among them."""
    where = next(table.where for table in join.tables if table.name == name)
    if where is not None and not isinstance(where, str) and oracle_value(join, where, rows) is not True:
        return False
    for predicate in join.predicates:
        if isinstance(predicate, Band):
            if name in (predicate.left.stream, predicate.right.stream) and not band_holds(join, predicate, rows):
                return False
        elif name in streams_of(predicate) and oracle_value(join, predicate, rows) is not True:
            return False
    return True


def _listed(rows: Rows) -> Sequence[Mapping[str, Any]]:
    return rows.to_pylist() if isinstance(rows, pa.Table) else rows
