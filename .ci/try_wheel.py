"""Join two tuples with the installed package by its compiled kernels. Run by what builds a wheel, in every Python."""

import platform
import sys

import pyarrow as pa

from streamjoin_ds import Join, JoinEngine, Stream, __version__
from streamjoin_ds._kernels import default_implementation

schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("x", pa.int64())])
engine = JoinEngine(Join([Stream(name, schema=schema) for name in "rs"], "abs(r.x - s.x) <= 1", "1 minute"))
engine.push({"r": [{"ts": 1_000_000, "x": 5}]})
if engine.push({"s": [{"ts": 2_000_000, "x": 6}]}).num_rows != 1:
    sys.exit("the join of two tuples is wrong")
if default_implementation() == "reference":
    sys.exit("there are no compiled kernels")
python = f"Python {platform.python_version()}, {platform.machine()}"
print(f"streamjoin-ds {__version__} joins: {python}, kernels {default_implementation()}")
