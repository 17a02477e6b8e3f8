"""What a worker tells the driver about a file that it wrote; the rows themselves stay in the file."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.sink.tables import BATCH_ID

__all__ = ["REPORT_TABLES", "FileReport", "check_reports"]

REPORT_TABLES = ("matches", "late", "rejects")
_PATH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.parquet")


@dataclass(frozen=True, slots=True)
class FileReport:
    """The facts of one Parquet file that is written whole and not yet part of a table.

    Parameters
    ----------
    table : str
        ``matches``, ``late`` or ``rejects``.
    path : str
        File name inside that table's folder.
    rows, size_bytes : int
        Rows and bytes of the file, both positive.
    stats : str
        Delta's statistics of the file, a JSON object.

    Raises
    ------
    ArgumentError
        One of them is not of that form.
    """

    table: str
    path: str
    rows: int
    size_bytes: int
    stats: str

    def __post_init__(self) -> None:
        if self.table not in REPORT_TABLES:
            _refuse("table", f"one of {', '.join(REPORT_TABLES)}")
        # A worker may name files of its own table only: no folder, no "..", nothing that Delta would have to escape.
        if not isinstance(self.path, str) or not _PATH.fullmatch(self.path):
            _refuse("path", "a plain file name ending in .parquet")
        for name in ("rows", "size_bytes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
                _refuse(name, "a positive whole number")
        if not isinstance(self.stats, str) or not isinstance(_loaded(self.stats), dict):
            _refuse("stats", "a JSON object")

    def to_json(self) -> str:
        """Return the report as one line of JSON."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> FileReport:
        """Return the report that :meth:`to_json` wrote as a text.

        Raises
        ------
        ArgumentError
            The text is not what :meth:`to_json` writes.
        """
        value = _loaded(text)
        if isinstance(value, dict) and set(value) == {"table", "path", "rows", "size_bytes", "stats"}:
            return cls(**value)
        _refuse("report", "the JSON of table, path, rows, size_bytes and stats")


def _loaded(text: str) -> object:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return None


def _refuse(name: str, hint: str) -> NoReturn:
    message = f"a file report's {name} has a form that is not valid"
    raise ArgumentError(message, name=name, hint=hint)


def check_reports(reports: Sequence[FileReport], batch_id: int) -> None:
    """Refuse reports that name a file twice, or whose files hold rows of another batch.

    Raises
    ------
    ArgumentError
        They do; the error's ``name`` is the file's.
    """
    paths = [(report.table, report.path) for report in reports]
    if len(set(paths)) != len(paths):
        doubled = next(path for path in paths if paths.count(path) > 1)
        message = f"the file {doubled[1]} is reported twice"
        raise ArgumentError(message, name=doubled[1], hint="each file of a batch is reported once")
    for report in reports:
        stats = json.loads(report.stats)
        bounds = {stats.get(side, {}).get(BATCH_ID, batch_id) for side in ("minValues", "maxValues")}
        if bounds != {batch_id}:
            message = f"the file {report.path} holds rows of another batch than {batch_id}"
            raise ArgumentError(message, name=report.path, hint="report the files of the batch being committed")
