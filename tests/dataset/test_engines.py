"""DuckDB and Polars on our datasets: what they push down, and that the rows are those that they find in the
same table held by Arrow; and the official package through both.
"""

from __future__ import annotations

import datetime as dt
import pickle
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pytest

import tiltyard.lance as lance
import typematrix
from peer import Peer
from tiltyard.dataset.arrow_class import arrow_class
from tiltyard.errors import (
    InvalidExpression,
    InvalidInput,
    MissingPackage,
    RowOutOfRange,
    UnsupportedFeature,
)

D = Decimal
DAY, MOMENT = dt.date(2020, 1, 1), dt.datetime(2020, 1, 1)
OLD, NAN = dt.datetime(1960, 1, 1, 1, 1, 1, 1), float("nan")

COLUMNS: dict[str, Any] = {
    "i": pa.array([1, 2, None, -7, 2**62]),
    "i8": pa.array([1, 2, 3, None, -4], pa.int8()),
    "u8": pa.array([1, 2, 3, 255, None], pa.uint8()),
    "f": pa.array([1.0, NAN, -0.0, None, float("inf")]),
    "f4": pa.array([1.5, 2, 1.1, None, NAN], pa.float32()),
    "b": [True, False, None, True, False],
    "s": ["x", "y", None, "", "a'b"],
    "ls": pa.array(["x", "y", None, "é", ""], pa.large_string()),
    "bin": [b"a", b"b", None, b"", b"\x00"],
    "fixed": pa.array([b"ab", b"cd", None, b"ab", b"zz"], pa.binary(2)),
    "d": [DAY, None, dt.date(1969, 12, 31), DAY, dt.date(2021, 5, 5)],
    "us": pa.array([MOMENT, None, OLD, MOMENT, MOMENT], pa.timestamp("us")),
    "sec": pa.array([1, 2, None, -1, 2], pa.timestamp("s")),
    "ms": pa.array([1, 2, None, -1, 1500], pa.timestamp("ms")),
    "ns": pa.array([1, 2, None, -1, 2], pa.timestamp("ns")),
    "tz": pa.array([MOMENT, None, MOMENT, MOMENT, dt.datetime(2021, 1, 1)], pa.timestamp("us", "UTC")),
    "time": pa.array([dt.time(1, 2), None, dt.time(23, 59), dt.time(0), dt.time(1, 2)], pa.time64("us")),
    "dec": pa.array([D("1.50"), None, D("-0.01"), D("1.50"), D("99.99")], pa.decimal128(10, 2)),
    "dic": pa.array(["u", "v", None, "u", "w"]).dictionary_encode(),
    "st": [{"x": 1, "y": "q"}, {"x": None, "y": "r"}, None, {"x": 3, "y": None}, {"x": 1, "y": "q"}],
    "l": [[1, 2], None, [], [1, None], [1, 2]],
    "vec": pa.array([[1.0, 2.0], None, [3.0, 4.0], [0.0, 0.0], [1.0, 2.0]], pa.list_(pa.float32(), 2)),
}  # fmt: skip

# Conditions in DuckDB's words; those that it is known to push down today, and those that it keeps.
PUSHED = """
i > 1;  i = 2;  i <> 2;  i in (1, 2, 9);  i not in (1, 2);  i is null or i = 1;  i between 0 and 2
i + 1 = 2;  i is not null and i8 < 3;  not (i = 1);  i8 <> 2;  u8 > 1;  u8 >= 255;  f < 1;  f = 0.0
f <= -0.0;  f4 = 1.5;  f4 in (1.5, 2);  b = true;  s = 'x';  s > 'w' and s < 'xx';  s <> ''
s in ('x', 'a''b');  s is not null;  ls = 'é';  ls in ('x', 'z');  bin = 'a'::blob;  bin > ''::blob
fixed = 'ab'::blob;  fixed in ('ab'::blob, 'q'::blob);  d = date '2020-01-01';  d < date '1970-01-01'
us > timestamp '2019-01-01';  us = timestamp '1960-01-01 01:01:01.000001'
sec = timestamp_s '1970-01-01 00:00:02';  ms >= timestamp_ms '1970-01-01 00:00:01.5'
tz > timestamptz '2020-06-01 00:00:00+00';  time = time '01:02:00';  time > time '12:00:00';  dec = 1.5
dec > 1.49;  dec in (1.50, 99.99);  dic = 'u';  dic in ('u', 'w');  st.x = 1;  st.y = 'q' and i = 1
st.x is null;  i = 1 or s = 'y'
"""
KEPT = """
f > 0.5;  f = 'nan'::double;  f <> 1;  f in (1.0, 'nan'::double);  f4 > 1.1;  b;  not b;  s like 'x%'
starts_with(s, 'a');  ns >= timestamp_ns '1970-01-01 00:00:00.000000002'
sec >= timestamp '1970-01-01 00:00:02';  l = [1, 2];  len(l) = 2;  st = {'x': 1, 'y': 'q'}
i is distinct from 1;  i = (select max(x) from (values (1), (2)) v(x));  i % 2 = 1;  vec[1] = 1
"""

# Predicates in Polars' words.
POLARS = """
c.i > 1;  c.i == 1;  c.i != 1;  ~(c.i == 1);  c.i.is_in([1, 7]);  ~c.i.is_in([1]);  c.i.is_null()
c.i.is_in([1, None]);  c.i.is_not_null() & (c.i < 2);  c.i.is_between(1, 2);  c.i.eq_missing(1)
c.i + 1 == 2;  c.i == c.u8;  c.i < 2**62;  c.i8 == 300;  c.i8 > 1.5;  c.u8 > -1;  c.f > 0.5
c.f.is_nan();  c.f == NAN;  c.f != 1.0;  c.f == 0.0;  c.f.is_not_nan();  c.f.is_in([0.0, NAN])
c.f.is_in([-0.0]);  ~(c.f > 1);  c.f < 1;  c.f > float("inf");  c.f < NAN;  c.f4 > 1.1;  c.f4 == 1.5
c.s == "x";  c.s == "a'b";  c.s > "x";  c.s.is_in(["x", ""]);  c.s.str.starts_with("x")
c.s.str.contains("y");  c.ls == "é";  c.b;  ~c.b;  c.b == True;  c.bin == b"a";  c.d == DAY
c.d < dt.date(1970, 1, 1);  c.d.dt.year() == 2020;  c.us >= MOMENT
c.tz > dt.datetime(2020, 6, 1, tzinfo=dt.UTC);  c.sec == dt.datetime(1970, 1, 1, 0, 0, 2)
c.ns == dt.datetime(1970, 1, 1);  c.time == dt.time(1, 2);  c.dec == D("1.50");  c.dec > 1
c.dic == "u";  c.st.struct.field("x") == 1;  c.l.list.len() == 2;  (c.i == 1) | (c.s == "y")
(c.i == 1) & c.b;  (c.i == 1) ^ c.b;  pl.lit(True);  pl.lit(False)
"""  # fmt: skip


def parts(text: str) -> list[str]:
    return [part.strip() for line in text.splitlines() for part in line.split(";") if part.strip()]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pa.table(COLUMNS)


@pytest.fixture(scope="module")
def place(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The table in two fragments, with one more row that is deleted."""
    where = str(tmp_path_factory.mktemp("engines") / "t.lance")
    lance.write_dataset(pa.concat_tables([table, table.slice(0, 1)]), where, max_rows_per_file=3)
    lance.dataset(where).delete("_rowoffset = 5")
    return where


class Watched(lance.LanceDataset):
    """Remembers what engines ask for."""

    asked: tuple[Any, Any] = (None, None)

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> Any:
        self.asked = columns, filter
        return super().scanner(columns, filter, **options)


def rows(found: Any) -> str:
    return repr(found.fetchall())


# -- DuckDB --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", parts(PUSHED) + parts(KEPT))
def test_duckdb_finds_the_rows_that_it_finds_in_arrow(condition: str, table: pa.Table, place: str) -> None:
    ds = Watched(place)
    assert rows(duckdb.sql(f"select s, dec from ds where {condition}")) == rows(
        duckdb.sql(f"select s, dec from table where {condition}".replace("from table", 'from "table"'))
    )
    assert ds.asked[0] is not None
    assert len(ds.asked[0]) < len(COLUMNS)
    if condition in parts(PUSHED):
        assert ds.asked[1] is not None


def test_duckdb_reads_every_type_counts_joins_and_stops_early(table: pa.Table, place: str) -> None:
    ds = Watched(place)
    assert rows(duckdb.sql("from ds")) == rows(duckdb.sql('from "table"'))
    assert duckdb.sql("select count(*) from ds").fetchall() == [(5,)]
    assert len(ds.asked[0]) == 1
    assert duckdb.sql("select i from ds limit 2").fetchall() == [(1,), (2,)]
    joined = duckdb.sql("select a.s, b.s from ds a join ds b on a.i = b.i8 where a.i < 3 order by all")
    assert joined.fetchall() == [("x", "x"), ("y", "y")]
    connection = duckdb.connect()
    connection.register("flights", lance.dataset(place))
    assert connection.execute("select max(i) from flights where s = 'y'").fetchall() == [(2,)]
    connection.register("few", ds.scanner(["i"], "i < 2"))
    assert connection.execute("from few").fetchall() == [(1,), (-7,)]


def test_an_index_answers_what_duckdb_pushes_down() -> None:
    table = {"i": pa.array([*range(5000), None]), "f": [float(n % 7) for n in range(5001)]}
    ds = lance.write_dataset(table, "memory://engine_index", mode="overwrite", max_rows_per_file=1000)
    ds.create_scalar_index("i", "BTREE")
    plans: list[str] = []

    class Planned(lance.LanceDataset):
        def scanner(self, *given: Any, **options: Any) -> Any:
            found = super().scanner(*given, **options)
            plans.append(found.explain_plan())
            return found

    ds = Planned("memory://engine_index")
    for condition, count in (("i = 77", 1), ("i in (77, 4999, 9)", 3), ("i < 3", 3), ("i is null", 1)):
        assert duckdb.sql(f"select count(f) from ds where {condition}").fetchall() == [(count,)]
        assert "ScalarIndexQuery" in plans[-1], condition
    zeros = duckdb.sql("select count(i) from ds where f in (0, 3) and i < 7").fetchall()
    assert zeros == [(2,)]


@pytest.mark.parametrize("entry", typematrix.sample(), ids=str)
def test_duckdb_reads_the_type_matrix_as_arrow_has_it(entry: typematrix.Entry) -> None:
    table = entry.table.slice(0, 200)
    connection = duckdb.connect()
    query = "select * from {} where c is not null"
    try:
        connection.register("arrow", table)
        theirs = rows(connection.sql(query.format("arrow")))
    except duckdb.Error:
        return  # a type or a value that it does not take at all
    ds = lance.write_dataset(
        table, "memory://engine_matrix", mode="overwrite", data_storage_version=entry.versions[-1]
    )
    connection.register("ours", ds)
    assert rows(connection.sql(query.format("ours"))) == theirs


# -- Polars --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("predicate", parts(POLARS))
def test_polars_finds_the_rows_that_it_finds_in_its_frame(
    predicate: str, table: pa.Table, place: str
) -> None:
    condition = eval(predicate, globals() | {"c": pl.col})
    ours = pl.scan_pyarrow_dataset(lance.dataset(place)).filter(condition).select("s", "dec").collect()
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    assert ours.rows() == frame.lazy().filter(condition).select("s", "dec").collect().rows()


def test_polars_asks_for_the_columns_and_rows_that_it_needs(place: str) -> None:
    class Batches(Watched):
        def to_batches(self, columns: Any = None, filter: Any = None, **options: Any) -> Iterator[Any]:
            return self.scanner(columns, filter, **options).to_batches()

    ds = Batches(place)
    found = pl.scan_pyarrow_dataset(ds).filter(pl.col("i") > 1).select(pl.col("s")).collect()
    assert found["s"].to_list() == ["y", "a'b"]
    assert set(ds.asked[0]) == {"i", "s"}
    assert ds.asked[1].equals(pads.field("i") > 1)
    assert pl.scan_pyarrow_dataset(ds).select("i", "s").head(2).collect().rows() == [(1, "x"), (2, "y")]


# -- the official package ----------------------------------------------------------------------------------

PEER_RUNS = """
import datetime as dt, duckdb, polars as pl
from decimal import Decimal as D
DAY, MOMENT, NAN, c = dt.date(2020, 1, 1), dt.datetime(2020, 1, 1), float("nan"), pl.col
ds = lance.dataset(place)
def answer(run, text):
    try:
        return repr(run(text))
    except Exception as error:
        return None
def by_duckdb(text):
    return duckdb.sql(f"select s, dec from ds where {text}").fetchall()
def by_polars(text):
    names = dict(c=c, pl=pl, dt=dt, D=D, DAY=DAY, MOMENT=MOMENT, NAN=NAN)
    return pl.scan_pyarrow_dataset(ds).filter(eval(text, names)).select("s", "dec").collect().rows()
result = [answer(by_duckdb, text) for text in sql], [answer(by_polars, text) for text in polars]
"""


def test_the_official_package_gives_the_same_rows_through_both(
    table: pa.Table, tmp_path: Path, peer: Peer
) -> None:
    place = str(tmp_path / "t.lance")
    ds = lance.write_dataset(table.drop_columns(["time"]), place)  # beside which it takes no filter at all
    sql = [text for text in parts(PUSHED) + parts(KEPT) if "time '" not in text]
    predicates = [text for text in parts(POLARS) if "c.time" not in text]
    by_duckdb, by_polars = peer(PEER_RUNS, place=place, sql=sql, polars=predicates)
    connection = duckdb.connect()
    connection.register("ds", ds)
    ours = [rows(connection.sql(f"select s, dec from ds where {text}")) for text in sql]
    for text in predicates:
        found = pl.scan_pyarrow_dataset(ds).filter(eval(text, globals() | {"c": pl.col})).select("s", "dec")
        ours.append(repr(found.collect().rows()))
    pairs = list(zip(sql + predicates, ours, by_duckdb + by_polars, strict=True))
    assert [text for text, a, b in pairs if b is not None and a != b] == []
    assert sum(b is not None for _, _, b in pairs) > 100  # the rest it refuses


# -- the classes of Arrow ------------------------------------------------------------------------------------

KINDS = [
    (lance.LanceDataset, pads.Dataset),
    (lance.LanceFragment, pads.Fragment),
    (lance.LanceScanner, pads.Scanner),
]


@pytest.mark.parametrize(("ours", "arrow"), KINDS)
def test_whatever_arrow_inherits_is_ours_or_refused(ours: type, arrow: type) -> None:
    mine = {
        name
        for kind in arrow_class(ours).__mro__
        if kind.__module__.startswith("tiltyard")
        for name in vars(kind)
    }
    assert {name for name in dir(arrow) if not name.startswith("__")} - mine == set()


def test_datasets_fragments_and_scanners_are_those_of_arrow(place: str) -> None:
    ds = lance.dataset(place)
    for each, (ours, arrow) in zip((ds, ds.get_fragments()[0], ds.scanner()), KINDS, strict=True):
        assert isinstance(each, arrow)
        assert isinstance(each, ours)
    assert issubclass(lance.LanceDataset, pads.Dataset)
    assert lance.LanceDataset is lance.LanceDataset
    assert type(ds.checkout_version(1)) is lance.LanceDataset
    again = pickle.loads(pickle.dumps(ds))
    assert isinstance(again, pads.Dataset)
    assert again.to_table(["i"]) == ds.to_table(["i"])


FRESH = """
import sys
import tiltyard.lance as lance
ds = lance.dataset(sys.argv[1])
print(ds.count_rows(), "pyarrow.dataset" in sys.modules)
import pyarrow.dataset
print(isinstance(ds, pyarrow.dataset.Dataset), isinstance(ds, lance.LanceDataset))
import duckdb
print(duckdb.sql("select s from ds where i = 2").fetchall())
"""


def test_a_dataset_opened_before_arrow_was_loaded_is_one_of_arrow_too(place: str) -> None:
    done = subprocess.run([sys.executable, "-c", FRESH, place], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["5 False", "True True", "[('y',)]"], done.stderr


def test_functions_of_arrow_that_pass_our_methods_by_raise(place: str, tmp_path: Path) -> None:
    ds = lance.dataset(place)
    for run in (
        lambda: pads.Scanner.from_dataset(ds).to_table(),
        lambda: pads.Dataset.sort_by(ds, "i"),
        lambda: pads.UnionDataset(pa.schema([]), [ds]).to_table(),
        lambda: pads.dataset([ds, ds]),
    ):
        with pytest.raises(UnsupportedFeature):
            run()
    with pytest.raises(TypeError):
        pads.Scanner.from_fragment(ds.get_fragments()[0])
    pads.write_dataset(ds.scanner(["i"]).to_reader(), tmp_path / "copy", format="ipc")
    assert pads.dataset(tmp_path / "copy", format="ipc").count_rows() == 5


def test_what_arrow_computes_it_computes_on_our_rows(table: pa.Table, place: str) -> None:
    ds = lance.dataset(place)
    assert ds.partition_expression.equals(pads.scalar(True))
    assert ds.get_fragments()[0].partition_expression.equals(pads.scalar(True))
    assert ds.filter(pads.field("i") > 1).to_table()["s"].to_pylist() == ["y", "a'b"]
    assert ds.sort_by([("s", "descending")]).to_table()["s"].to_pylist() == ["y", "x", "a'b", "", None]
    assert ds.sort_by("i", null_placement="at_start").head(2)["i"].to_pylist() == [None, -7]
    names = pa.table({"key": [1, 2], "name": ["one", "two"]})
    few = lance.write_dataset(table.select(["i", "s"]), "memory://engines")
    found = few.join(names, "i", "key", join_type="inner").to_table().sort_by("i")
    assert found.to_pydict() == {"i": [1, 2], "s": ["x", "y"], "name": ["one", "two"]}
    assert few.join(few, "s", right_suffix="_2").to_table().num_rows == 5
    ordered = lance.write_dataset({"t": [1, 5], "k": [1, 1], "v": ["a", "b"]}, "memory://asof")
    assert ordered.join_asof(pa.table({"t": [2], "k": [1], "w": [7]}), "t", "k", 3).to_table()[
        "w"
    ].to_pylist() == [7, None]
    with pytest.raises(UnsupportedFeature, match="replace_schema_metadata"):
        ds.replace_schema(ds.schema)
    with pytest.raises(InvalidInput, match="ascending"):
        ds.sort_by([("i", "down")])
    with pytest.raises(InvalidInput, match="right_dataset"):
        ds.join(5, "i")


def test_a_scanner_takes_rows_and_tells_batches_apart_by_fragment(place: str) -> None:
    ds = lance.dataset(place)
    scanner = ds.scanner(["s"], "i is not null", use_threads=True)
    assert scanner.take([3, 0]).to_pydict() == {"s": ["a'b", "x"]}
    with pytest.raises(RowOutOfRange, match="the scan gives 4 rows"):
        scanner.take([4])
    pairs = [(each.fragment.fragment_id, each.record_batch.num_rows) for each in scanner.scan_batches()]
    assert pairs == [(0, 2), (1, 2)]
    with pytest.raises(InvalidInput, match="limit"):
        list(ds.scanner(limit=1).scan_batches())
    assert lance.LanceScanner.from_dataset(ds, columns=["i"]).count_rows() == 5
    assert lance.LanceScanner.from_fragment(ds.get_fragments()[1]).count_rows() == 2
    with pytest.raises(UnsupportedFeature, match=r"Scanner\.from_batches"):
        lance.LanceScanner.from_batches([])


# -- SQL ---------------------------------------------------------------------------------------------------


def test_a_query_sees_the_version_of_the_handle(tmp_path: Path) -> None:
    ds = lance.write_dataset({"id": [1, 2, 3], "value": ["a", "b", "c"]}, tmp_path / "t", max_rows_per_file=2)
    query = ds.sql("SELECT * FROM t WHERE id > 1").table_name("t").build()
    lance.write_dataset({"id": [4], "value": ["d"]}, tmp_path / "t", mode="append")
    assert pa.Table.from_batches(query.to_batch_records()) == pa.table({"id": [2, 3], "value": ["b", "c"]})
    assert query.to_table().num_rows == 2
    with query.to_stream_reader() as reader:
        assert reader.read_next_batch().num_rows >= 1
    ids = ds.sql("SELECT _rowid, _rowaddr, id FROM dataset WHERE _rowid > 0").with_row_id().with_row_addr()
    assert ids.build().to_table().to_pydict() == {
        "_rowid": [1, 1 << 32],
        "_rowaddr": [1, 1 << 32],
        "id": [2, 3],
    }
    small = ds.sql("SELECT upper(value) AS v FROM dataset").batch_size(1).batch_size_bytes(1 << 20).build()
    assert [each.num_rows for each in small.to_batch_records()] == [1, 1, 1]
    told = ds.sql("EXPLAIN SELECT id FROM dataset WHERE id = 2").build().to_table()
    assert "Filters" in str(told.to_pylist())


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT nothing FROM dataset",
        "SELEC",
        "SELECT * FROM elsewhere",
        "SELECT * FROM 'x.parquet'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "COPY dataset TO 'out.csv'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "SELECT error('x') FROM dataset",
        "SELECT * FROM table",
        "",
    ],
)
def test_what_duckdb_refuses_is_an_error_of_ours(sql: str) -> None:
    ds = lance.write_dataset({"id": [1]}, "memory://refused", mode="overwrite")
    elsewhere = ds.to_table()
    with pytest.raises(InvalidExpression):
        ds.sql(sql).build().to_batch_records()
    assert elsewhere.num_rows == 1


def test_a_query_is_one_statement() -> None:
    ds = lance.write_dataset({"id": [1]}, "memory://several", mode="overwrite")
    with pytest.raises(InvalidExpression, match="2 statements were given"):
        ds.sql("SELECT 1; SELECT id FROM dataset").build().to_table()
    assert ds.sql("SELECT id FROM dataset; -- all").build().to_table().num_rows == 1


def test_a_name_that_duckdb_does_not_take_is_an_error_of_ours() -> None:
    ds = lance.write_dataset({"id": [1]}, "memory://named", mode="overwrite")
    with pytest.raises(InvalidExpression, match="zero-length"):
        ds.sql("SELECT 1").table_name("").build().to_table()


def test_without_duckdb_a_query_names_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    ds = lance.write_dataset({"id": [1]}, "memory://without", mode="overwrite")
    with pytest.raises(MissingPackage, match=r"pip install 'tiltyard\[sql\]'"):
        ds.sql("SELECT 1").build()
