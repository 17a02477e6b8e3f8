"""The functions that expressions know: one table, from which reading, types, values, nulls and tests follow.

::

    numbers ──┐
    choices ──┤
    texts   ──┼──► FUNCTIONS ──► parser (names), types (types), evaluation (values), terms (nulls)
    times   ──┤
    parts   ──┤
    casts   ──┤
    globe   ──┘

They mean what they mean to Spark SQL in ANSI mode, with one rule more: where ANSI mode would stop the query for a row
(an overflow, an invalid cast, a division by zero), the value is null. Adding a function is one entry; its twin in plain
Python is in `testing/values.py`.
"""

from streamjoin_ds.spec.functions.casts import CAST_TYPES, CASTS
from streamjoin_ds.spec.functions.choices import CHOICES, results_of
from streamjoin_ds.spec.functions.function import Function
from streamjoin_ds.spec.functions.globe import FINDING, GLOBE
from streamjoin_ds.spec.functions.numbers import NUMBERS, signed
from streamjoin_ds.spec.functions.parts import PARTS
from streamjoin_ds.spec.functions.texts import TEXTS
from streamjoin_ds.spec.functions.times import TIMES

__all__ = ["CALCULATED", "CAST_TYPES", "FUNCTIONS", "FUNCTION_NAMES", "Function", "results_of", "signed"]

FUNCTIONS: dict[str, Function] = {
    function.name: function for function in (*NUMBERS, *CHOICES, *TEXTS, *TIMES, *PARTS, *CASTS, *GLOBE)
}
# All that can be calculated: functions that texts name, and those by which an index finds.
CALCULATED: dict[str, Function] = FUNCTIONS | {function.name: function for function in FINDING}
# How a function may be written, with the name of its entry.
FUNCTION_NAMES: dict[str, str] = {
    name: function.name for function in FUNCTIONS.values() for name in (function.name, *function.aliases)
}
