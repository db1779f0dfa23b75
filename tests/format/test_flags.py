"""Feature flags: what is refused, by which name, and how the words follow from content."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tiltyard.errors import CorruptFile, UnsupportedFeature
from tiltyard.format import flags
from tiltyard.format.base_paths import BasePath
from tiltyard.format.fragment import DataFile, DeletionFile, Fragment, FragmentList
from tiltyard.format.index_metadata import FRAGMENT_REUSE, IndexMetadata
from tiltyard.format.manifest import DataFormat, Manifest
from tiltyard.format.roaring import encode_roaring
from tiltyard.format.schema import Schema

UUID = "01234567-89ab-4def-8123-456789abcdef"
FRAGMENT = Fragment(0, (DataFile("a.lance", (0,), (0,)),), 10)


def a_manifest(*fragments: Fragment, **changes: object) -> Manifest:
    made = Manifest(Schema(()), FragmentList.of(fragments), 3, data_format=DataFormat("lance", "2.2"))
    return replace(made, **changes)


READER_REFUSED = [6, 9, 12, 13, 15, 17, 40, 63]
WRITER_REFUSED = [6, 9, 12, 13, 17, 40, 63]


@pytest.mark.parametrize("bit", READER_REFUSED)
def test_unknown_reader_flags_are_refused_by_name(bit: int) -> None:
    manifest = a_manifest(reader_flags=1 << bit, writer_flags=1 << bit)
    with pytest.raises(UnsupportedFeature, match=rf"version 3 needs .* \(bit {bit}\)"):
        flags.check_reader(manifest)


@pytest.mark.parametrize("bit", WRITER_REFUSED)
def test_unknown_writer_flags_can_be_read_but_not_written(bit: int) -> None:
    manifest = a_manifest(writer_flags=1 << bit)
    flags.check_reader(manifest)
    with pytest.raises(UnsupportedFeature, match=rf"cannot write: .* \(bit {bit}\)"):
        flags.check_writer(manifest)


@pytest.mark.parametrize("bit", [8, 10, 14, 16])
def test_half_of_a_pair_is_corrupt(bit: int) -> None:
    for words in ((1 << bit, 0), (0, 1 << bit)):
        with pytest.raises(CorruptFile, match="only one of the reader and writer words"):
            flags.check_reader(a_manifest(reader_flags=words[0], writer_flags=words[1]))


@pytest.mark.parametrize("bit", [10, 14, 16])
def test_pairs_that_we_do_not_know_are_refused(bit: int) -> None:
    with pytest.raises(UnsupportedFeature, match=flags.NAMES[1 << bit]):
        flags.check_reader(a_manifest(reader_flags=1 << bit, writer_flags=1 << bit))


def test_what_other_versions_set_is_accepted() -> None:
    flags.check_reader(a_manifest(reader_flags=1 | 4 | 16 | 128 | 256 | 2048, writer_flags=256))
    flags.check_writer(a_manifest(writer_flags=1 | 2 | 4 | 8 | 16 | 32 | 128 | 256 | 2048 | 32768))


def test_unique_field_ids_and_their_mark_stand_together() -> None:
    flags.check_reader(a_manifest(writer_flags=flags.UNIQUE_FIELD_IDS, max_allocated_field_id=4))
    for manifest in (a_manifest(writer_flags=flags.UNIQUE_FIELD_IDS), a_manifest(max_allocated_field_id=4)):
        with pytest.raises(CorruptFile, match="must stand together"):
            flags.check_reader(manifest)


def test_every_fragment_must_carry_row_ids_when_the_table_has_them() -> None:
    with_ids = replace(FRAGMENT, row_ids=b"")
    spilled = replace(FRAGMENT, id=1, spilled_row_ids=True)
    flags.check_reader(a_manifest(with_ids, spilled, reader_flags=2, writer_flags=2))
    with pytest.raises(CorruptFile, match="not every fragment"):
        flags.check_reader(a_manifest(with_ids, replace(FRAGMENT, id=2), reader_flags=2, writer_flags=2))


INDEX = IndexMetadata(UUID, (0, 1), "i", 1, encode_roaring(np.array([0])))


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (a_manifest(FRAGMENT), (0, 0)),
        (a_manifest(FRAGMENT, reader_flags=1, writer_flags=1), (0, 0)),
        (a_manifest(replace(FRAGMENT, deletion=DeletionFile("bin", 1, 2, 3))), (1, 1)),
        (a_manifest(FRAGMENT, reader_flags=2), (2, 2)),
        (a_manifest(FRAGMENT, config={"a": "b"}), (0, 8)),
        (a_manifest(FRAGMENT, base_paths=(BasePath(1, "/p"),)), (16, 16)),
        (a_manifest(FRAGMENT, writer_flags=32), (0, 32)),
        (a_manifest(FRAGMENT, indices=(replace(INDEX, covering_fields=(1,)),)), (128, 128)),
        (a_manifest(FRAGMENT, indices=(replace(INDEX, name=FRAGMENT_REUSE, index_version=1),)), (1024, 1024)),
        (a_manifest(FRAGMENT, indices=(replace(INDEX, name=FRAGMENT_REUSE),)), (0, 0)),
        (a_manifest(replace(FRAGMENT, spilled_created=True)), (2048, 2048)),
        (a_manifest(FRAGMENT, max_allocated_field_id=3), (0, 32768)),
        (a_manifest(FRAGMENT, data_format=DataFormat("lance", "2.1")), (256, 256)),
    ],
)
def test_words_follow_from_content(manifest: Manifest, words: tuple[int, int]) -> None:
    found = flags.recomputed(manifest, None)
    assert (found.reader_flags, found.writer_flags) == words
    assert replace(found, reader_flags=0, writer_flags=0) == replace(manifest, reader_flags=0, writer_flags=0)


def test_sticky_flags_come_from_the_version_before() -> None:
    before = a_manifest(FRAGMENT, reader_flags=256 | 1, writer_flags=256 | 1 | 32)
    found = flags.recomputed(a_manifest(FRAGMENT), before)
    assert (found.reader_flags, found.writer_flags) == (256, 256)


def test_only_files_that_a_commit_adds_count_as_another_version() -> None:
    old = replace(FRAGMENT, files=(replace(FRAGMENT.files[0], minor=1),))
    before = a_manifest(old)
    same = replace(before, version=4)
    assert flags.recomputed(same, before).reader_flags == 0
    added = replace(before, fragments=before.fragments.appended([replace(old, id=1)]))
    assert flags.recomputed(added, before).reader_flags == 256
    legacy = replace(FRAGMENT, id=1, files=(replace(FRAGMENT.files[0], major=0, minor=2),))
    assert flags.recomputed(a_manifest(legacy), before).reader_flags == 0
