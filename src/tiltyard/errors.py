"""The one exception tree.

Every error that the library raises on purpose derives from `TiltyardError`. Where the official package raises
a builtin for the same case (`ValueError`, `OSError`, ...), ours derives from that builtin too, so that
existing `except` clauses keep working. A message names the thing, what was expected, what was found, what to
do next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NEAREST_NAMES = 3
"""How many similar names an error about an unknown name shows."""

KNOWN_NAMES_SHOWN = 20

MESSAGE_CHARACTERS = 2000
"""How much of a message about an expression is shown: the constants in it may be of any length."""


class TiltyardError(Exception):
    """Base of every error that this library raises on purpose. `files_referenced`: see `CommitConflict`."""

    files_referenced = False


def shortened(message: str) -> str:
    """The message, without its middle where it is long."""
    if len(message) <= MESSAGE_CHARACTERS:
        return message
    half = MESSAGE_CHARACTERS // 2
    return (
        f"{message[:half]} [... {len(message) - 2 * half:,} characters are not shown ...] {message[-half:]}"
    )


# -- what the caller asked for -------------------------------------------------------------------


class InvalidInput(TiltyardError, ValueError):
    """An argument that cannot be served: wrong type, wrong value, or a contradiction."""


class WrongType(InvalidInput, TypeError):
    """An argument of a type that can never be served; the message names it, what is expected and what was
    found.
    """


class InvalidUri(InvalidInput):
    """A location that no store of ours can open."""


class InvalidExpression(InvalidInput):
    """A predicate or computed column that cannot be parsed, is not allowed, or has no meaning for the schema.

    `text` is the whole expression and `position` the offset of the offending part in it, where known.
    """

    def __init__(self, message: str, text: str | None = None, position: int | None = None) -> None:
        super().__init__(shortened(message))
        self.text = text
        self.position = position


class SchemaMismatch(InvalidInput, OSError):
    """Data whose schema does not fit the table's; the message shows both side by side."""

    __str__ = Exception.__str__


class NothingToWrite(InvalidInput, OSError):
    """Data without columns or without rows where a fragment is to be made of it."""

    __str__ = Exception.__str__


class FieldNotFound(InvalidInput, KeyError):
    """A column or nested field that the schema does not have; the message lists the nearest names."""

    __str__ = Exception.__str__

    def __init__(self, message: str) -> None:
        super().__init__(shortened(message))


class IndexNotFound(InvalidInput, KeyError, RuntimeError):
    """An index that the table does not have; the message lists those that it has."""

    __str__ = Exception.__str__


class IndexAlreadyExists(InvalidInput, RuntimeError):
    """An index of this name exists: on another column, or it was not to be replaced."""


class RowOutOfRange(InvalidInput, IndexError):
    """A row number or address that the version does not have; the message gives the valid range."""


class TableNotFound(TiltyardError, ValueError, FileNotFoundError):
    """No Lance table at the location."""

    __str__ = Exception.__str__


class TableAlreadyExists(TiltyardError, OSError):
    """A table stands where one was to be created."""

    __str__ = Exception.__str__


class VersionNotFound(TiltyardError, ValueError):
    """A version that does not exist or was removed; the message gives the range of those that do."""


class TagNotFound(TiltyardError, ValueError):
    """A tag that does not exist; the message lists those that do."""


class TagAlreadyExists(TiltyardError, ValueError):
    """A tag of this name exists; it can be moved, or another name chosen."""


class BranchNotFound(TiltyardError, ValueError):
    """A branch that does not exist; the message lists those that do."""


class InvalidCleanup(InvalidInput, OSError):
    """A cleanup asked for in a way that cannot be served."""

    __str__ = Exception.__str__


class CleanupRefused(TiltyardError, OSError):
    """A cleanup, or the removal of a branch, that would take away what a tag or branch still names."""

    __str__ = Exception.__str__


class AmbiguousMerge(InvalidInput, OSError):
    """A merge whose source has several rows for one row of the table, or for one new key; the message gives
    the key.
    """

    __str__ = Exception.__str__


class MatchedRow(InvalidInput, OSError):
    """A merge that must not match anything found a row of the table with a key of the source."""

    __str__ = Exception.__str__


class DuplicateKey(InvalidInput):
    """Two rows would have, or have, one key where `tiltyard.unique` allows one; the message gives the key and
    what to do.
    """


# -- the catalog ---------------------------------------------------------------------------------


class InvalidName(InvalidInput):
    """A name that nothing new in a catalog may have; the message says what is wrong with it. What exists
    already under such a name still opens.
    """


class NamespaceNotFound(TiltyardError, ValueError):
    """A namespace that the catalog does not have."""


class NamespaceAlreadyExists(TiltyardError, ValueError):
    """A namespace, or a table of the same id, stands where a namespace was to be created."""


class NamespaceNotEmpty(TiltyardError, ValueError):
    """A namespace that still holds something was to be dropped."""


class TableNotDropped(TableNotFound):
    """A table that is to be brought back was not dropped, or its data is gone already."""


class TransactionNotFound(TiltyardError, ValueError):
    """No version of the table was made by the transaction."""


class CatalogDamaged(TiltyardError, ValueError):
    """A catalog's register says what cannot be: two rows of one id, or properties that cannot be read. The
    rest of the catalog stays readable; `tiltyard catalog repair` mends it.
    """


class BatchTorn(TiltyardError, OSError):
    """Some of the tables of a batch were committed and others were not; the message names both."""

    __str__ = Exception.__str__


# -- what others did meanwhile -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Winner:
    """The commit of another writer that stood in the way."""

    version: int
    operation: str
    uuid: str

    def __str__(self) -> str:
        return f"the {self.operation} of version {self.version} (transaction {self.uuid})"


class CommitConflict(TiltyardError, OSError):
    """A commit that lost against another one. `retryable` says whether planning again can succeed, `winner`
    names the other one where it is known.

    `files_referenced`: the version was there for a moment, and another writer may have built on it. Then the
    files that the commit names must not be deleted; they can be committed again.
    """

    retryable = False
    winner: Winner | None = None
    __str__ = Exception.__str__


class RetryableConflict(CommitConflict):
    """The operation must be planned again on the newest version; then it can succeed."""

    retryable = True


class IncompatibleTransaction(CommitConflict):
    """A concurrent transaction made this one meaningless; repeating it as it stands cannot succeed."""


class TooMuchContention(CommitConflict):
    """Retries or time ran out while other writers kept winning; nothing was committed."""

    retryable = True


class CatalogThrottled(TooMuchContention):
    """A change of a catalog did not get its turn in time; nothing was changed. Try again when it is
    quieter.
    """


class FilesRemoved(TiltyardError, OSError):
    """A cleanup takes away files that a commit would name, so that it was not committed. Do the whole
    operation again: it writes new files.
    """

    __str__ = Exception.__str__


class OutcomeUnknown(TiltyardError, OSError):
    """The store's answer was lost and could not be recovered: the commit may or may not have happened.

    `uuid` is the transaction's, `version` the one it tried to create. Nothing that the commit may reference
    has been deleted. Read the table again: if the version carries this uuid, the commit happened.
    """

    __str__ = Exception.__str__

    def __init__(self, message: str, uuid: str | None = None, version: int | None = None) -> None:
        super().__init__(message)
        self.uuid = uuid
        self.version = version


# -- shards of a table that is written as a stream -----------------------------------------------


class ShardError(TiltyardError, OSError):
    """A shard of a MemWAL cannot be claimed, written or read as asked."""

    __str__ = Exception.__str__


class ShardSpecMismatch(ShardError, ValueError):
    """A writer came with another sharding spec than the shard's; the shard is as it was, its owner too.

    `shard_id` is UUID text; `requested` and `stored` are spec ids, 0 for shards named by hand.
    """

    def __init__(self, message: str, shard_id: str = "", requested: int = 0, stored: int = 0) -> None:
        super().__init__(message)
        self.shard_id = shard_id
        self.requested = requested
        self.stored = stored


class ShardSealed(ShardError):
    """A sealed shard takes no writer; what was published in it can still be read."""


class ClaimLost(ShardError):
    """Another writer claimed the shard at the same time; nothing of this one stands. Open it again to take
    the shard over.
    """


class ShardContention(ShardError):
    """The shard's manifest kept changing for as many tries as there are; nothing was claimed."""


class WriterFenced(ShardError):
    """Another writer took the shard over; this one can do nothing more.

    `outcome`: `refused` when the rows at hand are not in the log, `unknown` when they may be, in which case
    the other writer has them.
    """

    def __init__(self, message: str, outcome: str = "refused") -> None:
        super().__init__(message)
        self.outcome = outcome


class WriterClosed(ShardError, RuntimeError):
    """The writer was closed; open the shard again."""


class WriterPoisoned(ShardError):
    """The log could not be written, or holds what this writer cannot explain; open the shard again, which
    reads the log anew.
    """


class CompactionBehind(ShardError):
    """More generations of a shard wait for compaction than its writer was told to allow, and still do after
    the wait it was given: nothing of the call was kept. The writer can be used on.
    """


class ShardingChanging(ShardError):
    """The table's sharding is being revised; open the writer again when that is done."""


class UndrainedRows(InvalidInput):
    """What was asked for would lose `rows` rows that were streamed into the table and are not in its base
    yet.
    """

    def __init__(self, message: str, rows: int = 0) -> None:
        super().__init__(message)
        self.rows = rows


class LogTruncated(ShardError):
    """Log entries that were asked for have been collected; those above `position` are there.

    `shard_id` is UUID text, empty where one shard's log was asked.
    """

    def __init__(self, message: str, position: int = 0, shard_id: str = "") -> None:
        super().__init__(message)
        self.position = position
        self.shard_id = shard_id


# -- what stands on disk ------------------------------------------------------------------------


class CorruptFile(TiltyardError, OSError, ValueError):
    """Bytes that are not what the format requires. `path` names the file."""

    __str__ = Exception.__str__

    def __init__(self, message: str, path: str | None = None) -> None:
        super().__init__(message if path is None or path in message else f"{path}: {message}")
        self.path = path


class UnsupportedFeature(TiltyardError, NotImplementedError, ValueError):
    """A format feature, flag, encoding or request that this version does not serve, named in the message."""


class UnsupportedName(UnsupportedFeature, AttributeError):
    """A method or name of the official package whose feature this version does not have; `hasattr` is
    false.
    """


class MissingPackage(TiltyardError, ImportError):
    """A package that only some work needs is not installed; the message gives the line that installs it."""


class BatchTooLarge(TiltyardError, OverflowError):
    """A batch whose variable-width data would not fit 32-bit offsets; read fewer rows at a time."""


# -- the store -----------------------------------------------------------------------------------


class StoreError(TiltyardError, OSError):
    """Storage refused or failed an operation."""

    __str__ = Exception.__str__


class ObjectNotFound(StoreError, FileNotFoundError):
    """No object at the path."""


class ObjectExists(StoreError, FileExistsError):
    """An object stands where a new one was to be written; choose another name or remove it first."""


class StoreUnavailable(StoreError, ConnectionError):
    """A store gave no usable answer, however often it was asked: it cannot be reached, takes too long, breaks
    off, or answers with failures. What the message quotes is the last answer.
    """


class StoreAccessDenied(StoreError, PermissionError):
    """A store refused the credentials, or what they may do. Its clock and this machine's must agree to some
    minutes, else it refuses every signed request.
    """


class BucketNotFound(StoreError, FileNotFoundError):
    """The bucket or container of a location does not exist."""


class ConditionsNotKept(StoreError):
    """A store ignores or refuses "only if nothing is there": two writers could both make one version."""


# -- a catalog behind a server ---------------------------------------------------------------------


class ServerError(TiltyardError, OSError):
    """A server of a catalog could not do what was asked. `instance` is the request's id, by which the
    server's log knows it, where the server told one.
    """

    instance: str | None = None
    __str__ = Exception.__str__


class ServerUnavailable(ServerError, ConnectionError):
    """The server is not reached, or cannot answer just now; nothing was changed. Try again later."""


class PermissionDenied(ServerError, PermissionError):
    """The key that was sent may not do this."""


class Unauthenticated(PermissionDenied):
    """The server knows no such key, or needs one and none was sent."""


class ForkedHandle(TiltyardError, RuntimeError):
    """A handle that belongs to the parent process was used in a forked child; open it again there."""


class ForkedRemoteStore(ForkedHandle):
    """An object store was used before the process was forked. Its connections belong to threads that the
    child does not have, and it would wait for ever: start processes with `spawn` or `forkserver`.
    """


# -- wording -------------------------------------------------------------------------------------


PREFIXES = ("Ref not found error: ", "Ref conflict error: ", "Invalid user input: ")
"""How messages begin that the official package's callers look for."""


def without_prefix(message: str) -> str:
    """The message in plain words, for those who do not know the official package."""
    for prefix in PREFIXES:
        message = message.removeprefix(prefix)
    return message


def nearest(name: str, known: Sequence[str]) -> str:
    """'nearest: a, b', or a list of what is known, for messages about a name that is not there."""
    import difflib  # only errors need it

    lowered = {item.lower(): item for item in reversed(known)}
    found = difflib.get_close_matches(name.lower(), list(lowered), NEAREST_NAMES, 0.5)
    if found:
        return "nearest: " + ", ".join(lowered[item] for item in found)
    shown = ", ".join(known[:KNOWN_NAMES_SHOWN]) + (", ..." if len(known) > KNOWN_NAMES_SHOWN else "")
    return f"there are: {shown}" if known else "there are none"
