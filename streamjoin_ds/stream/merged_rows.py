"""Writes the rows that the answers of several cells make together, in the driver, before the batch is committed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from streamjoin_ds.cell.answers import whole_answers
from streamjoin_ds.cell.cell_report import CellReport
from streamjoin_ds.errors import LedgerError
from streamjoin_ds.plan import Layout, Plan
from streamjoin_ds.sink.report import FileReport
from streamjoin_ds.sink.tables import TableSet
from streamjoin_ds.sink.writer import TableWriter

__all__ = ["merged_rows"]


def merged_rows(plan: Plan, batch_id: int, reports: Mapping[int, CellReport]) -> list[FileReport]:
    """Return the files of a batch's rows that no cell could give alone, and count them as matches of the home cells.

    Parameters
    ----------
    plan : Plan
    batch_id : int
    reports : mapping of int to CellReport
        Those of all cells.

    Raises
    ------
    LedgerError
        The cells have joined the batch in different layouts, or their answers do not fit together.
    BlockMissingError, BlockCorruptError, AggregateOverflowError, TableWriteError
    """
    if not any(report.answers for report in reports.values()):
        return []
    layouts = {report.layout for report in reports.values()}
    if len(layouts) > 1:
        msg = "the cells have joined the batch in different layouts"
        raise LedgerError(msg, name="layout", hint="nothing was committed; this is a defect, please report it")
    layout = Layout.parse(layouts.pop(), len(plan.bound.names))
    found = whole_answers(plan, layout, {cell: report.answers for cell, report in reports.items()})
    schema = plan.bound.result_schema
    with TableWriter(
        TableSet(plan.table_root).matches,
        schema,
        table="matches",
        batch_id=batch_id,
        label=f"{batch_id:010d}-together",
        durable=plan.durable,
    ) as writer:
        for home, rows in found:
            ids = pa.array(np.full(rows.num_rows, batch_id, np.int64))
            writer.write(pa.Table.from_arrays([*rows.columns, ids], schema=schema))
            reports[home].matches += rows.num_rows
        return writer.close()
