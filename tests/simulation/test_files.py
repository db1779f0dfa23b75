"""What a power cut takes from the simulated disk: exactly what was not synced, each thing by itself."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tiltyard.runtime.port import Port
from tiltyard.runtime.scratch import Scratch
from tiltyard.store import Created
from tiltyard.store.exclusive import Way
from tiltyard.testing.simulation.choices import ReplayedChoices
from tiltyard.testing.simulation.files import Files
from tiltyard.testing.simulation.world import FileSystem, Settings, World


class Fixed:
    """Choices that answer a crash's questions from a list, and everything before with 0."""

    def __init__(self, *answers: int) -> None:
        self.taken: list[int] = []
        self._answers = list(answers)

    def choose(self, options: int, chance: float, *, forced: bool = False) -> int:
        answer = min(self._answers.pop(0), options - 1) if self._answers else 0
        self.taken.append(answer)
        return answer


def after_crash(world: World, *answers: int) -> dict[str, bytes]:
    world.files.lose_power(Fixed(*answers))
    return dict(world.files.tree())


def test_what_create_says_is_there_survives_every_crash() -> None:
    for answers in itertools.product((0, 1, 2), repeat=4):
        made = World(ReplayedChoices(()), Settings())
        with made.installed():
            assert made.calmly("a", lambda: made.store().create("d/x", b"content")) is Created.WON  # noqa: B023
        assert after_crash(made, *answers) == {"/lake/table/d/x": b"content"}


def test_a_directory_that_others_made_anew_under_its_name_survives_too() -> None:
    for answers in itertools.product((0, 1, 2), repeat=4):
        made = World(ReplayedChoices(()), Settings())

        def act() -> None:
            root = made.store()  # noqa: B023
            assert root.at("t").create("d/x", b"1") is Created.WON
            assert root.move_dir("t", "aside") is Created.WON
            made.port.mkdir("t", made.port.open_dir("/lake/table"))  # noqa: B023
            assert root.at("t").create("d/x", b"2") is Created.WON

        with made.installed():
            made.calmly("a", act)
        left = after_crash(made, *answers)
        assert left == {"/lake/table/aside/d/x": b"1", "/lake/table/t/d/x": b"2"}, answers


def test_unsynced_names_and_content_may_go() -> None:
    seen = set()
    for answers in itertools.product((0, 1, 2), repeat=4):
        made = World(ReplayedChoices(()), Settings())

        def act() -> None:
            port = made.port  # noqa: B023
            port.mkdir("/d")
            root = port.open_dir("/")
            port.fsync_dir(root)
            directory = port.open_dir("/d")
            fd = port.open_new("x", directory)
            port.write(fd, [b"content"])

        with made.installed():
            made.calmly("a", act)
        seen.add(tuple(after_crash(made, *answers).items()))
    assert seen == {
        (),
        (("/d/x", b""),),
        (("/d/x", b"con"),),
        (("/d/x", b"content"),),
    }


def crashed(act: Any, *answers: int) -> tuple[World, dict[str, bytes]]:
    """A world after `act(port)` and a power cut, and what is left."""
    made = World(ReplayedChoices(()), Settings())
    with made.installed():
        made.calmly("a", lambda: act(made.port))
    return made, after_crash(made, *answers)


def test_what_was_synced_stays_whole_when_more_was_written() -> None:
    """Also where what came later is less than what was there: no half of the whole."""

    def act(port: Port) -> None:
        root = port.open_dir("/")
        fd = port.open_new("x", root)
        port.write(fd, [b"0123456789"])
        port.fdatasync(fd)
        port.fsync_dir(root)
        port.write(fd, [b"abcd"])

    left = {crashed(act, answer)[1]["/x"] for answer in (0, 1, 2)}
    assert left == {b"0123456789", b"0123456789ab", b"0123456789abcd"}


def test_a_patch_is_torn_in_the_part_that_changed() -> None:
    def act(port: Port) -> None:
        root = port.open_dir("/")
        fd = port.open_patch("x", root)
        port.pwrite(fd, b"version 11 of it", 0)
        port.fdatasync(fd)
        port.fsync_dir(root)
        port.pwrite(fd, b"version 22 of", 0)

    left = {crashed(act, answer)[1]["/x"] for answer in (0, 1, 2)}
    assert left == {b"version 11 of it", b"version 22 of it", b"version 22 of it"[:10] + b" of it"}


def test_the_archive_keeps_what_a_power_cut_takes() -> None:
    """Whoever checks compares with what was written, not with what is left of it."""

    def act(port: Port) -> None:
        root = port.open_dir("/")
        fd = port.open_new("x", root)
        port.fsync_dir(root)
        port.write(fd, [b"content"])

    made, left = crashed(act, 1)
    assert left == {"/x": b""}
    assert [(each.path, each.data) for each in made.files.archive] == [("/x", b"content")]


def test_two_names_of_a_file_lose_the_same() -> None:
    def act(port: Port) -> None:
        root = port.open_dir("/")
        fd = port.open_new("x", root)
        port.link("x", "y", root)
        port.fsync_dir(root)
        port.write(fd, [b"content"])

    assert crashed(act, 2)[1] == {"/x": b"con", "/y": b"con"}


def test_spills_lie_on_the_simulated_disk_and_leave_no_name() -> None:
    made = World(ReplayedChoices(()), Settings())

    def act() -> bytes:
        scratch = Scratch()
        scratch.append([b"abc"])
        begin, size = scratch.append([b"de", b"f"])
        whole: bytes = scratch.map().slice(begin, size).to_pybytes()
        scratch.close()
        return whole

    with made.installed():
        assert made.calmly("a", act) == b"def"
    assert "a: open_scratch" in made.scheduler.trace
    assert not dict(made.files.tree())
    assert not made.files.archive


WAYS = {
    FileSystem.WHOLE: Way.LINK_HANDLE,
    FileSystem.NO_UNNAMED_FILES: Way.LINK,
    FileSystem.NO_LINKS_OF_HANDLES: Way.LINK,
    FileSystem.NO_LINKS: Way.RENAME,
    FileSystem.NO_EXCLUSIVE_NAMES: Way.DIRECT,
}


@pytest.mark.parametrize("kind", FileSystem)
def test_each_file_system_leads_to_its_way_of_creation(kind: FileSystem) -> None:
    made = World(ReplayedChoices(()), Settings(file_system=kind))

    def act() -> tuple[Created, Created, str]:
        store = made.store()
        return store.create("d/x", b"1"), store.create("d/x", b"2"), store.create_mode

    with made.installed():
        assert made.calmly("a", act) == (Created.WON, Created.EXISTS, WAYS[kind].value)
    assert dict(made.files.tree()) == {"/lake/table/d/x": b"1"}


def test_removals_that_were_not_synced_may_come_back() -> None:
    made = World(ReplayedChoices(()), Settings())

    def act() -> None:
        store = made.store()
        store.put("x", b"1")
        store.delete("x")

    with made.installed():
        made.calmly("a", act)
    assert after_crash(made, 1) == {"/lake/table/x": b"1"}


def test_a_renamed_directory_has_one_of_its_names_after_a_power_cut() -> None:
    def renamed(*answers: int) -> dict[str, bytes]:
        made = World(ReplayedChoices(()), Settings())

        def act() -> None:
            store = made.store()
            store.put("a/x", b"1")
            store.put("c/x", b"3")
            directory = made.port.open_dir("/lake/table")
            made.port.rename_noreplace("a", "b", directory)
            made.port.rename_noreplace("c", "a", directory)

        with made.installed():
            made.calmly("a", act)
        return after_crash(made, *answers)

    table = "/lake/table"
    for answers in itertools.product((0, 1), repeat=4):
        left = renamed(*answers)
        assert sorted(left.values()) == [b"1", b"3"], answers
        assert f"{table}/a/x" in left or (f"{table}/b/x" in left and f"{table}/c/x" in left)
    assert renamed() == {f"{table}/a/x": b"3", f"{table}/b/x": b"1"}
    assert renamed(1, 1) == {f"{table}/a/x": b"1", f"{table}/c/x": b"3"}


def test_files_without_a_name_and_locks_go_with_their_process() -> None:
    made = World(ReplayedChoices(()), Settings())
    port = made.port

    def holder() -> None:
        directory = port.open_dir("/")
        assert port.try_flock(directory)
        other = port.open_dir("/")
        assert not port.try_flock(other)
        made.scheduler.kill(made.scheduler.running.process)  # type: ignore[union-attr]

    def next_one() -> bool:
        return port.try_flock(port.open_dir("/"))

    with made.installed():
        made.do({"a": holder}, calm=True)
        assert made.calmly("b", next_one)


def test_a_removed_directory_holds_nothing() -> None:
    files = Files()
    made = World(ReplayedChoices(()), Settings())
    port = made.port

    def act() -> None:
        port.mkdir("/d")
        handle = port.open_dir("/d")
        root = port.open_dir("/")
        port.rmdir("d", root)
        assert port.fstat(handle).st_nlink == 0
        for call in (lambda: port.open_new("x", handle), lambda: port.open_tmp(".", handle)):
            with pytest.raises(FileNotFoundError):
                call()

    with made.installed():
        made.calmly("a", act)
    assert not dict(files.tree())


def test_names_can_be_taken_once() -> None:
    made = World(ReplayedChoices(()), Settings())

    def act() -> list[Created]:
        store = made.store()
        return [store.create("x", b"1"), store.create("x", b"2")]

    with made.installed():
        assert made.calmly("a", act) == [Created.WON, Created.EXISTS]


def test_the_shipped_store_model_holds_for_the_simulated_disk() -> None:
    """The real local store over the simulated files, without faults, is a store like any other."""
    made = World(ReplayedChoices(()), Settings())

    def act() -> None:
        store = made.store()
        with store.writer("a/b") as writer:
            writer.write([b"12", b"345"])
            assert writer.commit() == 5
        assert store.read("a/b").to_pybytes() == b"12345"
        assert store.read("a/b", -2).to_pybytes() == b"45"
        assert [each.path for each in store.list("")] == ["a/b"]
        assert store.list_names("") == ["a"]
        assert store.list_names("none") == []
        assert store.move_dir("a", "c") is Created.WON
        assert store.list_names("c") == ["b"]
        store.delete_tree("")
        assert store.list("") == []

    with made.installed():
        made.calmly("a", act)
