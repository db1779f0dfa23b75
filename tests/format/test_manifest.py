"""Manifests to and from bytes, and the peer's own as the measure."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tiltyard.errors import CorruptFile, TiltyardError, UnsupportedFeature
from tiltyard.format import flags
from tiltyard.format.base_paths import BasePath
from tiltyard.format.fragment import DataFile, DeletionFile, Fragment, FragmentList
from tiltyard.format.index_metadata import (
    IndexFile,
    IndexMetadata,
    TypedBytes,
    decode_index_section,
    encode_index_section,
)
from tiltyard.format.manifest import (
    DataFormat,
    Manifest,
    WriterVersion,
    decode_manifest,
    encode_manifest,
)
from tiltyard.format.operations import Append
from tiltyard.format.protos import index_pb2
from tiltyard.format.protos import table_pb2 as pb
from tiltyard.format.roaring import encode_roaring
from tiltyard.format.schema import Schema
from tiltyard.format.transaction import Transaction

SCHEMA = Schema.from_arrow(pa.schema([("a", pa.int64()), ("s", pa.string())], metadata={"k": "v"}))
UUID = "01234567-89ab-4def-8123-456789abcdef"
NEWER_FIELD = b"\xf2\x06\x03abc"
"""Field 110, which no message has."""


def a_fragment(id: int, rows: int = 10, deleted: int = 0) -> Fragment:
    deletion = DeletionFile("arrow", 1, 77, deleted) if deleted else None
    return Fragment(id, (DataFile(f"{id}.lance", (0, 1), (0, 1), size=100),), rows, deletion)


def a_manifest(**changes: object) -> Manifest:
    index = IndexMetadata(
        UUID,
        (0,),
        "a_idx",
        3,
        encode_roaring(np.array([0, 1])),
        TypedBytes("/lance.table.BTreeIndexDetails"),
        0,
        1_700_000_000_000,
        files=(IndexFile("page_data.lance", 9),),
    )
    made = Manifest(
        SCHEMA,
        FragmentList.of([a_fragment(0), a_fragment(1, deleted=3)]),
        5,
        1_700_000_000_123_456_789,
        1,
        9,
        max_fragment_id=1,
        transaction_file=f"4-{UUID}.txn",
        writer_version=WriterVersion("tiltyard", "0.1.0"),
        data_format=DataFormat("lance", "2.2"),
        config={"x": "y"},
        table_metadata={"t": ""},
        base_paths=(BasePath(1, "/elsewhere", "other", True),),
        branch="dev",
        indices=(index,),
    )
    return replace(made, **changes)


def encoded(manifest: Manifest, transaction: Transaction | None = None) -> bytes:
    return b"".join(encode_manifest(manifest, transaction))


def decoded(data: bytes) -> tuple[Manifest, Transaction | None]:
    manifest, load = decode_manifest(data, "m.manifest")
    return manifest, load()


TRANSACTION = Transaction(4, UUID, Append((a_fragment(0),)), {"__lance_commit_message": "why"})


def test_everything_round_trips() -> None:
    manifest = a_manifest()
    assert decoded(encoded(manifest, TRANSACTION)) == (manifest, TRANSACTION)
    assert decoded(encoded(manifest)) == (manifest, None)
    bare = Manifest(Schema(()), FragmentList(), 1)
    assert decoded(encoded(bare)) == (bare, None)


def message_of(data: bytes) -> pb.Manifest:
    position = int.from_bytes(data[-16:-8], "little")
    return pb.Manifest.FromString(data[position + 4 : -16])


def test_offsets_are_written_even_when_they_are_zero() -> None:
    with_index = message_of(encoded(a_manifest(), TRANSACTION))
    assert with_index.HasField("index_section")
    assert with_index.index_section == 0
    assert with_index.transaction_section > 0
    without = message_of(encoded(a_manifest(indices=()), TRANSACTION))
    assert not without.HasField("index_section")
    assert without.HasField("transaction_section")
    assert without.transaction_section == 0
    assert not message_of(encoded(a_manifest(indices=()))).HasField("transaction_section")


def test_the_footer_says_format_0_2() -> None:
    assert encoded(a_manifest())[-8:] == b"\x00\x00\x02\x00LANC"


def test_the_old_number_of_the_transaction_section_is_read() -> None:
    data = encoded(a_manifest(indices=()), TRANSACTION)
    message = message_of(data)
    message.old_transaction_section = message.transaction_section
    message.ClearField("transaction_section")
    body = message.SerializeToString()
    position = int.from_bytes(data[-16:-8], "little")
    changed = data[:position] + len(body).to_bytes(4, "little") + body + data[-16:]
    assert decoded(changed)[1] == TRANSACTION


def test_a_transaction_too_large_to_inline_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiltyard.format.manifest.MAX_INLINE_TRANSACTION_BYTES", 10)
    assert decoded(encoded(a_manifest(), TRANSACTION))[1] is None


def with_newer_fields(manifest: Manifest) -> bytes:
    data = encoded(manifest)
    message = message_of(data)
    message.MergeFromString(NEWER_FIELD)
    message.fragments[0].MergeFromString(NEWER_FIELD)
    message.fragments[1].files[0].MergeFromString(NEWER_FIELD)
    message.fragments[1].deletion_file.MergeFromString(NEWER_FIELD)
    message.fields[1].MergeFromString(NEWER_FIELD)
    message.base_paths[0].MergeFromString(NEWER_FIELD)
    body = message.SerializeToString(deterministic=True)
    position = int.from_bytes(data[-16:-8], "little")
    return data[:position] + len(body).to_bytes(4, "little") + body + data[-16:]


def test_unknown_fields_survive_a_rewrite_and_a_change() -> None:
    newer = with_newer_fields(a_manifest())
    manifest, _ = decoded(newer)
    assert encoded(manifest) == newer
    touched = [replace(each, physical_rows=11) for each in manifest.fragments]
    changed = replace(
        manifest, fragments=manifest.fragments.replaced({0: touched[0], 1: touched[1]}), config={}
    )
    assert encoded(changed).count(NEWER_FIELD) == 6
    replaced_file = replace(touched[1], files=(replace(touched[1].files[0], size=7),))
    assert encoded(replace(changed, fragments=FragmentList.of([replaced_file]))).count(NEWER_FIELD) == 5


def test_unknown_fields_of_index_entries_survive() -> None:
    data = encoded(a_manifest())
    size = int.from_bytes(data[:4], "little")
    section = index_pb2.IndexSection.FromString(data[4 : 4 + size])
    section.indices[0].MergeFromString(NEWER_FIELD)
    entries = decode_index_section(section.SerializeToString(), "m")
    changed = replace(entries[0], dataset_version=9)
    assert encode_index_section([changed]).endswith(NEWER_FIELD)


def test_fragments_are_made_on_demand_and_carried_over() -> None:
    manifest, _ = decoded(encoded(a_manifest(fragments=FragmentList.of(map(a_fragment, range(1000))))))
    fragments = manifest.fragments
    assert fragments.ids.tolist() == list(range(1000))
    assert fragments.physical_rows.sum() == 10_000
    assert not fragments._made
    grown = fragments.appended([a_fragment(1000, 7)])
    assert not grown._made
    assert grown._messages[5] is fragments._messages[5]
    assert grown.ids[-1] == 1000
    assert grown.num_rows == 10_007
    assert grown[1000] == a_fragment(1000, 7)
    assert grown[-1] == grown[1000]
    assert len(fragments) == 1000


def test_lists_of_fragments_are_changed_by_id() -> None:
    fragments = FragmentList.of([a_fragment(3), a_fragment(5, deleted=2), a_fragment(9)])
    assert fragments.deleted_rows.tolist() == [0, 2, 0]
    assert fragments.any_deletions
    assert not fragments.without([5]).any_deletions
    assert fragments.without([5, 77]).ids.tolist() == [3, 9]
    assert fragments.without([77]) is fragments
    changed = fragments.replaced({9: a_fragment(9, 1)})
    assert changed.by_id(9) == a_fragment(9, 1)
    assert (changed.by_id(4), changed.position(5), changed.max_id) == (None, 1, 9)
    with pytest.raises(KeyError):
        fragments.replaced({4: a_fragment(4)})
    unsorted = FragmentList.of([a_fragment(9), a_fragment(3)])
    assert unsorted.by_id(3) == a_fragment(3)
    assert unsorted.sorted_by_id().ids.tolist() == [3, 9]
    for some, places in ((unsorted, [-1, 1, -1, 0, 1, -1]), (fragments, [-1, 0, 1, 2, 0, -1])):
        assert some.positions(np.array([1, 3, 5, 9, 3, 10])).tolist() == places
    assert FragmentList().positions(np.array([1, 3])).tolist() == [-1, -1]
    assert FragmentList().max_id is None
    assert FragmentList().num_rows == 0


def test_arrays_and_marks_of_a_grown_list_are_those_of_a_fresh_one() -> None:
    fragments = FragmentList.of([a_fragment(1)])
    assert not fragments.any_deletions
    fragments.encode()
    grown = fragments.appended([a_fragment(2, deleted=4), replace(a_fragment(3), spilled_created=True)])
    fresh = FragmentList.of(list(grown))
    assert grown == fresh
    assert grown.encode() == fresh.encode()
    assert (grown.any_deletions, grown.any_spilled) == (True, True)
    assert grown.deleted_rows.tolist() == [0, 4, 0]


def test_values_can_be_pickled() -> None:
    manifest, transaction = decoded(encoded(a_manifest(), TRANSACTION))
    assert pickle.loads(pickle.dumps((manifest, transaction))) == (manifest, transaction)
    assert pickle.loads(pickle.dumps(manifest.fragments[1])) == manifest.fragments[1]


def refused(data: bytes, match: str, error: type[Exception] = CorruptFile) -> None:
    with pytest.raises(error, match=match) as caught:
        decoded(data)
    assert "m.manifest" in str(caught.value)


def test_damage_names_the_file_and_what_was_expected() -> None:
    data = encoded(a_manifest(), TRANSACTION)
    refused(b"", "has 0 bytes")
    refused(data[:30], "expected b'LANC'")
    refused(data[:-4] + b"XXXX", "expected b'LANC' .* found b'XXXX'")
    refused(data + b"x", "expected b'LANC'")
    refused(data[:-16] + b"\xff" * 8 + data[-8:], "should start at byte")
    refused(data[:-16] + bytes(8) + data[-8:], "says it has")
    refused(data[:100] + data[101:], "says it has|should start")
    refused(data[:-8] + b"\x07\x00\x02\x00LANC", "manifest format 7.2", UnsupportedFeature)


def test_a_section_outside_the_file_is_corrupt() -> None:
    data = encoded(a_manifest(indices=()), TRANSACTION)
    message = message_of(data)
    message.transaction_section = 2**60
    body = message.SerializeToString()
    position = int.from_bytes(data[-16:-8], "little")
    refused(data[:position] + len(body).to_bytes(4, "little") + body + data[-16:], "transaction section")


def test_a_fragment_tree_is_refused_by_name() -> None:
    data = encoded(Manifest(SCHEMA, FragmentList(), 1))
    body = data[4:-16] + b"\xb2\x01\x00"
    changed = len(body).to_bytes(4, "little") + body + data[-16:]
    refused(changed, "fragment tree", UnsupportedFeature)


def test_a_damaged_fragment_names_the_file_when_it_is_met() -> None:
    data = encoded(a_manifest())
    message = message_of(data)
    message.fragments[1].deletion_file.file_type = 7
    message.fragments[0].files[0].path = "../elsewhere.lance"
    body = message.SerializeToString()
    position = int.from_bytes(data[-16:-8], "little")
    fragments = decoded(data[:position] + len(body).to_bytes(4, "little") + body + data[-16:])[0].fragments
    with pytest.raises(CorruptFile, match=r"m\.manifest: fragment 1 has a deletion file of unknown type 7"):
        fragments[1]
    with pytest.raises(CorruptFile, match=r"m\.manifest: fragment 0 names the data file '\.\./elsewhere"):
        fragments[0]


def test_random_damage_gives_a_value_or_a_typed_error() -> None:
    dice = random.Random(11)
    data = encoded(a_manifest(), TRANSACTION)
    for _ in range(2000):
        changed = bytearray(data)
        for _ in range(dice.choice((1, 1, 3, 9))):
            changed[dice.randrange(len(data))] = dice.choice((0, 255, dice.randrange(256)))
        if dice.random() < 0.2:
            del changed[dice.randrange(len(data)) :]
        try:
            manifest, load = decode_manifest(bytes(changed), "m.manifest")
            assert manifest.schema.arrow is not None
            list(manifest.fragments)
            assert manifest.fragments.num_rows is not None
            load()
        except TiltyardError:
            continue


# -- the peer ------------------------------------------------------------------------------------

HISTORY = """
ds = lance.write_dataset(pa.table({"a": range(100), "s": ["x"] * 100}), path, enable_stable_row_ids=stable)
ds = lance.write_dataset(pa.table({"a": range(100, 200), "s": ["y"] * 100}), path, mode="append")
ds.delete("a < 5")
ds.create_scalar_index("a", "BTREE")
ds.update_config({"k": "v"})
ds.update({"s": "'q'"}, where="a = 50")
ds.merge_insert("a").when_matched_update_all().when_not_matched_insert_all().execute(
    pa.table({"a": [60, 1000], "s": ["m", "n"]})
)
ds = lance.dataset(path)
ds.add_columns({"c": "a + 1"})
ds.alter_columns({"path": "c", "name": "d"})
ds.alter_columns({"path": "d", "data_type": pa.int32()})
ds.drop_columns(["d"])
ds.replace_schema_metadata({"m": "n"})
ds.replace_field_metadata("a", {"f": "g"})
ds.optimize.compact_files()
ds.delete("a > 150")
old = lance.dataset(path, version=2)
old.restore()
ds = lance.dataset(path)
ds.tags.create("gold", 3)
ds.create_branch("dev", 3)
lance.write_dataset(pa.table({"a": range(7), "s": ["w"] * 7}), path, mode="overwrite")
result = lance.dataset(path).to_table()
"""


def manifests(root: Path) -> list[Path]:
    return sorted(root.rglob("*.manifest"))


def without_offsets(data: bytes) -> pb.Manifest:
    message = message_of(data)
    message.ClearField("transaction_section")
    return message


@pytest.mark.parametrize("stable", [False, True])
def test_manifests_of_the_peer_are_decoded_and_encoded_alike(peer, tmp_path: Path, stable: bool) -> None:
    root = tmp_path / "t"
    rows = peer(HISTORY, path=str(root), stable=stable)
    seen = set()
    for path in manifests(root):
        data = path.read_bytes()
        manifest, load = decode_manifest(data, str(path))
        transaction = load()
        assert transaction is not None
        seen.add(transaction.name)
        flags.check_reader(manifest)
        flags.check_writer(manifest)
        assert flags.uses_stable_row_ids(manifest) == stable
        own = encoded(manifest, transaction)
        assert decode_manifest(own, str(path))[0] == manifest
        assert decode_manifest(own, str(path))[1]() == transaction
        assert without_offsets(own) == without_offsets(data)
        assert manifest.unknown == b""
        path.chmod(0o644)
        path.write_bytes(own)
    assert seen >= {
        "Append",
        "Clone",
        "CreateIndex",
        "Delete",
        "Merge",
        "Overwrite",
        "Project",
        "ReserveFragments",
        "Restore",
        "Rewrite",
        "Update",
        "UpdateConfig",
    }
    # Every version stands on what we wrote, and the peer goes on from there.
    found = peer(
        """
ds = lance.dataset(path)
counts = [lance.dataset(path, version=v["version"]).count_rows() for v in ds.versions()]
lance.write_dataset(pa.table({"a": [1], "s": ["z"]}), path, mode="append")
result = (ds.to_table(), counts, lance.dataset(path).count_rows())
""",
        path=str(root),
    )
    assert found[0] == rows
    assert found[2] == rows.num_rows + 1


@pytest.mark.parametrize("stable", [False, True])
def test_flags_follow_from_the_content_as_the_peer_sets_them(peer, tmp_path: Path, stable: bool) -> None:
    peer(HISTORY, path=str(tmp_path / "t"), stable=stable)
    previous = None
    for path in reversed(manifests(tmp_path / "t" / "_versions")):
        manifest, _ = decode_manifest(path.read_bytes(), str(path))
        assert flags.recomputed(manifest, previous) == manifest
        previous = manifest


def test_the_peer_reads_a_manifest_with_base_paths_and_spilled_marks_as_we_do(peer, tmp_path: Path) -> None:
    root = tmp_path / "t"
    peer(
        """
ds = lance.write_dataset(pa.table({"a": range(10)}), path, data_storage_version="2.1")
lance.write_dataset(pa.table({"a": range(10)}), path, mode="append", data_storage_version="2.2")
ds = lance.dataset(path)
ds.shallow_clone(path + "clone", 2)
""",
        path=str(root),
    )
    clone = manifests(tmp_path / "tclone" / "_versions")[0]
    manifest, load = decode_manifest(clone.read_bytes(), str(clone))
    assert [each.folder("data") for each in manifest.base_paths] == [f"{root}/data"]
    assert {each.files[0].base_id for each in manifest.fragments} == {manifest.base_paths[0].id}
    transaction = load()
    assert transaction is not None
    assert transaction.name == "Clone"
    first = manifests(root / "_versions")[1]
    second = manifests(root / "_versions")[0]
    old, new = (decode_manifest(path.read_bytes(), "m")[0] for path in (first, second))
    assert new.reader_flags & flags.MIXED_FILE_VERSIONS
    assert flags.recomputed(replace(new, reader_flags=0, writer_flags=0), old) == new


def grown(base: Manifest, ids: range, **changes: object) -> Manifest:
    more = base.fragments.appended([a_fragment(id) for id in ids])
    return replace(base, fragments=more, version=base.version + 1, **changes)


def successors(base: Manifest) -> dict[str, Manifest]:
    """What may follow `base`, and what may stand in its place."""
    two = list(base.fragments)
    return {
        "appended": grown(base, range(2, 5)),
        "appended, one deleted from": replace(
            base, fragments=base.fragments.appended([a_fragment(2, deleted=1)])
        ),
        "same fragments": replace(base, version=6, config={"other": "1"}),
        "fewer": replace(base, fragments=FragmentList.of(two[:1])),
        "none": replace(base, fragments=FragmentList()),
        "another deletion": replace(base, fragments=FragmentList.of([two[0], a_fragment(1, deleted=4)])),
        "other schema": grown(base, range(2, 3), schema=Schema.from_arrow(pa.schema([("b", pa.int8())]))),
        "other schema metadata": grown(base, range(2, 3), schema=replace(SCHEMA, metadata={"k": b"w"})),
        "a column more": grown(
            base, range(2, 3), schema=Schema.from_arrow(SCHEMA.arrow.append(pa.field("z", pa.int8())))
        ),
    }


@pytest.mark.parametrize("name", successors(a_manifest()))
def test_a_known_version_saves_work_and_changes_nothing(name: str) -> None:
    """Whatever version is at hand, the answer is that of the bytes alone."""
    known = decoded(encoded(a_manifest()))[0]
    known.fragments.ids, known.fragments.any_deletions  # noqa: B018 - what the list has worked out is carried over
    data = encoded(successors(a_manifest())[name], TRANSACTION)
    alone, together = decode_manifest(data, "m")[0], decode_manifest(data, "m", known)[0]
    assert together == alone
    assert encoded(together) == encoded(alone)
    for attribute in ("ids", "physical_rows", "deleted_rows"):
        assert getattr(together.fragments, attribute).tolist() == getattr(alone.fragments, attribute).tolist()
    assert together.fragments.any_deletions == alone.fragments.any_deletions
    assert list(together.fragments) == list(alone.fragments)
