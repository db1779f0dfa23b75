"""Operations on the rows of a table of a catalog, by its id."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from tiltyard.catalog.catalog import Catalog, open_catalog
from tiltyard.catalog.found import Found
from tiltyard.catalog.namespaces import create_namespace
from tiltyard.catalog.operations import ipc, reading, rows, statistics
from tiltyard.catalog.operations.opening import opened
from tiltyard.catalog.operations.reading import Query
from tiltyard.catalog.operations.rows import MergeRules
from tiltyard.catalog.tables import create_table, declare_table
from tiltyard.catalog.trash import drop_table
from tiltyard.dataset import LanceDataset
from tiltyard.errors import InvalidInput, SchemaMismatch, TableNotFound, TiltyardError, UnsupportedFeature

T = pa.table({"id": [1, 2, 3], "s": ["a", "b", "c"]})
V = pa.table(
    {"id": [1, 2, 3], "vector": pa.array([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]], pa.list_(pa.float32(), 2))}
)
MODES = {
    "mixed": {},
    "v1": {"manifest_enabled": "false"},
    "manifest": {"dir_listing_enabled": "false"},
    "migration": {"dir_listing_to_manifest_migration_enabled": "true"},
}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = open_catalog(tmp_path / "lake")
    create_namespace(made, ("ops",))
    return made


def ids(catalog: Catalog, id: tuple[str, ...]) -> list[int]:
    found: list[int] = sorted(opened(catalog, id).to_table()["id"].to_pylist())
    return found


@pytest.mark.parametrize("mode", MODES)
def test_rows_come_and_go_in_every_mode(mode: str, tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path, properties=MODES[mode])
    create_table(catalog, ("t",), T)
    assert rows.insert(catalog, ("t",), T).inserted == 3
    assert rows.insert(catalog, ("t",), T, mode="overwrite").version == 3
    assert rows.update(catalog, ("t",), [("s", "'new'")], "id = 1").updated == 1
    assert rows.delete(catalog, ("t",), "id = 2").deleted == 1
    done = rows.merge_insert(
        catalog, ("t",), pa.table({"id": [3, 4], "s": ["x", "y"]}), MergeRules(("id",), update=True)
    )
    assert (done.inserted, done.updated, done.deleted, done.version) == (1, 1, 0, 6)
    assert reading.count(catalog, ("t",)) == 3
    assert reading.count(catalog, ("t",), "s = 'new'") == 1
    assert reading.count(catalog, ("t",), version=1) == 3
    assert opened(catalog, ("t",)).to_table().sort_by("id").to_pydict() == {
        "id": [1, 3, 4],
        "s": ["new", "x", "y"],
    }


def test_an_insert_makes_a_declared_table_real(catalog: Catalog) -> None:
    """Case N10."""
    for id in (("ops", "d"), ("d",)):
        declare_table(catalog, id, properties={"p": "q"})
        with pytest.raises(TableNotFound, match="declared"):
            reading.count(catalog, id)
        done = rows.insert(catalog, id, T)
        assert (done.version, done.inserted, reading.count(catalog, id)) == (1, 3, 3)
        assert rows.insert(catalog, id, T).version == 2


def test_a_merge_makes_a_declared_table_real(catalog: Catalog) -> None:
    """Case N10."""
    declare_table(catalog, ("ops", "d"))
    assert rows.merge_insert(catalog, ("ops", "d"), T, MergeRules(("id",))).inserted == 3
    assert ids(catalog, ("ops", "d")) == [1, 2, 3]
    declare_table(catalog, ("ops", "e"))
    only_updates = MergeRules(("id",), update=True, insert=False)
    assert rows.merge_insert(catalog, ("ops", "e"), T, only_updates).inserted == 0
    assert ids(catalog, ("ops", "e")) == []


def test_a_declared_table_that_is_dropped_meanwhile_is_not_made_anew(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_found = rows.open_found

    def dropping(catalog: Catalog, found: Found) -> LanceDataset:
        with suppress(TableNotFound):
            drop_table(catalog, found.id)
        return open_found(catalog, found)

    declare_table(catalog, ("d",))
    declare_table(catalog, ("ops", "d"))
    monkeypatch.setattr(rows, "open_found", dropping)
    with pytest.raises(TableNotFound):
        rows.insert(catalog, ("d",), T)
    assert not (Path(catalog.uri) / "d.lance").exists()
    rows.insert(catalog, ("ops", "d"), T)  # it came before the drop: the rows are dropped with the table
    with pytest.raises(TableNotFound):
        reading.count(catalog, ("ops", "d"))


def test_merges_delete_what_the_source_lacks(catalog: Catalog) -> None:
    create_table(catalog, ("ops", "t"), T)
    rules = MergeRules(("id",), insert=False, delete_by_source=True, delete_filter="id > 2")
    done = rows.merge_insert(catalog, ("ops", "t"), T.slice(0, 1), rules)
    assert (done.deleted, ids(catalog, ("ops", "t"))) == (1, [1, 2])


@pytest.mark.parametrize(
    "bad",
    [
        MergeRules(()),
        MergeRules(("id", "id")),
        MergeRules(("id",), insert=False),
        MergeRules(("nope",)),
        MergeRules(("id",), update=True, update_filter="nonsense ("),
    ],
)
def test_merges_without_sense_change_nothing(bad: MergeRules, catalog: Catalog) -> None:
    create_table(catalog, ("t",), T)
    with pytest.raises(InvalidInput):
        rows.merge_insert(catalog, ("t",), T, bad)
    assert opened(catalog, ("t",)).version == 1


def test_changes_without_sense_change_nothing(catalog: Catalog) -> None:
    create_table(catalog, ("t",), T)
    calls = [
        lambda: rows.update(catalog, ("t",), []),
        lambda: rows.update(catalog, ("t",), [("nope", "1")]),
        lambda: rows.update(catalog, ("t",), [("id", "1"), ("id", "2")]),
        lambda: rows.delete(catalog, ("t",), "  "),
        lambda: rows.delete(catalog, ("t",), "nope = 1"),
        lambda: rows.insert(catalog, ("t",), T, mode="upsert"),
        lambda: reading.count(catalog, ("t",), "nonsense ("),
    ]
    for call in calls:
        with pytest.raises(InvalidInput):
            call()
    with pytest.raises(SchemaMismatch):
        rows.insert(catalog, ("t",), pa.table({"other": [1]}))
    assert opened(catalog, ("t",)).version == 1


def test_only_the_main_branch_is_changed(catalog: Catalog) -> None:
    create_table(catalog, ("t",), T)
    for call in (
        lambda: rows.insert(catalog, ("t",), T, branch="b"),
        lambda: rows.update(catalog, ("t",), [("id", "1")], branch="b"),
        lambda: rows.delete(catalog, ("t",), "true", branch="b"),
        lambda: rows.merge_insert(catalog, ("t",), T, MergeRules(("id",)), branch="b"),
    ):
        with pytest.raises(UnsupportedFeature, match="branch 'b'"):
            call()
    assert rows.insert(catalog, ("t",), T, branch="main").version == 2


def test_a_missing_table_is_told(catalog: Catalog) -> None:
    for call in (
        lambda: rows.insert(catalog, ("ops", "no"), T),
        lambda: rows.delete(catalog, ("ops", "no"), "true"),
        lambda: reading.query(catalog, ("ops", "no"), Query(0)),
        lambda: statistics.table_statistics(catalog, ("no",)),
    ):
        with pytest.raises(TableNotFound):
            call()


# -- queries -------------------------------------------------------------------------------------


def test_queries_filter_project_and_page(catalog: Catalog) -> None:
    create_table(catalog, ("t",), T)

    def ask(**named: object) -> dict[str, list[object]]:
        found: dict[str, list[object]] = reading.query(
            catalog, ("t",), Query(**{"k": 0, **named})
        ).to_pydict()  # type: ignore[arg-type]
        return found

    assert ask() == T.to_pydict()
    assert ask(k=2) == T.slice(0, 2).to_pydict()
    assert ask(filter="id > 1", offset=1) == T.slice(2).to_pydict()
    assert ask(columns=("s",), k=1) == {"s": ["a"]}
    assert ask(columns={"twice": "id * 2"}) == {"twice": [2, 4, 6]}
    assert list(ask(with_row_id=True)) == ["id", "s", "_rowid"]
    rows.insert(catalog, ("t",), T)
    assert len(ask(version=1)["id"]) == 3


def test_searches_are_exact_and_bring_the_distance(catalog: Catalog) -> None:
    create_table(catalog, ("v",), V)

    def ask(**named: object) -> dict[str, list[object]]:
        asked = Query(**{"k": 0, "vector": (1.0, 0.0), "columns": ("id",), **named})  # type: ignore[arg-type]
        found: dict[str, list[object]] = reading.query(catalog, ("v",), asked).to_pydict()
        return found

    assert ask(k=1) == {"id": [1], "_distance": [0.0]}
    assert ask()["id"] == [1, 2, 3]
    assert ask(offset=1, k=1)["id"] == [2]
    assert ask(filter="id > 1", prefilter=True, k=1)["id"] == [2]
    assert ask(filter="id > 1", k=1)["id"] == []
    assert ask(metric="inner_product", k=1)["id"] == [3]
    assert ask(low=1.0, high=10.0)["id"] == [2]
    with pytest.raises(InvalidInput, match="distance_type"):
        ask(metric="taxi")


def test_plans_are_text(catalog: Catalog) -> None:
    create_table(catalog, ("t",), T)
    asked = Query(2, filter="id > 1", columns=("s",))
    assert "reads: " in reading.explain(catalog, ("t",), asked)
    assert "output_rows=2" in reading.analyze(catalog, ("t",), asked)


# -- figures and bytes ---------------------------------------------------------------------------


def test_statistics_count_physical_rows(catalog: Catalog) -> None:
    create_table(catalog, ("t",), T)
    rows.insert(catalog, ("t",), T)
    rows.delete(catalog, ("t",), "id = 1")
    found = statistics.table_statistics(catalog, ("t",))
    assert (found.rows, found.fragments, found.small_fragments, found.indices) == (6, 2, 2, 0)
    assert found.lengths == {"min": 3, "max": 3, "mean": 3, "p25": 3, "p50": 3, "p75": 3, "p99": 3}
    on_disk = sum(path.stat().st_size for path in Path(catalog.uri, "t.lance").rglob("data/*.lance"))
    assert 0 < found.total_bytes < on_disk
    create_table(catalog, ("e",), T.schema)
    assert set(statistics.table_statistics(catalog, ("e",)).lengths.values()) == {0}


def stream_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def test_streams_are_read_whole_or_refused() -> None:
    whole = stream_of(T)
    assert ipc.read_stream(whole, "x").equals(T)
    assert ipc.read_stream(memoryview(whole), "x").equals(T)
    assert ipc.read_stream(stream_of(T.slice(0, 0)), "x").schema == T.schema
    for bad in (None, b"", b"nonsense", whole[: len(whole) // 2], 7, "text"):
        with pytest.raises(TiltyardError):
            ipc.read_stream(bad, "x")
    for at in range(0, len(whole), 7):
        broken = bytearray(whole)
        broken[at] ^= 0xFF
        try:
            ipc.read_stream(bytes(broken), "x")
        except InvalidInput:
            continue


def test_files_are_what_arrow_reads() -> None:
    assert pa.ipc.open_file(pa.py_buffer(ipc.write_file(T))).read_all().equals(T)
