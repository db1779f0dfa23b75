"""The probe tells which promise a store breaks, and finds nothing wrong with sound ones."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path
from typing import Any

import pytest

import broken_stores
from tiltyard.errors import InvalidInput, ObjectNotFound, StoreError, UnsupportedFeature
from tiltyard.runtime.port import Port
from tiltyard.store import Created, Store, open_store
from tiltyard.store.exclusive import Way
from tiltyard.store.local import LocalStore
from tiltyard.store.memory import MemoryStore, Space
from tiltyard.testing.faults import Fault, FaultyPort, FaultyStore, Plan, Rule, port_installed, refusing
from tiltyard.testing.probe import Finding, Grade, Report, promises, run
from tiltyard.testing.probe.crew import Crew
from tiltyard.testing.probe.promises import Ground
from tiltyard.testing.probe.run import probe, probe_store


def test_a_local_directory_keeps_every_promise_and_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("stays")
    report = probe(tmp_path)
    assert report.broken == ()
    assert {each.grade for each in report.findings} <= {Grade.KEPT, Grade.UNTRIED}
    assert report.finding(promises.AMONG_PROCESSES).grade is Grade.KEPT
    assert report.finding(promises.TURNSTILE).grade is Grade.KEPT
    assert report.finding(promises.NAMED).seen == Way.LINK_HANDLE.value
    assert all(call.works for call in report.calls)
    assert report.medium.startswith("local file system")
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


def test_memory_keeps_every_promise_that_can_be_asked_of_it() -> None:
    report = probe("memory://probed")
    assert report.broken == ()
    assert report.finding(promises.EXCLUSIVE).grade is Grade.KEPT
    assert report.finding(promises.AMONG_PROCESSES).grade is Grade.UNTRIED
    assert open_store("memory://probed").list_names() == []
    assert probe("memory://").broken == ()


def test_every_check_has_its_names_in_reports() -> None:
    asked = [name for check in promises.CHECKS for name in promises.NAMES[check.__name__]]
    told = [each.promise for each in probe("memory://").findings]
    assert told == [*asked, run.REMOVED]


# -- stores that break one promise ---------------------------------------------------------------


def found(kind: str, promise: str, place: str = "memory://broken") -> Finding:
    """What the check of a promise finds in a broken store."""

    def make() -> Store:
        return broken_stores.opened(kind, [place]).at(kind)

    check = next(each for each in promises.CHECKS if promise in promises.NAMES[each.__name__])
    told = run.asked(check, Ground(make(), make(), make, None), place)
    return next(each for each in told if each.promise == promise)


@pytest.mark.parametrize(
    ("kind", "promise", "seen"),
    [
        ("Overwriting", promises.EXCLUSIVE, "answered 'won', not 'exists'"),
        ("LookingFirst", promises.EXCLUSIVE, "of them won round"),
        ("Unsure", promises.EXCLUSIVE, "answered 'unknown'"),
        ("InHalves", promises.WHOLE, "of 3,145,728 bytes were there"),
        ("RemovingFirst", promises.REPLACED, "gone for a moment"),
        ("ReadingLate", promises.READ, "did not see seen/0/0"),
        ("ListingLate", promises.LISTED, "did not find seen/0/0 listed"),
        ("ListingGhosts", promises.GONE, "still saw seen/0/0"),
        ("CuttingShort", promises.RANGES, "a range of 20 bytes gave 10"),
        ("Wandering", promises.RANGES, "'../x' was taken for a path"),
        ("Unsynced", promises.DURABLE, "cannot be synced"),
        ("StandingStill", promises.TIMES, "left the time as it was"),
        ("RunningAhead", promises.CLOCK, "3600.0"),
        ("MovingOver", promises.MOVED, "put over another"),
    ],
)
def test_a_broken_promise_is_told_with_what_was_seen_and_what_follows(
    kind: str, promise: str, seen: str
) -> None:
    finding = found(kind, promise)
    assert finding.grade is Grade.BROKEN
    assert seen in finding.seen
    assert finding.meaning


class CarelessMemory(MemoryStore):
    def create(self, path: str, data: Any) -> Created:
        self.put(path, data)
        return Created.WON


class CarelessLocal(LocalStore):
    def create(self, path: str, data: Any) -> Created:
        self.put(path, data)
        return Created.WON


class CarelessFaulty(FaultyStore):
    def create(self, path: str, data: Any) -> Created:
        self.put(path, data)
        return Created.WON


@pytest.mark.parametrize("kind", ["memory", "local", "faulty"])
def test_what_a_class_derived_from_a_store_of_ours_does_is_what_is_probed(kind: str, tmp_path: Path) -> None:
    """The probe works in a directory below, which has to be a store of the same class."""
    space = Space("careless")

    def make() -> Store:
        if kind == "local":
            return CarelessLocal(str(tmp_path), durable=False)
        return CarelessMemory(space) if kind == "memory" else CarelessFaulty(MemoryStore(space), Plan(), "")

    broken = [each.promise for each in probe_store(make).broken]
    assert broken == [promises.EXCLUSIVE]
    assert type(make().at("a").at("b")) is type(make())


def test_a_pickled_store_is_of_its_class(tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(CarelessLocal(str(tmp_path)).at("x")))
    assert (type(again), again.uri) == (CarelessLocal, f"{tmp_path}/x")


@pytest.mark.parametrize(("kind", "promise"), [("Timeless", promises.TIMES), ("Unmoving", promises.MOVED)])
def test_what_a_store_lacks_and_we_can_do_without_is_told_and_not_broken(kind: str, promise: str) -> None:
    finding = found(kind, promise)
    assert finding.grade is Grade.SLOWER
    assert finding.meaning


def test_a_directory_that_stays_is_told() -> None:
    report = probe_store(lambda: broken_stores.opened("KeepingAll", ["memory://staying"]))
    assert [each.promise for each in report.broken] == [run.REMOVED]
    again = probe_store(lambda: open_store("memory://staying"))
    assert "an earlier probe left .tiltyard-probe-" in again.finding(run.REMOVED).seen


def test_what_holds_among_threads_only_is_found_by_processes(tmp_path: Path) -> None:
    place = [str(tmp_path), {"durable": False}]
    arguments = ["LookingFirstAlone", place]

    def make() -> Store:
        return broken_stores.opened("LookingFirstAlone", place).at("s")

    with Crew(3, "broken_stores:opened", arguments, "s") as crew:
        ground = Ground(make(), make(), make, crew)
        among = promises.among_processes(ground)
        within = promises.exclusive(ground)
    assert within.grade is Grade.KEPT
    assert among.grade is Grade.BROKEN
    assert "of them won round" in among.seen


@pytest.mark.parametrize("kind", ["LettingAllIn", "LettingNobodyIn"])
def test_a_turnstile_that_does_not_turn_is_told_and_not_broken(tmp_path: Path, kind: str) -> None:
    place = [str(tmp_path), {"durable": False}]

    def make() -> Store:
        return broken_stores.opened(kind, place).at("s")

    with Crew(1, "broken_stores:opened", [kind, place], "s") as crew:
        finding = promises.turnstile(Ground(make(), make(), make, crew))
    assert finding.grade is Grade.SLOWER


def test_a_store_of_ones_own_is_probed_with_processes(tmp_path: Path) -> None:
    place = [str(tmp_path)]
    report = probe_store(
        lambda: broken_stores.opened("Passing", place), processes=("broken_stores:opened", ["Passing", place])
    )
    assert report.broken == ()
    assert report.medium == "Passing"
    assert list(tmp_path.iterdir()) == []


# -- file systems that lack calls ----------------------------------------------------------------


def on(path: Path, plan: Plan) -> Report:
    with port_installed(FaultyPort(plan)):
        return probe_store(lambda: LocalStore(str(path)))


@pytest.mark.parametrize(
    ("missing", "way"),
    [
        (("open_tmp",), Way.LINK),
        (("link_handle",), Way.LINK),
        (("link_handle", "link"), Way.RENAME),
        (("open_tmp", "link", "rename_noreplace"), Way.DIRECT),
    ],
)
def test_the_way_that_is_left_is_named(tmp_path: Path, missing: tuple[str, ...], way: Way) -> None:
    report = on(tmp_path, refusing(**dict.fromkeys(missing, errno.EOPNOTSUPP)))
    assert report.broken == ()
    finding = report.finding(promises.NAMED)
    assert (finding.grade, finding.seen) == (Grade.SLOWER, way.value)
    assert report.finding(promises.WHOLE).grade is (Grade.SLOWER if way is Way.DIRECT else Grade.KEPT)
    refused = [call for call in report.calls if not call.works]
    assert refused
    assert all("EOPNOTSUPP" in call.error or "ENOTSUP" in call.error for call in refused)
    assert all(call.instead for call in refused)


@pytest.mark.parametrize("call", ["fdatasync", "fsync_dir"])
def test_a_sync_that_fails_breaks_the_promise_of_durability(tmp_path: Path, call: str) -> None:
    report = on(tmp_path, refusing(**{call: errno.EINVAL}))
    assert report.finding(promises.DURABLE).grade is Grade.BROKEN
    assert "Invalid argument" in report.finding(promises.DURABLE).seen
    refused = {each.name for each in report.calls if not each.works}
    assert refused == {"sync of a file (fdatasync)" if call == "fdatasync" else "sync of a directory (fsync)"}


def test_durability_that_was_given_up_is_said_to_be_so(tmp_path: Path) -> None:
    finding = probe(tmp_path, {"durable": False}).finding(promises.DURABLE)
    assert finding.grade is Grade.UNTRIED
    assert "power cut" in finding.meaning


def test_a_file_system_in_memory_is_said_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promises, "file_system", lambda path: "tmpfs")

    def make() -> Store:
        return LocalStore(str(tmp_path))

    finding = promises.durable(Ground(make(), make(), make, None))
    assert finding.grade is Grade.UNTRIED
    assert "memory" in finding.seen


class Remote(Port):
    """A port that says of every file system that it is a network's."""

    def is_remote(self, fd: int) -> bool:
        return True


def test_a_network_file_system_lists_instead_of_trusting_times(tmp_path: Path) -> None:
    with port_installed(Remote()):
        report = probe_store(lambda: LocalStore(str(tmp_path)))
    assert report.broken == ()
    assert report.medium.startswith("network or user-space file system (")
    assert report.finding(promises.TIMES).grade is Grade.SLOWER
    assert report.finding(promises.CLOCK).grade is Grade.KEPT
    assert list(tmp_path.iterdir()) == []


# -- places that cannot be probed ----------------------------------------------------------------


def test_a_place_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFound, match="make it first"):
        probe(tmp_path / "none" / "such")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="is a file"):
        probe(tmp_path / "file")
    with pytest.raises(UnsupportedFeature, match="s3"):
        probe("s3+ddb://bucket/path")


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        ("mkdir", errno.EROFS, "cannot be written: .*read-only"),
        ("mkdir", errno.EACCES, "cannot be written: .*permissions"),
        ("write", errno.ENOSPC, "cannot be written: .*free some space"),
        ("mkdir", errno.ENOENT, "cannot be written"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, call: str, code: int, words: str) -> None:
    with pytest.raises(StoreError, match=words):
        on(tmp_path, refusing(**{call: code}))
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_meanwhile_says_nothing_about_the_store(tmp_path: Path) -> None:
    plan = Plan(Rule(Fault.FAIL_BEFORE, "write", at=40, times=None, error=errno.ENOSPC))
    with pytest.raises(StoreError, match=r"cannot probe .*No space left"):
        on(tmp_path, plan)
    assert list(tmp_path.iterdir()) == []
