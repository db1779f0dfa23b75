"""Opening a version by number, tag and time; what is said when it is not there or damaged (T03, T07, D37)."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from conflict_operations import SCHEMA, new_fragment
from tiltyard import runtime
from tiltyard.errors import (
    CorruptFile,
    InvalidInput,
    TableNotFound,
    TagNotFound,
    TiltyardError,
    UnsupportedFeature,
    VersionNotFound,
)
from tiltyard.format import names
from tiltyard.format.manifest import encode_manifest
from tiltyard.format.operations import Append, Clone, Overwrite
from tiltyard.format.refs import Tag, encode_tag
from tiltyard.format.transaction import Transaction
from tiltyard.session import Session
from tiltyard.store import Store, open_store
from tiltyard.table.commit import commit
from tiltyard.table.refs import list_tags, read_tag
from tiltyard.table.snapshot import Snapshot, open_snapshot
from tiltyard.testing.faults import FaultyStore, Plan


def _commit(store: Store, operation: Any, base: Snapshot | None) -> Snapshot:
    transaction = Transaction(0 if base is None else base.version, str(runtime.uuid4()), operation)
    return commit(store, transaction, session=Session(), base=base, strict=base is None)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A table with versions 1 to 5."""
    store = open_store(str(tmp_path / "t"), {"durable": False})
    made = _commit(store, Overwrite((new_fragment("f1"),), SCHEMA), None)
    for version in range(2, 6):
        made = _commit(store, Append((new_fragment(f"f{version}"),)), made)
    return store


def tag(store: Store, name: str, version: int, branch: str | None = None) -> None:
    store.put(names.tag_path(name), encode_tag(Tag(name, version, branch)))


def test_another_table_that_came_to_the_name_is_found_though_its_directory_has_the_same_time(
    store: Store, tmp_path: Path
) -> None:
    other = open_store(str(tmp_path / "other"), {"durable": False})
    _commit(other, Overwrite((new_fragment("g1"),), SCHEMA), None)
    for each in (store, other):
        os.utime(Path(each.uri) / names.VERSIONS_DIR, ns=(10**18, 10**18))
    session, root = Session(), open_store(str(tmp_path), {"durable": False})
    assert open_snapshot(root.at("other"), session).version == 1
    root.delete_tree("other")
    root.move_dir("t", "other")
    assert open_snapshot(root.at("other"), session).version == 5


# -- by number --------------------


def test_latest_and_numbered(store: Store) -> None:
    session = Session()
    assert open_snapshot(store, session).version == 5
    old = open_snapshot(store, session, version=2)
    assert (old.version, len(old.fragments), old.schema) == (2, 2, SCHEMA)
    assert old.fragment(1) is not None
    assert old.fragment(9) is None
    assert open_snapshot(store, session, version=2).manifest is old.manifest


@pytest.mark.parametrize("version", [0, -1, 6, 10**25])
def test_versions_that_do_not_exist(store: Store, version: int) -> None:
    with pytest.raises(VersionNotFound, match="does not exist; there are versions 1 to 5"):
        open_snapshot(store, Session(), version=version)


@pytest.mark.parametrize("version", ["3", 3.0, True])
def test_version_must_be_a_number(store: Store, version: Any) -> None:
    with pytest.raises(InvalidInput, match="a version is a number"):
        open_snapshot(store, Session(), version=version)


def test_removed_version(store: Store) -> None:
    store.delete(names.manifest_path(2))
    with pytest.raises(
        VersionNotFound, match=r"version 2 of .* was removed by a cleanup; those left are 1, 3 to 5"
    ):
        open_snapshot(store, Session(), version=2)


def test_missing_table_leaves_nothing_behind(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "none"), {})
    for more in ({}, {"version": 1}, {"asof": datetime.now(UTC)}):
        with pytest.raises(TableNotFound, match=r"no Lance table at .*none"):
            open_snapshot(store, Session(), **more)  # type: ignore[arg-type]
    assert not (tmp_path / "none").exists()


def test_only_one_way_to_name_a_version(store: Store) -> None:
    with pytest.raises(InvalidInput, match="at most one"):
        open_snapshot(store, Session(), version=1, tag="x")


# -- by tag --------------------


def test_tags(store: Store) -> None:
    tag(store, "gold", 3)
    store.put(f"{names.TAGS_DIR}/.tmp_x.json", b"{}")
    store.put(f"{names.TAGS_DIR}/note.txt", b"")
    assert open_snapshot(store, Session(), tag="gold").version == 3
    assert list(list_tags(store)) == ["gold"]
    assert read_tag(store, "gold").version == 3
    for unknown in ("silver", "", "a/b", ".."):
        with pytest.raises(TagNotFound, match=r"there are: gold"):
            open_snapshot(store, Session(), tag=unknown)


def test_tag_whose_version_is_gone_is_an_error_that_says_so(store: Store) -> None:
    tag(store, "old", 2)
    store.delete(names.manifest_path(2))
    with pytest.raises(VersionNotFound, match=r"tag 'old' names version 2, but version 2 of .* was removed"):
        open_snapshot(store, Session(), tag="old")


def test_tag_on_a_branch(store: Store) -> None:
    source = open_snapshot(store, Session(), version=4)
    operation = Clone(True, None, 4, store.uri, "dev")
    branch = store.at(names.branch_path("dev"))
    made = commit(
        branch, Transaction(4, "u", operation), session=Session(), base=None, strict=True, source=source
    )
    _commit(branch, Append((new_fragment("dev"),)), made)
    tag(store, "dev-tag", 5, "dev")
    opened = open_snapshot(store, Session(), tag="dev-tag")
    assert opened.manifest.branch == "dev"
    assert len(opened.fragments) == 5
    assert len(open_snapshot(store, Session(), version=5).fragments) == 5
    assert open_snapshot(store, Session(), version=5).manifest.branch is None


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"version":"3"}', b'{"version":null}', b"\xff"])
def test_damaged_tag_names_its_file(store: Store, body: bytes) -> None:
    store.put(names.tag_path("bad"), body)
    with pytest.raises(CorruptFile, match=r"bad\.json"):
        open_snapshot(store, Session(), tag="bad")


# -- by time --------------------


def test_asof_gives_the_newest_version_not_younger(store: Store) -> None:
    session = Session()
    stamps = [
        datetime.fromtimestamp(open_snapshot(store, session, version=v).manifest.timestamp_ns / 1e9, UTC)
        for v in range(1, 6)
    ]
    for version, stamp in enumerate(stamps, 1):
        later = stamp + timedelta(milliseconds=1)
        found = open_snapshot(store, session, asof=later).version
        assert version <= found <= sum(other <= later for other in stamps)
    assert open_snapshot(store, session, asof=datetime.now()).version == 5
    with pytest.raises(VersionNotFound, match="the oldest, 1, is from"):
        open_snapshot(store, session, asof=stamps[0] - timedelta(seconds=1))


# -- damage --------------------


def _cut(store: Store, version: int, keep: float) -> Path:
    path = Path(store.uri) / names.manifest_path(version)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    return path


@pytest.mark.parametrize("keep", [0, 0.02, 0.5, 0.99])
def test_truncated_newest_manifest_names_the_file_and_the_last_good_version(
    store: Store, keep: float
) -> None:
    path = _cut(store, 5, keep)
    os.utime(path, (time.time() - 60,) * 2)
    before = {each: each.read_bytes() for each in Path(store.uri).rglob("*") if each.is_file()}
    for more in ({}, {"version": 5}):
        with pytest.raises(CorruptFile, match="the last good version before it is 4") as caught:
            open_snapshot(store, Session(), **more)
        assert names.manifest_name(5) in str(caught.value)
        assert "version 5 is damaged" in str(caught.value)
    assert open_snapshot(store, Session(), version=4).version == 4
    assert {each: each.read_bytes() for each in before} == before


def test_last_good_version_skips_other_damaged_ones(store: Store) -> None:
    for version in (3, 4, 5):
        _cut(store, version, 0.5)
    with pytest.raises(CorruptFile, match="before it is 2"):
        open_snapshot(store, Session())
    for version in (1, 2):
        _cut(store, version, 0.5)
    with pytest.raises(CorruptFile, match="no older version can be read"):
        open_snapshot(store, Session())


def test_newest_manifest_still_being_written_is_waited_for(store: Store) -> None:
    """Where the file system has no links (O13), a manifest grows under its final name."""
    path = Path(store.uri) / names.manifest_path(5)
    data = path.read_bytes()
    path.write_bytes(b"")
    stop = threading.Event()

    def write() -> None:
        for at in range(0, len(data), 100):
            time.sleep(0.01)
            with path.open("ab") as file:
                file.write(data[at : at + 100])
        stop.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert open_snapshot(store, Session()).version == 5
    thread.join()


@pytest.mark.parametrize("seed", range(40))
def test_damaged_manifest_is_a_typed_error_or_reads(store: Store, seed: int) -> None:
    import random

    chance = random.Random(seed)
    path = Path(store.uri) / names.manifest_path(5)
    data = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    try:
        opened = open_snapshot(store, Session())
        list(opened.fragments)
        opened.transaction()
    except TiltyardError:
        return


def test_manifest_under_another_versions_name_is_refused(store: Store) -> None:
    store.put(names.manifest_path(6), store.read(names.manifest_path(3)))
    with pytest.raises(CorruptFile, match="says that it is version 3, its name 6"):
        open_snapshot(store, Session())


def test_unknown_reader_flag_is_refused_by_name(store: Store) -> None:
    from dataclasses import replace

    base = open_snapshot(store, Session())
    odd = replace(base.manifest, version=6, reader_flags=1 << 41, writer_flags=1 << 41)
    store.put(names.manifest_path(6), b"".join(encode_manifest(odd, base.transaction())))
    with pytest.raises(UnsupportedFeature, match="41"):
        open_snapshot(store, Session())
    assert open_snapshot(store, Session(), version=5).version == 5


# -- the cache --------------------


def test_manifest_is_read_once_per_session(store: Store) -> None:
    session, plan = Session(), Plan()
    for _ in range(3):
        open_snapshot(FaultyStore(store, plan), session)
    assert plan.calls("read", "*.manifest") == 1


def test_table_made_again_is_not_taken_from_the_cache(store: Store) -> None:
    session = Session()
    first = open_snapshot(store, session, version=1)
    store.delete_tree("_versions")
    schema = SCHEMA.project(["id"])
    _commit(store, Overwrite((new_fragment("f1"),), schema), None)
    again = open_snapshot(store, session)
    assert again.version == 1
    assert again.schema == schema
    assert first.schema == SCHEMA


def test_transaction_is_read_from_its_file_when_not_inline(store: Store) -> None:
    base = open_snapshot(store, Session())
    transaction = Transaction(5, str(runtime.uuid4()), Append(()))
    from dataclasses import replace

    name = names.transaction_name(5, transaction.uuid)
    outside = replace(base.manifest, version=6, transaction_file=name)
    store.put(names.manifest_path(6), b"".join(encode_manifest(outside, None)))
    assert open_snapshot(store, Session()).transaction() is None
    store.put(names.transaction_path(name), transaction.encode())
    assert open_snapshot(store, Session()).transaction() == transaction
