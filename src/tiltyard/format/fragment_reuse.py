"""The details of the fragment-reuse index: where the rows of rewritten fragments went (transactions, section
10; indices, 1.7).

A compaction that leaves indices as they are records, for every group of fragments that it rewrote, the old
addresses of the surviving rows; these lie one after another in the new fragments. Readers translate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tiltyard.errors import CorruptFile
from tiltyard.format import wire
from tiltyard.format.index_metadata import TypedBytes
from tiltyard.format.protos import index_pb2 as pb

TYPE_URL = "/lance.table.FragmentReuseIndexDetails"
TYPE_NAME = "FragmentReuseIndexDetails"
KNOWN_VERSION = 0
"""Greatest `index_version` that is understood; later ones describe tagged transitions."""

Addresses = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class FragmentDigest:
    """A fragment's id and its rows, deleted ones included."""

    id: int
    physical_rows: int
    deleted_rows: int = 0


@dataclass(frozen=True, slots=True)
class ReuseGroup:
    """Fragments rewritten together. `survivors`: serialized 64-bit Roaring of the old addresses of the rows
    that were not deleted.
    """

    survivors: bytes
    old: tuple[FragmentDigest, ...]
    new: tuple[FragmentDigest, ...]


@dataclass(frozen=True, slots=True)
class ReuseVersion:
    """One compaction; `dataset_version` is the version that it rewrote."""

    dataset_version: int
    groups: tuple[ReuseGroup, ...]
    _source: Any = field(default=None, repr=False, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class External:
    """Details that stand in a file: path relative to the segment's directory, byte range."""

    path: str
    offset: int
    size: int


def decode_details(details: TypedBytes | None) -> tuple[ReuseVersion, ...] | External:
    """The compactions that an index entry records, oldest first, or where they stand.

    Raises `CorruptFile` for details of another kind or damage.
    """
    if details is None or not details.type_url.lower().endswith(TYPE_NAME.lower()):
        found = "no details" if details is None else details.type_url
        raise CorruptFile(f"the fragment-reuse index should have details of type {TYPE_NAME}, found {found}")
    message = wire.parse(
        pb.FragmentReuseDetails, details.value, "", "the details of the fragment-reuse index"
    )
    if message.WhichOneof("content") == "external":
        found_at = message.external
        return External(found_at.path, found_at.offset, found_at.size)
    return _versions(message.inline)


def decode_versions_file(data: bytes, path: str) -> tuple[ReuseVersion, ...]:
    """The compactions in the bytes of a details file. Raises `CorruptFile` naming `path`."""
    return _versions(wire.parse(pb.ReuseVersions, data, path, "the details of the fragment-reuse index"))


def encode_versions(versions: Sequence[ReuseVersion]) -> bytes:
    """The bytes of a list of compactions, as they stand in a details file."""
    return _message(versions).SerializeToString()


def inline_details(versions: Sequence[ReuseVersion]) -> TypedBytes:
    """Details that hold the compactions themselves."""
    return TypedBytes(TYPE_URL, pb.FragmentReuseDetails(inline=_message(versions)).SerializeToString())


def external_details(place: External) -> TypedBytes:
    """Details that name a file."""
    external = pb.ReuseFile(path=place.path, offset=place.offset, size=place.size)
    return TypedBytes(TYPE_URL, pb.FragmentReuseDetails(external=external).SerializeToString())


def encode_survivors(addresses: Addresses) -> bytes:
    """The serialized set of some row addresses (uint64)."""
    from pyroaring import BitMap, BitMap64

    # Containers of one fragment at a time: a 64-bit set made of single numbers is built one by one.
    owners = (addresses >> np.uint64(32)).astype(np.int64)
    parts: list[bytes] = []
    ids = np.unique(owners)
    for owner in ids.tolist():
        offsets = BitMap((addresses[owners == owner] & np.uint64(0xFFFFFFFF)).astype(np.uint32))
        offsets.run_optimize()
        parts += [int(owner).to_bytes(4, "little"), offsets.serialize()]
    data = len(ids).to_bytes(8, "little") + b"".join(parts)
    assert len(BitMap64.deserialize(data)) == len(addresses)
    return data


def decode_survivors(group: ReuseGroup) -> Addresses:
    """The old addresses (uint64) of a group's surviving rows, in the order in which they were written.

    Raises `CorruptFile` for damage, and where they are not of the group's old fragments.
    """
    from pyroaring import BitMap64

    what = "the set of surviving rows in the fragment-reuse index"
    if int.from_bytes(group.survivors[:8], "little") > len(group.old):
        raise CorruptFile(f"{what} is damaged: it names more fragments than were rewritten")
    try:
        bitmap = BitMap64.deserialize(group.survivors)
        if len(bitmap) > sum(each.physical_rows for each in group.old):
            raise CorruptFile(f"{what} is damaged: it names {len(bitmap)} rows, more than there were")
        found = np.array(bitmap.to_array(), np.uint64)
    except (ValueError, MemoryError, OverflowError) as error:
        raise CorruptFile(f"{what} is damaged ({error})") from error
    owners = (found >> np.uint64(32)).astype(np.int64)
    listed = [each.id for each in group.old]
    if len(found) and not np.isin(owners, listed).all():
        raise CorruptFile(f"{what} is damaged: it names a fragment that was not rewritten")
    if listed != sorted(listed):  # rows lie in the order of the list, the set is ordered by number
        found = np.concatenate([found[owners == id] for id in listed])
    return found


def _versions(message: Any) -> tuple[ReuseVersion, ...]:
    return tuple(
        ReuseVersion(
            each.dataset_version,
            tuple(
                ReuseGroup(
                    group.changed_row_addrs, _digests(group.old_fragments), _digests(group.new_fragments)
                )
                for group in each.groups
            ),
            _source=each,
        )
        for each in message.versions
    )


def _digests(messages: Any) -> tuple[FragmentDigest, ...]:
    return tuple(FragmentDigest(each.id, each.physical_rows, each.num_deleted_rows) for each in messages)


def _message(versions: Sequence[ReuseVersion]) -> Any:
    return pb.ReuseVersions(versions=[_encoded(each) for each in versions])


def _encoded(version: ReuseVersion) -> Any:
    message = pb.ReuseVersion(dataset_version=version.dataset_version)
    for group in version.groups:
        message.groups.add(
            changed_row_addrs=group.survivors,
            old_fragments=[_digest(each) for each in group.old],
            new_fragments=[_digest(each) for each in group.new],
        )
    wire.carry_unknown(version._source, message)
    return message


def _digest(digest: FragmentDigest) -> Any:
    return pb.FragmentDigest(
        id=digest.id, physical_rows=digest.physical_rows, num_deleted_rows=digest.deleted_rows
    )
