"""A test kit for stores: a state machine that does the same to a store and to a dictionary, and compares.

    class TestMyStore(store_machine(lambda: MyStore(...)).TestCase):
        settings = settings(max_examples=30, deadline=None)

Needs hypothesis, which is imported here only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tiltyard.errors import CorruptFile, InvalidInput, ObjectExists, ObjectNotFound, UnsupportedFeature
from tiltyard.store.protocol import MIN_MAP_BYTES, Created, Store

# Names that sort differently as whole paths than part by part ('-' and '.' come before '/'), and other
# programs' names. No name serves both as a directory and as an object.
DIRECTORIES = ["a", "a-b", "a/b", "b", "b/c/d", "_v"]
OBJECTS = ["x", "y.z", ".tmpx", "0" * 20 + ".manifest", "ß"]
BAD_PATHS = ["", "/x", "a//x", "a/../x", "../x", "./x", "x\0y", ".", "a/"]

directories = st.sampled_from(DIRECTORIES)
paths = st.builds(
    lambda d, n: f"{d}/{n}" if d else n, st.sampled_from(["", *DIRECTORIES]), st.sampled_from(OBJECTS)
)
small = st.binary(max_size=40)
contents = st.one_of(small, st.just(bytes(range(256)) * (MIN_MAP_BYTES // 256) + b"tail"))


def _below(directory: str, path: str) -> bool:
    return not directory or path.startswith(directory + "/")


def store_machine(make: Callable[[], Store]) -> type[RuleBasedStateMachine]:
    """A state machine class over fresh stores from `make`."""

    class StoreMachine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.store = make()
            self.model: dict[str, bytes] = {}
            self.tags: dict[str, str] = {}
            self.mapped: list[tuple[Any, bytes]] = []
            self.directories: set[str] = set()  # that ever held something: a local one may stay, empty

        def _made(self, path: str, data: bytes) -> None:
            self.model[path] = data
            parts = path.split("/")[:-1]
            self.directories.update("/".join(parts[: n + 1]) for n in range(len(parts)))

        @rule(path=paths, data=contents, cut=st.integers(0, 40))
        def create(self, path: str, data: bytes, cut: int) -> None:
            answer = self.store.create(path, [data[:cut], memoryview(data)[cut:]])
            assert answer is (Created.EXISTS if path in self.model else Created.WON), self.store.failure(path)
            if answer is Created.WON:
                self._made(path, data)

        @rule(path=paths, data=contents)
        def put(self, path: str, data: bytes) -> None:
            tag = self.store.stat(path).tag if path in self.model else None
            self.store.put(path, data)
            assert self.store.stat(path).tag != tag or self.model[path] == data
            self._made(path, data)

        @rule(path=paths, others=st.lists(paths, max_size=2), data=small)
        def together(self, path: str, others: list[str], data: bytes) -> None:
            with self.store.together() as store:
                answer = store.create(path, data)
                assert answer is (Created.EXISTS if path in self.model else Created.WON), store.failure(path)
                if answer is Created.WON:
                    self._made(path, data)
                for other in others:
                    store.put(other, data)
                    self._made(other, data)
                assert bytes(self.store.read(path)) == self.model[path]

        @rule(path=paths, pieces=st.lists(small, max_size=4), commit=st.booleans())
        def stream(self, path: str, pieces: list[bytes], commit: bool) -> None:
            if path in self.model:
                try:
                    with self.store.writer(path) as writer:
                        writer.write(pieces)
                        writer.commit()
                except ObjectExists:
                    return
                raise AssertionError(f"a writer for the taken {path}")
            with self.store.writer(path) as writer:
                for piece in pieces:
                    reused = bytearray(piece)
                    writer.write([reused, b""])
                    reused[:] = b"\xff" * len(reused)
                assert writer.position == sum(map(len, pieces))
                if commit:
                    assert writer.commit() == writer.position
                    self._made(path, b"".join(pieces))
            self.directories.update("/".join(path.split("/")[:n]) for n in range(1, path.count("/") + 1))
            assert self.store.exists(path) == commit

        @rule(path=paths, data=st.binary(min_size=1, max_size=12))
        def write_hint(self, path: str, data: bytes) -> None:
            if len(self.model.get(path, b"")) < MIN_MAP_BYTES:  # a map of it may be alive
                self.store.write_hint(path, data)
                self._made(path, data)

        @rule(path=paths)
        def delete(self, path: str) -> None:
            assert self.store.delete(path) == (self.model.pop(path, None) is not None)

        @rule(some=st.lists(paths, max_size=5, unique=True))
        def delete_many(self, some: list[str]) -> None:
            there = {path for path in some if path in self.model}
            done = self.store.delete_many(some)
            assert there <= done.paths <= set(some)
            assert not done.failed
            self.model = {path: data for path, data in self.model.items() if path not in there}

        @rule(directory=directories)
        def delete_tree(self, directory: str) -> None:
            self.store.delete_tree(directory)
            self.model = {path: data for path, data in self.model.items() if not _below(directory, path)}

        @rule(source=paths, to=paths)
        def copy_create(self, source: str, to: str) -> None:
            if source not in self.model:
                self._absent(lambda: self.store.copy_create(source, to))
                return
            answer = self.store.copy_create(source, to)
            assert answer is (Created.EXISTS if to in self.model else Created.WON)
            if answer is Created.WON:
                self._made(to, self.model[source])

        @rule(source=directories, to=st.sampled_from([*DIRECTORIES, "m/n"]))
        def move_dir(self, source: str, to: str) -> None:
            moving = {path: data for path, data in self.model.items() if _below(source, path)}
            if not moving or _below(source, to + "/") or _below(to, source + "/"):
                return
            taken = any(_below(to, path) for path in self.model)
            try:
                answer = self.store.move_dir(source, to)
            except UnsupportedFeature:  # an object store
                return
            if taken:
                assert answer is Created.EXISTS
            elif to not in self.directories:
                assert answer is Created.WON
            if answer is Created.WON:
                for path, data in moving.items():
                    del self.model[path]
                    self._made(to + path[len(source) :], data)
                # directories that stand empty below the source go along
                held = {name for name in self.directories if _below(source, name)}
                self.directories.update({to}, (to + name[len(source) :] for name in held))

        @rule(path=paths, start=st.integers(-50, 50), length=st.none() | st.integers(0, 50))
        def read(self, path: str, start: int, length: int | None) -> None:
            if path not in self.model:
                self._absent(lambda: self.store.read(path, start, length))
                return
            data = self.model[path]
            first = max(0, len(data) + start) if start < 0 else start
            end = len(data) if length is None else first + length
            try:
                found = self.store.read(path, start, length).to_pybytes()
            except CorruptFile:
                assert end > len(data) or first > len(data)
            else:
                assert first <= end <= len(data)
                assert found == data[first:end]

        @rule(path=paths, ranges=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=4))
        def read_ranges(self, path: str, ranges: list[tuple[int, int]]) -> None:
            if path not in self.model:
                self._absent(lambda: self.store.read_ranges(path, ranges))
                return
            data = self.model[path]
            try:
                found = [buffer.to_pybytes() for buffer in self.store.read_ranges(path, ranges)]
            except CorruptFile:
                assert any(start + length > len(data) for start, length in ranges)
            else:
                assert found == [data[start : start + length] for start, length in ranges]

        @rule(path=paths, right=st.booleans())
        def map_whole(self, path: str, right: bool) -> None:
            if path not in self.model:
                self._absent(lambda: self.store.map(path))
                return
            data = self.model[path]
            buffer = self.store.map(path, len(data) if right else None)
            self.mapped.append((buffer, data))
            for wrong in (len(data) + 1, len(data) - 1):
                if wrong >= 0:
                    try:
                        self.store.map(path, wrong)
                    except CorruptFile:
                        continue
                    raise AssertionError(f"{path} has {len(data)} bytes and was mapped as {wrong}")

        @rule(path=paths)
        def stat(self, path: str) -> None:
            if path not in self.model:
                self._absent(lambda: self.store.stat(path))
                assert not self.store.exists(path)
                return
            facts = self.store.stat(path)
            assert (facts.path, facts.size) == (path, len(self.model[path]))
            assert self.store.exists(path)

        @rule(directory=directories)
        def below(self, directory: str) -> None:
            inner = self.store.at(directory)
            expected = {p[len(directory) + 1 :]: d for p, d in self.model.items() if _below(directory, p)}
            assert [one.path for one in inner.list()] == sorted(expected)
            for path, data in expected.items():
                assert inner.read(path).to_pybytes() == data
            with inner.turnstile("", 0.0):
                assert not self.store.exists(directory)

        @rule(directory=directories, start_after=paths)
        def list_from(self, directory: str, start_after: str) -> None:
            expected = sorted(p for p in self.model if _below(directory, p) and p > start_after)
            assert [one.path for one in self.store.list(directory, start_after)] == expected

        @rule(path=st.sampled_from(BAD_PATHS))
        def refuse(self, path: str) -> None:
            for call in (
                lambda: self.store.read(path),
                lambda: self.store.create(path, b"1"),
                lambda: self.store.put(path, b"1"),
                lambda: self.store.writer(path),
                lambda: self.store.delete(path),
                lambda: self.store.delete_many(["a/x", path]),
                lambda: self.store.stat(path),
            ):
                try:
                    call()
                except InvalidInput:
                    continue
                raise AssertionError(f"{path!r} was taken for a path")

        @precondition(lambda self: self.mapped)
        @rule()
        def forget_maps(self) -> None:
            self.mapped.clear()

        def _absent(self, call: Callable[[], Any]) -> None:
            try:
                call()
            except ObjectNotFound:
                return
            raise AssertionError("an object that is not there was found")

        @invariant()
        def lists_what_is_there(self) -> None:
            listed = self.store.list()
            assert [(one.path, one.size) for one in listed] == [
                (path, len(self.model[path])) for path in sorted(self.model)
            ]
            for directory in ("", "a", "b"):
                names = self.store.list_names(directory)
                cut = len(directory) + 1 if directory else 0
                expected = {path[cut:].split("/")[0] for path in self.model if _below(directory, path)}
                assert names == sorted(names)
                assert expected <= set(names)
                for extra in set(names) - expected:  # only directories that were emptied
                    assert (f"{directory}/{extra}" if directory else extra) in self.directories

        @invariant()
        def maps_do_not_change(self) -> None:
            for buffer, data in self.mapped:
                assert buffer.size == len(data)
                assert bytes(memoryview(buffer)[:64]) == data[:64]

    return StoreMachine
