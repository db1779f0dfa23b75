"""Mending a catalog: a plan made of what a check found, an undo file, one rewrite of the register (decision
D33).

1. look (`check`), choose the mends that need no option and those that were asked for; nothing is written
2. the undo file in `_tiltyard/repair/` of the root, durable
3. directories that get another name are renamed
4. the rewrite, in a round like every change: the decision
5. markers are removed, directories that hold no table are set aside

Invariants, checked by tests/catalog/test_repair.py:
1. Every row that a repair takes away is as the plan saw it, on exactly the version that the rewrite builds
   on; else nothing is changed.
2. Whatever a repair changes stands in its undo file before it does; `undo` brings it back.
3. No data is deleted: rows and markers go, directories are moved to `_tiltyard/repair/`.
4. A catalog stays readable throughout, also a damaged one.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tiltyard import runtime
from tiltyard.catalog import moves
from tiltyard.catalog.batch_intents import BATCH_DIR
from tiltyard.catalog.findings import OF_ROWS, OPTIONS, Finding, Mend
from tiltyard.catalog.found import has_versions, is_directory
from tiltyard.catalog.markers import DEREGISTERED
from tiltyard.catalog.names import inside_table, is_place
from tiltyard.catalog.rows import Row
from tiltyard.dataset import arguments
from tiltyard.errors import (
    CorruptFile,
    InvalidInput,
    ObjectNotFound,
    OutcomeUnknown,
    RetryableConflict,
    StoreError,
    TiltyardError,
    UnsupportedFeature,
)
from tiltyard.format.names import PRIVATE_DIR
from tiltyard.store import Created
from tiltyard.table.wording import counted

if TYPE_CHECKING:
    from tiltyard.catalog.catalog import Catalog
    from tiltyard.catalog.check import Report
    from tiltyard.catalog.round import Draft
    from tiltyard.store import Store

REPAIR_DIR = f"{PRIVATE_DIR}/repair"
FORMAT = 1
"""Of the undo file."""


@dataclass(frozen=True, slots=True)
class RowsOf:
    """The rows of one object id, before and after a repair."""

    object_id: str
    before: tuple[Row, ...]
    after: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a repair does; see `Mend` for the parts."""

    version: int
    """Of the register that it was made for."""
    told: tuple[str, ...]
    """A line for each thing that is done."""
    rows: tuple[RowsOf, ...]
    canonical: bool
    unmark: tuple[str, ...]
    set_aside: tuple[str, ...]
    moved: tuple[tuple[str, str], ...]
    forget: tuple[tuple[str, str], ...]
    left: tuple[Finding, ...]
    """Findings that it does not mend, or not in full."""

    @property
    def is_empty(self) -> bool:
        return not self.told


@dataclass(frozen=True, slots=True)
class Repaired:
    """A repair that was made. `undo`: what `undo` takes. `not_done`: marks and directories that storage
    refused, with its reason.
    """

    version: int
    undo: str
    not_done: tuple[str, ...]


def plan_repair(report: Report, options: Collection[str] = ()) -> Plan:
    """Choose the mends of what a check found: those that need no option, and those of `options`. Pure."""
    for option in options:
        if option not in OPTIONS:
            raise InvalidInput(f"a repair knows the options {', '.join(OPTIONS)}, found {option!r}")
    held = _Held(report.rows)
    told: list[str] = []
    stay: list[Finding] = []
    chosen: list[Mend] = []
    for finding in report.findings:
        done = 0
        for mend in finding.mends:
            if (not mend.option or mend.option in options) and held.apply(mend):
                told.append(f"{finding.subject}: {mend.told}")
                chosen.append(mend)
                done += 1
        if done < len(finding.mends) or not finding.mends:
            stay.append(finding)
    changes = held.changes()
    # What is wrong with a row goes with the row, whatever takes it away.
    gone = {each.object_id for each in changes if not each.after}
    left = [each for each in stay if each.mends or each.kind not in OF_ROWS or each.subject not in gone]
    return Plan(
        report.version,
        tuple(told),
        changes,
        any(mend.canonical for mend in chosen),
        tuple(mend.unmark for mend in chosen if mend.unmark),
        tuple(mend.set_aside for mend in chosen if mend.set_aside),
        tuple(mend.moved for mend in chosen if mend.moved is not None),
        tuple(mend.forget for mend in chosen if mend.forget is not None),
        tuple(left),
    )


class _Held:
    """The rows while mends are applied to them, one after another."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._before: dict[str, list[Row]] = {}
        for row in rows:
            self._before.setdefault(row.object_id, []).append(row)
        self._now = {each: list(rows) for each, rows in self._before.items()}

    def apply(self, mend: Mend) -> bool:
        """Whether the rows that the mend takes away are there: another one may have changed them."""
        now = {each: list(rows) for each, rows in self._now.items() if each in _ids(mend)}
        for row in mend.before:
            rows = now.get(row.object_id, [])
            if row not in rows:
                return False
            rows.remove(row)
        for row in mend.after:
            now.setdefault(row.object_id, []).append(row)
        self._now.update(now)
        return True

    def changes(self) -> tuple[RowsOf, ...]:
        found = []
        for each in self._now:
            before, after = self._before.get(each, []), self._now[each]
            if before != after:
                found.append(RowsOf(each, tuple(before), tuple(after)))
        return tuple(found)


def _ids(mend: Mend) -> set[str]:
    return {row.object_id for row in (*mend.before, *mend.after)}


# -- carrying it out -----------------------------------------------------------------------------


def repair(catalog: Catalog, plan: Plan) -> Repaired:
    """Carry a plan out. Raises `RetryableConflict` where the catalog was changed since, so that nothing is
    done, and what a change raises.
    """
    if plan.is_empty:
        raise InvalidInput("the plan has nothing to repair: look at the findings that it leaves")
    store = catalog.store
    uuid = str(runtime.uuid4())
    path = f"{REPAIR_DIR}/{uuid}.json"
    aside = {each: f"{REPAIR_DIR}/{uuid}/{each}" for each in plan.set_aside}
    marks = {each: content for each in plan.unmark if (content := _read(store, each)) is not None}
    answer = store.create(path, _encoded(catalog, plan, aside, marks))
    if answer is not Created.WON:
        raise StoreError(
            f"the undo file {store.uri}/{path} could not be written ({store.failure(path) or answer.value}); "
            "nothing was repaired"
        )
    moved: list[tuple[str, str]] = []
    try:
        for source, target in plan.moved:
            _rename(store, source, target)
            moved.append((source, target))
        if plan.rows or plan.canonical or plan.forget:
            catalog.mutate(lambda draft: _change(draft, plan), repairing=True)
    except OutcomeUnknown:
        raise
    except TiltyardError:
        stuck = [_move(store, target, source) for source, target in reversed(moved)]
        if not any(stuck):
            with suppress(StoreError):
                store.delete(path)  # nothing is left to be taken back
        raise
    not_done = []
    for mark in marks:
        try:
            store.delete(mark)
            store.sync_dir(mark.rpartition("/")[0])
        except StoreError as error:
            not_done.append(f"{mark} ({error})")
    for source, target in aside.items():
        refused = _move(store, source, target, by_copies=True)
        if refused is not None:
            not_done.append(refused)
    return Repaired(catalog.register().version if plan.version else 0, path, tuple(not_done))


def _change(draft: Draft, plan: Plan) -> None:
    for each in plan.rows:
        found = draft.rows.all(each.object_id)
        if not _same(found, each.before):
            raise RetryableConflict(
                f"{each.object_id!r} was changed since the catalog was checked; nothing was repaired. Check "
                "again"
            )
    for each in plan.rows:
        _put(draft, each.object_id, each.after)
    for key, content in plan.forget:
        if draft.metadata.get(key) == content:
            del draft.metadata[key]
    if plan.canonical:
        draft.write_anew()


def _same(found: Sequence[Row], expected: Sequence[Row]) -> bool:
    """Whether two lists have the same rows, in any order."""
    left = list(expected)
    for row in found:
        if row not in left:
            return False
        left.remove(row)
    return not left


def _put(draft: Draft, object_id: str, rows: Sequence[Row]) -> None:
    """Let an id have exactly these rows."""
    draft.remove(object_id)
    if rows:
        draft.put(rows[0])
    for row in rows[1:]:
        draft.put_beside(row)


def _rename(store: Store, source: str, target: str) -> None:
    refused = _move(store, source, target)
    if refused is not None:
        raise StoreError(f"{source} could not be renamed to {target}: {refused}; nothing was repaired")


def _move(store: Store, source: str, target: str, by_copies: bool = False) -> str | None:
    """Move a directory; why not, if it could not be moved. `by_copies`: it holds no table, and may be copied
    where the store has no such step.
    """
    try:
        answer = store.move_dir(source, target)
    except ObjectNotFound:
        return None
    except UnsupportedFeature as error:
        return _copied_away(store, source, target) if by_copies else f"{source} ({error})"
    except StoreError as error:
        return f"{source} ({error})"
    if answer is Created.WON:
        return None
    return f"{source} ({store.failure(target) or answer.value})"


def _copied_away(store: Store, source: str, target: str) -> str | None:
    """The same by copies. What comes meanwhile stays, and with a version of a table everything does."""
    try:
        paths = [each.path for each in store.list(source)]
        copies = {path: target + path[len(source) :] for path in paths}
        for path, copy in copies.items():
            answer = store.copy_create(path, copy)
            if answer is not Created.WON:
                return f"{source} ({store.failure(copy) or answer.value})"
        if has_versions(store, source):
            store.delete_many(list(copies.values()))
            return f"{source} (it has become a table meanwhile)"
        store.delete_many(paths).check()
    except StoreError as error:
        return f"{source} ({error})"
    return None


def _read(store: Store, path: str) -> bytes | None:
    try:
        return store.read(path).to_pybytes()
    except ObjectNotFound:
        return None


# -- taking it back ------------------------------------------------------------------------------


def undo(catalog: Catalog, path: str) -> tuple[str, ...]:
    """Bring back what a repair changed, by its undo file; a line for each thing that was done.

    Raises `RetryableConflict` where what the repair left was changed since, so that nothing is done,
    `InvalidInput`, `CorruptFile`.
    """
    store = catalog.store
    path = _own_path(store, path)
    data = _read(store, path)
    if data is None:
        raise InvalidInput(f"there is no undo file {path!r} in {store.uri}")
    undone = _decoded(data, path)
    undone.check(store, path)
    told: list[str] = []
    changed = bool(undone.rows or undone.forgotten) and catalog.mutate(
        partial(_change_back, undone=undone), repairing=True
    )
    if changed:
        told += [f"{each.object_id}: has {counted(len(each.before), 'row')} again" for each in undone.rows]
        told += [f"{key}: is there again" for key in undone.forgotten]
    for mark, content in undone.marks.items():
        if store.create(mark, content) is Created.WON:
            told.append(f"{mark}: is there again")
    for source, target in (undone.moved | undone.set_aside).items():
        if is_directory(store, target):
            refused = _move(store, target, source, by_copies=source in undone.set_aside)
            told.append(f"{source}: {'is there again' if refused is None else refused}")
    return tuple(told)


def _own_path(store: Store, path: str) -> str:
    """The path below the root of an undo file, which may be given with the root before it, or by its name."""
    below = path.removeprefix(store.uri.rstrip("/") + "/")
    name = below.rpartition("/")[2]
    if not name.endswith(".json") or below not in (name, f"{REPAIR_DIR}/{name}"):
        raise InvalidInput(f"an undo file is in {REPAIR_DIR}/ of the catalog's root, found {path!r}")
    return f"{REPAIR_DIR}/{name}"


def _change_back(draft: Draft, undone: _Undo) -> bool:
    rows = undone.rows
    back = {key: text for key, text in undone.forgotten.items() if key not in draft.metadata}
    if not back and all(_same(draft.rows.all(each.object_id), each.before) for each in rows):
        return False  # the repair never came so far, or was taken back
    for each in rows:
        if not _same(draft.rows.all(each.object_id), each.after):
            raise RetryableConflict(
                f"{each.object_id!r} was changed since the repair; nothing was taken back. The former rows "
                "stand in the undo file"
            )
    for each in rows:
        _put(draft, each.object_id, each.before)
    draft.metadata.update(back)
    return True


# -- the undo file -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Undo:
    """What an undo file says: directories by where they were, marks with their content, and entries of the
    register's metadata.
    """

    rows: tuple[RowsOf, ...]
    moved: dict[str, str]
    set_aside: dict[str, str]
    marks: dict[str, bytes]
    forgotten: dict[str, str]

    def check(self, store: Store, path: str) -> None:
        """Raise `InvalidInput` for what no repair has done: files that people have edited would else move
        or hide what is not theirs.
        """
        named = {row.location for each in self.rows for row in each.after}
        for source, target in self.moved.items():
            if target not in named or not (_is_free_place(store, source) and _is_free_place(store, target)):
                raise _no_place(path, f"{source!r} and {target!r}")
        for source, target in self.set_aside.items():
            aside = target.removeprefix(f"{REPAIR_DIR}/").removesuffix(f"/{source}")
            if target != f"{REPAIR_DIR}/{aside}/{source}" or not _is_name(aside):
                raise _no_place(path, f"{target!r}")
            if not _is_free_place(store, source):
                raise _no_place(path, f"{source!r}")
        for mark in self.marks:
            above, _, name = mark.rpartition("/")
            is_intent = above == BATCH_DIR and name.endswith(".json") and _is_name(name)
            if not is_intent and not (name == DEREGISTERED and _is_free_place(store, above)):
                raise _no_place(path, f"{mark!r}")
        for key in self.forgotten:
            if not key.startswith((moves.PREFIX, moves.TRASH_PREFIX)):
                raise InvalidInput(f"{path} speaks of {key!r}, which no repair removes; nothing was changed")


def _is_free_place(store: Store, place: str) -> bool:
    """Whether a directory can be at a place: no part of the catalog, and none of another table."""
    return is_place(place) and inside_table(store, place) is None


def _is_name(text: str) -> bool:
    return text.isascii() and text.isprintable() and "/" not in text and text not in ("", ".", "..")


def _no_place(path: str, what: str) -> InvalidInput:
    return InvalidInput(
        f"{path} speaks of {what}, where a repair puts nothing: a part of the catalog or of a table, or not "
        "what was moved; nothing was changed"
    )


def _decoded(data: bytes, path: str) -> _Undo:
    """What an undo file says. Raises `CorruptFile`, `UnsupportedFeature`."""
    try:
        value = json.loads(data)
        number = value["format"]
        if isinstance(number, int) and number != FORMAT:
            raise UnsupportedFeature(
                f"{path} is an undo file of another format ({arguments.shown(number)}), this version knows "
                f"{FORMAT}"
            )
        if number is True or not isinstance(number, int):
            raise ValueError("its format is no number")
        marks = {key: b64decode(text, validate=True) for key, text in _texts(value["marks"]).items()}
        return _Undo(
            _decoded_rows(value["rows"]),
            _texts(value["moved"]),
            _texts(value["set_aside"]),
            marks,
            _texts(value.get("forgotten", {})),
        )
    except UnsupportedFeature:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptFile(f"an undo file must be a JSON object of its fields ({error!r})", path) from error


def _texts(value: Any) -> dict[str, str]:
    """A map of text to text, such as UTF-8 can write. Raises `ValueError`, `AttributeError`."""
    for key, text in value.items():
        moves.words(key)
        moves.words(text)
    return dict(value)


def _encoded(catalog: Catalog, plan: Plan, aside: dict[str, str], marks: dict[str, bytes]) -> bytes:
    value: dict[str, Any] = {
        "format": FORMAT,
        "catalog": catalog.store.uri,
        "time_ns": runtime.now_ns(),
        "version": plan.version,
        "done": list(plan.told),
        "rows": [
            {
                "object_id": each.object_id,
                "before": [_shown(row) for row in each.before],
                "after": [_shown(row) for row in each.after],
                "arrow": _arrow(catalog, each),
            }
            for each in plan.rows
        ],
        "canonical": plan.canonical,
        "marks": {path: b64encode(content).decode() for path, content in marks.items()},
        "set_aside": aside,
        "moved": dict(plan.moved),
        "forgotten": dict(plan.forget),
    }
    return json.dumps(value, indent=1).encode()


def _shown(row: Row) -> dict[str, Any]:
    """A row for people; what is read back is the Arrow form, which has every column of every type."""
    return {
        "object_type": row.object_type,
        "location": row.location,
        "metadata": row.metadata,
        "base_objects": row.base_objects,
    }


def _arrow(catalog: Catalog, rows: RowsOf) -> list[str]:
    return [_stream(catalog, rows.before), _stream(catalog, rows.after)]


def _stream(catalog: Catalog, rows: Sequence[Row]) -> str:
    import pyarrow as pa

    from tiltyard.catalog.rows import batch_of

    schema = catalog.register().rows.batch.schema
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch_of(rows, schema))
    return b64encode(sink.getvalue()).decode()


def _decoded_rows(values: Any) -> tuple[RowsOf, ...]:
    found = []
    for each in values:
        before, after = (_unstreamed(text) for text in each["arrow"])
        found.append(RowsOf(moves.words(each["object_id"]), before, after))
    return tuple(found)


def _unstreamed(text: str) -> tuple[Row, ...]:
    import pyarrow as pa

    from tiltyard.catalog.rows import Rows

    with pa.ipc.open_stream(b64decode(text)) as reader:
        return tuple(row for batch in reader for row in Rows(batch))
