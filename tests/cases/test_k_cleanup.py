"""Cleanup, tags and branches: the cases K01 to K07 and K10 to K13, and the histories C24 and C25."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from peer import Peer, PeerError
from tiltyard import runtime
from tiltyard.dataset import LanceDataset, LanceOperation, dataset, write_dataset, write_fragments
from tiltyard.errors import CleanupRefused, CorruptFile, TiltyardError, UnsupportedFeature, VersionNotFound
from tiltyard.format.manifest import decode_manifest, encode_manifest
from tiltyard.format.names import manifest_path
from tiltyard.session import Session
from tiltyard.store import open_store

NOW = timedelta(0)
DAY = 86_400


def rows(n: int) -> pa.Table:
    return pa.table({"a": [n, n + 1]})


def overwritten(uri: str, times: int = 4) -> LanceDataset:
    for n in range(times):
        ds = write_dataset(rows(n), uri, mode="overwrite" if n else "create")
    return ds


def hard(uri: str, **more: Any) -> Any:
    asked = {"older_than": NOW, "error_if_tagged_old_versions": False, **more}
    return dataset(uri).cleanup_old_versions(**asked)


def versions(uri: str) -> list[int]:
    return [each["version"] for each in dataset(uri).version_refs()]


def files(uri: str, folder: str = "data") -> set[str]:
    return {path.name for path in (Path(uri) / folder).iterdir()}


def age(path: Path, days: float) -> None:
    moment = path.stat().st_mtime - days * DAY
    os.utime(path, (moment, moment))


def both_read(uri: str, peer: Peer) -> None:
    """We and the official package read every version and every tag alike."""
    ds = dataset(uri)
    for number in versions(uri):
        ours = ds.checkout_version(number).to_table()
        assert ours == peer("lance.dataset(p, version=n).to_table()", p=uri, n=number)
    for tag in ds.tags.list():
        assert ds.checkout_version(tag).count_rows() == peer(
            "lance.dataset(p, version=n).count_rows()", p=uri, n=tag
        )


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def test_a_version_of_unknown_flags_keeps_everything(uri: str) -> None:
    """Case K01: files of overlays and of later features are not known to us, so nothing is removed."""
    overwritten(uri)
    path = Path(uri) / manifest_path(2)
    manifest, transaction = decode_manifest(path.read_bytes(), str(path))
    from dataclasses import replace

    flagged = replace(manifest, reader_flags=manifest.reader_flags | 1 << 6)
    path.write_bytes(b"".join(encode_manifest(flagged, transaction())))
    before = files(uri)
    for ask in ({"older_than": NOW}, {"versions": [1]}):
        with pytest.raises(UnsupportedFeature, match="data overlay files"):
            dataset(uri).cleanup_old_versions(**ask)
    assert files(uri) == before
    assert versions(uri) == [1, 2, 3, 4]


def test_overlays_that_the_official_package_committed_are_not_cleaned(uri: str, peer: Peer) -> None:
    """Case K01: every kind of file that a retained version names stays: deletions, indices, transactions."""
    peer(
        """
ds = lance.write_dataset(pa.table({"a": list(range(500)), "b": list(range(500))}), p)
ds.create_scalar_index("a", "BTREE")
ds.delete("a < 10")
ds.update({"b": "b + 1"}, where="a = 20")
lance.write_dataset(pa.table({"a": [1000], "b": [1]}), p, mode="append")
result = None
""",
        p=uri,
    )
    kept = peer("lance.dataset(p).to_table().sort_by('a')", p=uri)
    stats = hard(uri, delete_unverified=True)
    assert stats.old_versions == 4
    assert stats.transaction_files_removed == 4
    assert peer("lance.dataset(p).to_table().sort_by('a')", p=uri) == kept
    assert peer("lance.dataset(p).to_table(filter='a = 30').num_rows", p=uri) == 1
    assert peer("len(lance.dataset(p).list_indices())", p=uri) == 1
    dataset(uri).validate()


def test_a_tag_on_an_old_version_keeps_no_later_waste(uri: str, peer: Peer) -> None:
    """Case K02."""
    ds = overwritten(uri)
    ds.tags.create("first", 1)
    hard(uri)
    assert versions(uri) == [1, 4]
    assert len(files(uri)) == 2
    both_read(uri, peer)


@pytest.mark.parametrize(
    "name", ["with space", "100%", "a%20b", "x+y", "h#sh", "wh?t", "it's", 'q"uote', "ünï"]
)
def test_any_path_is_cleaned_up(tmp_path: Path, name: str) -> None:
    """Case K12."""
    uri = str(tmp_path / name / "t")
    Path(uri).parent.mkdir()
    overwritten(uri)
    assert hard(uri).old_versions == 3
    assert len(files(uri)) == 1
    assert dataset(uri).to_table() == rows(3)


def test_output_of_an_abandoned_write_goes_when_it_is_old_enough(uri: str) -> None:
    """Case K03."""
    ds = overwritten(uri, 2)
    ds.tags.create("one", 1)
    ds.tags.create("two", 2)
    (fragment,) = write_fragments(rows(7), uri)
    orphan = fragment.files[0].path
    hard(uri)
    assert orphan in files(uri)
    fate = _fate(ds, f"data/{orphan}")
    assert not fate.goes
    assert "write in progress" in fate.reason
    assert fate.until is not None
    age(Path(uri) / "data" / orphan, 8)
    hard(uri)
    assert orphan not in files(uri)
    (fragment,) = write_fragments(rows(7), uri)
    hard(uri, delete_unverified=True)
    assert len(files(uri)) == 2
    assert versions(uri) == [1, 2]


def _fate(ds: LanceDataset, path: str) -> Any:
    found = ds.explain_cleanup_old_versions(older_than=NOW, error_if_tagged_old_versions=False)
    return next(each for each in found.files if each.path == path)


def test_foreign_files_stay(uri: str) -> None:
    """Case K04."""
    overwritten(uri)
    strangers = ["media/a.lance", "data/foreign.bin", "readme.txt", "data/deep/x.lance", "_versions/note"]
    strangers += ["_mem_wal/shard/_versions/1.manifest", "_statistics/x.lance", "_tiltyard/own"]
    for name in strangers:
        path = Path(uri) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        age(path, 100)
    hard(uri, delete_unverified=True)
    assert all((Path(uri) / name).exists() for name in strangers)
    fates = {each.path: each for each in dataset(uri).explain_cleanup_old_versions().files}
    assert not fates["readme.txt"].goes
    assert not fates["media/"].goes


def test_a_branch_reads_after_its_parent_was_overwritten_and_cleaned(uri: str, peer: Peer) -> None:
    """Case K06."""
    overwritten(uri, 2)
    peer(
        """
b = lance.dataset(p).create_branch("dev", 1)
b = lance.write_dataset(pa.table({"a": [9]}), b, mode="append")
c = b.create_branch("deep/er", 2)
result = None
""",
        p=uri,
    )
    write_dataset(rows(5), uri, mode="overwrite")
    found = dataset(uri).explain_cleanup_old_versions(older_than=NOW)
    assert [(each.name, each.referenced_version) for each in found.referenced_branches] == [("dev", 1)]
    hard(uri, delete_unverified=True)
    assert versions(uri) == [1, 3]
    for branch, count in (("dev", 3), ("deep/er", 3)):
        assert dataset(uri).checkout_version((branch, None)).count_rows() == count
        assert peer("lance.dataset(p).checkout_version((b, None)).count_rows()", p=uri, b=branch) == count


def test_a_branch_is_cleaned_up_by_itself_and_its_tags_hold(uri: str, peer: Peer) -> None:
    """Case K06, from the branch: also where it is opened by its own place."""
    overwritten(uri, 1)
    peer(
        """
b = lance.dataset(p).create_branch("dev", 1)
for n in range(4): b = lance.write_dataset(pa.table({"a": [n]}), b, mode="overwrite")
result = None
""",
        p=uri,
    )
    ds = dataset(uri)
    ds.tags.create("held", ("dev", 3))
    place = f"{uri}/tree/dev"
    with pytest.raises(CleanupRefused, match="'held' on version 3"):
        dataset(place).cleanup_old_versions(older_than=NOW)
    stats = ds.checkout_version(("dev", None)).cleanup_old_versions(
        older_than=NOW, error_if_tagged_old_versions=False
    )
    assert stats.old_versions == 3
    assert versions(place) == [3, 5]
    assert ds.checkout_version("held").to_table()["a"].to_pylist() == [1]
    assert versions(uri) == [1]
    assert len(files(uri)) == 1


def test_a_branch_that_is_being_made_keeps_what_it_names(uri: str, peer: Peer) -> None:
    """Case K06: its versions are there before its record."""
    overwritten(uri, 2)
    peer("lance.dataset(p).create_branch('dev', 1) and None", p=uri)
    (Path(uri) / "_refs/branches/dev.json").unlink()
    write_dataset(rows(5), uri, mode="overwrite")
    hard(uri, delete_unverified=True)
    assert dataset(f"{uri}/tree/dev").to_table() == rows(0)


def test_a_write_in_progress_is_left_alone_and_refused_where_it_was_not(uri: str) -> None:
    """Case K07."""
    overwritten(uri, 2)
    for unverified in (False, True):
        fragments = write_fragments(rows(7), uri)
        base = dataset(uri).version
        hard(uri, delete_unverified=unverified)
        append = LanceOperation.Append(fragments)
        if not unverified:
            LanceDataset.commit(uri, append, read_version=base)
            assert dataset(uri).count_rows() == 4
            continue
        with pytest.raises(TiltyardError, match="was cleaned up"):
            LanceDataset.commit(uri, append, read_version=base)
        assert dataset(uri).count_rows() == 4


def test_a_second_cleanup_after_a_tag_was_moved_loses_nothing_more(uri: str, peer: Peer) -> None:
    """Case K11."""
    ds = overwritten(uri, 5)
    ds.tags.create("gold", 2)
    hard(uri)
    history = {n: dataset(uri).checkout_version(n).to_table() for n in versions(uri)}
    ds.tags.update("gold", 5)
    write_dataset(rows(9), uri, mode="append")
    hard(uri)
    assert versions(uri) == [5, 6]
    assert dataset(uri).checkout_version(5).to_table() == history[5]
    assert hard(uri).old_versions == 0
    both_read(uri, peer)


def test_a_reader_in_mid_scan_gets_its_rows_or_is_told_that_its_version_was_removed(uri: str) -> None:
    """Case K13."""
    data = pa.table({"a": range(20_000), "s": ["x" * 200] * 20_000})
    for n in range(6):
        write_dataset(data, uri, mode="append" if n else "create")
    old = dataset(uri, session=Session(metadata_cache_size_bytes=1))
    stream = old.to_batches(batch_size=1000)
    next(stream)
    write_dataset(rows(1), uri, mode="overwrite")
    hard(uri)
    try:
        assert sum(batch.num_rows for batch in stream) == 119_000
    except VersionNotFound as error:
        assert "version 6" in str(error)  # noqa: PT017
    with pytest.raises(VersionNotFound, match=r"version 6 of .* was removed"):
        old.to_table()
    with pytest.raises(VersionNotFound, match=r"version 6 of .* was removed"):
        old.count_rows("a > 5")
    with pytest.raises(VersionNotFound, match=r"version 6 of .* was removed"):
        old.take([5, 50_000])


def test_a_file_that_is_missing_while_its_version_is_there_is_damage(uri: str) -> None:
    """Case K13, the other half."""
    overwritten(uri, 1)
    shutil.rmtree(Path(uri) / "data")
    with pytest.raises(CorruptFile, match="missing in version 1"):
        dataset(uri, session=Session()).to_table()


def test_the_version_is_found_where_a_hint_lies_below_a_hole(uri: str, peer: Peer) -> None:
    """History C24: the hint says 5, which is tagged; 6 to 9 are gone, 10 to 12 live."""
    ds = overwritten(uri, 12)
    ds.tags.create("kept", 5)
    dataset(uri).cleanup_old_versions(versions=[1, 2, 3, 4, 6, 7, 8, 9], error_if_tagged_old_versions=False)
    hint = Path(uri) / "_versions/latest_version_hint.json"
    assert hint.read_text() == '{"version":12}'
    hint.write_text('{"version":5}')
    assert dataset(uri).version == 12
    assert write_dataset(rows(1), uri, mode="append").version == 13
    hard(uri)
    assert versions(uri) == [5, 13]
    both_read(uri, peer)


def test_a_stale_writer_of_the_official_package_commits_on_top_after_a_cleanup_of_ours(
    uri: str, peer: Peer
) -> None:
    """History C25: the hint is right before a manifest goes, so that nobody commits into the hole."""
    overwritten(uri, 2)
    (Path(uri) / "_versions/latest_version_hint.json").write_text('{"version":2}')
    peer("globals().update(stale=lance.dataset(p))", p=uri)
    for n in range(3):
        write_dataset(rows(n), uri, mode="append")
    (Path(uri) / "_versions/latest_version_hint.json").write_text('{"version":2}')
    dataset(uri).tags.create("kept", 2)
    hard(uri)
    assert versions(uri) == [2, 5]
    try:
        peer("lance.write_dataset(pa.table({'a': [77, 78]}), stale, mode='append') and None", p=uri)
    except PeerError:
        assert versions(uri) == [2, 5]
        return
    assert versions(uri) == [2, 5, 6]
    assert 77 in dataset(uri).to_table()["a"].to_pylist()


def test_the_two_implementations_clean_up_one_table_in_turns(uri: str, peer: Peer) -> None:
    for turn in range(6):
        for n in range(3):
            if (turn + n) % 2:
                write_dataset(rows(n), uri, mode="overwrite")
            else:
                peer(
                    "lance.write_dataset(pa.table({'a': [n, n + 1]}), p, mode='overwrite') and None",
                    p=uri,
                    n=n,
                )
        if turn == 1:
            dataset(uri).tags.create("ours", 2 + dataset(uri).version - 3)
        if turn == 2:
            peer("lance.dataset(p).tags.create('theirs', None)", p=uri)
        if turn % 2:
            hard(uri)
        else:
            peer(
                """
import datetime
lance.dataset(p).cleanup_old_versions(datetime.timedelta(0), error_if_tagged_old_versions=False)
result = None
""",
                p=uri,
            )
        both_read(uri, peer)
        tagged = {tag["version"] for tag in dataset(uri).tags.list().values()}
        assert set(versions(uri)) == tagged | {dataset(uri).version}
        assert len(files(uri)) == len(versions(uri))


def test_what_the_two_implementations_remove_is_the_same(tmp_path: Path, peer: Peer) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    peer(
        """
for n, mode in enumerate(["create", "overwrite", "append", "overwrite", "append"]):
    ds = lance.write_dataset(pa.table({"a": [n]}), p, mode=mode)
ds.delete("a = 3")
ds.tags.create("t", 3)
result = None
""",
        p=one,
    )
    shutil.copytree(one, other)
    ask: dict[str, Any] = {"retain_versions": 2, "error_if_tagged_old_versions": False, "older_than": NOW}
    ours = dataset(one).cleanup_old_versions(**ask)
    theirs = peer(
        """
s = lance.dataset(p).cleanup_old_versions(**ask)
result = {n: getattr(s, n) for n in dir(s) if not n.startswith("_")}
""",
        p=other,
        ask=ask,
    )
    assert {name: getattr(ours, name) for name in theirs} == theirs
    left = [sorted(str(path.relative_to(root)) for path in Path(root).rglob("*.*")) for root in (one, other)]
    ours_alone = {path for path in left[0] if not path.startswith("_tiltyard")}
    assert ours_alone == set(left[1])


def test_a_damaged_version_keeps_everything_and_is_named(uri: str) -> None:
    overwritten(uri)
    path = Path(uri) / manifest_path(2)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(CorruptFile, match="version 2 is damaged"):
        hard(uri)
    assert len(files(uri)) == 4
    path.unlink()
    assert hard(uri).old_versions == 2


@pytest.mark.parametrize(
    "place", ["_refs/tags/gold.json", "_refs/branches/dev.json", "_refs/tags/%C3%A4.json"]
)
def test_a_tag_or_branch_that_cannot_be_read_keeps_everything(uri: str, place: str) -> None:
    overwritten(uri)
    path = Path(uri) / place
    path.parent.mkdir(parents=True)
    path.write_text("{")
    with pytest.raises(CorruptFile, match=re.escape(place)):
        hard(uri)
    assert versions(uri) == [1, 2, 3, 4]
    path.write_text('{"branch": null, "version": 2, "parentVersion": 2}')
    hard(uri)
    assert versions(uri) == [2, 4]


@contextmanager
def later(days: float) -> Iterator[None]:
    """The store's clock so many days ahead."""
    from tiltyard.runtime import Runtime

    class Later(Runtime):
        def now_ns(self) -> int:
            return super().now_ns() + int(days * DAY * 1e9)

    before = runtime.install(Later())
    try:
        yield
    finally:
        runtime.install(before)


def test_without_anything_asked_for_two_weeks_are_kept(uri: str) -> None:
    overwritten(uri)
    assert dataset(uri).cleanup_old_versions().old_versions == 0
    with later(13):
        assert dataset(uri).cleanup_old_versions().old_versions == 0
    with later(15):
        assert dataset(uri).cleanup_old_versions().old_versions == 3


def test_the_newest_so_many_are_kept_and_so_is_the_last_hour(uri: str) -> None:
    overwritten(uri)
    assert dataset(uri).cleanup_old_versions(retain_versions=2).old_versions == 0
    with later(0.1):
        assert dataset(uri).cleanup_old_versions(retain_versions=2).old_versions == 2
    assert versions(uri) == [3, 4]


def test_a_cleanup_through_an_old_handle_leaves_what_it_shows(uri: str) -> None:
    overwritten(uri)
    old = dataset(uri, version=3)
    assert old.cleanup_old_versions(older_than=NOW).old_versions == 2
    assert versions(uri) == [3, 4]
    assert old.to_table() == rows(2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"older_than": timedelta(seconds=-1)},
        {"older_than": "soon"},
        {"older_than": True},
        {"retain_versions": 0},
        {"retain_versions": -1},
        {"retain_versions": 1.5},
        {"versions": []},
        {"versions": [0]},
        {"versions": [99]},
        {"versions": "12"},
        {"delete_rate_limit": 0},
        {"delete_concurrency": 0},
        {"delete_unverified": "yes"},
        {"error_if_tagged_old_versions": 1},
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_goes(uri: str, wrong: dict[str, Any]) -> None:
    overwritten(uri)
    ds = dataset(uri)
    acts = [ds.cleanup_old_versions]
    if "delete_concurrency" not in wrong:
        acts.append(ds.explain_cleanup_old_versions)
    for act in acts:
        with pytest.raises((TiltyardError, TypeError)) as raised:
            act(**{"older_than": NOW, **wrong})
        assert isinstance(raised.value, ValueError)
    assert versions(uri) == [1, 2, 3, 4]
    assert not (Path(uri) / "_tiltyard").exists()


def test_an_account_is_what_the_cleanup_then_does(uri: str) -> None:
    ds = overwritten(uri)
    ds.delete("a = 3")
    ds.tags.create("t", 2)
    write_fragments(rows(1), uri)
    ask: dict[str, Any] = {
        "older_than": NOW,
        "error_if_tagged_old_versions": False,
        "delete_unverified": True,
    }
    told = dataset(uri).explain_cleanup_old_versions(**ask, include_files=True, max_files=3)
    assert told.candidate_files_truncated
    assert len(told.candidate_files) == told.candidate_file_limit == 3
    whole = dataset(uri).explain_cleanup_old_versions(**ask, include_files=True)
    before = {path for path in Path(uri).rglob("*") if path.is_file()}
    done = dataset(uri).cleanup_old_versions(**ask)
    assert done == whole.stats == told.stats
    gone = {str(path.relative_to(uri)) for path in before if not path.exists()}
    assert gone == {each.path for each in whole.candidate_files}


def test_staged_and_unfinished_files_go_by_age(uri: str) -> None:
    overwritten(uri, 2)
    place = Path(uri)
    debris = [
        "_versions/.tmp_1.manifest",
        "data/.tmp1234",
        "_versions/18446744073709551614.manifest-0b8f1a2c-1111-4222-8333-123456789abc",
    ]
    for name in debris:
        (place / name).write_bytes(b"half")
    hard(uri)
    assert all((place / name).exists() for name in debris)
    for name in debris:
        age(place / name, 8)
    hard(uri)
    assert not any((place / name).exists() for name in debris)


def test_detached_versions_and_their_files_stay(uri: str, peer: Peer) -> None:
    overwritten(uri, 2)
    detached = peer(
        """
f = lance.fragment.write_fragments(pa.table({"a": [77]}), p)
result = lance.LanceDataset.commit(p, lance.LanceOperation.Append(f), read_version=2, detached=True).version
""",
        p=uri,
    )
    write_dataset(rows(5), uri, mode="overwrite")
    hard(uri, delete_unverified=True)
    assert dataset(uri, version=detached).count_rows() == 3
    assert versions(uri) == [3]


def test_intents_are_swept_up_after_an_hour(uri: str) -> None:
    overwritten(uri)
    hard(uri)
    store = open_store(uri)
    assert len(store.list_names("_tiltyard/cleanup")) == 1
    hard(uri)
    assert len(store.list_names("_tiltyard/cleanup")) == 1
    with later(0.1):
        hard(uri)
    assert store.list_names("_tiltyard/cleanup") == []
