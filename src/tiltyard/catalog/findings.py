"""What may be wrong with a catalog, and what would mend it: rules over facts that `check` has gathered (pack
section 5.6). Pure: nothing is read or written here.

1. Rows that share an object id are settled first; every other rule sees what stands after that.
2. A finding is *damage* when operations fail or give wrong answers because of it; all else is a notice.
3. A mend names the rows that it takes away and those that it puts there, so that it can be refused when they
   are no longer as they were, and taken back. Data is never deleted by a mend.
4. Whatever may be the work of somebody who is at it just now (younger than the grace) is a notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tiltyard.catalog.facts import Facts, Place
from tiltyard.catalog.markers import DEREGISTERED
from tiltyard.catalog.names import REGISTER, SUFFIX, is_inside, is_private, object_id, parts, resolve
from tiltyard.catalog.rows import NAMESPACE, TABLE, Row, properties_text
from tiltyard.errors import CatalogDamaged, InvalidInput

MANY_VERSIONS = 10_000
"""Versions of the register from which on their number is worth a word."""

MAX_NAMES_TRIED = 10_000
"""Numbers tried behind a name until one is free."""

PRUNE = "--prune"
REGISTER_ORPHANS = "--register-orphans"
RENAME = "--rename"
OPTIONS = (PRUNE, REGISTER_ORPHANS, RENAME)
"""What a mend may need to be asked for by, in the words of the command line."""

OF_ROWS = ("unreadable-metadata", "unknown-type")
"""Kinds of findings that tell something of the rows of an id, and nothing else."""


@dataclass(frozen=True, slots=True)
class Mend:
    """How to mend a finding. `option`: it is done only when this is asked for.

    `before` and `after`: the rows of the object ids that it touches, as they are and as they shall be.
    `canonical`: the register is written anew, in the form that every writer knows. `unmark`: a file that
    hides a table, or that nobody can read. `forget`: an entry in the register's metadata that nobody can
    read, and its value. `set_aside`: a directory that holds no table. `moved`: a directory that gets another
    name, which `after` speaks of.
    """

    told: str
    before: tuple[Row, ...] = ()
    after: tuple[Row, ...] = ()
    option: str = ""
    canonical: bool = False
    unmark: str = ""
    forget: tuple[str, str] | None = None
    set_aside: str = ""
    moved: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is worth knowing; `mends`: what `repair` can do, in order."""

    kind: str
    subject: str
    text: str
    damage: bool = True
    advice: str = ""
    mends: tuple[Mend, ...] = ()

    def __str__(self) -> str:
        told = f"{self.kind}  {self.subject}: {self.text}"
        ways = [each.told + (f" (with {each.option})" if each.option else "") for each in self.mends]
        if ways:
            told += f"; `tiltyard catalog repair` would {', and '.join(ways)}"
        return f"{told}; {self.advice}" if self.advice else told


def find(facts: Facts) -> tuple[Finding, ...]:
    """Everything worth knowing about a catalog, damage first."""
    if facts.unreadable:
        text = f"the register cannot be read: {facts.unreadable}"
        return (Finding("unreadable-register", REGISTER, text, advice=_OLDER),)
    if facts.unsupported:
        advice = "use software that knows this; nothing here is touched"
        return (Finding("unsupported-register", REGISTER, facts.unsupported, advice=advice),)
    rows = _Rows(facts)
    found = [*_doubles(facts, rows)]  # first: the other rules see what it leaves
    for rule in _RULES:
        found += rule(facts, rows)
    return tuple(sorted(found, key=lambda each: not each.damage))


_OLDER = (
    "versions before it may be readable: `tiltyard verify ROOT/__manifest` tells which; nothing here is "
    "touched"
)


class _Rows:
    """The rows as they stand after the mends found so far that need no option."""

    def __init__(self, facts: Facts) -> None:
        self._by_id: dict[str, list[Row]] = {}
        for row in facts.rows:
            self._by_id.setdefault(row.object_id, []).append(row)
        self._taken = {each.removesuffix(SUFFIX) for each in (*facts.places, *facts.files)}

    def groups(self) -> Iterator[tuple[str, tuple[Row, ...]]]:
        for each, rows in self._by_id.items():
            yield each, tuple(rows)

    def settle(self, object_id: str, rows: Sequence[Row]) -> None:
        self._by_id[object_id] = list(rows)

    def of(self, object_type: str) -> Iterator[Row]:
        for rows in self._by_id.values():
            yield from (row for row in rows if row.object_type == object_type)

    def has(self, object_id: str, object_type: str) -> bool:
        return any(row.object_type == object_type for row in self._by_id.get(object_id, ()))

    def __iter__(self) -> Iterator[Row]:
        for rows in self._by_id.values():
            yield from rows

    def free_id(self, wished: str) -> str:
        """The id, or the first with a number behind it that no row, directory or other mend has."""
        for at in range(1, MAX_NAMES_TRIED):
            tried = wished if at == 1 else f"{wished}_{at}"
            if not self._by_id.get(tried) and tried not in self._taken:
                self._taken.add(tried)
                return tried
        raise AssertionError(f"{MAX_NAMES_TRIED} tables are named like {wished}")


# -- rows that share an id -----------------------------------------------------------------------


def _doubles(facts: Facts, rows: _Rows) -> Iterator[Finding]:
    for same, group in list(rows.groups()):
        tables = [row for row in group if row.object_type == TABLE]
        namespaces = [row for row in group if row.object_type == NAMESPACE]
        others = [row for row in group if row.object_type not in (TABLE, NAMESPACE)]
        kept_tables, kept_namespaces = tables[:1], namespaces[:1]
        if len(tables) > 1:
            finding, kept_tables = _double_table(facts, rows, same, tables, [*namespaces, *others])
            yield finding
        if len(namespaces) > 1:
            finding, kept_namespaces = _double_namespace(same, namespaces, [*kept_tables, *others])
            yield finding
        rows.settle(same, [*kept_namespaces, *kept_tables, *others])
        if kept_tables and kept_namespaces:
            yield _two_types(facts, rows, same, kept_namespaces[0], kept_tables[0], others)


def _double_table(
    facts: Facts, rows: _Rows, object_id: str, tables: list[Row], rest: list[Row]
) -> tuple[Finding, list[Row]]:
    by_location: dict[str | None, list[Row]] = {}
    for row in tables:
        by_location.setdefault(row.location, []).append(row)
    candidates = [max(each, key=_told) for each in by_location.values()]  # the first of equals
    kept = max(candidates, key=lambda row: _newest(facts, row))
    before, after = (*tables, *rest), (kept, *rest)
    if len(by_location) == 1:
        text = f"{len(tables)} rows for one table at {kept.location}"
        mend = Mend("keep one of the rows", before, after)
        return Finding("duplicate-row", object_id, text, mends=(mend,)), [kept]
    shown = ", ".join(
        f"{each.location} ({_told_place(facts.places.get(each.location or ''))})" for each in candidates
    )
    text = f"{len(tables)} rows for tables at different places: {shown}"
    mends = [Mend(f"keep {kept.location} and leave the other directories as they are", before, after)]
    for row in candidates:
        place = facts.places.get(row.location or "")
        if row is not kept and place is not None and place.is_table:
            other = replace(row, object_id=rows.free_id(f"{object_id}_2"))
            told = f"call {row.location} {other.object_id}"
            mends.append(Mend(told, after=(other,), option=REGISTER_ORPHANS))
    return Finding("duplicate-table", object_id, text, mends=tuple(mends)), [kept]


def _told(row: Row) -> tuple[bool, bool]:
    """How much a row says."""
    return row.metadata is not None, row.base_objects is not None


def _newest(facts: Facts, row: Row) -> tuple[int, int]:
    place = facts.places.get(row.location or "")
    return (0, 0) if place is None else (place.latest, place.rows)


def _told_place(place: Place | None) -> str:
    if place is None:
        return "missing"
    return f"version {place.latest}, {place.rows:,} rows" if place.is_table else "no version"


def _double_namespace(object_id: str, namespaces: list[Row], rest: list[Row]) -> tuple[Finding, list[Row]]:
    merged: dict[str, str] = {}
    conflicts: list[str] = []
    unreadable = 0
    for row in namespaces:
        properties = _properties(row)
        if properties is None:
            unreadable += 1
            continue
        for key, value in properties.items():
            if merged.setdefault(key, value) != value:
                conflicts.append(f"{key} ({merged[key]!r} stays, not {value!r})")
    kept = max(namespaces, key=_told)
    if unreadable < len(namespaces) and _properties(kept) != merged:
        kept = replace(kept, metadata=properties_text(merged))
    text = f"{len(namespaces)} rows for one namespace"
    if conflicts:
        text += "; they contradict each other in " + ", ".join(conflicts)
    if unreadable:
        text += f"; the properties of {unreadable} cannot be read and would go"
    mend = Mend("merge them", (*namespaces, *rest), (kept, *rest))
    return Finding("duplicate-namespace", object_id, text, mends=(mend,)), [kept]


def _two_types(
    facts: Facts, rows: _Rows, object_id: str, namespace: Row, table: Row, others: list[Row]
) -> Finding:
    renamed = replace(table, object_id=rows.free_id(f"{object_id}_table"))
    moved = None
    if facts.root_is_listed and table.location == f"{object_id}{SUFFIX}":
        # Its directory is found by the name, too.
        renamed = replace(renamed, location=f"{renamed.object_id}{SUFFIX}")
        moved = (f"{object_id}{SUFFIX}", f"{renamed.object_id}{SUFFIX}")
    before, after = (namespace, table, *others), (namespace, *others, renamed)
    mend = Mend(f"call the table {renamed.object_id}", before, after, RENAME, moved=moved)
    return Finding("two-types", object_id, "a namespace and a table have one name", mends=(mend,))


# -- single rows ---------------------------------------------------------------------------------


def _properties(row: Row) -> dict[str, str] | None:
    """The properties of a row; None where its text cannot be read."""
    try:
        return dict(row.properties or {})
    except CatalogDamaged:
        return None


def _unreadable_metadata(facts: Facts, rows: _Rows) -> Iterator[Finding]:
    for row in rows:
        if row.object_type not in (TABLE, NAMESPACE):
            continue  # what its metadata is, its own writer knows
        if row.metadata is not None and _properties(row) is None:
            text = f"its properties are no JSON object of texts: {row.metadata[:80]!r}"
            advice = "describing it fails; set its properties anew, or edit the row. It is not touched"
            yield Finding("unreadable-metadata", row.object_id, text, advice=advice)


def _nameless(facts: Facts, rows: _Rows) -> Iterator[Finding]:
    for row in rows:
        if not row.object_id:
            text = f"a row of type {row.object_type!r} with an empty id, at {row.location}: nobody finds it"
            yield Finding("nameless-row", REGISTER, text, mends=_prune(row))


def _unknown_types(facts: Facts, rows: _Rows) -> Iterator[Finding]:
    for row in rows:
        if row.object_type not in (TABLE, NAMESPACE):
            text = (
                f"a row of type {row.object_type!r}: the official package can read this catalog and change "
                "nothing in it"
            )
            yield Finding("unknown-type", row.object_id, text, advice="it is kept, and not touched")


def _missing_parents(facts: Facts, rows: _Rows) -> Iterator[Finding]:
    missing: dict[str, str] = {}
    for row in rows:
        if row.object_type not in (TABLE, NAMESPACE):
            continue
        above = parts(row.object_id)[:-1]
        for depth in range(1, len(above) + 1):
            parent = object_id(above[:depth])
            if not rows.has(parent, NAMESPACE):
                missing.setdefault(parent, row.object_id)
    for parent in sorted(missing):
        text = f"{missing[parent]} stands below a namespace that is not there"
        if rows.has(parent, TABLE):
            advice = "a table has the name of the namespace: rename one of them. It is not touched"
            yield Finding("missing-parent", parent, text, advice=advice)
            continue
        made = Row(parent, NAMESPACE)
        yield Finding("missing-parent", parent, text, mends=(Mend("make the namespace", after=(made,)),))


def _missing_directories(facts: Facts, rows: _Rows) -> Iterator[Finding]:
    for row in rows.of(TABLE):
        if row.location is None:
            yield Finding("missing-directory", row.object_id, "its row names no place", mends=_prune(row))
            continue
        tried = facts.elsewhere.get(row.location, (row.location,))
        if not any(each in facts.places for each in tried):
            text = f"nothing is at its place {row.location}"
            yield Finding("missing-directory", row.object_id, text, mends=_prune(row))


def _private_places(facts: Facts, rows: _Rows) -> Iterator[Finding]:
    """Rows that name a part of the catalog or of another table, where they would do harm."""
    tables = {each for each, place in facts.places.items() if place.is_table}
    for row in rows.of(TABLE):
        try:
            place = resolve(row.location or "")
        except InvalidInput:
            continue
        above = next((each for each in sorted(tables) if each != place and is_inside(place, each)), None)
        if is_private(place) or above is not None:
            of = "the catalog or of a table" if above is None else f"the table at {above}"
            text = f"its place {row.location} is a part of {of}; it cannot be opened, for the sake of that"
            yield Finding("private-place", row.object_id, text, mends=_prune(row))


def _prune(row: Row) -> tuple[Mend, ...]:
    return (Mend("remove the row", (row,), option=PRUNE),)


def _shared_locations(facts: Facts, rows: _Rows) -> Iterator[Finding]:
    by_location: dict[str, list[str]] = {}
    for row in rows.of(TABLE):
        if row.location is not None:
            by_location.setdefault(row.location, []).append(row.object_id)
    for location, ids in by_location.items():
        if len(ids) > 1:
            text = f"{len(ids)} tables are at one place: {', '.join(sorted(ids))}"
            advice = "dropping one takes the data of all; deregister those that are not needed"
            yield Finding("shared-location", location, text, damage=False, advice=advice)


def _hidden(facts: Facts, rows: _Rows) -> Iterator[Finding]:
    """Rows of root tables whose directory says that they were deregistered."""
    for row in rows.of(TABLE):
        place = facts.places.get(row.location or "")
        own = row.location == f"{row.object_id}{SUFFIX}"
        if own and place is not None and place.deregistered and facts.root_is_listed:
            text = "it is registered, and a marker in its directory hides it from readers of the directory"
            mend = Mend("remove the marker", unmark=f"{row.location}/{DEREGISTERED}")
            yield Finding("hidden-table", row.object_id, text, mends=(mend,))


# -- directories ---------------------------------------------------------------------------------


def _directories(facts: Facts, rows: _Rows) -> Iterator[Finding]:
    used = {row.location for row in rows.of(TABLE)} | facts.named
    for location in sorted(set(facts.places) - used):
        place = facts.places[location]
        if place.deregistered:
            continue
        young = place.age_ns < facts.grace_ns
        if not location.endswith(SUFFIX):
            if facts.has_register:
                yield _orphan(rows, location, place, young)
        elif place.is_table:
            if facts.has_register:
                yield _unregistered(facts, rows, location)
        elif not facts.root_is_listed:
            continue
        elif place.reserved:
            yield _unfinished(facts, rows, location, young)
        elif place.entries or not facts.has_register:  # without one, also an empty one keeps its name
            yield _incomplete(location, young)


def _orphan(rows: _Rows, location: str, place: Place, young: bool) -> Finding:
    if young:
        text = "no row names it; it is young, and may be of a creator who is still at work"
        return Finding("orphan-directory", location, text, damage=False)
    text = f"no row names it ({_told_place(place)}): left by a creator that died or lost, or deregistered"
    if not place.is_table:
        mend = Mend("set it aside", option=PRUNE, set_aside=location)
        return Finding("orphan-directory", location, text, damage=False, mends=(mend,))
    wished = location[9:]  # behind the eight digits and the line
    above = parts(wished)[:-1] if wished else ()
    if not wished or not all(rows.has(object_id(above[:at]), NAMESPACE) for at in range(1, len(above) + 1)):
        wished = wished.rpartition("$")[2] or location
    made = Row(rows.free_id(wished), TABLE, location)
    mend = Mend(f"call it {made.object_id}", after=(made,), option=REGISTER_ORPHANS)
    advice = "or delete the directory yourself, if nobody misses it"
    return Finding("orphan-directory", location, text, damage=False, advice=advice, mends=(mend,))


def _unregistered(facts: Facts, rows: _Rows, location: str) -> Finding:
    name = location.removesuffix(SUFFIX)
    if rows.has(name, NAMESPACE):
        text = f"a namespace and the table at {location} have one name"
        other = rows.free_id(f"{name}_table")
        made = Row(other, TABLE, f"{other}{SUFFIX}")
        moved = (location, f"{other}{SUFFIX}")
        mend = Mend(f"call the table {other}", after=(made,), option=RENAME, moved=moved)
        return Finding("two-types", name, text, mends=(mend,))
    if rows.has(name, TABLE):
        text = f"the row of {name} names another place, and so readers of the directory see another table"
        return Finding("two-places", name, text, advice="drop or rename one of them. They are not touched")
    text = "a table at the root without a row: it has no properties"
    if not facts.root_is_listed:
        text = "a table at the root without a row: in this mode nobody sees it"
    advice = "`tiltyard catalog migrate` gives it one"
    return Finding("unregistered-table", name, text, damage=False, advice=advice)


def _unfinished(facts: Facts, rows: _Rows, location: str, young: bool) -> Finding:
    name = location.removesuffix(SUFFIX)
    if young or rows.has(name, TABLE) or rows.has(name, NAMESPACE) or not facts.version:
        text = "declared by a marker alone, without a row"
        return Finding("unfinished-declare", name, text, damage=False)
    made = Row(name, TABLE, location)
    text = (
        "declared by a marker, and the row never came: the official package can neither declare nor drop it"
    )
    return Finding("unfinished-declare", name, text, mends=(Mend("add the row", after=(made,)),))


def _incomplete(location: str, young: bool) -> Finding:
    text = "a directory named like a table, without a version: a creation or removal that was cut off"
    if young:
        text += ", or that is still at work"
        return Finding("incomplete-directory", location, text, damage=False)
    mend = Mend("set it aside", option=PRUNE, set_aside=location)
    return Finding("incomplete-directory", location, text, mends=(mend,))


def _files(facts: Facts, rows: _Rows) -> Iterator[Finding]:
    for name in facts.files:
        text = "a file that is named like a table; it is none, and is left alone"
        yield Finding("loose-file", name, text, damage=False)


# -- our own records -----------------------------------------------------------------------------


def _purged(facts: Facts, rows: _Rows) -> Iterator[Finding]:
    for was, location in facts.purged:
        if location in facts.places:
            text = f"what is left of the purged table {was!r}; it stays for an hour after being emptied"
            advice = "`tiltyard catalog purge` removes it then"
            yield Finding("purged-directory", location, text, damage=False, advice=advice)


def _records(facts: Facts, rows: _Rows) -> Iterator[Finding]:
    for key, content in facts.unreadable_records.items():
        text = "a record of a dropped or moved table that cannot be read"
        mend = Mend("remove it", forget=(key, content))
        yield Finding("unreadable-record", key, text, mends=(mend,))
    for key, (was, places) in facts.dropped.items():
        if not any(place in facts.places for place in places):
            text = f"the data of the dropped table is gone ({key}): it cannot be had back"
            advice = "`tiltyard catalog purge` forgets it after its grace"
            yield Finding("dropped-data-missing", was, text, damage=False, advice=advice)
    for told in facts.moves:
        text = f"a move that is under way ({told})"
        yield Finding("pending-move", REGISTER, text, damage=False, advice="the next change finishes it")
    for path in facts.batches:
        text = "a batch that is under way"
        yield Finding("unfinished-batch", path, text, damage=False, advice="the next change finishes it")
    for path in facts.unreadable_batches:
        text = "what should say what a batch is to do, and cannot be read: no change finishes it"
        advice = "look at the tables that were written to then"
        yield Finding("unreadable-record", path, text, advice=advice, mends=(Mend("remove it", unmark=path),))
    for path, told in facts.torn:
        advice = "look at these tables, then remove the file"
        yield Finding("torn-batch", path, told, advice=advice)


# -- the register's own form ---------------------------------------------------------------------


def _form(facts: Facts, rows: _Rows) -> Iterator[Finding]:
    if not facts.version:
        return
    anew = (Mend("write it anew", canonical=True),)
    if not facts.primary_key:
        text = "object_id is not declared to be the key, so that old writers can add a row twice"
        yield Finding("no-primary-key", REGISTER, text, damage=False, mends=anew)
    odd = []
    if facts.fragments > 1:
        odd.append(f"{facts.fragments} fragments")
    if facts.deletions:
        odd.append("deletion files")
    if facts.indices:
        odd.append(f"indices ({', '.join(facts.indices)})")
    if odd:
        text = f"it has {', '.join(odd)}: other writers than catalogs wrote to it"
        yield Finding("foreign-shape", REGISTER, text, damage=False, mends=anew)
    if facts.extra_columns:
        text = (
            f"it has columns that the format does not name: {', '.join(facts.extra_columns)}; ours keep "
            "them, the official package drops them at its next change"
        )
        yield Finding("extra-columns", REGISTER, text, damage=False, advice="they are not touched")
    if facts.versions > MANY_VERSIONS:
        text = f"it has {facts.versions:,} versions"
        advice = (
            "`tiltyard cleanup ROOT/__manifest --older-than 30d` removes old ones; a process of the official "
            "package that has not looked since then sees no change any more"
        )
        yield Finding("many-versions", REGISTER, text, damage=False, advice=advice)


_RULES: tuple[Callable[[Facts, _Rows], Iterator[Finding]], ...] = (
    _nameless,
    _unreadable_metadata,
    _unknown_types,
    _missing_parents,
    _missing_directories,
    _private_places,
    _shared_locations,
    _hidden,
    _directories,
    _files,
    _purged,
    _records,
    _form,
)
