"""Tables named by a namespace: where they are, and commits through a namespace that manages versions.

Any client with the methods of `lance_namespace` serves, ours as well as the official ones. A namespace that
answers `managed_versioning` publishes the versions itself: a commit then puts its manifest beside the final
one, as `_versions/<name>-<uuid>`, and asks for it to be published (namespace pack, section 9).

Invariants, with their tests in tests/dataset/test_namespace_client.py:
1. Nothing is written under the final name of a manifest but by the namespace.
2. What the namespace refuses by name leaves nothing, not even the staged file; of what it fails at otherwise
   the storage decides: our bytes stand there, or others', or nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tiltyard import runtime
from tiltyard.dataset import arguments
from tiltyard.errors import InvalidInput, InvalidUri, ObjectNotFound, StoreError
from tiltyard.format.names import VERSIONS_DIR, parse_manifest_name
from tiltyard.store import Created, Store, object_key
from tiltyard.store.content import buffers_of
from tiltyard.store.uri import options_for

if TYPE_CHECKING:
    from tiltyard.store.protocol import Bytes

CONFLICT = 14
"""The interface's code of a version that is taken or not the next one."""
REFUSALS = frozenset((0, 1, 4, 13, 15, 16, 19, 21, 22))
"""Codes that say that nothing was done and why."""


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table as a namespace names it: the client, the id, where it is, options for its storage, and whether
    the namespace publishes its versions.
    """

    client: Any
    id: tuple[str, ...]
    uri: str
    storage_options: dict[str, Any] | None
    managed: bool

    def store(self, store: Store) -> Store:
        """The table's store, with commits through the namespace where that manages versions."""
        return managed_store(store, self.client, self.id) if self.managed else store


def named(
    uri: Any, client: Any, table_id: Any, storage_options: Mapping[str, Any] | None, mode: str = "read"
) -> NamedTable | None:
    """The table that a namespace client and an id name; None where a URI is given instead of them.

    `mode`: `create` declares the table, all others describe it. Options that the answer brings come over
    those given; of those the ones that its store does not know are left out. Raises `InvalidInput` unless
    there is either a URI or both of the others, and what the client raises.
    """
    if client is None and table_id is None:
        if uri is None:
            raise InvalidUri("Must specify either 'uri' or both 'namespace_client' and 'table_id'.")
        return None
    if uri is not None:
        raise InvalidInput(
            "Cannot specify both 'uri' and 'namespace_client/table_id'. Please provide either 'uri' or both "
            "'namespace_client' and 'table_id'."
        )
    id = both(client, table_id)
    answer = _asked(client, id, mode)
    location = getattr(answer, "location", None)
    if not location:
        raise InvalidInput(f"the namespace did not return a location for table {list(id)}")
    vended = getattr(answer, "storage_options", None) or {}
    options = dict(storage_options or {})
    options.update(options_for(location, vended))
    managed = getattr(answer, "managed_versioning", None) is True
    return NamedTable(client, id, location, options or None, managed)


def both(client: Any, table_id: Any) -> tuple[str, ...]:
    """The id, where both are given; raises `InvalidInput` where one of them is missing."""
    if client is None or table_id is None:
        raise InvalidInput("Both 'namespace_client' and 'table_id' must be provided together.")
    found = tuple(arguments.texts("table_id", table_id))
    if not found:
        raise InvalidInput("table_id must name a table, found an empty list")
    if not hasattr(client, "describe_table"):
        raise arguments.wrong("namespace_client", "a client of the lance_namespace interface", client)
    return found


def check_pair(client: Any, table_id: Any) -> None:
    """Raise `InvalidInput` where only one of the two is given."""
    if client is not None or table_id is not None:
        both(client, table_id)


def _asked(client: Any, id: tuple[str, ...], mode: str) -> Any:
    import lance_namespace as interface  # whoever has a client has loaded it

    if mode == "create":
        return client.declare_table(interface.DeclareTableRequest(id=list(id), location=None))
    return client.describe_table(interface.DescribeTableRequest(id=list(id), version=None))


# -- commits through the namespace ---------------------------------------------------------------


class _Request(dict[str, Any]):
    """A request as native and Python clients take it: a dict of what is set, which can be dumped."""

    def model_dump(self) -> dict[str, Any]:
        return dict(self)


class ManagedStore:
    """A store whose manifests a namespace publishes; everything else it leaves to the store below."""

    def __init__(self, store: Store, client: Any, id: tuple[str, ...]) -> None:
        self._store = store
        self.namespace = (client, id)
        self._refused: dict[str, BaseException] = {}

    def __getattr__(self, name: str) -> Any:
        if name == "_store":  # while a copy is being made
            raise AttributeError(name)
        return getattr(self._store, name)

    @property
    def identity(self) -> str:
        """Another one than that of the store below: commits of the two ways are not combined."""
        return f"{self._store.identity} published by {self.namespace[0].namespace_id()}"

    @contextmanager
    def together(self) -> Iterator[ManagedStore]:
        with self._store.together() as store:
            yield ManagedStore(store, *self.namespace)

    def create(self, path: str, data: Bytes | Sequence[Bytes]) -> Created:
        directory, _, name = path.rpartition("/")
        parsed = parse_manifest_name(name) if directory == VERSIONS_DIR else None
        if parsed is None or parsed[1] == "detached":
            return self._store.create(path, data)
        self._refused.pop(path, None)
        parts: Sequence[Any] = buffers_of(data)
        content = b"".join(bytes(memoryview(each)) for each in parts)
        staged = f"{path}-{runtime.uuid4()}"
        try:
            self._store.put(staged, content)
        except StoreError as error:
            self._refused[path] = error
            return Created.NOT_DONE
        client, id = self.namespace
        request = _Request(
            id=list(id),
            version=parsed[0],
            manifest_path=object_key(self._store, staged),
            manifest_size=len(content),
            naming_scheme=parsed[1],
        )
        try:
            client.create_table_version(request)
        except Exception as error:  # whatever a client raises: the code says what it means
            return self._refusal(path, staged, content, error)
        with suppress(StoreError):
            self._store.delete(staged)  # mostly gone already
        return Created.WON

    def _refusal(self, path: str, staged: str, content: bytes, error: Exception) -> Created:
        code = getattr(error, "code", None)
        self._refused[path] = error
        if code in REFUSALS:
            self._tidy(staged)
            return Created.NOT_DONE
        try:
            found = self._store.read(path).to_pybytes()
        except ObjectNotFound:
            if code == CONFLICT:  # not the next version: look again
                self._tidy(staged)
                return Created.EXISTS
            return Created.UNKNOWN
        except StoreError:
            return Created.UNKNOWN
        self._tidy(staged)
        return Created.WON if found == content else Created.EXISTS

    def _tidy(self, staged: str) -> None:
        with suppress(StoreError):  # it is in nobody's way, and a cleanup takes it
            self._store.delete(staged)

    def failure(self, path: str) -> BaseException | None:
        return self._refused.get(path) or self._store.failure(path)


def managed_store(store: Store, client: Any, id: tuple[str, ...]) -> Store:
    """The store with commits through a namespace."""
    return cast(Store, ManagedStore(store, client, id))
