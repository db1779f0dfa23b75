"""The type matrix: every Arrow type that a Lance table can hold, crossed with the shapes of data that make a
writer choose another layout or encoding.

Deterministic: an entry's table depends on its name only. Tables are built when asked for, so that a test
which needs three entries does not pay for all of them. `entries()` lists everything, `sample()` the few dozen
entries that together reach every layout. `tables_alike` compares the results.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

BOTH = ("2.1", "2.2")
ONLY_22 = ("2.2",)
ROWS = 1025  # one more than a bit-packing block
EDGE_SIZES = (0, 1, 2, 1023, 1024, 1025, 4097)
NULL_RATE = 0.2

Build = Callable[[np.random.Generator], pa.Array | pa.ChunkedArray]


@dataclass(frozen=True, slots=True)
class Entry:
    """One table of the matrix: a column `c` beside the row number `n`.

    `versions` are the file versions that can hold it; `sampled` marks the entries of the small run.
    """

    name: str
    field: pa.Field
    build: Build
    versions: tuple[str, ...] = BOTH
    sampled: bool = False
    alone: bool = False  # the official reader takes lists of structs of fixed size only as the sole column
    peer_reads: bool = True  # and does not read them inside a struct at all

    @property
    def table(self) -> pa.Table:
        column = self.build(np.random.default_rng(zlib.crc32(self.name.encode())))
        if isinstance(column, pa.Array):
            column = pa.chunked_array([column], type=self.field.type)
        if self.alone:
            return pa.table([column], schema=pa.schema([self.field]))
        numbers = pa.chunked_array([pa.array(np.arange(len(column), dtype=np.int64))])
        schema = pa.schema([pa.field("n", pa.int64()), self.field])
        return pa.table([numbers, column], schema=schema)

    def __str__(self) -> str:
        return self.name


# -- random values of any type -------------------------------------------------------------------


def random_array(kind: pa.DataType, rows: int, rng: np.random.Generator, nulls: float = 0.0) -> pa.Array:
    """`rows` random values of `kind`; at every level of nesting a share `nulls` of them is null.

    Null lists and structs hide valid values underneath, as sliced and filtered Arrow data often does.
    """
    mask = rng.random(rows) < nulls if nulls else np.zeros(rows, dtype=bool)
    types = pa.types
    if types.is_null(kind):
        return pa.nulls(rows)
    if types.is_struct(kind):
        children = [
            random_array(f.type, rows, rng, nulls if f.nullable else 0.0)
            for f in (kind.field(i) for i in range(kind.num_fields))
        ]
        if not children:
            return pa.array([None if m else {} for m in mask], type=kind)
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.array(mask))
    if types.is_map(kind):
        offsets = _offsets(rows, rng)
        keys = random_array(kind.key_type, int(offsets[-1]), rng)
        items = random_array(kind.item_type, int(offsets[-1]), rng, nulls)
        return pa.MapArray.from_arrays(_with_nulls(offsets, mask), keys, items, type=kind)
    if types.is_list(kind) or types.is_large_list(kind):
        offsets = _offsets(rows, rng)
        if types.is_large_list(kind):
            offsets = offsets.astype(np.int64)
        item_nulls = nulls if kind.value_field.nullable else 0.0
        items = random_array(kind.value_type, int(offsets[-1]), rng, item_nulls)
        maker = pa.LargeListArray if types.is_large_list(kind) else pa.ListArray
        return maker.from_arrays(pa.array(offsets), items, type=kind, mask=pa.array(mask))
    if types.is_fixed_size_list(kind):
        items = random_array(kind.value_type, rows * kind.list_size, rng, nulls)
        return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=pa.array(mask))
    if types.is_dictionary(kind):
        size = min(100, max(1, rows))
        values = random_array(kind.value_type, size, rng)
        index = rng.integers(0, size, rows)
        return pa.DictionaryArray.from_arrays(
            pa.array(index, type=kind.index_type, mask=mask), values, ordered=kind.ordered
        )
    return _masked(_leaf(kind, rows, rng), mask)


def _offsets(rows: int, rng: np.random.Generator) -> np.ndarray:
    lengths = rng.integers(0, 5, rows)
    offsets = np.zeros(rows + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _with_nulls(offsets: np.ndarray, mask: np.ndarray) -> pa.Array:
    return pa.array(offsets, type=pa.int32(), mask=np.append(mask, False))


def _masked(values: pa.Array, mask: np.ndarray) -> pa.Array:
    if not mask.any():
        return values
    index = pa.array(np.arange(len(values)), mask=mask)
    return values.take(index)


def _leaf(kind: pa.DataType, rows: int, rng: np.random.Generator) -> pa.Array:
    types = pa.types
    if types.is_boolean(kind):
        return pa.array(rng.random(rows) < 0.5)
    if types.is_integer(kind) or types.is_temporal(kind):
        return _bits(kind, rows, rng)
    if types.is_floating(kind):
        return pa.array(rng.standard_normal(rows).astype(kind.to_pandas_dtype()), type=kind)
    if types.is_decimal(kind):
        # decimals are stored in two's complement; a value of p digits fits the width
        digits = kind.precision
        width = kind.byte_width
        out = bytearray()
        for _ in range(rows):
            magnitude = int.from_bytes(rng.bytes(width), "little") % 10 ** int(rng.integers(1, digits + 1))
            value = -magnitude if rng.random() < 0.5 else magnitude
            out += value.to_bytes(width, "little", signed=True)
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(bytes(out))])
    if types.is_fixed_size_binary(kind):
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(rng.bytes(rows * kind.byte_width))])
    if types.is_string(kind) or types.is_large_string(kind) or kind == pa.string_view():
        words = ["", "ä", "tilt", "yard", "lance", "a longer value", "日本"]
        picks = rng.integers(0, len(words), rows)
        tails = rng.integers(0, 10**6, rows)
        return pa.array(
            [words[p] + (str(t) if p else "") for p, t in zip(picks, tails, strict=True)], type=kind
        )
    lengths = rng.integers(0, 12, rows)
    return pa.array([rng.bytes(int(k)) for k in lengths], type=kind)


# temporal ranges: what the calendar of every reader can show
_RANGES: tuple[tuple[Callable[[pa.DataType], bool], int, int], ...] = (
    (pa.types.is_date32, -20_000, 40_000),
    (pa.types.is_date64, -20_000, 40_000),
    (pa.types.is_time, 0, 86_400),
    (pa.types.is_timestamp, -(10**9), 4 * 10**9),
    (pa.types.is_duration, -(10**6), 10**6),
)


def _bits(kind: pa.DataType, rows: int, rng: np.random.Generator) -> pa.Array:
    """Integers and temporal values from raw integers of their width."""
    width = kind.bit_width // 8
    for test, low, high in _RANGES:
        if test(kind):
            raw = rng.integers(low, high, rows).astype(np.int64)
            if pa.types.is_date64(kind):
                raw *= 86_400_000
            elif hasattr(kind, "unit"):
                scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
                raw = raw * scale + rng.integers(0, scale, rows)
            break
    else:
        raw = np.frombuffer(rng.bytes(rows * width), dtype=f"i{width}")
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(raw.astype(f"i{width}").tobytes())])


# -- the lists of types --------------------------------------------------------------------------

I32, STR = pa.int32(), pa.string()
POINT = pa.struct([("x", I32), ("y", STR)])
DEEP = pa.struct(
    [("a", pa.list_(pa.struct([("b", pa.struct([("c", I32), ("d", pa.list_(STR))]))]))), ("e", STR)]
)

LEAVES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    **{str(t): t for t in (pa.int8(), pa.int16(), I32, pa.int64())},
    **{str(t): t for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    "halffloat": pa.float16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": STR,
    "large_string": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    **{f"fixed_size_binary_{n}": pa.binary(n) for n in (1, 5, 16, 32, 300)},
    **{f"decimal128_{p}_{s}": pa.decimal128(p, s) for p, s in ((5, 2), (19, 18), (38, 10))},
    **{f"decimal256_{p}_{s}": pa.decimal256(p, s) for p, s in ((40, 5), (76, 0))},
    "date32": pa.date32(),
    "date64": pa.date64(),
    "time32_s": pa.time32("s"),
    "time32_ms": pa.time32("ms"),
    "time64_us": pa.time64("us"),
    "time64_ns": pa.time64("ns"),
    **{f"duration_{u}": pa.duration(u) for u in ("s", "ms", "us", "ns")},
    **{f"timestamp_{u}": pa.timestamp(u) for u in ("s", "ms", "us", "ns")},
    **{
        f"timestamp_{u}_{z.replace('/', '_')}": pa.timestamp(u, z)
        for u in ("s", "ms", "us", "ns")
        for z in ("UTC", "+05:30", "America/New_York")
    },
}

DICTIONARIES: dict[str, pa.DataType] = {
    **{
        f"dictionary_{index}_string": pa.dictionary(index, STR)
        for index in (pa.int8(), pa.int16(), I32, pa.int64(), pa.uint8(), pa.uint16(), pa.uint32())
    },
    "dictionary_int32_large_string": pa.dictionary(I32, pa.large_string()),
    "dictionary_int32_binary": pa.dictionary(I32, pa.binary()),
    "dictionary_int16_int64": pa.dictionary(pa.int16(), pa.int64()),
}

VECTORS: dict[str, pa.DataType] = {
    "fsl_float_4": pa.list_(pa.float32(), 4),
    "fsl_float_128": pa.list_(pa.float32(), 128),
    "fsl_double_3": pa.list_(pa.float64(), 3),
    "fsl_halffloat_16": pa.list_(pa.float16(), 16),
    "fsl_int8_3": pa.list_(pa.int8(), 3),
    "fsl_uint8_255": pa.list_(pa.uint8(), 255),
    "fsl_uint8_256": pa.list_(pa.uint8(), 256),
    "fsl_bool_5": pa.list_(pa.bool_(), 5),
    "fsl_timestamp_us_utc_2": pa.list_(pa.timestamp("us", "UTC"), 2),
    "fsl_fsl_float_2x3": pa.list_(pa.list_(pa.float32(), 3), 2),
    "fsl_fsl_float_20x50": pa.list_(pa.list_(pa.float32(), 50), 20),
    "fsl_1": pa.list_(I32, 1),
}

NESTED: dict[str, pa.DataType] = {
    "list_int32": pa.list_(I32),
    "list_string": pa.list_(STR),
    "list_bool": pa.list_(pa.bool_()),
    "list_double": pa.list_(pa.float64()),
    "list_decimal128": pa.list_(pa.decimal128(20, 3)),
    "list_timestamp": pa.list_(pa.timestamp("us", "UTC")),
    "list_fixed_size_binary_32": pa.list_(pa.binary(32)),
    "list_null": pa.list_(pa.null()),
    "list_dictionary": pa.list_(pa.dictionary(pa.int8(), STR)),
    "list_fsl_float_4": pa.list_(pa.list_(pa.float32(), 4)),
    "list_fsl_float_128": pa.list_(pa.list_(pa.float32(), 128)),
    "list_named_item": pa.list_(pa.field("element", I32)),
    "list_of_non_null": pa.list_(pa.field("item", I32, nullable=False)),
    "large_list_int64": pa.large_list(pa.int64()),
    "large_list_large_string": pa.large_list(pa.large_string()),
    "list_list_int32": pa.list_(pa.list_(I32)),
    "list_list_list_string": pa.list_(pa.list_(pa.list_(STR))),
    "list_large_list_int8": pa.list_(pa.large_list(pa.int8())),
    "list_struct": pa.list_(POINT),
    "large_list_struct": pa.large_list(POINT),
    "list_struct_list_struct": pa.list_(pa.struct([("p", pa.list_(POINT)), ("q", pa.bool_())])),
    "list_struct_struct": pa.list_(pa.struct([("p", POINT), ("q", pa.float64())])),
    "struct": POINT,
    "struct_struct": pa.struct([("p", POINT), ("z", pa.int64())]),
    "struct_list_struct_struct": DEEP,
    "struct_non_null_child": pa.struct([pa.field("x", I32, nullable=False), pa.field("y", STR)]),
    "struct_fsl": pa.struct([("v", pa.list_(pa.float32(), 8)), ("id", pa.int64())]),
    "struct_dictionary": pa.struct([("d", pa.dictionary(pa.int16(), STR)), ("k", I32)]),
    "struct_null": pa.struct([("nothing", pa.null()), ("k", I32)]),
    "list_list_list_struct": pa.list_(pa.list_(pa.list_(POINT))),
}

ONLY_FROM_22: dict[str, pa.DataType] = {
    "map_string_int32": pa.map_(STR, I32),
    "map_int64_struct": pa.map_(pa.int64(), POINT),
    "map_string_list_string": pa.map_(STR, pa.list_(STR)),
    "list_map": pa.list_(pa.map_(STR, I32)),
    "struct_map": pa.struct([("m", pa.map_(STR, pa.float64())), ("k", I32)]),
    "map_map": pa.map_(STR, pa.map_(STR, I32)),
    "fsl_struct": pa.list_(POINT, 3),
    "struct_fsl_struct": pa.struct([("f", pa.list_(POINT, 2)), ("k", I32)]),
}

_EXTENSION = b"ARROW:extension:name"
STORED_EXTENSIONS: dict[str, pa.Field] = {
    "uuid": pa.field("c", pa.binary(16), metadata={_EXTENSION: b"arrow.uuid"}),
    "bfloat16": pa.field("c", pa.binary(2), metadata={_EXTENSION: b"lance.bfloat16"}),
    "own_extension": pa.field(
        "c", I32, metadata={_EXTENSION: b"tilt.angle", b"ARROW:extension:metadata": b"deg"}
    ),
}

_SAMPLED = frozenset(
    [
        "null",
        "bool?",
        "int32",
        "int64?",
        "halffloat?",
        "double?",
        "string?",
        "large_binary?",
        "fixed_size_binary_5?",
        "decimal128_38_10?",
        "decimal256_76_0",
        "date32?",
        "time64_ns",
        "timestamp_us_UTC?",
        "timestamp_ms_+05:30",
        "duration_ms?",
        "dictionary_int8_string?",
        "dictionary_int16_int64?",
        "fsl_float_4?",
        "fsl_float_128?",
        "fsl_bool_5?",
        "fsl_fsl_float_2x3?",
        "list_int32?",
        "list_string?",
        "list_list_list_string?",
        "list_struct?",
        "struct_list_struct_struct?",
        "list_fsl_float_4?",
        "list_dictionary?",
        "large_list_large_string?",
        "map_string_int32?",
        "fsl_struct?",
        "uuid?",
    ]
)


def _of_type(name: str, field: pa.Field, versions: tuple[str, ...]) -> Iterable[Entry]:
    """The type without and with nulls (`?`), 1,025 rows."""
    kind = field.type

    def plain(rng: np.random.Generator) -> pa.Array:
        return random_array(kind, ROWS, rng)

    def with_nulls(rng: np.random.Generator) -> pa.Array:
        return random_array(kind, ROWS, rng, NULL_RATE)

    alone, peer_reads = name == "fsl_struct", name != "struct_fsl_struct"
    yield Entry(name, field, plain, versions, name in _SAMPLED, alone, peer_reads)
    if not pa.types.is_null(kind):
        yield Entry(f"{name}?", field, with_nulls, versions, f"{name}?" in _SAMPLED, alone, peer_reads)


def _by_type() -> Iterable[Entry]:
    for types, versions in (
        (LEAVES, BOTH),
        (DICTIONARIES, BOTH),
        (VECTORS, BOTH),
        (NESTED, BOTH),
        (ONLY_FROM_22, ONLY_22),
    ):
        for name, kind in types.items():
            yield from _of_type(name, pa.field("c", kind), versions)
    for name, field in STORED_EXTENSIONS.items():
        yield from _of_type(name, field, BOTH)
    # a struct without fields has no place for the difference of null and empty (case E14)
    empty = pa.struct([])
    yield Entry("empty_struct", pa.field("c", empty), lambda rng: random_array(empty, ROWS, rng))


def _sized() -> Iterable[Entry]:
    kinds = {
        "int32": I32,
        "bool": pa.bool_(),
        "string": STR,
        "list": pa.list_(I32),
        "list_fixed_size_binary": pa.list_(pa.binary(32)),
        "struct": POINT,
        "dictionary": pa.dictionary(pa.int16(), STR),
        "fsl": pa.list_(pa.float32(), 8),
    }
    for name, kind in kinds.items():
        for rows in EDGE_SIZES:

            def build(rng: np.random.Generator, kind: pa.DataType = kind, rows: int = rows) -> pa.Array:
                return random_array(kind, rows, rng, NULL_RATE)

            yield Entry(f"rows_{rows}_{name}", pa.field("c", kind), build, BOTH, rows in (0, 1))


def _sliced() -> Iterable[Entry]:
    for name in ("bool", "string", "decimal128_38_10"):
        yield _slice_of(name, LEAVES[name])
    for name in ("fsl_float_4", "fsl_bool_5", "fsl_fsl_float_2x3"):
        yield _slice_of(name, VECTORS[name])
    for name in ("list_struct", "list_list_list_string", "struct_list_struct_struct", "list_fsl_float_4"):
        yield _slice_of(name, NESTED[name])
    yield _slice_of("dictionary_int8_string", DICTIONARIES["dictionary_int8_string"])
    yield _slice_of("map_string_int32", ONLY_FROM_22["map_string_int32"], ONLY_22)


def _slice_of(name: str, kind: pa.DataType, versions: tuple[str, ...] = BOTH) -> Entry:
    """Two chunks, both cut out of a longer array, so that every child has an offset."""

    def build(rng: np.random.Generator) -> pa.ChunkedArray:
        whole = random_array(kind, 700, rng, NULL_RATE)
        return pa.chunked_array([whole.slice(13, 301), whole.slice(405, 77)])

    return Entry(
        f"sliced_{name}", pa.field("c", kind), build, versions, name in ("list_struct", "fsl_bool_5")
    )


# -- shapes of data ------------------------------------------------------------------------------

SHAPE_ROWS = 20_000


def _integers(shape: str) -> Callable[[np.random.Generator], np.ndarray]:
    def values(rng: np.random.Generator) -> np.ndarray:
        match shape:
            case "constant":
                return np.full(SHAPE_ROWS, 77)
            case "low_cardinality":
                return rng.integers(0, 9, SHAPE_ROWS) * 1_000_003
            case "sorted":
                return np.cumsum(rng.integers(0, 50, SHAPE_ROWS))
            case "runs":
                return np.repeat(rng.integers(0, 30_000, SHAPE_ROWS // 100), 100)
            case "negative":
                return -rng.integers(0, 30_000, SHAPE_ROWS)
            case "small":
                return rng.integers(0, 3, SHAPE_ROWS)
            case "outlier":
                out = rng.integers(0, 3, SHAPE_ROWS)
                out[SHAPE_ROWS // 2] = 32_000
                return out
            case _:
                return rng.integers(-32_768, 32_768, SHAPE_ROWS)

    return values


SHAPES = ("constant", "low_cardinality", "sorted", "runs", "negative", "small", "outlier", "random")


def _shaped() -> Iterable[Entry]:
    numbers = (
        pa.int16(),
        I32,
        pa.int64(),
        pa.uint64(),
        pa.float32(),
        pa.float64(),
        pa.timestamp("us"),
        pa.decimal128(20, 0),
    )
    for shape in SHAPES:
        values = _integers(shape)
        for kind in numbers:

            def build(
                rng: np.random.Generator,
                values: Callable[[np.random.Generator], np.ndarray] = values,
                kind: pa.DataType = kind,
            ) -> pa.Array:
                raw = values(rng).astype(np.int64)
                width = kind.bit_width // 8
                if pa.types.is_floating(kind):
                    return pa.array((raw / 4).astype(kind.to_pandas_dtype()))
                if pa.types.is_decimal(kind):
                    wide = np.stack([raw, raw >> 63], axis=1)
                    return pa.Array.from_buffers(kind, len(raw), [None, pa.py_buffer(wide.tobytes())])
                return pa.Array.from_buffers(
                    kind, len(raw), [None, pa.py_buffer(raw.astype(f"i{width}").tobytes())]
                )

            name = f"{shape}_{str(kind).split('[')[0].split('(')[0]}"
            yield Entry(
                name, pa.field("c", kind), build, BOTH, shape in ("constant", "runs") and kind == pa.int64()
            )
    yield from _shaped_text()
    yield from _sparse()


def _shaped_text() -> Iterable[Entry]:
    def urls(rng: np.random.Generator) -> pa.Array:
        return pa.array(
            [
                f"https://example.org/p{int(a)}/{int(b):x}"
                for a, b in zip(rng.integers(0, 999, 9000), rng.integers(0, 2**40, 9000), strict=True)
            ]
        )

    def categories(rng: np.random.Generator) -> pa.Array:
        return pa.array([f"category-{int(i):03d}" for i in rng.integers(0, 60, 9000)])

    def longer(size: int, rows: int) -> Build:
        def build(rng: np.random.Generator) -> pa.Array:
            lengths = rng.integers(size, size * 2, rows)
            return pa.array(
                [None if i % 7 == 3 else rng.bytes(int(k) // 2).hex() for i, k in enumerate(lengths)]
            )

        return build

    def random_bytes(rng: np.random.Generator) -> pa.Array:
        return pa.array([rng.bytes(int(k)) for k in rng.integers(200, 700, 500)], type=pa.binary())

    def empties(rng: np.random.Generator) -> pa.Array:
        return pa.array([("", None, "x" * 10)[int(i)] for i in rng.integers(0, 3, 3000)])

    def all_empty(rng: np.random.Generator) -> pa.Array:
        return pa.array([""] * 1500)

    for name, build, sampled in (
        ("urls", urls, True),
        ("categories", categories, True),
        ("over_256_bytes", longer(300, 400), True),
        ("over_32_kib", longer(40_000, 12), True),
        ("one_long_text", longer(600_000, 1), False),
        ("empty_or_null_text", empties, True),
        ("all_empty_text", all_empty, False),
    ):
        yield Entry(name, pa.field("c", STR), build, BOTH, sampled)
    yield Entry("random_bytes", pa.field("c", pa.binary()), random_bytes)
    yield Entry("constant_text", pa.field("c", STR), lambda rng: pa.array(["tilt"] * 3000))


def _sparse() -> Iterable[Entry]:
    """Mostly null, mostly empty, null at the edges, everything null."""

    def rare(rng: np.random.Generator) -> pa.Array:
        return pa.array(rng.integers(0, 2**40, 9000), mask=rng.random(9000) < 0.995)

    def mostly_empty(rng: np.random.Generator) -> pa.Array:
        lengths = np.where(rng.random(9000) < 0.002, 3, 0)
        offsets = np.zeros(9001, dtype=np.int32)
        np.cumsum(lengths, out=offsets[1:])
        items = pa.array(rng.integers(0, 99, int(offsets[-1])), type=pa.int8())
        return pa.ListArray.from_arrays(pa.array(offsets), items, mask=pa.array(rng.random(9000) < 0.01))

    def edges(rng: np.random.Generator) -> pa.Array:
        vectors = random_array(pa.list_(pa.float32(), 4), 500, rng)
        mask = np.zeros(500, dtype=bool)
        mask[:3] = mask[-5:] = True
        return _masked(vectors, mask)

    def long_lists(rng: np.random.Generator) -> pa.Array:
        return pa.array([list(range(int(k))) for k in rng.integers(0, 9000, 6)], type=pa.list_(I32))

    def floats(rng: np.random.Generator) -> pa.Array:
        special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, 1.5])
        return pa.array(special[rng.integers(0, len(special), 3000)])

    yield Entry("rarely_valid", pa.field("c", pa.int64()), rare, BOTH, True)
    yield Entry("mostly_empty_lists", pa.field("c", pa.list_(pa.int8())), mostly_empty, BOTH, True)
    yield Entry("vectors_null_at_the_edges", pa.field("c", pa.list_(pa.float32(), 4)), edges)
    yield Entry("long_lists", pa.field("c", pa.list_(I32)), long_lists, BOTH, True)
    yield Entry("special_floats", pa.field("c", pa.float64()), floats, BOTH, True)
    for name, kind in (
        ("int64", pa.int64()),
        ("string", STR),
        ("struct", POINT),
        ("list", pa.list_(I32)),
        ("list_struct", pa.list_(POINT)),
        ("fsl", pa.list_(pa.float32(), 4)),
        ("dictionary", pa.dictionary(pa.int8(), STR)),
    ):
        yield Entry(
            f"all_null_{name}",
            pa.field("c", kind),
            lambda rng, kind=kind: pa.nulls(1100, kind),
            BOTH,
            name == "list_struct",
        )
    yield Entry(
        "lists_all_null_or_empty",
        pa.field("c", pa.list_(pa.list_(I32))),
        lambda rng: pa.array([None, [], [None], [[]]] * 300, type=pa.list_(pa.list_(I32))),
    )


def entries() -> list[Entry]:
    """The whole matrix, in a fixed order."""
    return [*_by_type(), *_sized(), *_sliced(), *_shaped()]


def sample() -> list[Entry]:
    """Entries that together reach every page layout and most encodings: the run of `make test`."""
    return [e for e in entries() if e.sampled]


def named(name: str) -> Entry:
    """The entry called `name`."""
    return next(e for e in entries() if e.name == name)
