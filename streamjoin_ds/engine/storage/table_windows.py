"""The tables of a join as probes meet them: of each one version, in one sealed run.

A table's window is given from outside and changed by nobody: it is in no state, its rows are no probes, and none
expires (ARCHITECTURE.md, "A stream and a table").
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamjoin_ds.engine.storage.joinable import Joinable
from streamjoin_ds.engine.storage.window import Window, WindowForm
from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.spec.columns import names_hint

if TYPE_CHECKING:
    from streamjoin_ds.engine.storage.window_forms import Tuples

__all__ = ["TableWindows"]

_log = logging.getLogger(__name__)


class TableWindows:
    """The versions of a join's tables that new tuples meet.

    Parameters
    ----------
    forms : sequence of WindowForm
        One for each table.
    joinable : Joinable
    """

    def __init__(self, forms: Sequence[WindowForm], joinable: Joinable) -> None:
        self._forms, self._joinable = {form.stream_name: form for form in forms}, joinable
        self._windows: dict[str, Window] = {}
        self.versions: dict[str, str] = {}

    def use(self, name: str, rows: Sequence[Tuples], version: str) -> None:
        """Have later pushes meet another version of a table.

        Parameters
        ----------
        name : str
        rows : sequence of table or record batch
            In the inside form (`spec.table_rows`). Rows with a null or NaN in a compared column are nobody's partner.
        version : str
            Where it is the version that is in use, nothing is done.

        Raises
        ------
        ArgumentError
            The join has no such table.
        ColumnError
            As `RunForm.checked`.
        """
        form = self._forms.get(name)
        if form is None:
            msg = f"the join has no table '{name}'"
            raise ArgumentError(msg, name=name, hint=names_hint(name, [*self._forms], "its tables are"))
        if self.versions.get(name) == version:
            return
        batch = self._joinable.partnered(form.stream, form.checked(rows)).batch
        self._windows[name] = Window(form, [form.sealed(batch)] if batch.num_rows else [])
        self.versions[name] = version
        _log.debug("table %s: version %s of %d rows", name, version, batch.num_rows)

    @property
    def windows(self) -> list[Window]:
        """The windows of all tables, in their order; ArgumentError where a table has no version yet."""
        for name in self._forms:
            if name not in self._windows:
                msg = f"the rows of table {name} are not known"
                raise ArgumentError(msg, name=name, hint=f"call use_table('{name}', rows) before the first push")
        return [self._windows[name] for name in self._forms]

    def described(self) -> list[str]:
        """Return a line for each table: its rows, and how they are laid out."""
        lines = []
        for name, form in self._forms.items():
            window = self._windows.get(name)
            told = "no version yet" if window is None else f"{window.rows} rows"
            names = [key.column for key in form.keys]
            for run in window.sealed if window is not None else ():
                told = f"{told}: {run.sort_layout.described(names)}"
            lines.append(f"table {name}: {told}")
        return lines
