"""What a manifest says about its files is compared with them; what no table has is refused on opening."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from tiltyard.errors import BatchTooLarge, CorruptFile, TiltyardError, UnsupportedFeature
from tiltyard.file.nulls import null_array, null_bytes
from tiltyard.format.protos import table_pb2
from tiltyard.session import Limits, Session

ROWS = 100
TABLE = pa.table(
    {
        "a": pa.array(range(ROWS), pa.int64()),
        "s": pa.array([{"x": i, "y": f"{i}"} for i in range(ROWS)]),
        "l": pa.array([[i] for i in range(ROWS)], pa.list_(pa.int32())),
    }
)
Change = Callable[[Any], Any]


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Two fragments; rows 0 to 9 of the first are deleted."""
    path = str(tmp_path / "t")
    lance.write_dataset(TABLE, path, enable_stable_row_ids=True)
    lance.write_dataset(TABLE, path, mode="append")
    lance.dataset(path).delete("a < 10 and _rowaddr < 100")
    return path


def newest(path: str) -> Path:
    return min(Path(path, "_versions").glob("*.manifest"))


def change(path: str, how: Change) -> None:
    """Write the newest manifest again with its message changed."""
    manifest = newest(path)
    data = manifest.read_bytes()
    at = int.from_bytes(data[-16:-8], "little")
    message = table_pb2.Manifest.FromString(data[at + 4 : -16])
    how(message)
    body = message.SerializeToString()
    manifest.write_bytes(data[:at] + len(body).to_bytes(4, "little") + body + data[-16:])


def field(message: Any, name: str) -> Any:
    return next(each for each in message.fields if each.name == name)


def setting(place: Callable[[Any], Any], name: str, value: Any) -> Change:
    return lambda message: setattr(place(message), name, value)


def fragment(message: Any) -> Any:
    return message.fragments[0]


def deletion(message: Any) -> Any:
    return message.fragments[0].deletion_file


def refused(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(CorruptFile, match=said) as caught:
        call()
    assert caught.value.path
    assert caught.value.path in str(caught.value)


# -- on opening ----------------------------------------------------------------------------------

IMPOSSIBLE: dict[str, tuple[Change, str]] = {
    "two fragments of one id": (setting(fragment, "id", 1), "two fragments have id 1"),
    "a copied fragment": (lambda m: m.fragments.add().CopyFrom(m.fragments[0]), "two fragments have id 0"),
    "fragment id": (setting(fragment, "id", 2**32), "does not fit 32 bits"),
    "rows beyond 32 bits": (setting(fragment, "physical_rows", 2**53), "more than a fragment can have"),
    "rows beyond 63 bits": (setting(fragment, "physical_rows", 2**64 - 1), "does not fit 63 bits"),
    "more deleted than there": (setting(deletion, "num_deleted_rows", 101), "100 rows, 101 of them deleted"),
    "absurdly many deleted": (setting(deletion, "num_deleted_rows", 2**62), "more than a fragment can have"),
    "year 36812": (lambda m: setattr(m.timestamp, "seconds", 2**40), "in no calendar"),
    "before all calendars": (lambda m: setattr(m.timestamp, "seconds", -(2**63)), "in no calendar"),
    "nanoseconds": (lambda m: setattr(m.timestamp, "nanos", 10**9), "in no calendar"),
    "row ids used up": (lambda m: setattr(m, "next_row_id", 2**64 - 1), "row ids"),
    "two columns of one name": (lambda m: setattr(field(m, "s"), "name", "a"), "two columns are named 'a'"),
    "a list of two items": (
        lambda m: m.fields.add(name="k", id=90, parent_id=field(m, "l").id, logical_type="int64"),
        "'l' is a list of 2 fields",
    ),
    "a list of nothing": (lambda m: m.fields.remove(field(m, "item")), "'l' is a list of 0 fields"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_a_manifest_that_no_table_has_is_refused_on_opening(case: str, table: str) -> None:
    how, said = IMPOSSIBLE[case]
    change(table, how)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refused(lambda: lance.dataset(table), said)
        refused(lambda: lance.write_dataset(TABLE, table, mode="append"), said)


@pytest.mark.parametrize("path", ["../../elsewhere.lance", "/etc/hostname", "", "a//b", "a\0b"])
def test_a_data_file_outside_of_the_table_is_refused(path: str, table: str) -> None:
    change(table, lambda m: setattr(m.fragments[0].files[0], "path", path))
    dataset = lance.dataset(table)
    refused(lambda: dataset.to_table(), "is no path below a directory")
    refused(lambda: dataset.take([0]), "is no path below a directory")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (lambda m: m.fragments[0].files[0].fields.__setitem__(1, 0), "a field twice"),
        (lambda m: m.fragments[0].files[0].fields.pop(), "fields and"),
        (lambda m: m.fragments[0].files[0].column_indices.__setitem__(0, 99), "in column 99 of"),
        (lambda m: setattr(m.fragments[0].files[0], "base_id", 7), "under base path 7"),
    ],
    ids=["field twice", "fewer fields", "no such column", "no such base"],
)
def test_what_a_manifest_says_of_a_data_file_is_checked(how: Change, said: str, table: str) -> None:
    change(table, how)
    dataset = lance.dataset(table)
    refused(lambda: dataset.to_table(), said)
    refused(lambda: dataset.take([0]), said)


# -- against the files ---------------------------------------------------------------------------


@pytest.mark.parametrize("stated", [0, 9, 11, 100])
def test_a_count_of_deleted_rows_that_the_deletion_file_denies(stated: int, table: str) -> None:
    # The file is known to the session already: what another manifest says of it is compared all the same.
    session = Session()
    assert lance.dataset(table, session=session).to_table().num_rows == 2 * ROWS - 10
    change(table, setting(deletion, "num_deleted_rows", stated))
    dataset = lance.dataset(table, session=session)
    said = f"lists 10 rows where the manifest says {stated}"
    refused(lambda: dataset.to_table(), said)
    refused(lambda: list(dataset.to_batches()), said)
    refused(lambda: dataset.to_table(filter="a > 50"), said)
    refused(lambda: dataset.take([0]), said)
    refused(lambda: dataset.delete("a = 50"), said)


@pytest.mark.parametrize("stated", [11, 99, 101, 2**24 + 1, 2**32 - 1, 2**32])
@pytest.mark.parametrize("number", [0, 1])
def test_a_row_count_that_the_data_file_denies(number: int, stated: int, table: str) -> None:
    change(table, lambda m: setattr(m.fragments[number], "physical_rows", stated))
    dataset = lance.dataset(table)
    said = f"holds 100 rows, but fragment {number} has {stated}"
    refused(lambda: dataset.to_table(), said)
    refused(lambda: dataset.to_table(columns=[], with_row_address=True), said)
    refused(lambda: dataset.to_table(filter="a >= 0"), said)
    refused(lambda: dataset.delete("a >= 0"), said)
    refused(lambda: dataset.take([0, dataset.count_rows() - 1]), said)


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("a", "double"),
        ("a", "int32"),
        ("a", "timestamp:us:-"),
        ("a", "string"),
        ("a", "fixed_size_list:int32:2"),
        ("x", "uint64"),
        ("y", "binary"),
        ("item", "float"),
    ],
)
def test_a_type_that_the_data_file_denies(name: str, stated: str, table: str) -> None:
    change(table, lambda m: setattr(field(m, name), "logical_type", stated))
    dataset = lance.dataset(table)
    said = f"column '{name}' is .* in the file, {stated} in the table"
    refused(lambda: dataset.to_table(), said)
    refused(lambda: dataset.take([0, 150]), said)


def test_columns_whose_types_agree_are_read_beside_one_that_is_denied(table: str) -> None:
    change(table, lambda m: setattr(field(m, "a"), "logical_type", "double"))
    assert lance.dataset(table).to_table(columns=["l"]).num_rows == 2 * ROWS - 10


# -- columns of nulls ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fixed_size_list:int64:2000000000", "fixed_size_binary:2000000000"])
def test_nulls_too_large_for_memory_are_refused_before_any_is_made(kind: str, table: str) -> None:
    change(table, lambda m: m.fields.add(name="n", id=500, parent_id=-1, logical_type=kind, nullable=True))
    dataset = lance.dataset(table)
    with pytest.raises(UnsupportedFeature, match=r"'n' stands in no data file, and one null .* leave the"):
        dataset.to_table()
    with pytest.raises(TiltyardError):
        dataset.take([0])
    assert dataset.to_table(columns=["a"]).num_rows == 2 * ROWS - 10


def test_a_batch_of_nulls_beyond_the_limit_is_read_in_parts(table: str) -> None:
    change(
        table,
        lambda m: m.fields.add(
            name="n", id=500, parent_id=-1, logical_type="fixed_size_list:int64:100", nullable=True
        ),
    )
    dataset = lance.dataset(table, session=Session(Limits(null_bytes=8_000)))
    found = dataset.to_table()
    assert found["n"].null_count == 2 * ROWS - 10
    assert max(len(chunk) for chunk in found["n"].chunks) <= 10
    with pytest.raises(BatchTooLarge):
        dataset.take(list(range(50)))
    assert dataset.take([1, 2])["n"].null_count == 2


@pytest.mark.parametrize(
    "kind",
    [
        pa.null(),
        pa.bool_(),
        pa.int16(),
        pa.decimal128(9, 2),
        pa.string(),
        pa.large_binary(),
        pa.list_(pa.int64()),
        pa.large_list(pa.int64()),
        pa.list_(pa.float32(), 7),
        pa.binary(11),
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int8(), 3))]),
        pa.map_(pa.string(), pa.int8()),
        pa.dictionary(pa.int16(), pa.string()),
    ],
)
def test_nulls_take_what_is_estimated(kind: Any) -> None:
    rows = 8192
    array = null_array(Session(), rows, kind, "c")
    assert array.null_count == rows
    assert array.type == kind
    # Validity and the last offset come on top, of the array and of those inside.
    assert array.nbytes <= rows * null_bytes(kind) * 1.3 + rows // 4 + 64


def test_as_many_absent_columns_as_a_schema_may_have_are_read(table: str) -> None:
    def widen(message: Any) -> None:
        for i in range(20_000):
            message.fields.add(name=f"n{i}", id=1000 + i, parent_id=-1, logical_type="int64", nullable=True)

    change(table, widen)
    found = lance.dataset(table).take([0, 150])
    assert found.num_columns == 20_003
    assert found["n19999"].null_count == 2
