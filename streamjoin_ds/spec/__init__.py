"""What a user asks for: frozen objects that describe a join, checked when they are made.

::

    Stream ─┐                      schemas
    Stream ─┼─► Join ── fingerprint   │
    Table ──┤    (what the user wrote)│
    Band  ──┤        │                │
    Call  ──┤        │                │
    Window ─┘        └──── bind ──────┴─► BoundJoin: typed keys, exact bounds, the window as more bands,
                                          typed conditions on several streams (they decide) and on one (they filter)

Nothing here knows Spark, files or kernels. `Join` is what a user wrote; `BoundJoin` is the same join once the
columns' types are known, with every bound made exact for its type (ARCHITECTURE.md, "The contract").
"""

from streamjoin_ds.duration import duration_text, duration_us
from streamjoin_ds.spec.bound.binding import bind
from streamjoin_ds.spec.bound.bound_join import BoundJoin, Condition, Key
from streamjoin_ds.spec.expression.predicate import Band, Column, band, equal
from streamjoin_ds.spec.expression.tree import Call, Expression, Literal, Predicate, not_equal
from streamjoin_ds.spec.join import Join, bound_from_facts
from streamjoin_ds.spec.member.files import Files, Spool
from streamjoin_ds.spec.member.source import DeltaRows, Generator, Topic
from streamjoin_ds.spec.member.stream import Stream
from streamjoin_ds.spec.member.table import Table
from streamjoin_ds.spec.row_kind import Nearest
from streamjoin_ds.spec.window import CountWindow, PeriodicWindow, TimeWindow, WindowKind

__all__ = [
    "Band",
    "BoundJoin",
    "Call",
    "Column",
    "Condition",
    "CountWindow",
    "DeltaRows",
    "Expression",
    "Files",
    "Generator",
    "Join",
    "Key",
    "Literal",
    "Nearest",
    "PeriodicWindow",
    "Predicate",
    "Spool",
    "Stream",
    "Table",
    "TimeWindow",
    "Topic",
    "WindowKind",
    "band",
    "bind",
    "bound_from_facts",
    "duration_text",
    "duration_us",
    "equal",
    "not_equal",
]
