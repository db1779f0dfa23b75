"""What a power cut takes from the simulated disk: exactly what was not synced, each thing by itself."""

from __future__ import annotations

import itertools

import pytest

from tiltyard.store import Created
from tiltyard.testing.simulation.choices import ReplayedChoices
from tiltyard.testing.simulation.files import Files
from tiltyard.testing.simulation.world import Settings, World


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


def test_removals_that_were_not_synced_may_come_back() -> None:
    made = World(ReplayedChoices(()), Settings())

    def act() -> None:
        store = made.store()
        store.put("x", b"1")
        store.delete("x")

    with made.installed():
        made.calmly("a", act)
    assert after_crash(made, 1) == {"/lake/table/x": b"1"}


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
