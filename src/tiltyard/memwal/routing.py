"""Which shard each row goes to, and what that shard is called.

A shard that we begin is named by what its rows have in common, so that processes which meet the same value
find the same shard; its manifest says the value. Shards that others began are found by that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tiltyard.errors import InvalidInput, ShardSealed, UnsupportedFeature
from tiltyard.format.mem_wal import ShardingSpec
from tiltyard.format.shard_manifest import ACTIVE, SEALED, ShardManifest
from tiltyard.memwal import layout
from tiltyard.memwal.life import lives
from tiltyard.memwal.sharding import (
    BUCKET,
    IDENTITY,
    UNSHARDED,
    decode_value,
    encode_value,
    evaluate,
    num_buckets,
)

if TYPE_CHECKING:
    from tiltyard.format.schema import Schema

Value = tuple[tuple[str, bytes], ...]
"""What the rows of a shard have in common: encoded sharding values by field id, those that are not null."""

OWN_NOTES = "tiltyard."
"""What our notes among a shard's field entries begin with."""

SEALED_BY = "tiltyard.sealed"
"""Shard field entry: the epoch whose owner published the log and sealed the shard; other programs keep it."""

SEALED_FOR = "tiltyard.sealed.for"
"""Shard field entry: the id of the sharding spec that was to come when the shard was sealed for it."""

_VERSION_5, _VARIANT = 0x50, 0x80


def no_such_shard(count: int, found: Any) -> str:
    """The words for a shard that a table with so many of them has not."""
    return f"the table has the shards 0 to {count - 1}, found {found!r}; shard_of tells which ones rows go to"


@dataclass(frozen=True, slots=True)
class Router:
    """How rows of one table are shared out. `spec` None: all to one shard."""

    spec: ShardingSpec | None
    columns: Mapping[int, str]
    """Column names by field id."""
    types: Mapping[int, Any]
    """Arrow types of the columns, by field id."""

    def parts(self, batch: Any) -> Iterator[tuple[Value, Any]]:
        """The rows of a batch by shard: what they have in common, and they, in their order.

        Raises `InvalidInput` where the batch lacks a column that says the shard.
        """
        if self.is_constant:
            yield self._constant(), batch
            return
        codes, distinct = _codes(self.values(batch))
        for code in range(len(distinct)):
            rows = codes == code
            value = self._encoded(distinct.slice(code, 1))
            yield value, batch if rows.all() else batch.filter(pa.array(rows))

    def values(self, batch: Any) -> Any:
        """Which shard each row goes to, by its sharding value: a `pa.Array`; of a bucket sharding the number
        of the bucket. Raises `InvalidInput` where shards are named by hand.
        """
        if self.spec is None:
            raise InvalidInput("the table's shards are named by hand: no row belongs to one by its values")
        values = evaluate(self.spec, batch, self.columns)
        if values.num_columns != 1:
            raise UnsupportedFeature("rows are shared out by specs of one field, found several")
        return values.column(0)

    def value_of(self, shown: Any) -> Value:
        """A sharding value from what `values` gives of a row. Raises `InvalidInput` where no row has it."""
        if self.spec is None:
            raise InvalidInput("the table's shards are named by hand: open a writer of each by its id")
        (field,) = self.spec.fields
        kind = self._kind
        count = num_buckets(field) if field.transform == BUCKET else 1
        is_number = isinstance(shown, int) and not isinstance(shown, bool)
        if field.transform != IDENTITY and not (is_number and 0 <= shown < count):
            raise InvalidInput(no_such_shard(count, shown))
        try:
            return self._encoded(pa.array([shown], kind))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise InvalidInput(f"the table has a shard for each {kind}, found {shown!r}") from error

    def shown(self, value: Value) -> Any:
        """A sharding value as `values` gives it: a number, text or boolean; None for null, and for one that
        is not of this spec.
        """
        if self.spec is None or not value or value[0][0] != self.spec.fields[0].field_id:
            return None
        return decode_value(value[0][1], self._kind)[0].as_py()

    @property
    def _kind(self) -> Any:
        assert self.spec is not None
        (field,) = self.spec.fields
        return self.types[field.source_ids[0]] if field.transform == IDENTITY else pa.int32()

    def _encoded(self, one: Any) -> Value:
        """A value from an array of it."""
        assert self.spec is not None
        encoded = encode_value(one)
        return () if encoded is None else ((self.spec.fields[0].field_id, encoded),)

    @property
    def is_constant(self) -> bool:
        """Whether all rows go to one shard."""
        return self.spec is None or all(each.transform == UNSHARDED for each in self.spec.fields)

    def _constant(self) -> Value:
        if self.spec is None:
            return ()
        zero = np.zeros(1, "<i4").tobytes()
        return tuple((each.field_id, zero) for each in self.spec.fields)

    def check(self, batch: Any, manifest: ShardManifest) -> None:
        """Raise `InvalidInput` where rows belong to another shard than the manifest's, as far as it says."""
        own = own_value(manifest)
        if self.spec is None or not own:
            return
        for value, rows in self.parts(batch):
            if value != own:
                theirs, its = self.shown(value), self.shown(own)
                raise InvalidInput(
                    f"{rows.num_rows} of {batch.num_rows} rows belong to another shard than "
                    f"{manifest.shard_id}: their sharding value is {theirs!r}, its is {its!r}. "
                    "Nothing was written; a stream over the whole table sends each row to its shard"
                )


def router_of(spec: ShardingSpec | None, schema: Schema) -> Router:
    """The router of a table's spec."""
    return Router(
        spec,
        {each.id: each.name for each in schema.fields},
        {each.id: each.arrow_type for each in schema.fields},
    )


def shard_of(
    router: Router,
    spec_id: int,
    value: Value,
    incarnation: str | None,
    known: Mapping[str, ShardManifest],
    marks: Mapping[str, int],
) -> str:
    """The id of the shard of a value: one that is there and takes rows, or the name of a new one.

    `known`: manifests that were read, by shard id; see `life.manifests`. `marks`: up to which generation the
    base holds them, read after them. Raises `InvalidInput` where shards of other writers do not say which
    rows they have, `ShardSealed` where a sealed one has rows that are not in the base: a key could come into
    two.
    """
    living = {
        shard_id: manifest
        for shard_id, manifest in sorted(known.items())
        if manifest.shard_spec_id == spec_id and lives(manifest, incarnation)
    }
    ours = {each: own_value(found) for each, found in living.items() if found.status == ACTIVE}
    nulls = {shard_name(incarnation, spec_id, (), number) for number in range(len(known) + 1)}
    silent = [each for each, found in living.items() if not own_value(found) and each not in nulls]
    if router.is_constant:
        if len(ours) > 1:
            raise InvalidInput(
                f"the table has {len(ours)} shards that all rows could go to ({', '.join(ours)}): say "
                "which, by opening its writer"
            )
        if ours:
            return next(iter(ours))
    else:
        same = [shard_id for shard_id, own in ours.items() if own == value and own]
        if same:
            return same[0]
        if any(each in ours for each in silent):
            raise InvalidInput(
                f"shards {', '.join(each for each in silent if each in ours)} do not say which rows they "
                "have: rows of one key could come into two shards. Open their writers one by one"
            )
    number = 0
    while (name := shard_name(incarnation, spec_id, value, number)) in known:
        if name in ours:
            return name
        number += 1  # sealed, or of another table
    for shard_id, manifest in living.items():
        may_hold = router.is_constant or shard_id in silent or own_value(manifest) == value
        if shard_id not in ours and may_hold and not is_drained(manifest, marks):
            raise ShardSealed(
                f"shard {shard_id}, which may have rows of these keys, is sealed, and they are not all in "
                "the base yet: a new shard begins when they are. Compact the table, or open the shard again "
                "(`tiltyard shard unseal`)"
            )
    return name


def is_drained(manifest: ShardManifest, marks: Mapping[str, int]) -> bool:
    """Whether the base holds everything that a closed shard has: its log holds nothing more."""
    mark = marks.get(manifest.shard_id, 0)
    return is_closed(manifest) and all(each.generation <= mark for each in manifest.sstables)


def is_closed(manifest: ShardManifest) -> bool:
    """Whether everything in the shard is published and no writer is left: it was sealed by a take-over, and
    nobody claimed it since.
    """
    noted = dict(manifest.field_entries).get(SEALED_BY)
    return manifest.status == SEALED and noted == b"%d" % manifest.writer_epoch


def sealed_for(manifest: ShardManifest) -> int | None:
    """The spec that was to come when the shard was sealed for it; None where it was sealed by itself."""
    noted = dict(manifest.field_entries).get(SEALED_FOR, b"")
    return int(noted) if manifest.status == SEALED and noted.isdigit() else None


def own_value(manifest: ShardManifest) -> Value:
    """What the rows of a shard have in common, as far as its manifest says, without our notes."""
    return tuple(entry for entry in manifest.field_entries if not entry[0].startswith(OWN_NOTES))


def shard_name(incarnation: str | None, spec_id: int, value: Value, number: int) -> str:
    """A UUID made of what a shard is for: the same for everybody."""
    told = hashlib.sha1(repr((incarnation, spec_id, value, number)).encode(), usedforsecurity=False)
    octets = bytearray(told.digest()[:16])
    octets[6] = octets[6] & 0x0F | _VERSION_5
    octets[8] = octets[8] & 0x3F | _VARIANT
    return layout.parse_shard_id(octets.hex())


def _codes(column: Any) -> tuple[Any, Any]:
    """Numbers of the distinct values per row, and the values in the order in which they come."""
    encoded = column.dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices), encoded.dictionary
