"""Every error that this package raises on purpose, in one table.

Each class has a code, and says whether a restart may mend it (`passes`). Each instance carries the offending *name* (a
stream, a column, an option, a file; never an option's value, which may be a secret) and a *hint* that says what would
be valid. ``docs/reference/errors.md`` and ``streamjoin help error CODE`` are made of this table.
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
    "table_of_errors",
    "where_more",
    "whole_numbers",
]


# What comes of facts of another form than the code that reads them expects; whoever reads them names the file.
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def hinted(text: str, hint: str) -> str:
    """Return a sentence and its hint, which begins one of its own; the sentence alone where there is no hint."""
    return f"{text.removesuffix('.')}. Hint: {hint}" if hint else text


def where_more(code: str) -> str:
    """Return the command that says more of an error; it works without a network."""
    return f"streamjoin help error {code}"


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
    mend: ClassVar[str] = ""  # what to do in general; an instance's hint says it of the case at hand
    passes: ClassVar[bool] = False  # whether the same may go well later, although nobody changes the join or its inputs

    def __init__(self, message: str, *, name: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.name = name
        self.hint = hint
        self.__notes__ = [f"More: {where_more(self.code)}"]  # below the message, in tracebacks of Python 3.11 and newer

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
    mend = "Give what the hint names. `streamjoin help COMMAND` and the reference list what is valid."


class PredicateError(StreamJoinError, ValueError):
    """A predicate cannot be applied to these columns: their types, streams or bounds do not allow it."""

    code = "PREDICATE"
    mend = "Compare columns of types that go together: CAST one side, or write the form that the hint shows."


class PredicateSyntaxError(PredicateError):
    """The text of a predicate has none of the accepted forms."""

    code = "PREDICATE_SYNTAX"
    mend = "Write the condition in one of the forms of the page on joins, each column with its stream: `e.x`."


class SqlSyntaxError(StreamJoinError, ValueError):
    """A text of SQL statements is not understood, or asks for what a join cannot do; the message says where it is."""

    code = "SQL_SYNTAX"
    mend = "Change the text at the place that the message names. The page on SQL has every statement."


class WindowError(StreamJoinError, ValueError):
    """A window or delay is not valid for these streams."""

    code = "WINDOW"
    mend = "Write the window in one of its forms: `15m`, `k=6h,n=0s`, `last 1000`, `every 10s for 60s`."


class ColumnError(StreamJoinError, ValueError):
    """A column is unknown, of an unusable type, or its name collides."""

    code = "COLUMN"
    mend = "Name a column that the hint lists, give a result's column another name with AS, or CAST its type."


class AggregateOverflowError(StreamJoinError, ArithmeticError):
    """The sum over a tuple's partners, or a value in it, does not fit the type of its column."""

    code = "AGGREGATE_OVERFLOW"
    mend = "Sum floats, or fewer partners. That is another join: a new checkpoint and a new table."


class LayoutError(StreamJoinError, ValueError):
    """A layout does not fit the streams, or differs from the checkpoint's."""

    code = "LAYOUT"
    mend = "Leave `layout` out: it is chosen. On an old checkpoint leave it as it was."


class KernelError(StreamJoinError, ValueError):
    """An array given to a kernel has the wrong type, length or layout, or a kernel is not available."""

    code = "KERNEL"
    mend = "Leave `kernel` out: the best one of this processor is taken. `streamjoin doctor` lists what it has."


class StateCorruptError(StreamJoinError):
    """A state blob fails its checksum or cannot be what its header says."""

    code = "STATE_CORRUPT"
    mend = "Restore the file from a spare copy, or run `streamjoin repair CHECKPOINT`."


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
    mend = "Install the newer version again. A checkpoint goes on in newer versions alone."


class BlockMissingError(StreamJoinError):
    """A block that a reference names is not there."""

    code = "BLOCK_MISSING"
    mend = "`streamjoin repair CHECKPOINT`, then start: the batches that wrote it are done again."


class MapLimitError(StreamJoinError, OSError):
    """A block cannot be mapped: this process already has as many maps as the system allows."""

    code = "MAP_LIMIT"
    mend = "Raise the system's limit as root: `sysctl vm.max_map_count=262144`. Or have fewer cells a machine."


class BlockWriteError(StreamJoinError, OSError):
    """A block cannot be written: there is no room, or no permission."""

    code = "BLOCK_WRITE"
    mend = "Make room, or give the permission. Then start again: it goes on exactly."
    passes = True


class BlockCorruptError(StreamJoinError):
    """A block's bytes do not have the checksum in its name."""

    code = "BLOCK_CORRUPT"
    mend = "`streamjoin repair CHECKPOINT`, then start. Where it comes back, the disk or the memory is broken."


class FileMissingError(StreamJoinError):
    """An input file that was read before, or that is named, is not there."""

    code = "FILE_MISSING"
    mend = "Put the file back, or correct the path. Of an empty folder declare the `schema`."


class FileChangedError(StreamJoinError):
    """An input file no longer holds what was read from it."""

    code = "FILE_CHANGED"
    mend = "Put the file back as it was. What is read must stay: new rows go to its end, or to new files."


class FileRotatedError(FileChangedError):
    """An input file was cut off or put away under another name while it was read, and begins anew."""

    code = "FILE_ROTATED"
    mend = "Put the file back as it was, and read rotated files by a pattern from now on."


class FileOrderError(StreamJoinError):
    """An input file appeared whose name sorts before files already read."""

    code = "FILE_ORDER"
    mend = "Give the file a name that sorts last, or begin a new join with `file_order = modified`."


class FileFormatError(StreamJoinError):
    """An input file cannot be read in its declared format."""

    code = "FILE_FORMAT"
    mend = "`streamjoin look FILE` says what the file is and which options read it. Mend the file, or set them."


class KafkaUnreachableError(StreamJoinError, OSError):
    """No broker answers within the time that is given, or a client cannot be made."""

    code = "KAFKA_UNREACHABLE"
    mend = "Correct the brokers in the URL, or wait until they are back."
    passes = True


class KafkaSchemaError(KafkaUnreachableError):
    """The schema registry answers, and has no schema with the id that messages name. It may have it later."""

    code = "KAFKA_SCHEMA"
    mend = "Register the schema, correct `registry=`, or make such messages rejects: `reject_schemas=N`."


class KafkaAccessError(StreamJoinError):
    """A broker refuses the client: its credentials, its way of saying them, or what it is allowed to read."""

    code = "KAFKA_ACCESS"
    mend = "Correct the setting that is named, in the file or the variable of settings, or the right to read."


class KafkaTopicError(StreamJoinError):
    """The brokers have no such topic or partition."""

    code = "KAFKA_TOPIC"
    mend = "Correct the topic's name in the URL, or make the topic."


class KafkaTopicChangedError(StreamJoinError):
    """A topic is not the one that was read before: it was made again, or has fewer partitions or offsets."""

    code = "KAFKA_TOPIC_CHANGED"
    mend = "Begin with a new checkpoint and a new table: the old offsets mean nothing in the new topic."


class KafkaDataLostError(StreamJoinError):
    """Messages that were not read yet are gone: retention or somebody removed them."""

    code = "KAFKA_DATA_LOST"
    mend = "Keep messages for longer. `on_data_loss=skip` in the URL goes on without them, and counts them."


class SchemaDriftError(StreamJoinError):
    """A file or frame lacks a column, or has the column with another type."""

    code = "SCHEMA_DRIFT"
    mend = "Mend the file, or declare the `schema`. Another type of a column is another join."


class OffsetError(StreamJoinError):
    """A logged offset is malformed or was written by a newer version."""

    code = "OFFSET"
    mend = "Restore the checkpoint's folder `offsets` from a copy, or install the newer version again."


def malformed_offset(name: str, stream: str = "", more: str = "") -> OffsetError:
    """Return the error of a logged offset whose part `name` is not as it was written: of all streams, or of one."""
    msg = f"{f'the logged offset of stream {stream}' if stream else 'a logged offset'} is malformed{more}: {name}"
    hint = "restore the checkpoint's offsets folder from a copy, and never edit offsets by hand"
    return OffsetError(msg, name=name, hint=hint)


class StoreUnreachableError(StreamJoinError):
    """An object store, or another file system of other machines, does not answer, or breaks off."""

    code = "STORE_UNREACHABLE"
    mend = "Start again when the store answers."
    passes = True


class StoreAccessError(StreamJoinError):
    """An object store refuses the request: its credentials, its bucket or its region is wrong."""

    code = "STORE_ACCESS"
    mend = "Correct the bucket, its region or the credentials, which the message names by their variables."


class TableError(StreamJoinError):
    """A target table cannot be written by this join."""

    code = "TABLE"
    mend = "Give the results another place, or restore the table as the join left it."


class TableChangedError(TableError):
    """A table that a stream reads was changed in a way that a stream cannot follow: rows were deleted or rewritten."""

    code = "TABLE_CHANGED"
    mend = "`on_change=ignore` goes on. If the changed rows are wanted, begin with a new checkpoint and table."


class LogCleanedError(TableError):
    """A reader asks for an entry of a table's log that was removed when the table's log retention had passed."""

    code = "LOG_CLEANED"
    mend = "Keep the log for longer (`delta.logRetentionDuration`). Begin with a new checkpoint and a new table."


class TableWriteError(StreamJoinError, OSError):
    """A table's file or log entry cannot be written: there is no room, or no permission."""

    code = "TABLE_WRITE"
    mend = "Make room, or give the permission. Then start again: it goes on exactly."
    passes = True


class FingerprintMismatchError(StreamJoinError):
    """A checkpoint or table belongs to another join: window, band, streams or selection differ."""

    code = "FINGERPRINT_MISMATCH"
    mend = "Change the join back, or begin with a new checkpoint and a new table for the changed one."


class ForeignCheckpointError(StreamJoinError):
    """A table was written from another checkpoint."""

    code = "FOREIGN_CHECKPOINT"
    mend = "Use the checkpoint that wrote the table. A new join needs a new checkpoint and a new table."


class CommitConflictError(StreamJoinError):
    """Another driver committed this batch first."""

    code = "COMMIT_CONFLICT"
    mend = "Nothing is lost: let the other driver go on, and end this one."


class CheckpointInUseError(StreamJoinError):
    """Another process runs a query with this checkpoint."""

    code = "CHECKPOINT_IN_USE"
    mend = "Stop the other process. If it sleeps and cannot be ended, start with `--take-over`."


class RecoveryError(StreamJoinError):
    """Files of a checkpoint or table are torn, or do not fit together, and going on might lose rows."""

    code = "RECOVERY"
    mend = "`streamjoin repair CHECKPOINT --dry-run` says what is wrong and what would be mended."


class WatermarkMissingError(StreamJoinError):
    """A streaming DataFrame has no watermark, so its window could never be emptied."""

    code = "WATERMARK_MISSING"
    mend = "Call `withWatermark` on the streaming DataFrame before the join."


class DependencyMissingError(StreamJoinError, ImportError):
    """A Python package that this part needs is not installed."""

    code = "DEPENDENCY_MISSING"
    mend = "Install what the hint names, into the Python that Spark's workers run too."
    name: str  # as in StreamJoinError; ImportError's own may be None


class JavaMissingError(StreamJoinError):
    """No Java that Spark can use was found."""

    code = "JAVA_MISSING"
    mend = "Install Java 17 or newer, or set JAVA_HOME. `--local` and `JoinEngine` need no Java."


class JarsMissingError(StreamJoinError):
    """The Delta jars are not cached and could not be fetched."""

    code = "JARS_MISSING"
    mend = "Let the machine reach Maven Central once, or put the jars into the cache folder that is named."


class SparkStartError(StreamJoinError):
    """Spark's Java process did not start."""

    code = "SPARK_START"
    mend = "Read the lines of Java in the message. `streamjoin doctor --spark` tries it alone."


class SessionError(StreamJoinError):
    """A Spark session cannot be used: there is another, workers lack this package, or its release lacks something."""

    code = "SESSION"
    mend = "End the other session; let workers run this Python (`PYSPARK_PYTHON`); or take a newer Spark."


class LedgerError(StreamJoinError):
    """A batch's ledger does not balance: read is not the sum of stored, late, rejected, filtered and duplicates."""

    code = "LEDGER"
    mend = "A defect: nothing of the batch is in any table. Report it with the message."


class PunctuationError(StreamJoinError):
    """A punctuation goes back, or a result is older than a punctuation that was given before it."""

    code = "PUNCTUATION"
    mend = "Ask for an earlier end. Raised by a running join it is a defect: report it with the message."


class IntakeError(StreamJoinError):
    """What a source of messages refuses, or cannot do: its address, its user, its topic."""

    code = "INTAKE"
    mend = "Correct the address, the user or the topic that the message names."


class SpoolError(StreamJoinError):
    """The folder of a spool cannot be used or written."""

    code = "SPOOL"
    mend = "Make room in the folder, or give the permission. What was not kept was not acknowledged."


class SpoolInUseError(SpoolError):
    """Another process writes into the folder of a spool."""

    code = "SPOOL_IN_USE"
    mend = "End the process that is named, or give the intake another folder."


class WorkerMemoryError(StreamJoinError):
    """A process of Spark's has no memory left, or was ended as one that takes too much.

    Spark has tried the task again by then. Nobody raises it: `named_in` finds it in what Spark tells.
    """

    code = "WORKER_MEMORY"
    mend = "More memory, a smaller `max_rows_per_batch`, or fewer `cells`. Then start again: it goes on exactly."


class WorkerStartError(StreamJoinError):
    """A Python worker of Spark's did not start in the ten seconds that Spark gives it: too much else runs there.

    Nobody raises it either.
    """

    code = "WORKER_START"
    mend = "Start again once the machine has less to do: it goes on exactly."
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


def table_of_errors() -> dict[str, type[StreamJoinError]]:
    """Return the class of each code, in the order of this file."""
    kinds = [kind for kind in globals().values() if isinstance(kind, type) and issubclass(kind, StreamJoinError)]
    return {kind.code: kind for kind in kinds if kind is not StreamJoinError}


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
