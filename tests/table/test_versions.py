"""Finding versions: the latest without believing the hint (D13), histories C24 and C25, names matched
strictly (O12).

Manifests here are empty files: only their names and times matter.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.errors import CorruptFile, StoreError, TableNotFound, VersionNotFound
from tiltyard.format import names
from tiltyard.session import Session
from tiltyard.store import Store, open_store
from tiltyard.table.versions import RACY_NS, latest, list_names, list_versions, locate, ranges, read_hint
from tiltyard.testing.faults import Fault, FaultyStore, Plan, Rule

SETTLED = 1.5 * RACY_NS / 1e9
"""Seconds after which a directory time says all."""

CLEANABLE = 0.05
"""Seconds below which a cleanup removes no manifest (D13)."""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "t"), {"durable": False})


def commit(store: Store, *versions: int, naming: names.Naming = "V2") -> None:
    for version in versions:
        store.create(names.manifest_path(version, naming), b"")


def hint(store: Store, body: bytes) -> None:
    store.write_hint(names.HINT_PATH, body)


def newest(store: Store) -> int:
    """The latest version for somebody who knows nothing yet."""
    return latest(store, Session()).version


# -- the two histories ------------------------------------------------------------------------------------


def test_c24_stale_hint_at_a_kept_version_below_a_cleaned_range(store: Store) -> None:
    commit(store, 5)
    hint(store, b'{"version":5}')
    time.sleep(CLEANABLE)
    commit(store, *range(91, 101))
    assert newest(store) == 100
    time.sleep(SETTLED)
    assert newest(store) == 100


def test_c25_hint_at_a_tagged_version_with_a_hole_above(store: Store) -> None:
    commit(store, 1, 2)
    hint(store, b'{"version":2}')
    commit(store, 3, 4, 5)
    time.sleep(CLEANABLE)
    for version in (1, 3, 4):
        store.delete(names.manifest_path(version))
    assert newest(store) == 5
    time.sleep(SETTLED)
    assert newest(store) == 5


def c24(store: Store, naming: names.Naming = "V2") -> None:
    """Twelve versions, of which a cleanup removed 4 to 8, and a hint at 3."""
    commit(store, *range(1, 13), naming=naming)
    for version in range(4, 9):
        store.delete(names.manifest_path(version, naming))
    hint(store, b'{"version":3}')


def test_c24_in_a_copy_whose_times_are_all_alike(store: Store, tmp_path: Path) -> None:
    """`cp -r`: every name is as young as the directory, that of the hint's version too."""
    c24(store)
    shutil.copytree(store.uri, tmp_path / "copy", copy_function=shutil.copyfile)
    copy = open_store(str(tmp_path / "copy"), {"durable": False})
    assert newest(copy) == 12
    os.utime(tmp_path / "copy" / names.VERSIONS_DIR)
    assert newest(copy) == 12


def test_c24_after_a_migration_of_names(store: Store) -> None:
    """Renaming gives every manifest a young name, in whatever order; the hint's version may be the last."""
    c24(store, "V1")
    assert newest(store) == 12
    for version in (1, 2, 9, 10, 11, 12, 3):
        os.rename(
            Path(store.uri, names.manifest_path(version, "V1")), Path(store.uri, names.manifest_path(version))
        )
    assert newest(store) == 12


def test_c25_after_a_peers_stale_commit_into_the_hole(store: Store) -> None:
    """A peer with a handle of version 2 commits version 3 below 5 and writes the hint: nothing is newer."""
    commit(store, 1, 2, 3, 4, 5)
    for version in (1, 3, 4):
        store.delete(names.manifest_path(version))
    time.sleep(SETTLED)
    commit(store, 3)
    hint(store, b'{"version":3}')
    assert newest(store) == 5
    time.sleep(SETTLED)
    assert newest(store) == 5


# -- hints of every kind ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"",
        b'{"vers',
        b"null",
        b"[3]",
        b'{"version":-1}',
        b'{"version":0}',
        b'{"version":"3"}',
        b'{"version":true}',
        b'{"version":3.0}',
        b'{"version":99999999999999999999999}',
        b'{"version":1}',
        b'{"version":2}',
        b'{"version":3}',
        b'{"version":4}',
        b'{"version":1000}',
        b'{"version":3}{"version":9}',
        b"\xff\xfe",
        b" " * 5000,
    ],
)
def test_no_hint_misleads(store: Store, body: bytes | None) -> None:
    commit(store, 1, 2)
    time.sleep(SETTLED)
    commit(store, 3)
    if body is not None:
        hint(store, body)
    assert newest(store) == 3


def test_the_hint_is_not_even_read(store: Store) -> None:
    commit(store, 1, 2, 3)
    hint(store, b'{"version":3}')
    plan = Plan()
    assert latest(FaultyStore(store, plan), Session()).version == 3
    assert plan.calls(path=names.HINT_PATH) == 0


def test_hint_that_cannot_be_read_is_not_taken_for_an_absent_one(store: Store) -> None:
    commit(store, 1)
    hint(store, b'{"version":1}')
    with pytest.raises(StoreError):
        read_hint(FaultyStore(store, Plan(Rule(Fault.FAIL_BEFORE, "read"))))


def test_hint_is_not_believed_once_the_directory_changed_after_it(store: Store) -> None:
    commit(store, 1)
    hint(store, b'{"version":1}')
    time.sleep(SETTLED)
    commit(store, 5)
    assert newest(store) == 5


# -- what a session remembers
# -----------------------------------------------------------------------------------


def test_settled_answer_costs_one_look_at_the_directory(store: Store) -> None:
    commit(store, 1, 2)
    session = Session()
    time.sleep(SETTLED)
    assert latest(store, session).version == 2
    plan = Plan()
    assert latest(FaultyStore(store, plan), session).version == 2
    assert [call for call, _ in plan.trace] == ["dir_stat"]
    commit(store, 3)
    assert latest(store, session).version == 3


def test_racy_writes_within_one_tick_are_all_seen(store: Store) -> None:
    session = Session()
    for version in range(1, 200):
        commit(store, version)
        assert latest(store, session).version == version


def test_racy_answer_is_not_kept(store: Store) -> None:
    """A change that leaves the directory's time as it was, as two changes in one tick do."""
    commit(store, 1)
    session = Session()
    directory = Path(store.uri) / names.VERSIONS_DIR
    tick = time.time_ns() + 60_000_000_000  # not over yet, however slow the machine
    os.utime(directory, ns=(tick, tick))
    assert latest(store, session).version == 1
    commit(store, 2)
    os.utime(directory, ns=(tick, tick))
    assert latest(store, session).version == 2


def test_table_dropped_and_made_again_is_another_table(store: Store) -> None:
    commit(store, 1, 2, 3)
    session = Session()
    time.sleep(SETTLED)
    assert latest(store, session).version == 3
    store.delete_tree(names.VERSIONS_DIR)
    with pytest.raises(TableNotFound):
        latest(store, session)
    commit(store, 1)
    assert latest(store, session).version == 1


# -- names
# ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("naming", ["V1", "V2"])
def test_both_schemes(store: Store, naming: names.Naming) -> None:
    commit(store, 1, 2, 10, naming=naming)
    assert newest(store) == 10
    assert [location.version for location in list_versions(store)] == [1, 2, 10]
    assert {location.naming for location in list_versions(store)} == {naming}
    assert locate(store, 2).naming == naming


def test_mixed_schemes_are_refused(store: Store) -> None:
    commit(store, 1)
    commit(store, 2, naming="V1")
    with pytest.raises(CorruptFile, match="both manifest naming schemes"):
        newest(store)


def test_detached_versions_are_opened_by_number_and_never_latest(store: Store) -> None:
    detached = names.DETACHED_BIT + 7
    commit(store, 1)
    commit(store, detached, naming="detached")
    assert newest(store) == 1
    assert locate(store, detached).path.endswith(f"d{detached}.manifest")


def test_names_of_other_programs_are_not_versions(store: Store) -> None:
    commit(store, 3)
    good = names.manifest_name(9)
    for name in (
        f".tmp_{good}",
        f".tmp-9.manifest_{good}",
        f"{good}-1f0c",
        f"{good}.tmp",
        f"{good}~",
        f"{good[:-1]}",
        "09.manifest",
        "-9.manifest",
        "+9.manifest",
        " 9.manifest",
        "9.manifest ",
        "9.MANIFEST",
        "x.manifest",
        ".manifest",
        "manifest",
        "0.manifest",
        "d9.manifest",
        "18446744073709551606.manifestx",
        "1844674407370955160６.manifest",
    ):
        store.put(f"{names.VERSIONS_DIR}/{name}", b"")
    assert [location.version for location in list_versions(store)] == [3]


def test_temporary_files_that_come_and_go_never_hide_the_table(store: Store) -> None:
    """O12: every look succeeds while another writer's temporary names appear and vanish."""
    commit(store, 1)
    directory = Path(store.uri) / names.VERSIONS_DIR
    stop = threading.Event()

    def churn() -> None:
        count = 0
        while not stop.is_set():
            count += 1
            path = directory / f".tmp_{names.manifest_name(2)}_{count}"
            path.touch()
            path.unlink()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        session = Session()
        for _ in range(300):
            assert latest(store, session).version == 1
            assert newest(store) == 1
    finally:
        stop.set()
        thread.join()


# -- what is not there
# --------------------------------------------------------------------------------------------------


def test_no_table(store: Store) -> None:
    for _ in range(2):
        with pytest.raises(TableNotFound, match="no Lance table"):
            newest(store)
        store.put(f"{names.VERSIONS_DIR}/.tmp_x", b"")
    with pytest.raises(TableNotFound):
        locate(store, 1)


@pytest.mark.parametrize("version", [0, -1, 8, 2**63 - 1, 2**63 + 1, 2**64, 10**30])
def test_version_out_of_range_says_the_range(store: Store, version: int) -> None:
    commit(store, 2, 5, 6, 7)
    with pytest.raises(VersionNotFound, match="does not exist; there are versions 2, 5 to 7"):
        locate(store, version)


@pytest.mark.parametrize("version", [1, 3, 4])
def test_removed_version_says_so(store: Store, version: int) -> None:
    commit(store, 2, 5, 6, 7)
    with pytest.raises(VersionNotFound, match=f"version {version} of .* was removed.*2, 5 to 7"):
        locate(store, version)


@given(st.sets(st.integers(1, 60)))
@settings(max_examples=50, deadline=None)
def test_ranges_name_every_version_or_the_ends(versions: set[int]) -> None:
    text = ranges(sorted(versions))
    if " between " in text:
        count, _, rest = text.partition(" between ")
        assert int(count) == len(versions)
        assert rest == f"{min(versions)} and {max(versions)}"
        return
    named: set[int] = set()
    for part in filter(None, text.split(", ")):
        first, _, last = part.partition(" to ")
        named.update(range(int(first), int(last or first) + 1))
    assert named == versions


@given(st.lists(st.sampled_from(["commit", "remove", "hint", "wait"]), max_size=12), st.data())
@settings(max_examples=40, deadline=None)
def test_any_history_gives_the_greatest_version(steps: list[str], data: st.DataObject) -> None:
    """Commits, clean-ups below the newest and hints of any number, looked at by a warm and a cold session."""
    import tempfile

    with tempfile.TemporaryDirectory() as root:
        store = open_store(f"{root}/t", {"durable": False})
        commit(store, 1)
        there, session = [1], Session()
        for step in steps:
            match step:
                case "commit":
                    there.append(there[-1] + 1)
                    commit(store, there[-1])
                case "remove" if len(there) > 1:
                    version = data.draw(st.sampled_from(there[:-1]))
                    there.remove(version)
                    time.sleep(CLEANABLE)
                    store.delete(names.manifest_path(version))
                case "hint":
                    hint(store, names.hint_body(data.draw(st.integers(1, there[-1] + 2))))
                case "wait":
                    time.sleep(SETTLED)
            assert latest(store, session).version == there[-1]
            assert newest(store) == there[-1]


def test_version_older_than_a_branch_is_not_said_to_be_removed(store: Store) -> None:
    branch = store.at("tree/dev")
    commit(branch, 4, 5)
    with pytest.raises(VersionNotFound, match=r"older than the branch.* 4 to 5"):
        locate(branch, 2)


def test_directory_that_was_removed_and_made_again_is_said_to_be_another_one(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "t"), {"durable": False})
    commit(store, 1)
    shutil.rmtree(tmp_path / "t")
    commit(open_store(str(tmp_path / "t"), {"durable": False}), 1, 2)
    with pytest.raises(TableNotFound, match="another one; open it again"):
        newest(store)


def test_hint_is_read_back_as_written(store: Store) -> None:
    commit(store, 1)
    assert read_hint(store) is None
    hint(store, names.hint_body(12))
    assert read_hint(store) == 12


@pytest.mark.parametrize("naming", ["V1", "V2"])
def test_versions_above_one(store: Store, naming: names.Naming) -> None:
    commit(store, 1, 9, 10, 11, 200, naming=naming)
    store.create(names.manifest_path(names.DETACHED_BIT + 5, "detached"), b"x")
    assert [each.version for each in list_names(store, above=10)] == [11, 200]
    assert list_names(store, above=200) == []
    assert [each.version for each in list_names(store)] == [1, 9, 10, 11, 200]


def test_old_names_that_look_like_new_ones_at_first_sight(store: Store) -> None:
    """A version of the old scheme whose digits begin as all new names do."""
    high = int(names.manifest_name(1, "V2")[:12])
    commit(store, 7, high, naming="V1")
    assert newest(store) == high
