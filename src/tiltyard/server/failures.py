"""Failures as the wire knows them: a status, and a JSON object with the specification's code.

Source: namespace pack, 4.2 and 6.3. What a program error of ours says is for the log, not for the caller.
"""

from __future__ import annotations

import json

from lance_namespace import ErrorCode, LanceNamespaceError

from tiltyard import errors
from tiltyard.catalog.plugin.errors import as_interface_error, detail_of

STATUS = {
    ErrorCode.UNSUPPORTED: 406,
    ErrorCode.NAMESPACE_NOT_FOUND: 404,
    ErrorCode.NAMESPACE_ALREADY_EXISTS: 409,
    ErrorCode.NAMESPACE_NOT_EMPTY: 409,
    ErrorCode.TABLE_NOT_FOUND: 404,
    ErrorCode.TABLE_ALREADY_EXISTS: 409,
    ErrorCode.TABLE_INDEX_NOT_FOUND: 404,
    ErrorCode.TABLE_INDEX_ALREADY_EXISTS: 409,
    ErrorCode.TABLE_TAG_NOT_FOUND: 404,
    ErrorCode.TABLE_TAG_ALREADY_EXISTS: 409,
    ErrorCode.TRANSACTION_NOT_FOUND: 404,
    ErrorCode.TABLE_VERSION_NOT_FOUND: 404,
    ErrorCode.TABLE_COLUMN_NOT_FOUND: 404,
    ErrorCode.INVALID_INPUT: 400,
    ErrorCode.CONCURRENT_MODIFICATION: 409,
    ErrorCode.PERMISSION_DENIED: 403,
    ErrorCode.UNAUTHENTICATED: 401,
    ErrorCode.SERVICE_UNAVAILABLE: 503,
    ErrorCode.INTERNAL: 500,
    ErrorCode.INVALID_TABLE_STATE: 409,
    ErrorCode.TABLE_SCHEMA_VALIDATION_ERROR: 400,
    ErrorCode.THROTTLING: 429,
    ErrorCode.TABLE_BRANCH_NOT_FOUND: 404,
    ErrorCode.TABLE_BRANCH_ALREADY_EXISTS: 409,
}

OF_OURS: tuple[tuple[type[errors.TiltyardError], ErrorCode], ...] = (
    (errors.OutcomeUnknown, ErrorCode.SERVICE_UNAVAILABLE),
    (errors.StoreUnavailable, ErrorCode.SERVICE_UNAVAILABLE),
    (errors.BatchTooLarge, ErrorCode.INVALID_INPUT),
)
"""Of errors for which the plug-in has no class of the interface; others are internal errors."""


class Failure(Exception):
    """What a request is answered that fails. `headers` go with the answer."""

    def __init__(self, status: int, code: int, error: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(error)
        self.status = status
        self.code = code
        self.error = error
        self.headers = headers

    def body(self, instance: str) -> bytes:
        """The JSON object; `instance` is the request's id, by which the server's log knows it."""
        return json.dumps({"error": self.error, "code": self.code, "instance": instance}).encode()


def failure_of(error: Exception) -> Failure | None:
    """How an error of ours is told; None for one that is a fault of the program."""
    if isinstance(error, Failure):
        return error
    if not isinstance(error, errors.TiltyardError):
        return None
    for kind, code in OF_OURS:
        if isinstance(error, kind):
            return Failure(STATUS[code], int(code), detail_of(error))
    known = as_interface_error(error)
    code = known.code if isinstance(known, LanceNamespaceError) else ErrorCode.INTERNAL
    return Failure(STATUS[code], int(code), detail_of(error))


def invalid(message: str, status: int = 400) -> Failure:
    """Input that cannot be right."""
    return Failure(status, int(ErrorCode.INVALID_INPUT), message)


def busy(message: str, retry_after: int) -> Failure:
    """Too much at once; `retry_after` in seconds."""
    code = ErrorCode.THROTTLING
    return Failure(STATUS[code], int(code), message, (("retry-after", str(retry_after)),))


def unavailable(message: str) -> Failure:
    """The server cannot answer this just now."""
    code = ErrorCode.SERVICE_UNAVAILABLE
    return Failure(STATUS[code], int(code), message)


def broken() -> Failure:
    """A fault of the program, of which the caller is told no more than where to look."""
    return Failure(500, int(ErrorCode.INTERNAL), "internal error; the server's log tells it by this instance")
