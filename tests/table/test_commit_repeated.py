"""A raw Overwrite that says nothing about where it was planned is looked for among the versions before it is
committed: once more must not be twice.
"""

from __future__ import annotations

import pytest

from committing import append, create, now, transaction
from conflict_operations import SCHEMA, new_fragment
from tiltyard.errors import StoreError, UnsupportedFeature
from tiltyard.format.names import manifest_path
from tiltyard.format.operations import Overwrite
from tiltyard.session import Session
from tiltyard.store import Store, open_store
from tiltyard.table import landed as landed_module
from tiltyard.table.commit import commit
from tiltyard.table.versions import VersionLocation
from tiltyard.testing.faults import Fault, FaultyStore, Plan, Rule


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Store:
    store = open_store(f"memory://{request.node.name}")
    base = create(store)
    for n in range(3):
        base = append(base, f"more{n}")
    return store


def overwrite() -> Overwrite:
    return Overwrite((new_fragment("whole"),), SCHEMA)


def test_a_version_of_a_later_format_is_not_ours_and_does_not_block(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = landed_module.read_transaction

    def refusing(store: Store, session: Session, location: VersionLocation) -> object:
        if location.version == 2:
            raise UnsupportedFeature("an operation of a later format")
        return read(store, session, location)

    monkeypatch.setattr(landed_module, "read_transaction", refusing)
    done = commit(store, transaction(overwrite()), session=Session(), base=None)
    assert done.version == 5


def test_a_version_that_cannot_be_read_is_named_and_nothing_is_committed_twice(store: Store) -> None:
    mine = transaction(overwrite())
    assert commit(store, mine, session=Session(), base=None).version == 5
    append(now(store), "last")
    blind = FaultyStore(store, Plan(Rule(Fault.FAIL_BEFORE, "read", path=manifest_path(5), times=None)))
    with pytest.raises(StoreError, match=r"version 5 of .* cannot be read") as raised:
        commit(blind, mine, session=Session(), base=None)
    assert "nothing was committed" in str(raised.value)
    assert now(store).version == 6


def test_an_unreadable_version_does_not_hide_one_that_is_ours(store: Store) -> None:
    mine = transaction(overwrite())
    commit(store, mine, session=Session(), base=None)
    append(now(store), "last")
    blind = FaultyStore(store, Plan(Rule(Fault.FAIL_BEFORE, "read", path=manifest_path(6), times=None)))
    assert commit(blind, mine, session=Session(), base=None).version == 5
    assert now(store).version == 6
