"""JSON columns: text for callers, the binary form in files; both implementations read what the other wrote
and answer the functions of JSON alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard as ty
import tiltyard.lance as lance
from peer import Peer, PeerError
from tiltyard.dataset.json_text import shown_batch, shown_table
from tiltyard.errors import InvalidExpression, InvalidInput, TiltyardError
from tiltyard.expr import parse_expression

DOCUMENTS = [
    '{"a":1,"b":"x","c":[1,2,"q",null,true],"d":{"e":2.5,"f":null},"t":true}',
    "[1,2,3]",
    '"str"',
    "1.5",
    "null",
    None,
    "{}",
    '{"a":"12","b":12,"c":[],"d":"e","t":"true"}',
    '{"a":9007199254740993,"b":-9223372036854775808,"u":"é\\n\\"","x":1e+300,"z":0.1}',
    '{"a":1.0,"b":-1,"c":300,"g":[[1,[2]],{"k":[{}]}]}',
    '[{"a":1},{"a":2},3]',
    '{"c":[{"x":1,"y":"p"},{"x":5,"y":"q"},{"y":null}],"k":{"m":[1,2,3]},"a b":1}',
    '{"c":{"x":7},"n":null,"z":[0,1.0,-1,0.00001]}',
]
PATHS = """
$
$.a
a
$.c
$.c[0]
$.c[*]
$.c[*].x
$.c[*].*
$.*
$[1]
$[last]
$.c[last]
$.k.m[last - 1]
$.k.m[0, last]
$.d.e
$.d.f
$.missing
$."a b"
$["a b"]
$:c
c.x
[0]
$.**
$.c[*] ? (@.x > 1)
$.c[*] ? (@.x > 1 && @.y == "q")
$.c[*] ? (@.x == 1 || @.y == null)
$.c[*] ? (exists(@.x))
$.c[*] ? (@.y starts with "p")
$.c[*] ? ($.k.m[0] == @.x)
$.c[*] ? (@ == true)
$.c[*] ? (@ > 1)
$.a == 1
$.c[0].x > 0
""".strip().splitlines()
CALLS = [
    *(f"json_extract(j, '{path}')" for path in PATHS),
    *(f"json_exists(j, '{path}')" for path in PATHS if "==" not in path or "?" in path),
    *(f"json_array_length(j, '{path}')" for path in PATHS[:6]),
    *(f"json_array_contains(j, '$.c', '{text}')" for text in ("1", "q", '"q"', "null", "true", "1.0")),
    "json_array_contains(j, '$', '2')",
    "json_array_contains(j, '$[*]', '3')",
    "json_array_contains(j, '$.g[*]', '1')",
    "json_array_length(j, '$.g[*]')",
    "json_extract_with_type(j, '$.a')",
    "json_extract_with_type(j, '$.c')",
    "json_get(j, 'a')",
    "json_get(j, '0')",
    "json_get(json_get(j, 'd'), 'e')",
    "json_get_string(j, 'a')",
    "json_get_string(j, 'b')",
    "json_get_string(j, 'u')",
    "json_get_string(json_get(j, 'd'), 'f')",
    "json_get_int(j, 'a')",
    "json_get_int(j, '2')",
    "json_get_float(j, 'a')",
    "json_get_float(j, 'x')",
    "json_get_bool(j, 't')",
    "json_get(j, NULL)",
    "json_extract(j, NULL)",
]
TABLE = pa.table({"i": pa.array(range(len(DOCUMENTS)), pa.int64()), "j": pa.array(DOCUMENTS, pa.json_())})


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


def test_what_is_written_is_read_as_text(path: str) -> None:
    dataset = lance.write_dataset(TABLE, path)
    kind = pa.json_(pa.string())
    assert dataset.schema.field("j").type == kind
    canonical = dataset.to_table()
    assert canonical.schema == dataset.schema
    assert canonical["j"].to_pylist()[:8] == DOCUMENTS[:8]
    again = lance.write_dataset(canonical, path, mode="append")
    assert again.count_rows() == 2 * len(DOCUMENTS)
    assert again.take([1, len(DOCUMENTS)])["j"].to_pylist() == [DOCUMENTS[1], DOCUMENTS[0]]
    assert [b["j"].to_pylist() for b in again.to_batches(limit=2)] == [DOCUMENTS[:2]]
    assert again.get_fragments()[1].take([2])["j"].type == kind
    assert again.to_table(columns={"k": "j"}, filter="i = 1").column("k").type == kind
    assert again.to_table(filter="json_exists(j, '$.d.e')")["i"].to_pylist() == [0, 0]


def test_text_that_is_no_json_is_refused_and_nothing_written(path: str) -> None:
    table = pa.table({"j": pa.array(["1", "{oops"], pa.json_())})
    with pytest.raises(InvalidInput, match=r"column 'j'.*no JSON"):
        lance.write_dataset(table, path)
    assert not Path(path, "_versions").exists()


def test_text_beside_json_names_the_function_that_takes_values_out(path: str) -> None:
    ds = lance.write_dataset(TABLE, path)
    name = next(each.name for each in TABLE.schema if "json" in str(each.type))
    with pytest.raises(InvalidExpression, match="json_extract"):
        ds.count_rows(f"{name} = 'x'")


def test_the_plain_face_gives_text_too(path: str) -> None:
    table = ty.create_table(path, TABLE)
    assert table.scan(columns=["j"]).to_arrow()["j"].to_pylist()[1] == "[1,2,3]"
    table.delete("json_exists(j, '$.a')")
    assert table.count() == len(DOCUMENTS) - 4


@pytest.mark.parametrize("writer", ["ours", "theirs"])
def test_both_read_and_answer_alike(peer: Peer, path: str, writer: str) -> None:
    if writer == "ours":
        lance.write_dataset(TABLE, path)
    else:
        peer("lance.write_dataset(t, p) and None", t=TABLE, p=path)
    ours = lance.dataset(path)
    theirs = peer("lance.dataset(p).to_table()", p=path)
    assert ours.to_table().equals(theirs)
    columns = {f"c{at}": call for at, call in enumerate(CALLS)} | {"i": "i"}
    expected = peer("lance.dataset(p).to_table(columns=c)", p=path, c=columns).to_pydict()
    found = ours.to_table(columns=columns).to_pydict()
    for at, call in enumerate(CALLS):
        assert found[f"c{at}"] == expected[f"c{at}"], call


@pytest.mark.parametrize(
    "value", ["3.7", "-2.5", '"1.5"', '" 12 "', '"TRUE"', "1e400", "[1]", "false", "1e21", '"t"']
)
def test_conversions_answer_or_refuse_as_there(peer: Peer, path: str, value: str) -> None:
    dataset = lance.write_dataset(pa.table({"j": pa.array([f'{{"v":{value}}}'], pa.json_())}), path)
    for call in ("json_get_string", "json_get_int", "json_get_float", "json_get_bool", "json_extract"):
        columns = {"r": f"{call}(j, '{'$.v' if call == 'json_extract' else 'v'}')", "j": "j"}
        expected: Any
        try:
            expected = peer("lance.dataset(p).to_table(columns=c)", p=path, c=columns)["r"].to_pylist()
        except PeerError:
            expected = None
        if expected is None:
            with pytest.raises(InvalidExpression, match="is no"):
                dataset.to_table(columns=columns)
        else:
            assert dataset.to_table(columns=columns)["r"].to_pylist() == expected, call


@pytest.mark.parametrize(
    "wrong",
    [
        "$.",
        "$..e",
        "$['a']",
        "$.c[]",
        "$.c[a]",
        "$c",
        "$$",
        "@.c",
        "$.c ?",
        "$.c[*] ? (@.x)",
        "$.a-b",
        "$.c ? (" * 3_000,
    ],
)
def test_paths_that_are_none_are_refused(wrong: str) -> None:
    schema = pa.schema({"j": pa.large_binary()})
    text = wrong.replace("'", "''")
    with pytest.raises(InvalidExpression, match=r"JSON path|is not defined"):
        parse_expression(f"json_extract(X'200000000000000000', '{text}')", schema)


def test_what_holds_no_json_is_given_as_it_is() -> None:
    table = pa.table({"id": [1, 2], "st": [{"a": 1}, None]})
    assert shown_table(table) is table
    batch = table.to_batches()[0]
    assert shown_batch(batch) is batch


def test_values_that_are_no_text_are_told_that_the_column_holds_json(tmp_path: Path) -> None:
    column = pa.array(['{"a": 1}'], pa.json_(pa.string()))
    table = ty.connect(tmp_path).create_table("t", pa.table({"id": [1], "j": column}))
    for rows in ([{"id": 2, "j": {"a": 1}}], [{"id": 2, "j": {"a": 1}}, {"id": 3, "j": "{}"}], [{"j": 3}]):
        with pytest.raises(TiltyardError, match=r"holds JSON.*: give it as text, as json.dumps") as told:
            table.append(rows)
        assert "binary" not in str(told.value)
    table.append([{"id": 2, "j": json.dumps({"a": 1})}])
    assert table.count("json_get_int(j, 'a') = 1") == 2
