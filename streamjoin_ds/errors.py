"""Every error this package raises on purpose: one table.

Each class is a code; each instance carries the offending *name* (a stream, a column, an option, a file: never an
option's value, which may be a secret) and a *hint* of what would be valid.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ArgumentError",
    "BenchError",
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
    "FingerprintMismatchError",
    "ForeignCheckpointError",
    "JarsMissingError",
    "JavaMissingError",
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
    "StateCorruptError",
    "StateVersionError",
    "StreamJoinError",
    "TableError",
    "TableWriteError",
    "WatermarkMissingError",
    "WindowError",
]


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

    def __init__(self, message: str, *, name: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.name = name
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.code}: {self.message}"
        return f"{text} Hint: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        # Spark carries a worker's exception to the driver by pickling it; keyword-only arguments need this.
        return (_rebuild, (type(self), self.message, self.name, self.hint))


def _rebuild(cls: type[StreamJoinError], message: str, name: str, hint: str) -> StreamJoinError:
    return cls(message, name=name, hint=hint)


class ArgumentError(StreamJoinError, ValueError):
    """An argument or option is not of the form that is understood."""

    code = "ARGUMENT"


class PredicateError(StreamJoinError, ValueError):
    """A predicate cannot hold between these columns (types, streams, bounds)."""

    code = "PREDICATE"


class PredicateSyntaxError(PredicateError):
    """The text of a predicate is not one of the forms that are understood."""

    code = "PREDICATE_SYNTAX"


class WindowError(StreamJoinError, ValueError):
    """A window or delay is not valid for these streams."""

    code = "WINDOW"


class ColumnError(StreamJoinError, ValueError):
    """A column is unknown, of an unusable type, or its name collides."""

    code = "COLUMN"


class LayoutError(StreamJoinError, ValueError):
    """A layout does not fit the streams, or differs from the checkpoint's."""

    code = "LAYOUT"


class KernelError(StreamJoinError, ValueError):
    """An array given to a kernel has the wrong type, length or layout, or a kernel is not available."""

    code = "KERNEL"


class StateCorruptError(StreamJoinError):
    """A state blob fails its checksum or cannot be what its header says."""

    code = "STATE_CORRUPT"


class StateVersionError(StreamJoinError):
    """A state blob was written by a newer version."""

    code = "STATE_VERSION"


class BlockMissingError(StreamJoinError):
    """A block that a reference names is not there."""

    code = "BLOCK_MISSING"


class MapLimitError(StreamJoinError, OSError):
    """A block cannot be mapped: this process has as many files mapped as the system allows."""

    code = "MAP_LIMIT"


class BlockWriteError(StreamJoinError, OSError):
    """A block cannot be written: no room, or no right to."""

    code = "BLOCK_WRITE"


class BlockCorruptError(StreamJoinError):
    """A block's bytes do not have the checksum its name carries."""

    code = "BLOCK_CORRUPT"


class FileMissingError(StreamJoinError):
    """An input file that was read, or that is named, is not there."""

    code = "FILE_MISSING"


class FileChangedError(StreamJoinError):
    """An input file is no longer what was read from it."""

    code = "FILE_CHANGED"


class FileOrderError(StreamJoinError):
    """An input file appeared whose name sorts before files already read."""

    code = "FILE_ORDER"


class FileFormatError(StreamJoinError):
    """An input file cannot be read as the format it is said to have."""

    code = "FILE_FORMAT"


class SchemaDriftError(StreamJoinError):
    """A file or frame lacks a column, or has it with another type."""

    code = "SCHEMA_DRIFT"


class OffsetError(StreamJoinError):
    """A logged offset is malformed or was written by a newer version."""

    code = "OFFSET"


class TableError(StreamJoinError):
    """A target table cannot be written by this join."""

    code = "TABLE"


class LogCleanedError(TableError):
    """A reader asks for a log entry of a table that was cleaned away after the table's log retention."""

    code = "LOG_CLEANED"


class TableWriteError(StreamJoinError, OSError):
    """A table's file or log entry cannot be written: no room, or no right to."""

    code = "TABLE_WRITE"


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
    """The Delta jars are neither cached nor could they be fetched."""

    code = "JARS_MISSING"


class SparkStartError(StreamJoinError):
    """Spark's Java process did not start."""

    code = "SPARK_START"


class SessionError(StreamJoinError):
    """A Spark session cannot be used: the process has another already, or its workers do not run this package."""

    code = "SESSION"


class LedgerError(StreamJoinError):
    """A batch's rows do not balance: read is not stored plus late, rejected and filtered."""

    code = "LEDGER"


class PunctuationError(StreamJoinError):
    """A punctuation goes back, or a result is older than a punctuation that was given before it."""

    code = "PUNCTUATION"


class BenchError(StreamJoinError):
    """A side of a bench failed, or its matches are not those of an independent count: nothing it measured counts."""

    code = "BENCH"
