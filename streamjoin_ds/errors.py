"""Every error that this package raises on purpose, in one table.

Each class has a code, and says whether a restart may mend it (`passes`). Each instance carries the offending *name* (a
stream, a column, an option, a file; never an option's value, which may be a secret) and a *hint* that says what would
be valid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

__all__ = [
    "MALFORMED",
    "AggregateOverflowError",
    "ArgumentError",
    "BlockCorruptError",
    "BlockMissingError",
    "BlockWriteError",
    "CheckpointInUseError",
    "ColumnError",
    "CommitConflictError",
    "DependencyMissingError",
    "FileChangedError",
    "FileFormatError",
    "FileMissingError",
    "FileOrderError",
    "FileRotatedError",
    "FingerprintMismatchError",
    "ForeignCheckpointError",
    "IntakeError",
    "JarsMissingError",
    "JavaMissingError",
    "KafkaAccessError",
    "KafkaDataLostError",
    "KafkaSchemaError",
    "KafkaTopicChangedError",
    "KafkaTopicError",
    "KafkaUnreachableError",
    "KernelError",
    "LayoutError",
    "LedgerError",
    "LogCleanedError",
    "MapLimitError",
    "OffsetError",
    "PredicateError",
    "PredicateSyntaxError",
    "PunctuationError",
    "RecoveryError",
    "SchemaDriftError",
    "SessionError",
    "SparkStartError",
    "SpoolError",
    "SpoolInUseError",
    "SqlSyntaxError",
    "StateCorruptError",
    "StateVersionError",
    "StoreAccessError",
    "StoreUnreachableError",
    "StreamJoinError",
    "TableChangedError",
    "TableError",
    "TableWriteError",
    "WatermarkMissingError",
    "WindowError",
    "WorkerMemoryError",
    "WorkerStartError",
    "corrupt_state_error",
    "hinted",
    "malformed_offset",
    "named_in",
    "whole_numbers",
]


# What comes of facts of another form than the code that reads them expects; whoever reads them names the file.
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def hinted(text: str, hint: str) -> str:
    """Return a sentence and its hint, which begins one of its own; the sentence alone where there is no hint."""
    return f"{text.removesuffix('.')}. Hint: {hint}" if hint else text


class StreamJoinError(Exception):
    """Base of all errors of this package.

    Parameters
    ----------
    message : str
        What is wrong, in one sentence.
    name : str, keyword-only
        The offending stream, column, option, file or block.
    hint : str, keyword-only
        What is valid, or what to do.
    """

    code: ClassVar[str] = "STREAMJOIN_ERROR"
    passes: ClassVar[bool] = False  # whether the same may go well later, although nobody changes the join or its inputs

    def __init__(self, message: str, *, name: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.name = name
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.code}: {self.message}"
        return hinted(text, self.hint)

    def __reduce__(self) -> tuple[object, ...]:
        # Spark carries a worker's exception to the driver by pickling it; keyword-only arguments need this.
        return (_rebuild, (type(self), self.message, self.name, self.hint))


def _rebuild(cls: type[StreamJoinError], message: str, name: str, hint: str) -> StreamJoinError:
    return cls(message, name=name, hint=hint)


class ArgumentError(StreamJoinError, ValueError):
    """An argument or option has a wrong form or value, or a call comes at a wrong time."""

    code = "ARGUMENT"


class PredicateError(StreamJoinError, ValueError):
    """A predicate cannot be applied to these columns: their types, streams or bounds do not allow it."""

    code = "PREDICATE"


class PredicateSyntaxError(PredicateError):
    """The text of a predicate has none of the accepted forms."""

    code = "PREDICATE_SYNTAX"


class SqlSyntaxError(StreamJoinError, ValueError):
    """A text of SQL statements is not understood, or asks for what a join cannot do; the message says where it is."""

    code = "SQL_SYNTAX"


class WindowError(StreamJoinError, ValueError):
    """A window or delay is not valid for these streams."""

    code = "WINDOW"


class ColumnError(StreamJoinError, ValueError):
    """A column is unknown, of an unusable type, or its name collides."""

    code = "COLUMN"


class AggregateOverflowError(StreamJoinError, ArithmeticError):
    """The sum over a tuple's partners, or a value in it, does not fit the type of its column."""

    code = "AGGREGATE_OVERFLOW"


class LayoutError(StreamJoinError, ValueError):
    """A layout does not fit the streams, or differs from the checkpoint's."""

    code = "LAYOUT"


class KernelError(StreamJoinError, ValueError):
    """An array given to a kernel has the wrong type, length or layout, or a kernel is not available."""

    code = "KERNEL"


class StateCorruptError(StreamJoinError):
    """A state blob fails its checksum or cannot be what its header says."""

    code = "STATE_CORRUPT"


def corrupt_state_error() -> StateCorruptError:
    """Return the error to raise where a saved state has other runs, or other facts, than its header says."""
    msg = "a state blob does not hold what its header says"
    return StateCorruptError(msg, name="state", hint="go back to an earlier checkpoint")


def whole_numbers(facts: Mapping[str, Any], name: str, count: int) -> list[int]:
    """Return a state's fact of this name, which must be a list of `count` whole numbers; else StateCorruptError."""
    values = facts.get(name)
    if not isinstance(values, list) or len(values) != count or not all(type(value) is int for value in values):
        raise corrupt_state_error()
    return values


class StateVersionError(StreamJoinError):
    """A state blob was written by a newer version."""

    code = "STATE_VERSION"


class BlockMissingError(StreamJoinError):
    """A block that a reference names is not there."""

    code = "BLOCK_MISSING"


class MapLimitError(StreamJoinError, OSError):
    """A block cannot be mapped: this process already has as many maps as the system allows."""

    code = "MAP_LIMIT"


class BlockWriteError(StreamJoinError, OSError):
    """A block cannot be written: there is no room, or no permission."""

    code = "BLOCK_WRITE"
    passes = True


class BlockCorruptError(StreamJoinError):
    """A block's bytes do not have the checksum in its name."""

    code = "BLOCK_CORRUPT"


class FileMissingError(StreamJoinError):
    """An input file that was read before, or that is named, is not there."""

    code = "FILE_MISSING"


class FileChangedError(StreamJoinError):
    """An input file no longer holds what was read from it."""

    code = "FILE_CHANGED"


class FileRotatedError(FileChangedError):
    """An input file was cut off or put away under another name while it was read, and begins anew."""

    code = "FILE_ROTATED"


class FileOrderError(StreamJoinError):
    """An input file appeared whose name sorts before files already read."""

    code = "FILE_ORDER"


class FileFormatError(StreamJoinError):
    """An input file cannot be read in its declared format."""

    code = "FILE_FORMAT"


class KafkaUnreachableError(StreamJoinError, OSError):
    """No broker answers within the time that is given, or a client cannot be made."""

    code = "KAFKA_UNREACHABLE"
    passes = True


class KafkaSchemaError(KafkaUnreachableError):
    """The schema registry answers, and has no schema with the id that messages name. It may have it later."""

    code = "KAFKA_SCHEMA"


class KafkaAccessError(StreamJoinError):
    """A broker refuses the client: its credentials, its way of saying them, or what it is allowed to read."""

    code = "KAFKA_ACCESS"


class KafkaTopicError(StreamJoinError):
    """The brokers have no such topic or partition."""

    code = "KAFKA_TOPIC"


class KafkaTopicChangedError(StreamJoinError):
    """A topic is not the one that was read before: it was made again, or has fewer partitions or offsets."""

    code = "KAFKA_TOPIC_CHANGED"


class KafkaDataLostError(StreamJoinError):
    """Messages that were not read yet are gone: retention or somebody removed them."""

    code = "KAFKA_DATA_LOST"


class SchemaDriftError(StreamJoinError):
    """A file or frame lacks a column, or has the column with another type."""

    code = "SCHEMA_DRIFT"


class OffsetError(StreamJoinError):
    """A logged offset is malformed or was written by a newer version."""

    code = "OFFSET"


def malformed_offset(name: str, stream: str = "", more: str = "") -> OffsetError:
    """Return the error of a logged offset whose part `name` is not as it was written: of all streams, or of one."""
    msg = f"{f'the logged offset of stream {stream}' if stream else 'a logged offset'} is malformed{more}: {name}"
    hint = "restore the checkpoint's offsets folder from a copy, and never edit offsets by hand"
    return OffsetError(msg, name=name, hint=hint)


class StoreUnreachableError(StreamJoinError):
    """An object store, or another file system of other machines, does not answer, or breaks off."""

    code = "STORE_UNREACHABLE"
    passes = True


class StoreAccessError(StreamJoinError):
    """An object store refuses the request: its credentials, its bucket or its region is wrong."""

    code = "STORE_ACCESS"


class TableError(StreamJoinError):
    """A target table cannot be written by this join."""

    code = "TABLE"


class TableChangedError(TableError):
    """A table that a stream reads was changed in a way that a stream cannot follow: rows were deleted or rewritten."""

    code = "TABLE_CHANGED"


class LogCleanedError(TableError):
    """A reader asks for an entry of a table's log that was removed when the table's log retention had passed."""

    code = "LOG_CLEANED"


class TableWriteError(StreamJoinError, OSError):
    """A table's file or log entry cannot be written: there is no room, or no permission."""

    code = "TABLE_WRITE"
    passes = True


class FingerprintMismatchError(StreamJoinError):
    """A checkpoint or table belongs to another join: window, band, streams or selection differ."""

    code = "FINGERPRINT_MISMATCH"


class ForeignCheckpointError(StreamJoinError):
    """A table was written from another checkpoint."""

    code = "FOREIGN_CHECKPOINT"


class CommitConflictError(StreamJoinError):
    """Another driver committed this batch first."""

    code = "COMMIT_CONFLICT"


class CheckpointInUseError(StreamJoinError):
    """Another process runs a query with this checkpoint."""

    code = "CHECKPOINT_IN_USE"


class RecoveryError(StreamJoinError):
    """Files of a checkpoint or table are torn, or do not fit together, and going on might lose rows."""

    code = "RECOVERY"


class WatermarkMissingError(StreamJoinError):
    """A streaming DataFrame has no watermark, so its window could never be emptied."""

    code = "WATERMARK_MISSING"


class DependencyMissingError(StreamJoinError, ImportError):
    """A Python package that this part needs is not installed."""

    code = "DEPENDENCY_MISSING"
    name: str  # as in StreamJoinError; ImportError's own may be None


class JavaMissingError(StreamJoinError):
    """No Java that Spark can use was found."""

    code = "JAVA_MISSING"


class JarsMissingError(StreamJoinError):
    """The Delta jars are not cached and could not be fetched."""

    code = "JARS_MISSING"


class SparkStartError(StreamJoinError):
    """Spark's Java process did not start."""

    code = "SPARK_START"


class SessionError(StreamJoinError):
    """A Spark session cannot be used: the process has another already, or its workers do not run this package."""

    code = "SESSION"


class LedgerError(StreamJoinError):
    """A batch's ledger does not balance: read is not the sum of stored, late, rejected, filtered and duplicates."""

    code = "LEDGER"


class PunctuationError(StreamJoinError):
    """A punctuation goes back, or a result is older than a punctuation that was given before it."""

    code = "PUNCTUATION"


class IntakeError(StreamJoinError):
    """What a source of messages refuses, or cannot do: its address, its user, its topic."""

    code = "INTAKE"


class SpoolError(StreamJoinError):
    """The folder of a spool cannot be used or written."""

    code = "SPOOL"


class SpoolInUseError(SpoolError):
    """Another process writes into the folder of a spool."""

    code = "SPOOL_IN_USE"


class WorkerMemoryError(StreamJoinError):
    """A process of Spark's has no memory left, or was ended as one that takes too much.

    Spark has tried the task again by then. Nobody raises it: `named_in` finds it in what Spark tells.
    """

    code = "WORKER_MEMORY"


class WorkerStartError(StreamJoinError):
    """A Python worker of Spark's did not start in the ten seconds that Spark gives it: too much else runs there.

    Nobody raises it either.
    """

    code = "WORKER_START"
    passes = True


_RAN_OUT = {
    r"^(?:\w+\.)*\w*MemoryError\b|Cannot allocate memory|failed to map segment from shared object": (
        "a Python process of the join had no memory left"
    ),
    r"Python worker exited unexpectedly": (
        "Python workers of Spark were ended from outside, one after the other at the same task, as a system does where "
        "memory is short (dmesg: oom-kill)"
    ),
    r"terminated with exception: (?:Broken pipe|Connection reset|) SQLSTATE": (  # none: end of its answer
        "the Python process that plans the batches was ended from outside, as a system does where memory is short "
        "(dmesg: oom-kill)"
    ),
    r"java\.lang\.OutOfMemoryError": "Java had no memory left",
}
"""What Spark tells of a process that ran out of memory, as patterns, and what that says."""

_LESS = (
    "let a batch hold less (max_rows_per_batch), have fewer cells, or give the machine or container more memory (Java: "
    "spark.driver.memory); then start it again, and it goes on exactly"
)


def named_in(error: BaseException) -> tuple[type[StreamJoinError], str] | None:
    """Return the class and the line of the error of this package that an exception is, or tells of; None: of none.

    An error that is raised in a Python worker reaches the driver inside a text of Spark's, with stack traces of Java
    and Python around it. The line is taken out of that text.
    """
    if isinstance(error, StreamJoinError):
        return type(error), str(error)
    found = re.search(r"^streamjoin_ds\.errors\.(\w+): ([A-Z][A-Z_]*: .*)$", str(error), re.MULTILINE)
    if found is None:
        return _of_spark(f"{type(error).__name__}: {error}")
    kind = globals().get(found[1])
    if isinstance(kind, type) and issubclass(kind, StreamJoinError):
        return kind, found[2]
    return StreamJoinError, found[2]


def _of_spark(text: str) -> tuple[type[StreamJoinError], str] | None:
    if re.search(r"Python worker (?:failed )?to connect", text):
        meaning = "a Python worker of Spark's did not start in time"
        hint = "start the query again once the machine has less to do, or with --restart: it goes on exactly"
        return WorkerStartError, str(WorkerStartError(meaning, hint=hint))
    for pattern, meaning in _RAN_OUT.items():
        if re.search(pattern, text, re.MULTILINE):
            return WorkerMemoryError, str(WorkerMemoryError(meaning, hint=_LESS))
    return None
