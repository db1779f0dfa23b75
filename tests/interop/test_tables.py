"""One table, two implementations: each extends, deletes from and travels through what the other wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as ours
from peer import Peer
from tables_alike import difference
from tiltyard.errors import TiltyardError

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("parts", pa.list_(pa.int32()))])


def rows(low: int, high: int) -> pa.Table:
    ids = list(range(low, high))
    return pa.table(
        {
            "id": ids,
            "text": [None if i % 7 == 0 else f"row {i}" for i in ids],
            "parts": [None if i % 5 == 0 else list(range(i % 4)) for i in ids],
        },
        schema=SCHEMA,
    )


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


def write(peer: Peer, by: str, table: pa.Table, path: str, **options: Any) -> None:
    if by == "ours":
        ours.write_dataset(table, path, **options)
    else:
        peer("result = lance.write_dataset(t, p, **o) and None", t=table, p=path, o=options)


def delete(peer: Peer, by: str, path: str, predicate: str) -> None:
    if by == "ours":
        ours.dataset(path).delete(predicate)
    else:
        peer("result = lance.dataset(p).delete(w) and None", p=path, w=predicate)


def both_read(peer: Peer, path: str, right: pa.Table, version: int | None = None) -> None:
    wrong = difference(right, ours.dataset(path, version=version).to_table())
    assert not wrong, f"ours: {wrong}"
    wrong = difference(right, peer("lance.dataset(p, version=v).to_table()", p=path, v=version))
    assert not wrong, f"the official reader: {wrong}"


@pytest.mark.parametrize("order", [("ours", "peer", "ours"), ("peer", "ours", "peer")])
@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_each_appends_to_the_others_table(
    order: tuple[str, ...], version: str, path: str, peer: Peer
) -> None:
    write(peer, order[0], rows(0, 100), path, data_storage_version=version)
    write(peer, order[1], rows(100, 230), path, mode="append")
    write(peer, order[2], rows(230, 231), path, mode="append")
    both_read(peer, path, rows(0, 231))
    assert peer(
        "{f.data_files()[0].file_minor_version for f in lance.dataset(p).get_fragments()}", p=path
    ) == {int(version[-1])}


@pytest.mark.parametrize("order", [("ours", "peer"), ("peer", "ours")])
def test_each_overwrites_the_others_table_and_old_versions_stay(
    order: tuple[str, ...], path: str, peer: Peer
) -> None:
    write(peer, order[0], rows(0, 100), path)
    other = pa.table({"name": ["a", "b"], "value": [1.5, None]})
    write(peer, order[1], other, path, mode="overwrite")
    both_read(peer, path, other)
    both_read(peer, path, rows(0, 100), version=1)


@pytest.mark.parametrize("first", ["ours", "peer"])
@pytest.mark.parametrize("share", ["few", "many", "a whole fragment"])
def test_deletes_of_both_add_up(first: str, share: str, path: str, peer: Peer) -> None:
    second = "peer" if first == "ours" else "ours"
    write(peer, first, rows(0, 3000), path, max_rows_per_file=1000)
    predicates = {
        "few": ("id IN (3, 1500, 2999)", "id = 4 OR id = 3"),
        "many": ("id % 2 = 0", "id >= 500 AND id < 1700"),
        "a whole fragment": ("id >= 1000 AND id < 2000", "id < 1000 AND text IS NULL"),
    }[share]
    gone = {
        "few": {3, 4, 1500, 2999},
        "many": {i for i in range(3000) if i % 2 == 0 or 500 <= i < 1700},
        "a whole fragment": {i for i in range(2000) if i >= 1000 or i % 7 == 0},
    }[share]
    delete(peer, first, path, predicates[0])
    delete(peer, second, path, predicates[1])
    kept = rows(0, 3000).filter(pa.array([i not in gone for i in range(3000)]))
    both_read(peer, path, kept)
    both_read(peer, path, rows(0, 3000), version=1)
    picks = [0, 17, kept.num_rows - 1]
    assert not difference(kept.take(picks), ours.dataset(path).take(picks))
    assert not difference(kept.take(picks), peer("lance.dataset(p).take(r)", p=path, r=picks))
    assert ours.dataset(path).count_rows() == peer("lance.dataset(p).count_rows()", p=path) == kept.num_rows


@pytest.mark.parametrize("writer", ["ours", "peer"])
def test_every_version_of_a_history_reads_the_same_on_both_sides(writer: str, path: str, peer: Peer) -> None:
    write(peer, writer, rows(0, 10), path)
    for step in range(1, 5):
        write(peer, writer, rows(10 * step, 10 * step + 10), path, mode="append")
    delete(peer, writer, path, "id < 25")
    for version in range(1, 6):
        both_read(peer, path, rows(0, 10 * version), version=version)
    both_read(peer, path, rows(25, 50), version=6)
    mine = [v["version"] for v in ours.dataset(path).versions()]
    assert mine == peer("[v['version'] for v in lance.dataset(p).versions()]", p=path) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("v2_names", [False, True])
@pytest.mark.parametrize("writer", ["ours", "peer"])
def test_both_schemes_of_manifest_names_are_read_and_continued(
    writer: str, v2_names: bool, path: str, peer: Peer
) -> None:
    write(peer, writer, rows(0, 10), path, enable_v2_manifest_paths=v2_names)
    names = set(os.listdir(os.path.join(path, "_versions")))
    assert ("1.manifest" in names) is not v2_names
    for by in ("ours", "peer", "ours"):
        count = ours.dataset(path).count_rows()
        write(peer, by, rows(count, count + 5), path, mode="append")
    both_read(peer, path, rows(0, 25))
    both_read(peer, path, rows(0, 15), version=2)
    names = {n for n in os.listdir(os.path.join(path, "_versions")) if n.endswith(".manifest")}
    assert len(names) == 4
    assert all((len(n) > 20) is v2_names for n in names), names


@pytest.mark.parametrize("later", ["nothing", "delete", "append and delete"])
def test_stable_row_ids_are_read_as_the_official_reader_reads_them(later: str, path: str, peer: Peer) -> None:
    write(peer, "peer", rows(0, 300), path, enable_stable_row_ids=True, max_rows_per_file=100)
    if later != "nothing":
        delete(peer, "peer", path, "id % 10 = 3")
    if later == "append and delete":
        write(peer, "peer", rows(300, 350), path, mode="append")
        delete(peer, "peer", path, "id > 340")
    ask = "lance.dataset(p).to_table(columns=['id'], with_row_id=True, with_row_address=True)"
    right = peer(ask, p=path)
    mine = ours.dataset(path).to_table(columns=["id"], with_row_id=True, with_row_address=True)
    assert not difference(right, mine.select(right.column_names))


def test_columns_dropped_added_and_renamed_officially_are_read(path: str, peer: Peer) -> None:
    write(peer, "ours", rows(0, 50), path, max_rows_per_file=20)
    peer(
        """
ds = lance.dataset(p)
ds.drop_columns(["text"])
ds.add_columns({"double": "id * 2"})
ds.alter_columns({"path": "parts", "name": "pieces"})
""",
        p=path,
    )
    write(
        peer,
        "ours",
        pa.table({"id": [50], "pieces": [[9]], "double": [7]}, schema=ours.dataset(path).schema),
        path,
        mode="append",
    )
    right = peer("lance.dataset(p).to_table()", p=path)
    assert right.column_names == ["id", "pieces", "double"]
    assert right["double"].to_pylist()[-2:] == [98, 7]
    assert not difference(right, ours.dataset(path).to_table())
    assert not difference(right.take([0, 49, 50]), ours.dataset(path).take([0, 49, 50]))
    filtered = "double > 60 AND pieces IS NOT NULL"
    mine = ours.dataset(path).to_table(columns=["double"], filter=filtered)
    assert not difference(
        peer("lance.dataset(p).to_table(columns=['double'], filter=f)", p=path, f=filtered), mine
    )


def test_an_official_tag_opens_its_version(path: str, peer: Peer) -> None:
    write(peer, "ours", rows(0, 5), path)
    write(peer, "ours", rows(5, 9), path, mode="append")
    peer("result = lance.dataset(p).tags.create('gold', 1)", p=path)
    assert not difference(rows(0, 5), ours.dataset(path, version="gold").to_table())
    assert ours.dataset(path).checkout_version("gold").version == 1
    with pytest.raises(TiltyardError, match="gold"):
        ours.dataset(path, version="silver")


def test_what_we_restore_the_official_reader_sees(path: str, peer: Peer) -> None:
    write(peer, "peer", rows(0, 5), path)
    write(peer, "peer", rows(5, 9), path, mode="append")
    old = ours.dataset(path, version=1)
    old.restore()
    both_read(peer, path, rows(0, 5))
    assert ours.dataset(path).version == 3


def test_the_official_compaction_of_our_files_keeps_every_row(path: str, peer: Peer) -> None:
    for step in range(6):
        write(peer, "ours", rows(50 * step, 50 * step + 50), path, mode="append" if step else "create")
    delete(peer, "ours", path, "id % 6 = 1")
    peer("result = lance.dataset(p).optimize.compact_files() and None", p=path)
    kept = rows(0, 300).filter(pa.array([i % 6 != 1 for i in range(300)]))
    both_read(peer, path, kept)
    assert len(ours.dataset(path).get_fragments()) == 1


def test_our_transactions_are_known_to_the_official_reader(path: str, peer: Peer) -> None:
    write(peer, "ours", rows(0, 5), path)
    write(peer, "ours", rows(5, 9), path, mode="append")
    delete(peer, "ours", path, "id = 3")
    names = "[type(lance.dataset(p).read_transaction(v).operation).__name__ for v in (1, 2, 3)]"
    assert peer(names, p=path) == ["Overwrite", "Append", "Delete"]
    mine = [type(ours.dataset(path).read_transaction(v).operation).__name__ for v in (1, 2, 3)]
    assert mine == ["Overwrite", "Append", "Delete"]


@pytest.mark.parametrize("stale", ["ours", "peer"])
def test_a_delete_through_an_official_or_our_stale_handle_is_rebased(
    stale: str, path: str, peer: Peer
) -> None:
    """Both hold version 1; one deletes, then the other deletes another row of the same fragment."""
    write(peer, "ours", rows(0, 100), path)
    mine = ours.dataset(path)
    peer("kept['stale'] = lance.dataset(p)", p=path)
    if stale == "peer":
        mine.delete("id = 10")
        peer("kept['stale'].delete('id = 11')")
    else:
        peer("kept['stale'].delete('id = 11')")
        mine.delete("id = 10")
    both_read(peer, path, rows(0, 100).filter(pa.array([i not in (10, 11) for i in range(100)])))
