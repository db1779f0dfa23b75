"""Objects in a bucket, or below a prefix of one. See `protocol.py` for what is promised.

There are no directories here: no times of them, no renaming, no turnstile, and nothing to sync. Times are
told to the second by most services; the tag is what the service calls the content, with that time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from tiltyard.errors import CorruptFile, ObjectNotFound, StoreUnavailable, UnsupportedFeature
from tiltyard.store.account import READS
from tiltyard.store.content import buffers_of, flat
from tiltyard.store.failures import Failures
from tiltyard.store.paths import checked, checked_dir, joined
from tiltyard.store.protocol import Created, Listing, Names, ObjectStat, Removed
from tiltyard.store.remote.client import Client, client_of, passing_failures, stamp_ns
from tiltyard.store.remote.coalesce import PART_BYTES, Request, coalesced, pieces
from tiltyard.store.remote.exclusive import create
from tiltyard.store.remote.options import Conditions, Service, parse_options
from tiltyard.store.remote.removing import remove
from tiltyard.store.remote.upload import RemoteWriter

if TYPE_CHECKING:
    from tiltyard.store.protocol import Bytes

REQUESTS_AT_ONCE = 8
"""Ranges of one read that are fetched side by side."""
LISTED_AT_ONCE = 1000

_PLACES = ("endpoint", "base_url", "account_name")
"""Options that lead to another object under the same URI."""

_WAYS = {
    Conditions.CHECK: "put if absent",
    Conditions.TRUST: "put if absent",
    Conditions.NONE: "a look and a put: not exclusive",
}


class RemoteStore:
    """A prefix of a bucket; it need not exist before the first write."""

    durable = True
    ranged = True
    """Large objects are not to be read whole where a few ranges do (`protocol.Paged`)."""

    def __init__(self, client: Client, uri: str, prefix: str = "") -> None:
        self.client = client
        self.uri = uri
        self._prefix = prefix
        self._failures = Failures()
        named = [f"{name}={value}" for name in _PLACES if (value := client.options.get(name))]
        self.identity = f"{uri}?{'&'.join(named)}" if named else uri

    def __repr__(self) -> str:
        return f"RemoteStore({self.uri!r})"

    def __reduce__(self) -> tuple[object, ...]:
        client = self.client
        return _reopen, (
            type(self),
            client.service,
            client.bucket,
            client.options.given,
            self.uri,
            self._prefix,
        )

    @property
    def storage_options(self) -> dict[str, str]:
        """What opens the same store again; with its credentials, if they were given."""
        return dict(self.client.options.given)

    def full(self, path: str) -> str:
        """The key of an object."""
        return joined(self._prefix, checked(path))

    # -- reading ---------------------------------------------------------------------------------

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        if start < 0 or length is None:
            data, size = self._end(path, start)
            if length is None:
                return data
            start = max(0, size + start)
            if length < 0 or start + length > size:
                raise _outside(self.uri, path, start, length, size)
            return data[:length]
        return self.read_ranges(path, [(start, length)])[0]

    def _end(self, path: str, start: int) -> tuple[pa.Buffer, int]:
        """The object from `start` on, and its size; a negative start counts from the end."""
        import obstore

        key, handle = self.full(path), self.client.handle
        options: Any = None
        if start > 0:
            options = {"range": {"offset": start}}
        elif start < 0 and self.client.service is not Service.AZURE:  # which has no ranges from the end
            options = {"range": {"suffix": -start}}

        def get() -> tuple[Any, int, int]:
            found = obstore.get(handle, key, options=options)
            return found.bytes(), found.range[0], found.meta["size"]

        def fetch() -> tuple[pa.Buffer, int]:
            try:
                data, first, size = get()
            except passing_failures() as error:
                if options is None:
                    raise
                # The range may begin behind the end, or the object be empty: how long is it?
                size = obstore.head(handle, key)["size"]
                if start > size:
                    raise _outside(self.uri, path, start, 0, size) from error
                if size and start != size:
                    raise
                data, first = b"", size
            if len(data) != size - first:
                raise _cut_short(self.uri, path, len(data), size - first)
            READS.add(len(data))
            buffer = pa.py_buffer(data)
            skipped = max(0, size + start) - first if start < 0 else 0
            return buffer[skipped:] if skipped > 0 else buffer, size

        return self.client.call("read", key, fetch)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        key = self.full(path)
        for start, length in ranges:
            if start < 0 or length < 0:
                raise _outside(self.uri, path, start, max(length, 0), self.stat(path).size)
        requests = coalesced(ranges)
        if not requests or any(not length for _, length in ranges):  # what no request asks for is looked at
            size = self.stat(path).size
            for start, length in ranges:
                if start + length > size:
                    raise _outside(self.uri, path, start, length, size)
        answers = self._fetched(path, key, requests)
        return [_put_together(answers, pieces(requests, start, length)) for start, length in ranges]

    def _fetched(self, path: str, key: str, requests: Sequence[Request]) -> list[pa.Buffer]:
        out: list[pa.Buffer] = []
        for first in range(0, len(requests), REQUESTS_AT_ONCE):
            some = requests[first : first + REQUESTS_AT_ONCE]
            out += self.client.call("read", key, lambda some=some: self._wave(path, key, some))  # type: ignore[misc]
        return out

    def _wave(self, path: str, key: str, requests: Sequence[Request]) -> list[pa.Buffer]:
        """The answers of some requests, sent side by side."""
        import obstore

        handle = self.client.handle
        starts, ends = [each.start for each in requests], [each.end for each in requests]
        try:
            answers = obstore.get_ranges(handle, key, starts=starts, ends=ends, coalesce=0)
        except passing_failures():
            self._within(path, key, requests)  # a range beyond the end fails like this, too
            raise
        out = []
        for request, data in zip(requests, answers, strict=True):
            if len(data) != request.end - request.start:
                self._within(path, key, requests)
                raise _cut_short(self.uri, path, len(data), request.end - request.start)
            READS.add(len(data))
            out.append(pa.py_buffer(data))
        return out

    def _within(self, path: str, key: str, requests: Sequence[Request]) -> None:
        """Raise CorruptFile if a request lies not wholly within the object."""
        import obstore

        size = obstore.head(self.client.handle, key)["size"]
        for each in requests:
            if each.end > size:
                raise _outside(self.uri, path, each.start, each.end - each.start, size)

    def map(self, path: str, size: int | None = None) -> pa.Buffer:
        if size is None or size <= PART_BYTES:
            data, found = self._end(path, 0)
        else:
            found = self.stat(path).size
            data = self.read(path, 0, size) if found == size else None
        if size is not None and found != size:
            raise CorruptFile(
                f"the object has {found} bytes where {size} were recorded", f"{self.uri}/{path}"
            )
        return data

    def stat(self, path: str) -> ObjectStat:
        import obstore

        key = self.full(path)
        return _described(path, self.client.call("find", key, lambda: obstore.head(self.client.handle, key)))

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except ObjectNotFound:
            return False
        return True

    def list(self, prefix: str = "", start_after: str = "") -> Listing:
        self._listable()
        directory = joined(self._prefix, checked_dir(prefix))
        after = joined(self._prefix, start_after) if start_after else None
        found = self.client.call("list", directory, lambda: self._walk(directory, after))
        found.sort(key=lambda one: one.path)
        return found

    def _walk(self, directory: str, after: str | None, pages: int | None = None) -> Listing:
        import obstore

        cut = len(self._prefix) + 1 if self._prefix else 0
        within = f"{directory}/" if directory else ""
        found: Listing = []
        furthest = ""
        listed = obstore.list(self.client.handle, directory or None, offset=after, chunk_size=LISTED_AT_ONCE)
        for some in islice(listed, pages):
            last = max((one["path"] for one in some), default=furthest)
            if last <= furthest and self.client.lists_in_order:
                raise StoreUnavailable(f"{self.uri}: the listing of {directory!r} comes to {last!r} again")
            furthest = last
            for one in some:
                key = one["path"]
                if key.startswith(within) and (after is None or key > after):
                    found.append(_described(key[cut:], one))
        return found

    def first_page(self, directory: str) -> tuple[Listing, bool]:
        """See `protocol.Paged`. What lists in no order is listed whole."""
        if self.client.lists_in_order:
            full = joined(self._prefix, checked_dir(directory))
            found = self.client.call("list", full, lambda: self._walk(full, None, pages=1))
        else:
            found = self.list(directory)
        return found, not self.client.lists_in_order or len(found) < LISTED_AT_ONCE

    def list_names(self, directory: str = "") -> Names:
        import obstore

        self._listable()
        full = joined(self._prefix, checked_dir(directory))
        found = self.client.call(
            "list", full, lambda: obstore.list_with_delimiter(self.client.handle, full or None)
        )
        cut = len(full) + 1 if full else 0
        names = {key[cut:] for key in found["common_prefixes"]}
        names.update(one["path"][cut:] for one in found["objects"])
        names.discard("")
        return sorted(names)

    def dir_stat(self, directory: str) -> int | None:
        if not self.list_names(directory):
            raise ObjectNotFound(f"cannot find {self.uri}/{directory}: there is no such directory")
        return None

    def now_ns(self) -> int:
        return self.client.now_ns(self._prefix)

    # -- writing ---------------------------------------------------------------------------------

    def create(self, path: str, data: Bytes | Sequence[Bytes]) -> Created:
        key = self.full(path)
        self._writable("create", path)
        answer, cause = create(self.client, key, _content(data))
        self._failures.note(path, cause)
        return answer

    def failure(self, path: str) -> BaseException | None:
        return self._failures.get(path)

    @property
    def create_mode(self) -> str:
        return _WAYS[self.client.options.conditions]

    def put(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        import obstore

        key, content = self.full(path), _content(data)
        self._writable("write", path)
        self.client.call(
            "write", key, lambda: obstore.put(self.client.handle, key, content, use_multipart=False)
        )

    def writer(self, path: str) -> RemoteWriter:
        checked(path)
        self._writable("write", path)
        return RemoteWriter(self, path)

    def write_hint(self, path: str, data: bytes, *, sync: bool = False) -> None:
        self.put(path, data)

    def copy_create(self, source: str, target: str) -> Created:
        return self.create(target, [self.map(source)])

    def move_dir(self, source: str, target: str) -> Created:
        checked(source)
        checked(target)
        raise UnsupportedFeature(
            f"cannot move {self.uri}/{source}: an object store has no step that renames a directory"
        )

    def delete(self, path: str) -> bool:
        if not self.exists(path):
            return False
        for error in self.delete_many([path]).failed.values():
            raise error
        return True

    def delete_many(self, paths: Sequence[str]) -> Removed:
        keys = {self.full(path): path for path in paths}
        if keys:
            self._writable("remove", paths[0])
        failed = {keys[key]: error for key, error in remove(self.client, list(keys)).items()}
        return Removed(frozenset(path for path in paths if path not in failed), failed)

    def delete_tree(self, directory: str) -> None:
        self.delete_many([one.path for one in self.list(directory)]).check()

    def sync_dir(self, directory: str) -> None:
        checked_dir(directory)

    @contextmanager
    def together(self) -> Iterator[Self]:
        yield self  # each object is durable when its request is answered

    @contextmanager
    def turnstile(self, directory: str, seconds: float) -> Iterator[bool]:
        checked_dir(directory)
        yield False

    def at(self, prefix: str) -> Self:
        path = checked_dir(prefix)
        if not path:
            return self
        below = type(self).__new__(type(self))  # a store derived from this one is that below, too
        below.__dict__.update(self.__dict__)
        uri = f"{self.uri}/{path if self.client.service is Service.HTTP else _quoted(path)}"
        RemoteStore.__init__(below, self.client, uri, joined(self._prefix, path))
        return below

    def successor(self) -> Self | None:
        return None

    def _listable(self) -> None:
        if self.client.service is Service.HTTP:
            raise UnsupportedFeature(
                f"{self.uri}: a web server does not list what it has; name the version: "
                "dataset(uri, version=...)"
            )

    def _writable(self, verb: str, path: str) -> None:
        if self.client.service is Service.HTTP:
            raise UnsupportedFeature(f"cannot {verb} {self.uri}/{path}: over HTTP, stores are only read")


def _quoted(path: str) -> str:
    """A path as it stands in a URI that is decoded when it is opened."""
    return path.replace("%", "%25").replace("?", "%3F").replace("#", "%23")


def _content(data: Bytes | Sequence[Bytes]) -> bytes:
    return b"".join([flat(buffer) for buffer in buffers_of(data)])


def _described(path: str, found: Mapping[str, Any]) -> ObjectStat:
    made = stamp_ns(found)
    tag = f"{(found['e_tag'] or '').strip(chr(34))}-{found['size']}-{made // 1_000_000_000:x}"
    return ObjectStat(path, found["size"], made, made, tag)


def _put_together(answers: Sequence[pa.Buffer], parts: Sequence[tuple[int, int, int]]) -> pa.Buffer:
    """One range out of the answers that hold it."""
    if len(parts) == 1:
        number, offset, length = parts[0]
        return answers[number].slice(offset, length)
    if not parts:
        return pa.py_buffer(b"")
    whole = pa.allocate_buffer(sum(length for _, _, length in parts))
    view, at = memoryview(whole), 0
    for number, offset, length in parts:
        view[at : at + length] = memoryview(answers[number])[offset : offset + length]
        at += length
    return whole


def _outside(uri: str, path: str, start: int, length: int, size: int) -> CorruptFile:
    return CorruptFile(
        f"bytes {start} to {start + length} were asked for, but the object has {size}", f"{uri}/{path}"
    )


def _cut_short(uri: str, path: str, found: int, expected: int) -> StoreUnavailable:
    return StoreUnavailable(f"{uri}/{path}: {found} bytes came where {expected} were asked for")


def _reopen(
    kind: type[RemoteStore],
    service: Service,
    bucket: str,
    given: tuple[tuple[str, str], ...],
    uri: str,
    prefix: str,
) -> RemoteStore:
    return kind(client_of(service, bucket, parse_options(service, dict(given))), uri, prefix)
