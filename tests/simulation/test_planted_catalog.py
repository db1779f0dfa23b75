"""The catalog broken on purpose, one invariant at a time: the simulation must find each.

What a sound catalog answers to the same scenarios stands in `test_catalog.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest import mock

from planting import MOST
from tiltyard.catalog import creating, moves, namespaces, planning, rewrite, round, trash, waiting
from tiltyard.catalog.catalog import Catalog
from tiltyard.catalog.names import WAITING_DIR, object_id
from tiltyard.catalog.register import RegisterTable
from tiltyard.catalog.round import Draft, DraftRows
from tiltyard.errors import OutcomeUnknown, TableNotFound
from tiltyard.store import Created
from tiltyard.store.local import LocalStore
from tiltyard.testing.faults import Fault
from tiltyard.testing.simulation import catalogs
from tiltyard.testing.simulation.catalogs_scenarios import CatalogScenario
from tiltyard.testing.simulation.explore import exhaust, explore
from tiltyard.testing.simulation.scenarios import CATALOGS

SHRINKING_RUNS = 10
"""Enough to see that findings get simpler."""

NONE: frozenset[Fault] = frozenset()
DEATHS = frozenset({Fault.CRASH, Fault.CRASH_AFTER})

Planting = Callable[[], AbstractContextManager[Any]]


def patched(owner: Any, name: str, value: Any) -> AbstractContextManager[Any]:
    return mock.patch.object(owner, name, value)


def found(
    planting: Planting,
    scenario: str,
    *checks: str,
    pair: tuple[str, str] | None = None,
    start: str | None = None,
    faults: frozenset[Fault] = NONE,
    chance: float = 0.05,
    switch_chance: float = 0.4,
    every_schedule: bool = False,
) -> str:
    """What the simulation finds in a scenario with this fault planted; one of `checks` must be it. It looks
    at random, or for what is rare through every schedule with one preemption.
    """
    made = CATALOGS[scenario]()
    assert isinstance(made, CatalogScenario)
    weather = replace(
        made.settings.weather, faults=faults, chance=chance, machine_crash=False, failing_reads=False
    )
    made.settings = replace(made.settings, weather=weather, switch_chance=switch_chance, max_skew_ns=0)
    if pair is not None:
        made.pairs = (pair,)
    if start is not None:
        made.starts = (start,)
    with planting():
        if every_schedule:
            report = exhaust(made, events=1)
        else:
            report = explore(made, range(MOST), shrinking_runs=SHRINKING_RUNS)
    assert report.finding is not None, f"nothing found: {report}"
    wrong = report.finding.run.wrong
    assert any(each.startswith(f"{check}:") for each in wrong for check in checks), report.finding
    return str(report.finding)


# -- the round -------------------------------------------------------------------------------------


def test_planted_a_taken_version_of_the_register_counts_as_won() -> None:
    """K2: both are told that they have changed the catalog, and what one did is not there."""
    real = rewrite.Rewrite._settled

    def lenient(self: Any, answer: Created, *more: Any) -> Any:
        return real(self, Created.WON if answer is Created.EXISTS else answer, *more)

    text = found(
        lambda: patched(rewrite.Rewrite, "_settled", lenient),
        "catalog-pairs-child-objects",
        "K2",
        pair=("create", "create"),
        start="absent",
    )
    assert "replay" in text


def test_planted_a_lost_answer_counts_as_a_lost_race() -> None:
    """K2: a creator finds its own row, and tells its caller that the table exists already."""
    real = rewrite.Rewrite._found

    def forgetful(self: Any, *facts: Any) -> Any:
        theirs, _ = real(self, *facts)
        return theirs, None

    found(
        lambda: patched(rewrite.Rewrite, "_found", forgetful),
        "catalog-pairs-child-objects",
        "K2",
        pair=("create", "drop"),
        start="absent",
        faults=frozenset({Fault.LOSE_ANSWER}),
    )


def found_among_requests(planting: Planting) -> None:
    """What happens where many ask each other (`catalog.waiting`), and some die."""
    found(
        planting,
        "catalog-requests-manifest-disk",
        "K2",
        "K4",
        start="absent",
        faults=DEATHS,
        chance=0.005,
        switch_chance=0.05,
    )


@contextmanager
def nobody_answers() -> Iterator[None]:
    """Whoever serves a request dies, or seems to, before it says so."""
    with patched(waiting.Served, "done", lambda self: self._taken.clear()):
        yield


def test_nothing_is_found_where_nobody_answers_a_request() -> None:
    made = CATALOGS["catalog-requests-manifest-disk"]()
    with nobody_answers():
        report = explore(made, range(15))
    assert report.finding is None, str(report.finding)


def test_planted_whoever_waits_in_vain_does_not_look_for_its_request() -> None:
    """K2: it was served by one that did not say so, and is refused for what it has got itself."""

    @contextmanager
    def planting() -> Iterator[None]:
        with nobody_answers(), patched(waiting.Request, "is_in", lambda self, register: False):
            yield

    found_among_requests(planting)


def test_planted_a_request_counts_as_done_before_its_version_stands() -> None:
    """K2: whoever makes it dies, or loses the version and finds the name taken."""
    real = waiting.Served._take_over

    def hasty(self: Any) -> None:
        real(self)
        for uuid in self.uuids:
            self._table.store.write_hint(f"{WAITING_DIR}/{uuid}{waiting.ANSWER}", waiting.DONE)

    found_among_requests(lambda: patched(waiting.Served, "_take_over", hasty))


def test_planted_whoever_asked_goes_on_though_another_is_at_it() -> None:
    """K2: both do it, and the one that asked is refused for what was done for it."""

    def impatient(self: Any, turn: Any) -> waiting.Fate:
        self._store.write_hint(self._path, self._data)
        return waiting.Fate.ALONE

    found_among_requests(lambda: patched(waiting.Request, "wait", impatient))


def test_planted_a_change_is_decided_on_a_register_that_was_read_before() -> None:
    """K2: refused for what was true before the call began."""
    real = RegisterTable.newest

    def lazy(self: Any) -> Any:
        held = self.session.cache.get(self._key)
        newest = real(self)
        return newest if held is None or held.register.version < 3 else held.register

    def planting() -> AbstractContextManager[Any]:
        return patched(RegisterTable, "newest", lazy)

    found(planting, "catalog-lives-child-objects", "K2", start="present")


def test_planted_a_row_is_put_beside_the_one_that_is_there() -> None:
    """K1."""
    real = Draft.put

    def careless(self: Any, row: Any) -> None:
        if self.rows.find(row.object_id) is not None:
            self.put_beside(row)
        else:
            real(self, row)

    @contextmanager
    def planting() -> Iterator[None]:
        with (
            patched(Draft, "put", careless),
            patched(DraftRows, "find", lambda rows, object_id: next(iter(rows.all(object_id)), None)),
            patched(creating._Creation, "_in_fresh_directory", _without_looking),
        ):
            yield

    found(planting, "catalog-pairs-child-objects", "K1", pair=("create", "create"), start="absent")


def _without_looking(self: Any, seen: Any) -> Any:
    """A creation that puts its row whatever has the id by then."""
    self.own = creating.hashed_location(self.id)
    dataset = self.source.write(self.catalog, self.catalog.store.at(self.own), "create")
    row = creating.Row(object_id(self.id), creating.TABLE, self.own)
    seen.mutate(lambda draft: draft.put(row))
    location, self.own = self.own, None
    return creating.Found(self.id, location, location, row, False), dataset


def test_planted_metadata_of_others_are_left_out_of_a_rewrite() -> None:
    """K10."""
    real = rewrite.next_manifest

    def tidy(previous: Any, schema: Any, fragments: Any, metadata: Any, *more: Any) -> Any:
        ours = {key: value for key, value in metadata.items() if key.startswith("tiltyard.")}
        return real(previous, schema, fragments, ours, *more)

    found(lambda: patched(rewrite, "next_manifest", tidy), "catalog-pairs-child-objects", "K10")


def test_planted_a_rewrite_takes_the_version_before_it_away() -> None:
    """K9: a program that holds that version finds none that follows it."""
    real = rewrite.Rewrite.run

    def tidy(self: Any, *given: Any) -> Any:
        made = real(self, *given)
        if made is not None:
            self.store.delete(self.base.snapshot.location.path)
        return made

    found(lambda: patched(rewrite.Rewrite, "run", tidy), "catalog-pairs-child-objects", "K9")


# -- parents ---------------------------------------------------------------------------------------


def test_planted_the_parent_is_not_looked_for_again() -> None:
    """K6."""
    real = creating.check_parents

    def once(rows: Any, id: Any) -> None:
        if not isinstance(rows, DraftRows):
            real(rows, id)

    found(
        lambda: patched(creating, "check_parents", once),
        "catalog-pairs-child-objects",
        "K6",
        pair=("create", "drop_namespace"),
        start="absent",
    )


def test_planted_a_namespace_is_found_empty_before_the_change_begins() -> None:
    """K6."""
    real = namespaces.drop_namespace

    def hasty(catalog: Catalog, id: Any) -> Any:
        below = catalog.register().rows.below(object_id(id))
        if below:
            raise namespaces.NamespaceNotEmpty(f"{object_id(id)!r} holds something")
        return real(catalog, id)

    @contextmanager
    def planting() -> Iterator[None]:
        with (
            patched(namespaces, "_refuse_full", lambda draft, id: None),
            patched(catalogs, "drop_namespace", hasty),
        ):
            yield

    found(
        planting,
        "catalog-pairs-child-objects",
        "K6",
        pair=("create", "drop_namespace"),
        start="absent",
    )


# -- what creators do with their directories -------------------------------------------------------


def test_planted_a_loser_leaves_its_directory_behind() -> None:
    """K4."""
    found(
        lambda: patched(creating._Creation, "_remove_own", lambda self: None),
        "catalog-pairs-child-objects",
        "K4",
        pair=("create", "create"),
        start="absent",
    )


def test_planted_a_directory_is_deleted_after_an_unknown_outcome() -> None:
    """K2: the row is there, and the data are not."""
    real = creating._Creation._made

    def tidy(self: Any) -> Any:
        try:
            return real(self)
        except OutcomeUnknown:
            self._remove_own()
            raise

    found(
        lambda: patched(creating._Creation, "_made", tidy),
        "catalog-pairs-child-objects",
        "K2",
        pair=("create", "create_namespace"),
        start="absent",
        faults=frozenset({Fault.LATE_REQUEST}),
    )


def test_planted_whoever_opens_gets_the_table_that_it_wrote_itself() -> None:
    """K2: create-or-open gives the loser its own data."""
    real = creating._Creation._on_existing

    def own(self: Any, seen: Any, there: Any) -> Any:
        answer = real(self, seen, there)
        if answer is None or self.source.copy is None:
            return answer
        self.own = None  # else its caller could not read it
        return there, self.source.copy

    found(
        lambda: patched(creating._Creation, "_on_existing", own),
        "catalog-pairs-child-objects",
        "K2",
        pair=("create", "exist_ok"),
        start="absent",
    )


def test_planted_an_overwrite_is_a_drop_and_a_creation() -> None:
    """K2: somebody finds no table between the two."""
    real = catalogs.create_table

    def in_two_steps(catalog: Catalog, id: Any, data: Any, *, mode: str) -> Any:
        if mode == "overwrite":
            with suppress(TableNotFound):
                trash.drop_table(catalog, id)
        return real(catalog, id, data, mode=mode)

    found(
        lambda: patched(catalogs, "create_table", in_two_steps),
        "catalog-pairs-child-objects",
        "K2",
        pair=("overwrite", "drop"),
        start="present",
    )


# -- dropping, bringing back, renaming -------------------------------------------------------------


def test_planted_a_drop_deletes_the_files_before_the_row_goes() -> None:
    """K2: a table that is there and cannot be read."""
    real = catalogs.drop_table

    def hasty(catalog: Catalog, id: Any) -> Any:
        with suppress(TableNotFound):
            catalog.store.delete_tree(trash.find_or_none(catalog, catalog.register(), id).location)
        return real(catalog, id)

    found(
        lambda: patched(catalogs, "drop_table", hasty),
        "catalog-pairs-child-objects",
        "K2",
        pair=("drop", "create_namespace"),
        start="present",
        faults=DEATHS,
        chance=0.2,
    )


def test_planted_a_rename_is_two_rewrites() -> None:
    """K2: a table without a name, for a while or for ever."""

    def in_two_steps(catalog: Catalog, id: Any, new: Any) -> None:
        def take(draft: Draft) -> Any:
            row = draft.rows.find(object_id(id))
            if row is None or row.object_type != "table":
                raise TableNotFound(f"no table {id}")
            draft.remove(row.object_id)
            return row

        row = catalog.mutate(take)
        catalog.mutate(lambda draft: draft.put(replace(row, object_id=object_id(new))))

    found(
        lambda: patched(catalogs, "rename_table", in_two_steps),
        "catalog-pairs-child-objects",
        "K2",
        pair=("rename", "drop"),
        start="present",
        faults=DEATHS,
        chance=0.2,
    )


def test_planted_whatever_is_in_the_trash_is_brought_back() -> None:
    """K2: undrop does not ask whether the data are being deleted."""
    real = trash.chosen

    def any_state(catalog: Any, records: Any, *asked: Any) -> Any:
        return real(catalog, tuple(replace(each, state=trash.DROPPED) for each in records), *asked)

    def unchecked(self: Any, draft: Draft) -> None:
        draft.metadata.pop(self.record.key, None)
        draft.put(self.record.row)

    @contextmanager
    def planting() -> Iterator[None]:
        with patched(trash, "chosen", any_state), patched(trash._Undrop, "_change", unchecked):
            yield

    found(planting, "catalog-pairs-child-objects", "K2", pair=("undrop", "purge"), start="dropped")


def test_planted_nobody_carries_out_what_the_dead_have_left() -> None:
    """K11."""
    found(
        lambda: patched(moves, "roll", lambda store, register: moves.NOTHING_ROLLED),
        "catalog-pairs-root-disk",
        "K11",
        pair=("drop", "create_namespace"),
        start="present",
        faults=DEATHS,
    )


def test_planted_a_move_replaces_what_has_the_name() -> None:
    """K2: a table that was made under the name meanwhile is gone."""
    real = LocalStore.move_dir

    def replacing(self: LocalStore, source: str, target: str) -> Created:
        if not target.startswith(".") and self.list(target):
            self.delete_tree(target)
        return real(self, source, target)

    @contextmanager
    def planting() -> Iterator[None]:
        with (
            patched(LocalStore, "move_dir", replacing),
            patched(planning, "is_free", lambda catalog, location: True),
        ):
            yield

    found(
        planting,
        "catalog-pairs-root-disk",
        "K2",
        pair=("create", "undrop"),
        start="dropped",
    )


def test_planted_a_dropped_table_shares_its_directory_with_the_next_of_its_name() -> None:
    """K8: where directories cannot be moved aside."""
    found(
        lambda: patched(creating, "is_kept", lambda register, location: False),
        "catalog-pairs-root-objects",
        "K8",
        pair=("overwrite", "drop"),
        start="dropped",
    )


def test_planted_whoever_loses_a_version_is_told_of_contention() -> None:
    """K3."""
    found(
        lambda: patched(round, "BUDGET_SECONDS", 0.0),
        "catalog-pairs-child-objects",
        "K3",
        pair=("create_namespace", "create_namespace"),
        start="no parent",
    )
