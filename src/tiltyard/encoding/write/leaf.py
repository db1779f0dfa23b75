"""One leaf over some rows to pages: takes the values out of Arrow, lets `choose` decide, builds the page.

A page whose levels do not fit the chunks of a mini-block (very many null or empty lists between few values)
is split on row boundaries; a single row that does not fit becomes a full-zip page (file-format.md 9.1, step
8).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from tiltyard.encoding import choose
from tiltyard.encoding.levels.ravel import Leaf, Levels, storage
from tiltyard.encoding.write import constant, dictionary, full_zip, packed, vectors
from tiltyard.encoding.write.chunks import Chunks
from tiltyard.encoding.write.flat import flat_chunks, split_chunks
from tiltyard.encoding.write.fsst import compress, train
from tiltyard.encoding.write.general import general_chunks, general_values
from tiltyard.encoding.write.mini_block import ChunkOverflowError, mini_block_page
from tiltyard.encoding.write.options import Options
from tiltyard.encoding.write.pages import EncodedPage
from tiltyard.encoding.write.values import (
    Coded,
    Fixed,
    Nothing,
    Packed,
    Text,
    Values,
    Vectors,
    fixed,
    null_flags,
    take_values,
    text,
)
from tiltyard.encoding.write.variable import variable_chunks, variable_size
from tiltyard.errors import UnsupportedFeature
from tiltyard.format.layouts import Encoding, Flat, Fsst, General, Variable
from tiltyard.format.version import FileVersion

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

SPLIT_LEVELS = {FileVersion.V2_1: 8192, FileVersion.V2_2: 49152}
"""Entries of a page that was split because levels did not fit: any chunk of it fits, whatever the codec."""
SPLIT_SAMPLE_VALUES = 64
SPLIT_MAX_ENTROPY = 4.0
"""Mean entropy (bits) of byte positions below which byte-stream split is used under zstd and lz4."""


def encode_leaf(leaf: Leaf, options: Options, version: FileVersion) -> list[EncodedPage]:
    """The pages of a leaf; more than one only where its levels ask for it."""
    levels = leaf.levels
    nulls = null_flags(levels, len(leaf.array))
    array = storage(leaf.array)
    if types.is_struct(array.type) and array.type.num_fields == 0:
        return [_empty_struct(leaf)]
    visible = len(array)
    if visible == 0 or (nulls.size and bool(nulls.all())):
        return [constant.all_null_page(levels, version)]
    values: Values
    if types.is_dictionary(array.type):
        values = _coded(array, nulls, leaf.path)
    else:
        values = take_values(leaf, nulls)
    build = _Builder(options, version, leaf.path)
    try:
        return [build.page(levels, values, nulls)]
    except ChunkOverflowError:
        return list(build.split(levels, values, nulls))


def _empty_struct(leaf: Leaf) -> EncodedPage:
    if leaf.levels.layers != (1,):
        raise UnsupportedFeature(
            f"column {leaf.path!r}: a struct without fields can only be stored at the top level and "
            f"without nulls"
        )
    return constant.empty_struct_page(leaf.levels)


def _coded(array: pa.DictionaryArray, nulls: U8, path: str) -> Coded:
    """Indices and items of an Arrow dictionary; items that no row uses are left out of long dictionaries."""
    indices = fixed(array.indices, nulls, path)
    items = storage(array.dictionary)
    if len(items) > indices.count:
        words = indices.data.view(f"<u{indices.bits // 8}")
        used, narrow = np.unique(words, return_inverse=True)
        items = items.take(pa.array(used.astype(np.int64)))
        indices = Fixed(indices.bits, narrow.astype(words.dtype).view(np.uint8), indices.count)
    none = np.empty(0, np.uint8)
    plain = items.type
    if types.is_string(plain) or types.is_binary(plain):
        return Coded(indices, text(items, none, 4, path))
    if types.is_large_string(plain) or types.is_large_binary(plain):
        return Coded(indices, text(items, none, 8, path))
    return Coded(indices, fixed(items, none, path))


class _Builder:
    """Pages of one leaf with its options."""

    def __init__(self, options: Options, version: FileVersion, path: str) -> None:
        self.options = options
        self.version = version
        self.path = path

    def page(self, levels: Levels, values: Values, nulls: U8) -> EncodedPage:
        match values:
            case Coded():
                return self._coded(levels, values, nulls)
            case Fixed():
                return self._fixed(levels, values, nulls)
            case Text():
                return self._text(levels, values, nulls)
            case Vectors():
                return self._vectors(levels, values)
            case Packed():
                return self._packed(levels, values, nulls)
            case Nothing():
                return constant.all_null_page(levels, self.version)

    # -- splitting -------------------------------------------------------------------------------

    def split(self, levels: Levels, values: Values, nulls: U8) -> Iterator[EncodedPage]:
        """Pages of whole rows with few enough entries."""
        for begin, end, first, last in row_parts(levels, SPLIT_LEVELS[self.version]):
            part = values.part(first, last)
            own = replace(
                levels,
                rep=None if levels.rep is None else levels.rep[begin:end],
                def_=None if levels.def_ is None else levels.def_[begin:end],
                entries=end - begin,
                rows=int((levels.rep[begin:end] == levels.max_rep).sum())
                if levels.rep is not None
                else end - begin,
            )
            own_nulls = nulls[first:last] if nulls.size else nulls
            if part.count == 0 or (own_nulls.size and bool(own_nulls.all())):
                yield constant.all_null_page(own, self.version)
                continue
            try:
                yield self.page(own, part, own_nulls)
            except ChunkOverflowError:
                yield self._universal(own, part, own_nulls)

    def _universal(self, levels: Levels, values: Values, nulls: U8) -> EncodedPage:
        """Full zip takes any number of levels."""
        if isinstance(values, Fixed):
            return self._zip_fixed(levels, values)
        if isinstance(values, Text):
            return self._zip_text(levels, values, nulls)
        if isinstance(values, Vectors):
            return vectors.vector_page(levels, values)
        if isinstance(values, Packed):
            return packed.packed_page(levels, values, nulls)
        raise UnsupportedFeature(
            f"column {self.path!r}: a single row holds too many null or empty lists around "
            f"dictionary values; "
            "decode the dictionary before writing"
        )

    # -- fixed width -----------------------------------------------------------------------------

    def _fixed(self, levels: Levels, values: Fixed, nulls: U8) -> EncodedPage:
        plain = dictionary.measure(values, self.options.rle_threshold, nulls)
        if plain.constant and constant.scalar_pays(levels, self.version, plain.size):
            return constant.scalar_page(levels, values, 0)
        coded = dictionary.for_fixed(plain, self.options, self.version)
        if coded is not None:
            return self._with_dictionary(levels, coded)
        if self._zips(vectors.is_narrow(values, choose.NARROW_BYTES)) and values.bits != 1:
            return self._zip_fixed(levels, values)
        return mini_block_page(levels, self._fixed_chunks(plain), self.version)

    def _fixed_chunks(self, plain: dictionary.Measured) -> Chunks:
        scheme = self.options.scheme
        if self.options.compression == "none":
            return flat_chunks(plain.values)
        if scheme is None:
            return plain.chunks()
        chunks = split_chunks(plain.values) if self._splits(plain.values) else plain.chunks()
        return general_chunks(chunks, scheme, self.options.level)

    def _splits(self, values: Fixed) -> bool:
        if values.bits not in (32, 64) or self.options.split == "off":
            return False
        return self.options.split == "on" or byte_entropy(values) < SPLIT_MAX_ENTROPY

    def _zip_fixed(self, levels: Levels, values: Fixed) -> EncodedPage:
        if values.bits == 1:  # full zip is byte-aligned
            values = Fixed(8, np.unpackbits(values.data, count=values.count, bitorder="little"), values.count)
        return full_zip.fixed_page(levels, values.data, values.bits, Flat(values.bits), values.count)

    def _zips(self, narrow: bool) -> bool:
        if self.options.structure is not None:
            return self.options.structure == "fullzip"
        return not narrow

    # -- text ------------------------------------------------------------------------------------

    def _text(self, levels: Levels, values: Text, nulls: U8) -> EncodedPage:
        plain = variable_size(values.count, values.nbytes, values.width)
        coded = dictionary.for_text(values, self.options, self.version)
        otherwise = plain if coded is None else coded.size
        if constant.scalar_pays(levels, self.version, otherwise) and values.all_equal():
            return constant.scalar_page(levels, values, int(np.argmin(nulls)) if nulls.size else 0)
        table: U8 | None = None
        if coded is None or coded.size > 0.3 * plain:
            table, left = self._symbols(values)
            if coded is not None and table is not None:
                with_table = left * values.nbytes + (values.count + 1) * values.width + table.size
                if with_table >= coded.size:
                    table = None
                else:
                    coded = None
        if coded is not None:
            return self._with_dictionary(levels, coded)
        if self._zips(choose.text_is_narrow(values.count, values.nbytes, values.longest)):
            return self._zip_text(levels, values, nulls, table)
        offsets, data, wrap = _with_symbols(values, table)
        chunks = variable_chunks(offsets, data, values.width, self.options.chunk_bytes)
        if wrap is not None:
            chunks = replace(chunks, encoding=Fsst(wrap, chunks.encoding))
        if self.options.scheme is not None:
            chunks = general_chunks(chunks, self.options.scheme, self.options.level)
        return mini_block_page(levels, chunks, self.version)

    def _symbols(self, values: Text) -> tuple[U8 | None, float]:
        """A symbol table where one pays, and the share of the bytes it leaves."""
        wanted = self.options.compression == "fsst"
        if self.options.compression is not None and not wanted:
            return None, 1.0
        if not wanted and not choose.wants_fsst(values.count, values.nbytes, values.longest, values.width):
            return None, 1.0
        if values.nbytes == 0:
            return None, 1.0
        table, left = train(values)
        return (table, left) if wanted or left < choose.FSST_GAIN else (None, 1.0)

    def _zip_text(self, levels: Levels, values: Text, nulls: U8, table: U8 | None = None) -> EncodedPage:
        encoding: Encoding = Variable(8 * values.width)
        scheme = self.options.scheme
        size = variable_size(values.count, values.nbytes, values.width)
        if scheme is None and self.options.compression is None and values.longest > choose.LONG_VALUE_BYTES:
            scheme = "zstd" if values.nbytes >= choose.LONG_VALUE_MEAN_BYTES * values.count else None
        if scheme is not None and size >= choose.LONG_VALUE_BYTES:
            # Never lz4: the official reader decompresses nulls too, and takes no bytes for none only in zstd.
            scheme = "zstd"
            level = self.options.level if self.options.scheme == scheme else 0
            offsets, data = general_values(values.offsets, values.data, nulls, scheme, level)
            return full_zip.variable_page(
                levels, offsets, data, nulls, values.width, General(scheme, level, encoding)
            )
        offsets, data, wrap = _with_symbols(values, table)
        if wrap is not None:
            encoding = Fsst(wrap, encoding)
        return full_zip.variable_page(levels, offsets, data, nulls, values.width, encoding)

    # -- the others ------------------------------------------------------------------------------

    def _with_dictionary(self, levels: Levels, coded: dictionary.Dictionary) -> EncodedPage:
        block = (coded.encoding, coded.block, coded.count)
        return mini_block_page(levels, coded.indices.chunks(), self.version, block)

    def _coded(self, levels: Levels, values: Coded, nulls: U8) -> EncodedPage:
        encoding, block = dictionary.items_block(values.items, self.options, self.version)
        indices = dictionary.measure(values.indices, None, nulls)
        block_of_items = encoding, block, values.items.count
        page = mini_block_page(levels, indices.chunks(), self.version, block_of_items)
        return replace(page, items=dictionary.binaries(values.items))

    def _vectors(self, levels: Levels, values: Vectors) -> EncodedPage:
        zips = self._zips(vectors.is_narrow(values, choose.NARROW_BYTES))
        # The official reader knows full zip only for values of whole bytes.
        if vectors.all_items_null(values) or (zips and not vectors.must_be_chunked(values)):
            return vectors.vector_page(levels, values)
        return mini_block_page(levels, vectors.vector_chunks(values), self.version)

    def _packed(self, levels: Levels, values: Packed, nulls: U8) -> EncodedPage:
        if values.is_fixed:
            return mini_block_page(levels, packed.packed_chunks(values), self.version)
        if self.version is FileVersion.V2_1:
            raise UnsupportedFeature(
                f"column {self.path!r}: a packed struct with text or vectors needs file version 2.2, not 2.1"
            )
        return packed.packed_page(levels, values, nulls)


def _with_symbols(values: Text, table: U8 | None) -> tuple[I64, U8, bytes | None]:
    """Offsets, bytes and table of the text, compressed when there is a table."""
    if table is None:
        return values.offsets, values.data, None
    offsets, data = compress(table, values.offsets, values.data)
    return offsets, data, table.tobytes()


def row_parts(levels: Levels, most: int) -> Iterator[tuple[int, int, int, int]]:
    """Cut the entries at row starts into parts of at most `most` (a longer row stays whole): (first entry,
    end entry, first value, end value) of each.
    """
    if levels.rep is None:
        starts = np.arange(levels.entries, dtype=np.int64)
    else:
        starts = np.flatnonzero(levels.rep == levels.max_rep)
    bounds = np.append(starts, levels.entries)
    if levels.has_hidden:
        assert levels.def_ is not None
        owned = np.concatenate(([0], np.cumsum(levels.def_ <= levels.max_visible)))
    else:
        owned = np.arange(levels.entries + 1)
    row, rows = 0, starts.size
    while row < rows:
        begin = int(bounds[row])
        stop = int(np.searchsorted(bounds, begin + most, side="right")) - 1
        stop = max(row + 1, stop)
        end = int(bounds[stop])
        yield begin, end, int(owned[begin]), int(owned[end])
        row = stop


def byte_entropy(values: Fixed) -> float:
    """Mean entropy in bits of the byte positions over the first values (compression.md 5, `bss`)."""
    size = values.bits // 8
    sample = values.data[: SPLIT_SAMPLE_VALUES * size].reshape(-1, size)
    total = 0.0
    for column in sample.T:
        counts = np.bincount(column)
        shares = counts[counts > 0] / column.size
        total -= float((shares * np.log2(shares)).sum())
    return total / size
