"""Codes of the specification as errors of ours, for the client.

Source: namespace pack, 4.2.
"""

from __future__ import annotations

from lance_namespace import ErrorCode

from tiltyard import errors

_OF_CODE: dict[int, type[errors.TiltyardError]] = {
    ErrorCode.UNSUPPORTED: errors.UnsupportedFeature,
    ErrorCode.NAMESPACE_NOT_FOUND: errors.NamespaceNotFound,
    ErrorCode.NAMESPACE_ALREADY_EXISTS: errors.NamespaceAlreadyExists,
    ErrorCode.NAMESPACE_NOT_EMPTY: errors.NamespaceNotEmpty,
    ErrorCode.TABLE_NOT_FOUND: errors.TableNotFound,
    ErrorCode.TABLE_ALREADY_EXISTS: errors.TableAlreadyExists,
    ErrorCode.TABLE_INDEX_NOT_FOUND: errors.IndexNotFound,
    ErrorCode.TABLE_INDEX_ALREADY_EXISTS: errors.IndexAlreadyExists,
    ErrorCode.TABLE_TAG_NOT_FOUND: errors.TagNotFound,
    ErrorCode.TABLE_TAG_ALREADY_EXISTS: errors.TagAlreadyExists,
    ErrorCode.TRANSACTION_NOT_FOUND: errors.TransactionNotFound,
    ErrorCode.TABLE_VERSION_NOT_FOUND: errors.VersionNotFound,
    ErrorCode.TABLE_COLUMN_NOT_FOUND: errors.FieldNotFound,
    ErrorCode.INVALID_INPUT: errors.InvalidInput,
    ErrorCode.CONCURRENT_MODIFICATION: errors.RetryableConflict,
    ErrorCode.PERMISSION_DENIED: errors.PermissionDenied,
    ErrorCode.UNAUTHENTICATED: errors.Unauthenticated,
    ErrorCode.SERVICE_UNAVAILABLE: errors.ServerUnavailable,
    ErrorCode.TABLE_SCHEMA_VALIDATION_ERROR: errors.SchemaMismatch,
    ErrorCode.THROTTLING: errors.CatalogThrottled,
    ErrorCode.TABLE_BRANCH_NOT_FOUND: errors.BranchNotFound,
}


def error_of(code: int, message: str, instance: str | None) -> errors.TiltyardError:
    """The error that a code stands for; `ServerError` for internal ones and for codes that are not known."""
    kind = _OF_CODE.get(code, errors.ServerError)
    made = kind(message)
    if isinstance(made, errors.ServerError):
        made.instance = instance
    return made
