"""Casts change no value in silence: what does not fit is an error, or null with TRY_CAST; text stays as it
is; and the official package gives the same."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from expr_rows import values
from peer import Peer
from tiltyard.errors import InvalidExpression
from tiltyard.expr import evaluate, parse_expression

D = Decimal
FLOATS = [1.9, -1.9, float("nan"), float("inf"), 3e9, 2.0**63, -(2.0**63), 1e300, -0.5, 2.5, None]
COLUMNS = {
    "f": pa.array(FLOATS),
    "g": pa.array([None if v is None else min(v, 1e30) for v in FLOATS], pa.float32()),
    "i": pa.array([1, -1, 2**31, 2**63 - 1, -(2**63), 255, 256, 99, 1000, 0, None]),
    "m": pa.array(
        [D("99.95"), D("1.96"), D("-1.95"), D("99999999.99"), D("-0.99"), D("9.99"), *[D("0.00")] * 4, None],
        pa.decimal128(12, 2),
    ),
    "s": pa.array([" a ", "b ", "\t", "1.005", "-1.995", "99999", "1e", "nan", "1_0", "", None]),
    "l": pa.array(
        [" a ", "b ", "\t", "1.005", "-1.995", "99999", "1e", "nan", "1_0", "", None], pa.large_string()
    ),
    "t": pa.array([0, 10**15, *[1_700_000_000_000_000] * 8, None], pa.timestamp("us")),
    "z": pa.array([0] * 11, pa.timestamp("us", "America/New_York")),
}
TABLE = pa.table(COLUMNS)
(BATCH,) = TABLE.to_batches()


def cast(text: str) -> Any:
    return evaluate(parse_expression(text, BATCH.schema), BATCH)


WHOLE = ("tinyint", "smallint", "int", "bigint", "tinyint unsigned", "int unsigned", "bigint unsigned")


@pytest.mark.parametrize("target", [*WHOLE, "decimal(4,1)", "decimal(38,10)", "decimal(9,0)", "float"])
@pytest.mark.parametrize("column", ["f", "g", "i", "m"])
def test_numbers_become_what_the_official_package_makes_of_them(
    column: str, target: str, tmp_path_factory: pytest.TempPathFactory, peer: Peer
) -> None:
    text = f"TRY_CAST({column} AS {target})"
    path = str(tmp_path_factory.getbasetemp() / "casts.lance")
    if not Path(path).exists():
        lance.write_dataset(TABLE, path)
    theirs = peer("lance.dataset(p).to_table(columns={'x': e}).column('x').to_pylist()", p=path, e=text)
    found = cast(text)
    assert list(map(repr, found.to_pylist())) == list(map(repr, theirs))
    found.validate(full=True)


@pytest.mark.parametrize(
    "text",
    [
        *(f"CAST({column} AS {target})" for column in "fg" for target in WHOLE),
        "CAST(f AS decimal(38,10))",
        "CAST(g AS decimal(4,1))",
        "CAST(i AS decimal(4,1))",
        "CAST(m AS decimal(4,1))",
        "CAST(s AS decimal(4,1))",
    ],
)
def test_what_does_not_fit_is_an_error(text: str) -> None:
    with pytest.raises(InvalidExpression, match="cannot be computed"):
        cast(text)


def test_texts_as_decimals_are_rounded_and_nothing_else_is_a_number() -> None:
    found = cast("TRY_CAST(s AS decimal(5,2))").to_pylist()
    assert found == [None, None, None, D("1.01"), D("-2.00"), None, None, None, None, None, None]


@pytest.mark.parametrize(("column", "target"), [("s", "binary"), ("l", "string"), ("s", "large_string")])
def test_text_keeps_its_blanks(column: str, target: str) -> None:
    found = cast(f"CAST({column} AS {target})").to_pylist()
    assert [v.decode() if isinstance(v, bytes) else v for v in found] == COLUMNS["s"].to_pylist()


def test_an_update_from_another_type_of_text_or_time_gives_what_the_official_package_gives(
    tmp_path: Path, peer: Peer
) -> None:
    ours, theirs = str(tmp_path / "a.lance"), str(tmp_path / "b.lance")
    updates = {"l": "s", "z": "t"}
    for path in (ours, theirs):
        lance.write_dataset(TABLE, path)
    lance.dataset(ours).update(updates)
    peer("lance.dataset(p).update(u)", p=theirs, u=updates)
    found = lance.dataset(ours).to_table()
    assert found["l"].to_pylist() == COLUMNS["s"].to_pylist()
    assert found.select(["l", "z"]).equals(lance.dataset(theirs).to_table(["l", "z"]))


MOMENTS = """
2026-01-31
2026-01-31 12:30:00
2026-01-31T12:30:00Z
2026-01-31 23:30:00+02:00
2026-01-31T23:30:00-01
2026-01-31 23:30:00+0200
2026-01-31 12:30:00 +02:00
2026-01-31 00:30:00.123456789
2026-01-31 12:30:00 UTC
2026-07-31 00:30:00Europe/Paris
2026-01-31t12:00:00z
1969-12-31 23:59:59.5
2026-01-31x
2026-01-31T
2026-02-30
2026-01-31 24:00:00
01-31-2026
12:30:00
""".strip().split("\n")


def test_texts_with_times_and_zones_become_dates_and_timestamps_as_there(peer: Peer, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    dataset = lance.write_dataset(pa.table({"s": [*MOMENTS, None]}), path)
    kinds = ("DATE", "TIMESTAMP", "TIMESTAMP(9)", "TIMESTAMP(0)")
    columns = {kind: f"TRY_CAST(s AS {kind})" for kind in kinds}
    expected = peer("lance.dataset(p).to_table(columns=c)", p=path, c=columns)
    found = dataset.to_table(columns=columns)
    for kind in kinds:
        assert found[kind].cast(expected[kind].type).to_pylist() == expected[kind].to_pylist(), kind
    with pytest.raises(InvalidExpression, match="2026-01-31x"):
        dataset.to_table(columns={"d": "CAST(s AS DATE)"})


def test_a_cast_to_a_zone_reads_clocks_there() -> None:
    text = "arrow_cast(s, 'Timestamp(Second, Some(\"Europe/Paris\"))')"
    found = values(f"CAST({text} AS string)", s=["2026-01-31 12:00:00", "2026-01-31 12:00:00Z"])
    assert found == ["2026-01-31T12:00:00+01:00", "2026-01-31T13:00:00+01:00"]


def test_uuids_differ_by_row() -> None:
    found = values("uuid()", s=["a", "b", "c"])
    assert len(set(found)) == 3
    assert all(re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", each) for each in found)
    assert all(each[14] == "4" and each[19] in "89ab" for each in found)
