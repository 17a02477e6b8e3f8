"""Fill the jar cache; a failure is one line. Used by bootstrap."""

import sys

from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.spark.jars import delta_jars

try:
    delta_jars()
except StreamJoinError as error:
    sys.exit(str(error))
