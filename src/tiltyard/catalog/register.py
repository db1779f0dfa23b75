"""The register: the `__manifest` table of a catalog root, one row per object (namespace pack, sections 2.2
and 2.3).

Invariants, checked by tests/catalog/test_register.py:
1. Reading creates nothing.
2. What is served is the newest version at some moment of the call: what was read before stands only where one
   look at the directory says that nothing came after it, never because the next version is not there (a
   cleanup may have taken that away).
3. Every shape that the format allows is read: several fragments, deletions, columns of other writers.
4. A register with flags that we do not know is not read, respectively not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tiltyard import runtime
from tiltyard.catalog.added import followed
from tiltyard.catalog.names import REGISTER
from tiltyard.catalog.old_files import is_due, remove_old_files
from tiltyard.catalog.rivals import Rivals
from tiltyard.catalog.rows import REPAIR, Rows, batch_of
from tiltyard.errors import (
    CatalogDamaged,
    InvalidInput,
    ObjectNotFound,
    StoreError,
    TableNotFound,
    UnsupportedFeature,
)
from tiltyard.file.reader import read_file
from tiltyard.format import names
from tiltyard.format.field import PRIMARY_KEY_POSITION
from tiltyard.format.manifest import encode_manifest
from tiltyard.format.names import data_path
from tiltyard.format.operations import Overwrite
from tiltyard.format.schema import Schema
from tiltyard.format.transaction import Transaction
from tiltyard.store import Created, Store
from tiltyard.table.apply import NewTable, apply
from tiltyard.table.hint import write_hint
from tiltyard.table.hole import HOLE_CHECK_SECONDS
from tiltyard.table.publish import Publish, create_manifest
from tiltyard.table.scan import Scan
from tiltyard.table.snapshot import Snapshot, open_latest
from tiltyard.table.turnstile import TURNSTILE_SECONDS
from tiltyard.table.versions import RACY_NS

if TYPE_CHECKING:
    from tiltyard.session import Session

READER_FLAGS = "lance.namespace.manifest.reader_feature_flags"
WRITER_FLAGS = "lance.namespace.manifest.writer_feature_flags"
DELETED = "lance.namespace.manifest.deleted"
KNOWN_FLAGS = 0
MAX_MASK_DIGITS = 20
MAX_SHOWN = 40
"""Characters of a value in a message."""
"""Bits of both masks that this version knows."""

DATA_VERSION = "2.2"
"""Version of the data files of a register that we make; one that stands keeps its own."""

LATE_SECONDS = 1.0
"""See `RegisterTable.of_late`."""

REGISTER_BYTES_PER_ROW = 400
"""What the lists and the index of a row take beside its columns (bytes, roughly)."""


@dataclass(frozen=True, slots=True)
class Register:
    """One version of the register; 0 and no rows where there is none. `metadata` is the table's metadata:
    flags, properties of the root, records of dropped and moved tables.
    """

    version: int
    rows: Rows
    metadata: Mapping[str, str]
    snapshot: Snapshot | None


@cache
def arrow_schema() -> Any:
    """The Arrow schema of a register's five columns."""
    return pa.schema(
        [
            pa.field("object_id", pa.string(), False),
            pa.field("object_type", pa.string(), False),
            pa.field("location", pa.string()),
            pa.field("metadata", pa.string()),
            pa.field("base_objects", pa.list_(pa.field("object_id", pa.string()))),
        ]
    )


@cache
def table_schema() -> Schema:
    """The schema of a new register."""
    return with_key(Schema.from_arrow(arrow_schema()))


def with_key(schema: Schema) -> Schema:
    """The schema with its first column, the object id, marked as the key, at position 0 as others do."""
    key = schema.fields[0]
    marked = replace(key, metadata={**key.metadata, PRIMARY_KEY_POSITION: "0"}, primary_key=True)
    return Schema((marked, *schema.fields[1:]), schema.metadata)


@cache
def absent() -> Register:
    """What a root without a register has."""
    return Register(0, Rows(batch_of([], arrow_schema())), {}, None)


# -- feature flags -------------------------------------------------------------------------------


def check_reader(metadata: Mapping[str, str], where: str) -> None:
    """Refuse to read a register that needs more than we know. Raises `UnsupportedFeature`."""
    deleted = metadata.get(DELETED, "false")
    if deleted == "true":
        raise UnsupportedFeature(f"the catalog at {where} was deleted as a whole by a newer program")
    if deleted != "false":
        raise UnsupportedFeature(
            f"the catalog at {where} says {DELETED} = {deleted!r}, expected true or false"
        )
    _check_mask(metadata, READER_FLAGS, where, "read")


def check_writer(metadata: Mapping[str, str], where: str) -> None:
    """Refuse to change a register that needs more than we know. Raises `UnsupportedFeature`."""
    check_reader(metadata, where)
    _check_mask(metadata, WRITER_FLAGS, where, "changed")


def _check_mask(metadata: Mapping[str, str], key: str, where: str, done: str) -> None:
    text = metadata.get(key, "0")
    digits = text.lstrip("0") or text[-1:]  # of a number of thousands `int` makes none
    if not (text.isascii() and text.isdigit() and len(digits) <= MAX_MASK_DIGITS and int(digits) < 1 << 64):
        raise UnsupportedFeature(
            f"the catalog at {where} says {key} = {text[:MAX_SHOWN]!r}{'...' * (len(text) > MAX_SHOWN)}, "
            "expected a decimal number of 64 bits"
        )
    unknown = int(digits) & ~KNOWN_FLAGS
    if unknown:
        raise UnsupportedFeature(
            f"the catalog at {where} can only be {done} by programs that know its features (bits of "
            f"{unknown:#x} in {key}): use a newer version of tiltyard or the program that wrote it"
        )


# -- reading -------------------------------------------------------------------------------------


def load(snapshot: Snapshot) -> Register:
    """The register of a version of the table. Raises `UnsupportedFeature`, `CatalogDamaged`, and what reading
    files raises.
    """
    metadata = snapshot.manifest.table_metadata
    check_reader(metadata, snapshot.store.uri)
    columns = _columns(snapshot)
    arrays, fields = [], []
    for expected in arrow_schema():
        array = columns.pop(expected.name, None)
        if array is None:
            if not expected.nullable:
                raise CatalogDamaged(
                    f"{snapshot.store.uri} has no column {expected.name!r}: it is no register of a catalog; "
                    "move it away, and the catalog begins anew"
                )
            array = pa.nulls(snapshot.manifest.num_rows, expected.type)
        arrays.append(_cast(array, expected, snapshot))
        fields.append(expected)
    for name, array in columns.items():  # of other writers
        arrays.append(_sound(array, name, snapshot))
        fields.append(snapshot.schema.field((name,)).arrow_field)
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    return Register(snapshot.version, Rows(batch), metadata, snapshot)


def load_after(before: Register, snapshot: Snapshot) -> Register:
    """As `load`, where an earlier version is known."""
    rows = None if before.snapshot is None else followed(before.snapshot, before.rows, snapshot)
    if rows is None:
        register = load(snapshot)
        register.rows.learn(before.rows)
        return register
    metadata = snapshot.manifest.table_metadata
    check_reader(metadata, snapshot.store.uri)
    return Register(snapshot.version, rows, metadata, snapshot)


def _columns(snapshot: Snapshot) -> dict[str, Any]:
    """Every column as one array: straight from the one file that a register usually has, else by a scan."""
    schema, fragments = snapshot.schema, list(snapshot.fragments)
    if len(fragments) == 1 and len(fragments[0].files) == 1:
        fragment, file = fragments[0], fragments[0].files[0]
        plain = file.base_id is None and not fragment.overlays and fragment.row_ids is None
        if plain and fragment.deletion is None and not file.is_legacy:
            path = data_path(file.path)
            # Not through the session's readers: the file is read once, the next version has another.
            reader = read_file(snapshot.store.map(path, file.size), path, snapshot.session)
            numbers = dict(zip(file.fields, file.column_indices, strict=True))
            return dict(zip(schema.names, reader.read(schema.fields, numbers, slice(None)), strict=True))
    table = Scan(snapshot).table().combine_chunks()
    return {name: _whole(table.column(name)) for name in schema.names}


def _whole(column: Any) -> Any:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.nulls(0, column.type) if not column.num_chunks else pa.concat_arrays(column.chunks)


def _cast(array: Any, expected: Any, snapshot: Snapshot) -> Any:
    if not array.type.equals(expected.type):
        try:
            array = array.cast(expected.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise CatalogDamaged(
                f"column {expected.name!r} of {snapshot.store.uri} is {array.type}, expected "
                f"{expected.type}: it is no register of a catalog"
            ) from error
    if array.null_count and not expected.nullable:
        raise CatalogDamaged(
            f"{array.null_count} rows of {snapshot.store.uri} have no {expected.name}; {REPAIR} says more"
        )
    return _sound(array, expected.name, snapshot)


def _sound(array: Any, name: str, snapshot: Snapshot) -> Any:
    """The array, whose texts are UTF-8 and whose lists have an end: nobody who looks at a row finds out."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CatalogDamaged(
            f"column {name!r} of {snapshot.store.uri} is damaged ({error}): versions before it may "
            "be readable, `tiltyard verify ROOT/__manifest` tells which"
        ) from error
    return array


def check_place(root: Store, *, thoroughly: bool = False) -> None:
    """Where no register is found: raise `CatalogDamaged` if something stands in the way of one.

    `thoroughly`: also what shows in a listing of the root only, a link to nothing.
    """
    for path in (REGISTER, f"{REGISTER}/{names.VERSIONS_DIR}"):
        if root.exists(path):
            raise _in_the_way(root, path, "a file")
    if thoroughly and REGISTER in root.list_names(""):
        try:
            root.dir_stat(REGISTER)
        except ObjectNotFound as error:
            if REGISTER in root.list_names(""):  # not merely removed meanwhile
                raise _in_the_way(root, REGISTER, "a link to nothing") from error


def _in_the_way(root: Store, path: str, what: str) -> CatalogDamaged:
    return CatalogDamaged(
        f"{root.uri}/{path} is {what}, expected the directory of the catalog's register, or nothing: look at "
        "it, and move it away"
    )


# -- the table -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Held:
    """A register, and why it is the newest version: at `looked_ns` (store clock) it was, and the directory
    had the time `directory_ns`. `known_at`: the same moment in boot clock seconds. `root`: through what.
    """

    root: Store
    register: Register
    directory_ns: int | None
    looked_ns: int
    known_at: float


class RegisterTable:
    """The `__manifest` table below a root, in a session that keeps what was read. Safe among threads."""

    def __init__(self, root: Store, session: Session, publish: Publish = create_manifest) -> None:
        self.root = root
        self.session = session
        self.publish = publish
        self.store = root.at(REGISTER)
        self.rivals = Rivals()
        self.has_old_files = False
        """Whether the change that made the last version through this object is to look for old files."""
        self._key = (self.store.identity, "", "register", str(root.durable))

    def newest(self) -> Register:
        """The newest version, `absent()` where there is none."""
        held = self._held()
        found = self._look(held)
        if found is None:
            # The directory may have been removed and made again since we opened it.
            self.store = self.root.at(REGISTER)
            found = self._look(held)
        if found is None:
            check_place(self.root)
            return absent()
        if found is not held:
            self._keep(found)
        return found.register

    def of_late(self) -> Register | None:
        """A version that was the newest not long ago, or is, if one is kept."""
        held = self._held()
        if held is None or held.register.snapshot is None:
            return None
        return held.register if runtime.monotonic() - held.known_at <= LATE_SECONDS else None

    def version_of_late(self) -> int:
        """A version that was the newest not long ago, or is; 0 where there is none."""
        return (self.of_late() or self.newest()).version

    def _held(self) -> _Held | None:
        """What the session keeps, if it is of our directory: one opened before a rename is another."""
        held: _Held | None = self.session.cache.get(self._key)
        if held is None or held.root is self.root or held.register.snapshot is None:
            return held
        known = held.register.snapshot
        path = known.location.path
        try:
            same = self.store.stat(path).tag == known.store.stat(path).tag
        except StoreError:
            same = False
        if not same:
            return None
        mine = replace(held, root=self.root)
        self._keep(mine)
        return mine

    def _look(self, held: _Held | None) -> _Held | None:
        store, moment = self.store, runtime.monotonic()
        try:
            directory_ns = store.dir_stat(names.VERSIONS_DIR)
            if held is not None and directory_ns is not None and directory_ns == held.directory_ns:
                if held.looked_ns - directory_ns > RACY_NS:
                    return held
                looked_ns = store.now_ns()
                # A change within the same tick of the clock does not show; but in so short a time nobody
                # commits twice and cleans up (`table.hole`), so that the next version shows it.
                if moment - held.known_at <= HOLE_CHECK_SECONDS and not self._has_next(held.register):
                    return replace(held, looked_ns=looked_ns, known_at=moment)
            looked_ns = store.now_ns()
            snapshot = open_latest(store, self.session)
        except (ObjectNotFound, TableNotFound):
            return None
        if held is not None and held.register.snapshot is not None:
            known = held.register.snapshot
            if known.manifest is snapshot.manifest and known.location == snapshot.location:
                return _Held(self.root, held.register, directory_ns, looked_ns, moment)
        register = load(snapshot) if held is None else load_after(held.register, snapshot)
        return _Held(self.root, register, directory_ns, looked_ns, moment)

    def _has_next(self, register: Register) -> bool:
        assert register.snapshot is not None
        naming = register.snapshot.location.naming
        return self.store.exists(names.manifest_path(register.version + 1, naming))

    def _keep(self, held: _Held) -> None:
        rows = held.register.rows
        nbytes = rows.batch.nbytes + REGISTER_BYTES_PER_ROW * (1 + len(rows))
        self.session.cache.put(self._key, held, nbytes)

    def made(self, register: Register, looked_at: float) -> None:
        """Keep a version that we made on the one that was the newest at `looked_at` (boot clock)."""
        store, moment = self.store, runtime.monotonic()
        directory_ns, looked_ns = None, 0
        if moment - looked_at <= HOLE_CHECK_SECONDS:
            try:
                directory_ns, looked_ns = store.dir_stat(names.VERSIONS_DIR), store.now_ns()
                if self._has_next(register):
                    directory_ns = None
            except StoreError:
                directory_ns = None  # then the next look lists
        self._keep(_Held(self.root, register, directory_ns, looked_ns, moment))
        if is_due(register.version):
            self.has_old_files = True

    def remove_old_files(self) -> None:
        """What the disk need not keep goes (`catalog.old_files`)."""
        self.has_old_files = False
        held = self._held()
        if held is not None:
            remove_old_files(self.store, self.session, held.register)

    def make(self) -> None:
        """Make the first version, without rows, if there is none: what the official package begins with too.

        Whoever else makes it makes the same, so that it does not matter who wins. Raises `StoreError`.
        """
        check_place(self.root, thoroughly=True)
        store, uuid = self.store, str(runtime.uuid4())
        transaction = Transaction(0, uuid, Overwrite((), table_schema()))
        data = transaction.encode()
        name = names.transaction_name(0, uuid)
        first = apply(
            None,
            transaction,
            version=1,
            timestamp_ns=runtime.now_ns(),
            new_table=NewTable(data_version=DATA_VERSION),
        )
        path = names.manifest_path(1)
        store.put(names.transaction_path(name), data)
        manifest = replace(first, transaction_file=name)
        answer = self.publish(store, 1, path, encode_manifest(manifest, data))
        cause = store.failure(path)
        if answer is Created.WON:
            made_at = runtime.monotonic()
            # A hint that its writer could never raise again (no turnstile here) must not be left behind.
            with suppress(StoreError), store.turnstile(names.VERSIONS_DIR, TURNSTILE_SECONDS) as our_turn:
                if our_turn:
                    write_hint(store, 1, made_at)
            return
        if answer is Created.UNKNOWN and store.exists(path):
            store.sync_dir(names.VERSIONS_DIR)
            return
        if answer is Created.EXISTS:
            if not _names(store, path, name):
                store.delete(names.transaction_path(name))
            return
        if answer is Created.NOT_DONE:
            store.delete(names.transaction_path(name))
        raise StoreError(
            f"the catalog's register could not be made at {store.uri} ({cause}); nothing was changed"
        ) from cause


def _names(store: Store, path: str, transaction_file: str) -> bool:
    """Whether a manifest names this transaction file: then an attempt of ours has landed."""
    try:
        return transaction_file.encode() in store.read(path).to_pybytes()
    except (ObjectNotFound, InvalidInput):
        return False
