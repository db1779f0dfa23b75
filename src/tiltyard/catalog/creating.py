"""Creating tables: of all that create one name at the same time exactly one wins (decision D22).

A table of a namespace (and every table while directories are not listed) gets a new directory of its own:

1. look: the id is free and its ancestors exist               else an error, and nothing was written
2. version 1 in the fresh directory, durable                  a crash leaves a directory that no row names
3. the row, in a round that looks at id and ancestors again   **the decision**

A root table is `<name>.lance`, where every program finds it by its name:

1. look, as above
2. version 1 in `<name>.lance`                                **the decision**: the peer does the same
3. make sure that there is a row                              without it the directory is a table all the same
                                                              and where others made the row, and a table over
                                                              version 1, it is theirs
                                                              (and a deregistered marker of before 2 goes)

Invariants, and their tests (tests/catalog/test_tables_create.py, tests/cases/test_n_catalog.py):
1. Of all creators exactly one is told that it created the table; the others get TableAlreadyExists (or, with
   `exist_ok`, the winner's table), and NamespaceNotFound where a parent is missing at the decision.
2. A creator that definitely lost or failed removes its own fresh directory, or the files that it named;
   never anything else, and nothing after an unknown outcome.
3. A table that is only declared is filled by the first version 1 in its directory, whoever writes it. Who
   finds afterwards that the table had left before takes that version back and looks again.
4. `overwrite` of a table that exists is one commit in its place: readers see the old table or the new one.
5. Once the table stands, no failure is told as "nothing was done": it is OutcomeUnknown.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from tiltyard.catalog import moves
from tiltyard.catalog.found import (
    Found,
    check_apart,
    directory_table,
    find_or_none,
    has_versions,
    table_row,
    table_store,
    with_declared,
)
from tiltyard.catalog.hiding import Hidden, hidden
from tiltyard.catalog.markers import DEREGISTERED, remove_marker
from tiltyard.catalog.names import (
    REGISTER,
    Id,
    check_new_id,
    checked_id,
    hashed_location,
    location_uri,
    object_id,
    root_location,
)
from tiltyard.catalog.rows import TABLE, Row, properties_text
from tiltyard.catalog.settings import Mode
from tiltyard.catalog.sources import Source
from tiltyard.catalog.taking import Look, check_parents, glance, look, taken
from tiltyard.catalog.trash import is_kept
from tiltyard.catalog.waiting import NewRow
from tiltyard.dataset import arguments
from tiltyard.errors import (
    CatalogThrottled,
    InvalidInput,
    ObjectNotFound,
    OutcomeUnknown,
    RetryableConflict,
    StoreError,
    TableAlreadyExists,
    TableNotFound,
    TiltyardError,
    VersionNotFound,
    WrongType,
)
from tiltyard.format.names import HINT_PATH, VERSIONS_DIR
from tiltyard.format.operations import Overwrite
from tiltyard.store.paths import joined

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.round import Draft
    from tiltyard.dataset import LanceDataset
    from tiltyard.format.fragment import Fragment
    from tiltyard.store import Store

T = TypeVar("T")

MODES = {"create": "create", "existok": "exist_ok", "overwrite": "overwrite"}
"""The modes by their letters: they are accepted as `exist_ok`, `ExistOk` and `EXISTOK`."""

MAX_REMOVALS = 8
"""How often a creator whose directory is removed under it looks again; then it tells what failed."""

MAX_LOOKS = 32
"""How often a creator looks again at a name that others create and drop meanwhile."""


def create_table(
    catalog: Catalog,
    id: Id,
    data: Any = None,
    *,
    mode: str = "create",
    properties: Mapping[str, str] | None = None,
    **options: Any,
) -> tuple[Found, LanceDataset]:
    """Make a table of data, or an empty one of a `pa.Schema`.

    `data` and `options` as for `tiltyard.dataset.write_dataset`. `mode`: `create` (the table must not exist,
    or only be declared), `exist_ok` (an existing table is opened as it is: its columns must have what the
    data has) or `overwrite` (an existing table gets a new version with this data and these properties).

    Raises TableAlreadyExists, NamespaceNotFound, InvalidName, SchemaMismatch (`exist_ok`), CatalogThrottled
    (nothing was created), OutcomeUnknown, and what a write raises.
    """
    id = checked_id(id, "a table's id")
    creation = _Creation(catalog, id, Source(data, options), mode_of(mode), checked_properties(properties))
    return creation.run()


def mode_of(mode: Any) -> str:
    """The mode of a word in any case. Raises InvalidInput naming the three."""
    found = MODES.get(mode.replace("_", "").lower()) if isinstance(mode, str) else None
    if found is None:
        raise InvalidInput(f"the mode of create_table is create, exist_ok or overwrite, found {mode!r}")
    return found


def checked_properties(properties: Any) -> dict[str, str] | None:
    """Properties of a table as given by a caller: text to text."""
    if properties is None:
        return None
    if not isinstance(properties, Mapping):
        raise WrongType(f"properties must be a mapping of text to text, found {properties!r}")
    for key, value in properties.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise WrongType(f"properties must be a mapping of text to text, found {key!r}: {value!r}")
        arguments.text("the name of a property", key)
        arguments.text(f"the property {key!r}", value)
    return dict(properties)


@dataclass(slots=True)
class _Creation:
    """One call of `create_table`."""

    catalog: Catalog
    id: Id
    source: Source
    mode: str
    properties: dict[str, str] | None
    own: str | None = None
    """The fresh directory that we made, while no row names it."""
    left: list[tuple[Store, list[Fragment], str | None]] = field(default_factory=list)
    """Data files of versions that we took back, and the directory, if nobody else can be at work in it."""
    removals: int = 0
    """How often the directory was removed under us."""

    def run(self) -> tuple[Found, LanceDataset]:
        with self.catalog.rivals.one_at_a_time(self.catalog, self.id):
            try:
                made = self._made()
            except OutcomeUnknown:
                raise  # a row may name our directory
            except Exception:
                self._remove_own()
                raise
            self._remove_own()
            return made

    def _made(self) -> tuple[Found, LanceDataset]:
        seen = self._glance()
        for _ in range(MAX_LOOKS):
            try:
                made = self._attempt(seen or look(self.catalog))
            except (StoreError, VersionNotFound, TableNotFound, RetryableConflict) as error:
                self.removals += 1
                is_over = isinstance(error, RetryableConflict) and self.source.is_gone
                if is_over or not _was_removed(error) or self.removals > MAX_REMOVALS:
                    raise
                seen = None
                continue
            if made is not None:
                return made
            seen = None
        raise CatalogThrottled(
            f"table {object_id(self.id)!r} was created and dropped by others {MAX_LOOKS} times while it was "
            "to be created; nothing was created, try again"
        )

    def _remove_own(self) -> None:
        """Remove the directory and the files that nobody but us knows: whoever lost leaves nothing behind."""
        if self.own is not None:
            with suppress(StoreError):  # the answer that is on its way matters more; it is found by its age
                self.catalog.store.delete_tree(self.own)
            self.own = None
        if self.left:
            from tiltyard.table.write import remove_files

            for store, fragments, directory in self.left:
                remove_files(store, fragments)
                if directory is not None and not store.list(""):
                    with suppress(StoreError):
                        self.catalog.store.delete_tree(directory)
            self.left.clear()

    @property
    def _is_by_name(self) -> bool:
        return self.catalog.settings.mode is not Mode.MANIFEST and len(self.id) == 1

    def _glance(self) -> Look | None:
        """What is known, where the row alone decides; not after a loss: the next name may be lost, too."""
        if self._is_by_name or self.catalog.rivals.are_there:
            return None
        return glance(self.catalog, self.id)

    def _attempt(self, seen: Look) -> tuple[Found, LanceDataset] | None:
        """What follows from one look; None when another one is needed."""
        catalog, id, register = self.catalog, self.id, seen.register
        found = find_or_none(catalog, register, id)
        if found is not None:
            found = with_declared(catalog, found)
            return self._fill(seen, found) if found.declared_only else self._on_existing(seen, found)
        check_parents(register.rows, id)
        row = register.rows.find(object_id(id))
        if row is not None and row.object_type != TABLE:
            raise taken(row)
        check_new_id(id, "a table")
        if not self._is_by_name or is_kept(register, root_location(id[0])):
            return self._in_fresh_directory(seen)
        return self._by_name(seen)

    # -- a table that is there -------------------------------------------------------------------

    def _on_existing(self, seen: Look, found: Found) -> tuple[Found, LanceDataset] | None:
        if self.mode == "create":
            raise TableAlreadyExists(
                f"table {object_id(self.id)!r} exists already in {self.catalog.store.uri}: open it, or "
                "create it with exist_ok or overwrite"
            )
        if self.mode == "exist_ok":
            dataset = _opened(self.catalog, table_store(self.catalog, found))
            if dataset is None:
                return None
            self.source.check_fits(dataset)
            return found, dataset
        made = self._in_place(seen, found, "overwrite")
        if made is None:
            return None
        found, dataset = made
        if found.row is not None:
            found = self._with_properties(seen, found, found.row)
        return found, dataset

    def _with_properties(self, seen: Look, found: Found, row: Row) -> Found:
        """The row of an overwritten table with the properties of this call."""
        text = properties_text(self.properties)
        if row.metadata == text:
            return found

        def put(draft: Draft) -> Row | None:
            now = draft.rows.find(row.object_id)
            if now is None or now.location != row.location:
                return None  # dropped or replaced since: that came after this overwrite
            draft.put(replace(now, metadata=text))
            return now

        _after_the_fact(partial(seen.mutate, put), f"table {row.object_id!r} was overwritten")
        return replace(found, row=replace(row, metadata=text))

    def _fill(self, seen: Look, found: Found) -> tuple[Found, LanceDataset] | None:
        """Version 1 of a declared table."""
        if self.properties and found.row is not None:
            raise InvalidInput(
                f"create_table cannot set properties for already declared table {self.id[-1]!r}: it has "
                "those that it was declared with"
            )
        mode = "overwrite" if self.mode == "overwrite" else "create"
        try:
            return self._in_place(seen, found, mode)
        except TableAlreadyExists:
            return None

    def _in_place(self, seen: Look, found: Found, mode: str) -> tuple[Found, LanceDataset] | None:
        """A version in the directory of a table that is there; None where the table had left it before."""
        catalog = self.catalog
        store = table_store(catalog, found)
        check_apart(catalog, seen.register, found.location)
        if found.row is not None:  # its maker may have died before the version that has it was safe
            catalog.store.sync_dir(joined(REGISTER, VERSIONS_DIR))
        dataset = self.source.write(catalog, store, mode)
        if catalog.settings.mode is Mode.V1:
            if self._was_moved_away(found.location, dataset, store):
                self._give_way(dataset, store)
                return None
            return replace(found, declared_only=False), dataset
        look = partial(self._in_its_place, seen, found, dataset, store)
        return _after_the_fact(look, f"table {object_id(self.id)!r} was written")

    def _in_its_place(
        self, seen: Look, found: Found, dataset: LanceDataset, store: Store
    ) -> tuple[Found, LanceDataset] | None:
        """The table that we wrote a version of, as the register has it now; None where it had left before."""
        if found.row is None:
            return self._with_row(seen, dataset, store)
        now = table_row(self.catalog.register(), self.id)
        if now is None or now.location != found.row.location:  # dropped, renamed or moved since the look
            if len(self.id) == 1 and found.location == root_location(self.id[0]):
                return self._with_row(seen, dataset, store)
            if self._is_stray(found, dataset, store):
                self._give_way(dataset, store, found.location)
                return None
        return replace(found, declared_only=False), dataset

    def _is_stray(self, found: Found, dataset: LanceDataset, store: Store) -> bool:
        """Whether the version that we wrote is alone in a directory that nothing names: the table had left,
        and what we took for its empty directory was none.
        """
        catalog, register = self.catalog, self.catalog.register()
        names = (found.location, unquote(found.location))
        if any(is_kept(register, each) for each in names):
            return False
        if moves.leaving(catalog.store, register, found.location):
            return False
        path = dataset._held.location.path
        try:
            there = catalog.store.read(joined(found.location, path))
        except ObjectNotFound:
            return False  # the directory was moved with our version in it
        return dataset._held.version == 1 and there.to_pybytes() == store.read(path).to_pybytes()

    # -- a new directory -------------------------------------------------------------------------

    def _in_fresh_directory(self, seen: Look) -> tuple[Found, LanceDataset] | None:
        catalog, id, source = self.catalog, self.id, self.source
        if self.own is None or source.copy is None:
            self.own = hashed_location(id)
            source.copy = source.write(catalog, catalog.store.at(self.own), "create", is_own=True)
        row = Row(object_id(id), TABLE, self.own, properties_text(self.properties))

        def claim(draft: Draft) -> bool:
            check_parents(draft.rows, id)
            if draft.rows.find(row.object_id) is not None:
                return False
            draft.put(row)
            return True

        location = self.own
        try:
            won = seen.mutate(claim, NewRow(row, True, refused=lambda row: False))
        except TiltyardError:
            raise
        except BaseException:
            self.own = None  # interrupted: nobody knows whether the row is there
            raise
        if not won:
            catalog.rivals.note()
            return None  # the next look says what stands there; the data is kept for a declared table
        self.own = None
        found = Found(id, location, location_uri(catalog.store.uri, location), row, False)
        return found, source.copy

    # -- `<name>.lance` --------------------------------------------------------------------------

    def _by_name(self, seen: Look) -> tuple[Found, LanceDataset] | None:
        catalog = self.catalog
        location = root_location(self.id[0])
        check_apart(catalog, seen.register, location)
        store = catalog.store.at(location)
        marker = hidden(catalog, location, self.id[0])
        if marker.is_there and seen.is_outdated(location):
            return None  # it hides a table that was dropped or renamed since we looked
        if self.mode != "overwrite" and has_versions(store, ""):
            if marker.is_there:
                raise self._in_the_way(location)
            return None  # it came since we looked
        mode = "overwrite" if self.mode == "overwrite" else "create"
        try:
            dataset = self.source.write(catalog, store, mode)
        except TableAlreadyExists:
            catalog.rivals.note()
            return None
        made: tuple[Found, LanceDataset] | None
        if catalog.settings.mode is not Mode.V1:
            made = self._with_row(seen, dataset, store, marker)
            if made is None:
                return None
        elif self._was_moved_away(location, dataset, store):
            self._give_way(dataset, store)
            return None
        else:
            made = Found(self.id, location, location_uri(catalog.store.uri, location), None, False), dataset
        if marker.is_others or (marker.is_there and catalog.settings.mode is Mode.V1):
            try:
                remove_marker(store, DEREGISTERED)
            except StoreError as error:
                raise OutcomeUnknown(
                    f"table {self.id[0]!r} was created, but the marker {location}/{DEREGISTERED} that hides "
                    f"it could not be removed ({error}): remove it by hand"
                ) from error
        return made

    def _was_moved_away(self, location: str, dataset: LanceDataset, store: Store) -> bool:
        from tiltyard.catalog import unregistered

        if dataset._held.version != 1:
            return False  # it was a table before
        try:
            return unregistered.was_moved_away(self.catalog, location, dataset._held.location.path, store)
        except StoreError as error:
            raise OutcomeUnknown(
                f"table {self.id[0]!r} was created, but whether under its name cannot be told ({error}): look"
            ) from error

    def _in_the_way(self, location: str) -> TableAlreadyExists:
        from tiltyard.catalog import marked

        name = self.id[0]
        if marked.is_dropped(self.catalog.store, location):
            told = f"dropped: bring table {name!r} back (undrop), purge it"
        else:
            told = f"deregistered: register it again (location {location!r})"
        return TableAlreadyExists(
            f"{self.catalog.store.uri}/{location} holds the files of table {name!r}, which was {told}, or "
            "create it with overwrite"
        )

    def _with_row(
        self, seen: Look, dataset: LanceDataset, store: Store, marker: Hidden | None = None
    ) -> tuple[Found, LanceDataset] | None:
        """Make sure that a root table, which stands, has a row; None where its id was given to something else
        meanwhile.
        """
        put = partial(self._put_row, seen, dataset, store, marker)
        return _after_the_fact(put, f"table {self.id[0]!r} was created")

    def _put_row(
        self, seen: Look, dataset: LanceDataset, store: Store, marker: Hidden | None
    ) -> tuple[Found, LanceDataset] | None:
        catalog, id, name = self.catalog, self.id, self.id[0]
        location = root_location(name)
        row = Row(name, TABLE, location, properties_text(self.properties))
        found: Row | None = row
        stands = has_versions(catalog.store, location)
        for _ in range(MAX_LOOKS):
            if not stands:
                # Dropped, renamed or deregistered since: whoever did that knows of its entry and its marker.
                return Found(id, location, location_uri(catalog.store.uri, location), row, False), dataset
            answer = seen.mutate(partial(_ensure_row, seen, row, marker))
            found = answer if isinstance(answer, Row) else None
            if answer is not Ensured.LEFT:
                break
            seen = look(catalog)
            stands = directory_table(catalog, seen.register, id) is not None
        if found is None:
            self._give_way(dataset, store)
            return None
        if found is not row and self._was_written_over(dataset, store):
            self.source.copy = dataset
            return None
        if marker is not None:
            marker.follow()
        return Found(id, location, location_uri(catalog.store.uri, location), found, False), dataset

    def _was_written_over(self, dataset: LanceDataset, store: Store) -> bool:
        """Whether another program made the table over our version 1 and gave it the row, so that the table is
        its: the official package does, if it had found the name free before our version stood.
        """
        from tiltyard.table.snapshot import read_transaction
        from tiltyard.table.versions import list_versions

        if self.mode == "overwrite" or dataset._held.version != 1:
            return False
        later = [each for each in list_versions(store) if each.version > 1]
        made = (read_transaction(store, self.catalog.session, each) for each in later)
        return any(each is not None and isinstance(each.operation, Overwrite) for each in made)

    def _give_way(self, dataset: LanceDataset, store: Store, directory: str | None = None) -> None:
        """The name went to a namespace, or to a table at another place, between our look and our version:
        take that back. Its files stay for another attempt, until this creation is over.
        """
        from tiltyard.table.versions import list_versions

        held = dataset._held
        if held.version == 1 and [each.version for each in list_versions(store)] == [1]:
            store.delete(held.location.path)
            store.delete(HINT_PATH)
            store.sync_dir(VERSIONS_DIR)
            self.left.append((store, list(held.fragments), directory))
        self.source.copy = dataset


def _was_removed(error: BaseException | None) -> bool:
    """Whether something failed because a directory, or the version that was read, was removed meanwhile, or
    made anew: a program that drops a table removes its directory, whoever is at work in it.
    """
    while error is not None:
        if isinstance(error, VersionNotFound | TableNotFound | ObjectNotFound | RetryableConflict):
            return True
        if isinstance(error, StoreError) and error.errno == errno.ENOENT:
            return True
        error = error.__cause__
    return False


def _opened(catalog: Catalog, store: Store) -> LanceDataset | None:
    from tiltyard.dataset import LanceDataset

    try:
        return LanceDataset(store, session=catalog.session)
    except TableNotFound:
        return None


class Ensured(Enum):
    """What became of a row that was to be put for a directory, if it was not put."""

    TAKEN = "something else has the id"
    LEFT = "the directory left its name since it was looked at"


def _ensure_row(seen: Look, row: Row, marker: Hidden | None, draft: Draft) -> Row | Ensured:
    """The row of a root table that stands in `<name>.lance`."""
    name, location = row.object_id, str(row.location)
    now = draft.rows.find(name)
    if now is None or now.object_type != TABLE or now.location != location:
        if seen.has_left(draft, (name,), location):
            return Ensured.LEFT
        if now is not None:
            return Ensured.TAKEN
        draft.put(row)
        if marker is not None:
            marker.in_rewrite(draft)
        return row
    if row.metadata is not None and now.metadata != row.metadata:
        now = replace(now, metadata=row.metadata)
        draft.put(now)
    return now


def _after_the_fact(attempt: Callable[[], T], what: str) -> T:
    """What is done about the register after the table itself stands: its failure leaves a table."""
    try:
        return attempt()
    except OutcomeUnknown:
        raise
    except TiltyardError as error:
        raise OutcomeUnknown(
            f"{what}, but the register could not be brought up to date ({error}). The table is there; create "
            "it again with exist_ok to finish"
        ) from error
