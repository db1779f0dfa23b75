"""Errors of the catalog as the interface knows them: each class is ours and the interface's at once.

`except tiltyard.errors.TableAlreadyExists` and `except lance_namespace.TableAlreadyExistsError` catch the
same error. Messages begin with the words that the official implementation begins them with, since lancedb
looks for them (namespace pack, 4.2 and 8.3).
"""

from __future__ import annotations

from typing import Any

import lance_namespace as interface

from tiltyard import errors

_CLASSES: tuple[tuple[type[errors.TiltyardError], type[Exception], str], ...] = (
    (errors.UnsupportedFeature, interface.UnsupportedOperationError, "Unsupported: "),
    (errors.NamespaceNotFound, interface.NamespaceNotFoundError, "Namespace not found: "),
    (errors.NamespaceAlreadyExists, interface.NamespaceAlreadyExistsError, "Namespace already exists: "),
    (errors.NamespaceNotEmpty, interface.NamespaceNotEmptyError, "Namespace not empty: "),
    (errors.TableNotFound, interface.TableNotFoundError, "Table not found: "),
    (errors.TableAlreadyExists, interface.TableAlreadyExistsError, "Table already exists: "),
    (errors.IndexNotFound, interface.TableIndexNotFoundError, "Table index not found: "),
    (errors.IndexAlreadyExists, interface.TableIndexAlreadyExistsError, "Table index already exists: "),
    (errors.TagNotFound, interface.TableTagNotFoundError, "Table tag not found: "),
    (errors.TagAlreadyExists, interface.TableTagAlreadyExistsError, "Table tag already exists: "),
    (errors.TransactionNotFound, interface.TransactionNotFoundError, "Transaction not found: "),
    (errors.VersionNotFound, interface.TableVersionNotFoundError, "Table version not found: "),
    (errors.FieldNotFound, interface.TableColumnNotFoundError, "Table column not found: "),
    (errors.BranchNotFound, interface.TableBranchNotFoundError, "Table branch not found: "),
    (errors.SchemaMismatch, interface.TableSchemaValidationError, "Table schema validation error: "),
    (errors.InvalidInput, interface.InvalidInputError, "Invalid input: "),
    (errors.CatalogThrottled, interface.ThrottlingError, "Throttling: "),
    (errors.CommitConflict, interface.ConcurrentModificationError, "Concurrent modification: "),
    (errors.FilesRemoved, interface.ConcurrentModificationError, "Concurrent modification: "),
    (errors.TableNotDropped, interface.TableNotFoundError, "Table not found: "),
    (errors.Unauthenticated, interface.UnauthenticatedError, "Unauthenticated: "),
    (errors.PermissionDenied, interface.PermissionDeniedError, "Permission denied: "),
    (errors.ServerUnavailable, interface.ServiceUnavailableError, "Service unavailable: "),
    (errors.CleanupRefused, interface.InvalidTableStateError, "Invalid table state: "),
)
"""Ours, the interface's and how the message begins; of several that fit, that of the nearest class counts."""

_OTHERS = (interface.InternalError, "Internal error: ")


def as_interface_error(error: errors.TiltyardError) -> errors.TiltyardError:
    """The same error as an instance of its own class and of the interface's, its message with the prefix."""
    if isinstance(error, interface.LanceNamespaceError):
        return error
    known, prefix = _counterpart(type(error))
    return _rebuilt(type(error), known, _prefixed(str(error), prefix), dict(vars(error)))


def detail_of(error: Exception) -> str:
    """The message of an error without the words that the interface's class begins it with: clients put them
    there by the code.
    """
    message = errors.without_prefix(str(error))
    for _, _, prefix in (*_CLASSES, (None, *_OTHERS)):
        message = message.removeprefix(prefix)
    return message


def _prefixed(message: str, prefix: str) -> str:
    plain = errors.without_prefix(message)
    return plain if plain.startswith(prefix) else prefix + plain


def _counterpart(kind: type[errors.TiltyardError]) -> tuple[type[Exception], str]:
    known: dict[type, tuple[type[Exception], str]] = {each[0]: each[1:] for each in _CLASSES}
    return next((known[each] for each in kind.__mro__ if each in known), _OTHERS)


_MADE: dict[tuple[type, type], type[errors.TiltyardError]] = {}
"""Classes of both kinds, by their two parents: one each, so that two errors of a kind have one class."""


def _both(ours: type[errors.TiltyardError], theirs: type[Exception]) -> type[errors.TiltyardError]:
    found = _MADE.get((ours, theirs))
    if found is not None:
        return found
    body = {
        "__module__": __name__,
        "__qualname__": ours.__name__,
        "__doc__": ours.__doc__,
        "__str__": Exception.__str__,
        "__reduce__": _reduced,
        "_parts": (ours, theirs),
    }
    return _MADE.setdefault((ours, theirs), type(ours.__name__, (ours, theirs), body))


def _reduced(error: Any) -> Any:
    ours, theirs = error._parts
    return _rebuilt, (ours, theirs, str(error), dict(vars(error)))


def _rebuilt(
    ours: type[errors.TiltyardError], theirs: type[Exception], message: str, state: dict[str, Any]
) -> errors.TiltyardError:
    made = _both(ours, theirs)(message)
    vars(made).update(state)
    return made
