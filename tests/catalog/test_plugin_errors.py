"""Errors of the plug-in: ours and the interface's at once."""

from __future__ import annotations

import pickle

import lance_namespace as interface
import pytest

from tiltyard import errors
from tiltyard.catalog.plugin.errors import as_interface_error

CASES = [
    (errors.TableAlreadyExists, interface.TableAlreadyExistsError, 5, "Table already exists: "),
    (errors.TableNotFound, interface.TableNotFoundError, 4, "Table not found: "),
    (errors.NamespaceNotFound, interface.NamespaceNotFoundError, 1, "Namespace not found: "),
    (errors.NamespaceAlreadyExists, interface.NamespaceAlreadyExistsError, 2, "Namespace already exists: "),
    (errors.NamespaceNotEmpty, interface.NamespaceNotEmptyError, 3, "Namespace not empty: "),
    (errors.IndexNotFound, interface.TableIndexNotFoundError, 6, "Table index not found: "),
    (errors.IndexAlreadyExists, interface.TableIndexAlreadyExistsError, 7, "Table index already exists: "),
    (errors.TagNotFound, interface.TableTagNotFoundError, 8, "Table tag not found: "),
    (errors.TagAlreadyExists, interface.TableTagAlreadyExistsError, 9, "Table tag already exists: "),
    (errors.TransactionNotFound, interface.TransactionNotFoundError, 10, "Transaction not found: "),
    (errors.VersionNotFound, interface.TableVersionNotFoundError, 11, "Table version not found: "),
    (errors.FieldNotFound, interface.TableColumnNotFoundError, 12, "Table column not found: "),
    (errors.InvalidInput, interface.InvalidInputError, 13, "Invalid input: "),
    (errors.InvalidName, interface.InvalidInputError, 13, "Invalid input: "),
    (errors.WrongType, interface.InvalidInputError, 13, "Invalid input: "),
    (errors.InvalidExpression, interface.InvalidInputError, 13, "Invalid input: "),
    (errors.RetryableConflict, interface.ConcurrentModificationError, 14, "Concurrent modification: "),
    (errors.TooMuchContention, interface.ConcurrentModificationError, 14, "Concurrent modification: "),
    (errors.CatalogThrottled, interface.ThrottlingError, 21, "Throttling: "),
    (errors.UnsupportedFeature, interface.UnsupportedOperationError, 0, "Unsupported: "),
    (errors.SchemaMismatch, interface.TableSchemaValidationError, 20, "Table schema validation error: "),
    (errors.BranchNotFound, interface.TableBranchNotFoundError, 22, "Table branch not found: "),
    (errors.CatalogDamaged, interface.InternalError, 18, "Internal error: "),
    (errors.CorruptFile, interface.InternalError, 18, "Internal error: "),
    (errors.StoreError, interface.InternalError, 18, "Internal error: "),
    (errors.OutcomeUnknown, interface.InternalError, 18, "Internal error: "),
]


@pytest.mark.parametrize(
    ("ours", "theirs", "code", "prefix"), CASES, ids=lambda each: getattr(each, "__name__", "")
)
def test_an_error_is_of_both_kinds(
    ours: type[errors.TiltyardError], theirs: type[Exception], code: int, prefix: str
) -> None:
    error = as_interface_error(ours("what happened"))
    assert isinstance(error, ours)
    assert isinstance(error, theirs)
    assert str(error) == f"{prefix}what happened"
    assert error.code == code  # type: ignore[attr-defined]
    assert type(error).__name__ == ours.__name__
    assert type(as_interface_error(ours("another"))) is type(error)
    assert as_interface_error(error) is error
    for builtin in (ValueError, OSError, KeyError, NotImplementedError):
        assert isinstance(error, builtin) == issubclass(ours, builtin)


def test_every_error_of_ours_has_a_counterpart() -> None:
    kinds = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.TiltyardError)
    ]
    assert len(kinds) > 30
    for kind in kinds:
        error = as_interface_error(kind("x"))
        assert isinstance(error, interface.LanceNamespaceError), kind
        assert str(error).endswith("x")


def test_what_an_error_knows_is_kept() -> None:
    lost = errors.OutcomeUnknown("lost", uuid="u", version=7)
    told = as_interface_error(lost)
    assert isinstance(told, errors.OutcomeUnknown)
    assert (told.uuid, told.version) == ("u", 7)
    copy = pickle.loads(pickle.dumps(told))
    assert (type(copy), str(copy), copy.uuid, copy.code) == (type(told), str(told), "u", 18)


def test_prefixes_are_not_said_twice() -> None:
    assert str(as_interface_error(errors.TableNotFound("Table not found: x"))) == "Table not found: x"
    assert str(as_interface_error(errors.TagNotFound("Ref not found error: x"))) == "Table tag not found: x"
