"""The product broken on purpose, one way at a time: the simulation must find each.

A planted fault patches product code for the time of a test. What a sound product answers to the same
scenarios stands in `test_scenarios.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest import mock

from planting import MOST
from tiltyard import runtime
from tiltyard.dataset import write as dataset_write
from tiltyard.errors import OutcomeUnknown, TagNotFound
from tiltyard.format.roaring import encode_roaring
from tiltyard.store import Created, Store
from tiltyard.store.directory import Directory
from tiltyard.table import catching_up, commit, group, index_segments, publish, tagging, versions
from tiltyard.table.cleanup import run, select, survey
from tiltyard.table.compact import carry as compact_carry
from tiltyard.table.compact import commit as compact_commit
from tiltyard.table.merge import execute as merge_execute
from tiltyard.testing.faults import Fault
from tiltyard.testing.simulation.explore import explore
from tiltyard.testing.simulation.port import SimulatedPort
from tiltyard.testing.simulation.scenarios import SCENARIOS

SHRINKING_RUNS = 40
"""Enough to see that findings get simpler."""

Planting = Callable[[], AbstractContextManager[Any]]


def found(planting: Planting, scenario: str, *checks: str, **weather: Any) -> str:
    """What the simulation finds in a scenario with this fault planted; one of `checks` must be it."""
    made: Any = SCENARIOS[scenario]()
    if weather:
        changed = replace(made.settings.weather, **{"failing_reads": False, **weather})
        made.settings = replace(made.settings, weather=changed, switch_chance=0.5)
    with planting():
        report = explore(made, range(MOST), shrinking_runs=SHRINKING_RUNS)
    assert report.finding is not None, f"nothing found: {report}"
    wrong = report.finding.run.wrong
    assert any(each.startswith(check) for each in wrong for check in checks), report.finding
    return str(report.finding)


def patched(owner: Any, name: str, value: Any) -> AbstractContextManager[Any]:
    return mock.patch.object(owner, name, value)


def test_planted_directories_are_not_synced() -> None:
    text = found(lambda: patched(Directory, "_fsync", lambda self, fd: None), "appends-disk", "T1")
    assert "machine crash" in text
    assert "python -m tiltyard.testing replay appends-disk" in text


def test_planted_files_are_not_synced() -> None:
    found(lambda: patched(SimulatedPort, "fdatasync", lambda self, fd: None), "appends-disk", "T1", "T4")


def test_planted_new_directories_are_not_settled() -> None:
    found(lambda: patched(Directory, "settle", lambda self, directory: None), "appends-disk", "T1", "T4")


def test_planted_a_taken_version_counts_as_won() -> None:
    real = publish.create_manifest

    def lenient(store: Store, version: int, path: str, buffers: Any) -> Created:
        answer = real(store, version, path, buffers)
        return Created.WON if answer is Created.EXISTS else answer

    def planting() -> AbstractContextManager[Any]:
        return mock.patch.dict(commit.commit.__kwdefaults__, {"publish": lenient})

    found(planting, "appends-disk", "T1", "T3")


def test_planted_conflicts_are_checked_with_the_latest_version_only() -> None:
    real = catching_up.CatchingUp._check

    def careless(self: Any, version: int, theirs: Any, current: Any) -> None:
        if version == current.version:
            real(self, version, theirs, current)

    def planting() -> AbstractContextManager[Any]:
        return patched(catching_up.CatchingUp, "_check", careless)

    found(planting, "upserts-objects", "T3", "T5", faults=frozenset())


def test_planted_the_deletions_of_others_are_forgotten() -> None:
    found(lambda: patched(catching_up, "stale_fragments", lambda *facts: ()), "deletes-disk", "T3")


def test_planted_the_read_version_moves_without_a_check() -> None:
    def blind(self: Any, current: Any) -> None:
        self.checked = current.version

    found(lambda: patched(catching_up.CatchingUp, "to", blind), "deletes-disk", "T1", "T3", "T4")


def test_planted_files_are_deleted_after_an_unknown_outcome() -> None:
    real = dataset_write._Write._committed

    def tidy(self: Any, snapshot: Any, fragments: Any, schema: Any) -> Any:
        try:
            return real(self, snapshot, fragments, schema)
        except OutcomeUnknown:
            dataset_write.remove_files(self._store, fragments)
            raise

    only = frozenset({Fault.LOSE_ANSWER, Fault.LOSE_REQUEST})
    found(lambda: patched(dataset_write._Write, "_committed", tidy), "appends-objects", "T4", faults=only)


def test_planted_the_hint_is_trusted() -> None:
    real = versions._greatest

    def trusting(store: Store) -> Any:
        hint = versions.read_hint(store)
        if hint is None:
            return real(store)
        return versions.VersionLocation(hint, versions.names.manifest_path(hint), "V2")

    stalling = {"faults": frozenset({Fault.PAUSE}), "stalls": (2.0,), "chance": 0.1, "machine_crash": False}
    found(lambda: patched(versions, "_greatest", trusting), "reads-disk", "T8", **stalling)


def test_planted_a_repeated_transaction_is_not_recognised() -> None:
    @contextmanager
    def planting() -> Iterator[None]:
        with ExitStack() as patches:
            patches.enter_context(patched(commit._Commit, "_is", lambda self, theirs: False))
            real = catching_up.CatchingUp.to

            def forgetful(self: Any, current: Any) -> Any:
                self.transaction = replace(self.transaction, uuid=str(runtime.uuid4()))
                return real(self, current)

            patches.enter_context(patched(catching_up.CatchingUp, "to", forgetful))
            yield

    only = frozenset({Fault.LOSE_ANSWER})
    found(planting, "repeats-objects", "T3", faults=only, chance=0.1)


def test_planted_inserted_keys_are_not_recorded() -> None:
    found(lambda: patched(merge_execute, "recorded_key", lambda bound: None), "upserts-disk", "T3", "T5")


def test_planted_a_hole_is_not_looked_for() -> None:
    @contextmanager
    def planting() -> Iterator[None]:
        with ExitStack() as patches:
            patches.enter_context(patched(commit, "fell_into_hole", lambda *facts, **more: None))
            patches.enter_context(patched(commit, "removing", lambda *facts: False))
            patches.enter_context(patched(commit, "MAX_LOOK_AGE_SECONDS", float("inf")))
            yield

    only = frozenset({Fault.PAUSE})
    calm = {"stalls": (40_000.0,), "most": 1, "chance": 0.05, "machine_crash": False}
    found(planting, "cleanups-disk", "T1", "T2", faults=only, **calm)


def test_planted_ages_are_told_by_the_hosts_clock() -> None:
    real = survey.look

    def by_the_host(*given: Any) -> Any:
        seen, intents = real(*given)
        return replace(seen, now_ns=runtime.now_ns()), intents

    only = frozenset({Fault.CLOCK_JUMP})
    found(lambda: patched(run, "look", by_the_host), "young-objects", "T7", faults=only, chance=0.2)


def test_planted_ages_count_from_the_content() -> None:
    """T7: a writer slept between a manifest's content and its name (once found with seed 50635)."""

    def by_content(versions: Any) -> dict[int, int]:
        return {each.version: each.mtime_ns for each in versions}

    sleepy = {"stalls": (4_000.0,), "chance": 0.1, "machine_crash": False}
    only = frozenset({Fault.PAUSE})
    found(lambda: patched(select, "_since", by_content), "cleanups-disk", "T7", faults=only, **sleepy)


def test_planted_tags_are_not_looked_at() -> None:
    def none(*given: Any) -> dict[int, Any]:
        return {}

    @contextmanager
    def planting() -> Iterator[None]:
        with patched(survey, "look_around", none), patched(run, "look_around", none):
            yield

    found(planting, "cleanups-disk", "T6", faults=frozenset(), machine_crash=False)


def test_planted_files_of_unfinished_writes_are_collected() -> None:
    found(
        lambda: patched(select, "GRACE_NS", 0),
        "cleanups-disk",
        "T3",
        "T4",
        "T6",
        faults=frozenset({Fault.PAUSE}),
        stalls=(40_000.0,),
    )


def test_planted_a_group_answers_everybody_alike() -> None:
    real = group._round

    def generous(members: Any) -> Any:
        answers = list(real(members))
        good = next((each for each in answers if not isinstance(each, BaseException)), None)
        return answers if good is None else [good] * len(answers)

    found(lambda: patched(group, "_round", generous), "grouped-overwrites-objects", "T3")


def test_planted_a_compaction_forgets_deletions() -> None:
    real = compact_carry.carry

    def forgetful(snapshot: Any, rewritten: Any, planned: Any) -> Any:
        carried = real(snapshot, rewritten, planned)
        return carried if isinstance(carried, str) else replace(carried, deleted={})

    found(lambda: patched(compact_commit, "carry", forgetful), "compactions-disk", "T3")


def test_planted_a_tag_is_made_over_another() -> None:
    """N1, N2: a creation that replaces answers everybody that it has won."""
    real = tagging.create_tag

    def replacing(root: Store, name: str, target: Any, metadata: Any = None) -> Any:
        with suppress(TagNotFound):
            tagging.delete_tag(root, name)
        return real(root, name, target, metadata)

    found(lambda: patched(tagging, "create_tag", replacing), "tags-disk", "N2", machine_crash=False)


def test_planted_an_index_answers_for_fragments_that_it_has_not_read() -> None:
    """T9: its coverage says all fragments, and nobody looks whether it holds their rows."""
    real = commit.apply

    def claiming(previous: Any, transaction: Any, **more: Any) -> Any:
        made = real(previous, transaction, **more)
        every = encode_roaring(made.fragments.ids)
        return replace(made, indices=tuple(replace(each, fragment_bitmap=every) for each in made.indices))

    @contextmanager
    def planting() -> Iterator[None]:
        with (
            patched(commit, "apply", claiming),
            patched(index_segments, "_proven", lambda snapshot, segment: segment),
        ):
            yield

    found(planting, "indices-objects", "T9", "T10", "T3", faults=frozenset())
