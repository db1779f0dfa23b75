"""The product broken on purpose where readers, tags, indices and whoever comes next meet it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

from planting import MOST
from tiltyard import runtime
from tiltyard.dataset import LanceDataset
from tiltyard.dataset import write as dataset_write
from tiltyard.store import Created
from tiltyard.store.directory import Directory
from tiltyard.store.local import LocalStore
from tiltyard.table import tagging, versions
from tiltyard.table.compact.moves import Moves
from tiltyard.table.fragment_reuse import FragmentReuse
from tiltyard.table.snapshot import open_latest
from tiltyard.testing.faults import Fault
from tiltyard.testing.simulation.explore import explore
from tiltyard.testing.simulation.port import SimulatedPort
from tiltyard.testing.simulation.scenarios import SCENARIOS

SHRINKING_RUNS = 20


def found(scenario: str, owner: Any, name: str, value: Any, **weather: Any) -> tuple[str, ...]:
    """The kinds of what the simulation finds in a scenario with this in the product."""
    made: Any = SCENARIOS[scenario]()
    if weather:
        changed = replace(made.settings.weather, **weather)
        made.settings = replace(made.settings, weather=changed, switch_chance=0.5)
    with mock.patch.object(owner, name, value):
        report = explore(made, range(MOST), shrinking_runs=SHRINKING_RUNS)
    assert report.finding is not None, f"nothing found: {report}"
    return report.finding.run.kinds


def test_planted_a_read_shows_other_rows_than_its_version_has() -> None:
    """T10: handles say their version, and read the newest."""
    real = LanceDataset.to_table

    def newest(self: Any, *given: Any, **options: Any) -> Any:
        latest = open_latest(self._snapshot.store, self._snapshot.session)
        return real(LanceDataset._made(latest), *given, **options)

    assert found("reads-disk", LanceDataset, "to_table", newest) == ("T10",)


def test_planted_a_tag_is_told_before_it_is_safe() -> None:
    """T11: it is gone after a power cut, which tags are there to outlast."""
    real = LocalStore.create

    def hopeful(self: Any, path: str, data: Any) -> Created:
        if "_refs/tags/" not in path:
            return real(self, path, data)
        if self.exists(path):
            return Created.EXISTS
        self.write_hint(path, bytes(data), sync=True)  # the content, not the name
        return Created.WON

    assert found("cleanups-disk", LocalStore, "create", hopeful, faults=frozenset()) == ("T11",)


def test_planted_a_tag_is_made_for_another_version() -> None:
    """T11."""
    real = tagging.create_tag

    def newest(root: Any, name: str, target: Any, metadata: Any = None) -> Any:
        return real(root, name, open_latest(target.store, target.session), metadata)

    assert "T11" in found("reads-objects", tagging, "create_tag", newest)


def test_planted_whoever_comes_next_believes_the_hint() -> None:
    """T12: during the run everybody has seen better; those who come after a power cut have not."""
    real = versions._greatest

    def trusting(store: Any) -> Any:
        hint = versions.read_hint(store)
        if hint is None:
            return real(store)
        return versions.VersionLocation(hint, versions.names.manifest_path(hint), "V2")

    assert found("appends-disk", versions, "_greatest", trusting, faults=frozenset()) == ("T12",)


def test_planted_an_index_keeps_the_places_of_rows_that_a_compaction_moved() -> None:
    """T9: each row of the new fragments stands where another one is."""
    real = Moves.moved

    def reversed_rows(self: Any, addresses: Any) -> Any:
        kept, now = real(self, addresses)
        return kept, now[::-1]

    kinds = found("remaps-objects", Moves, "moved", reversed_rows, faults=frozenset())
    assert {"T9", "T10", "T3"} & set(kinds)


def test_planted_the_notes_of_a_compaction_are_not_read() -> None:
    """T9: an index that was not moved with its rows finds none of them."""
    kinds = found(
        "deferred-remaps-objects",
        FragmentReuse,
        "translate",
        lambda self, addresses: ((addresses == addresses), addresses),
        faults=frozenset(),
    )
    assert {"T9", "T10", "T3"} & set(kinds)


def test_planted_the_writes_of_the_dead_are_finished_by_others() -> None:
    """T3: a process that died while it wrote was told nothing, and everybody had gone on without it."""
    real = dataset_write._Write._committed
    begun: dict[Any, list[Any]] = {}

    def helpful(self: Any, snapshot: Any, fragments: Any, schema: Any) -> Any:
        simulated: Any = runtime.current()
        left = begun.setdefault(simulated, [])
        mine = (simulated.scheduler.running.process, fragments, schema)
        left.append(mine)
        for _ in range(10):
            self._store.exists("nothing")  # a time to die, with the files written
        for each in [each for each in left if each[0].dead]:
            left.remove(each)
            snapshot = real(self, open_latest(self._store, self._session), *each[1:])
        left.remove(mine)
        return real(self, snapshot, fragments, schema)

    only = {"faults": frozenset({Fault.CRASH}), "machine_crash": False, "chance": 0.2}
    assert "T3" in found("appends-disk", dataset_write._Write, "_committed", helpful, **only)


def test_planted_power_goes_after_the_last_answer() -> None:
    """Found in every scenario of a disk within a few runs, without any other fault."""
    unsafe = mock.patch.object(Directory, "_fsync")
    for name in ("young-disk", "restores-disk"):
        made: Any = SCENARIOS[name]()
        made.settings = replace(
            made.settings, weather=replace(made.settings.weather, faults=frozenset(), most=0)
        )
        with unsafe, mock.patch.object(SimulatedPort, "fdatasync"):
            report = explore(made, range(40), shrinking_runs=SHRINKING_RUNS)
        assert report.finding is not None, name
        assert "machine crash: nobody at work" in str(report.finding)
