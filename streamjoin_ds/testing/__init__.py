"""Tools for tests of joins, also for users' own: the contract in plain Python, and ways to cut and shuffle a stream.

::

    values ──► partners ──► arrivals   which records are late, filtered, too far ahead, or duplicates; batches and
                   │           │       orders of arrival that must not change a result
                   └───────────┴─► oracle   which results a join has, also beside tables, whose versions change

`oracle_join` gives the results of a join over whole streams. Every engine, every cut into batches and every order of
arrival within the delay must give the same results. Nothing of the engine is used here.
"""

from streamjoin_ds.testing.arrivals import (
    ahead_rows,
    batch_watermarks,
    duplicate_rows,
    filtered_rows,
    late_rows,
    random_batches,
    shuffled_within,
)
from streamjoin_ds.testing.oracle import oracle_join, oracle_numbers, oracle_table_join, source_order
from streamjoin_ds.testing.values import event_time_us, oracle_value

__all__ = [
    "ahead_rows",
    "batch_watermarks",
    "duplicate_rows",
    "event_time_us",
    "filtered_rows",
    "late_rows",
    "oracle_join",
    "oracle_numbers",
    "oracle_table_join",
    "oracle_value",
    "random_batches",
    "shuffled_within",
    "source_order",
]
