"""Errors of the plain face speak its own words, and say what to do with its own means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard as ty
from tiltyard.errors import TiltyardError

CASES: dict[str, tuple[Callable[[ty.Table], Any], str]] = {
    "a key that is no column": (
        lambda t: t.upsert({"id": [1]}, on="ident"),
        r"no column 'ident' to be the key.*nearest: id",
    ),
    "a key twice": (
        lambda t: t.upsert({"id": [1, 1], "amount": [1.0, 2.0]}, on="id"),
        r"several rows of the data .*id = 1; nothing was changed",
    ),
    "no key": (lambda t: t.dedupe(), r"with on= \(--on on the command line\)"),
    "a name that is taken": (lambda t: t.tag("gold"), r"^tag gold already exists.*move=True, .*tag move"),
    "a number for an expression": (
        lambda t: t.update({"amount": 5}, where="true"),
        r"""updates\['amount'\] must be an SQL expression as text, such as "5".*found 5""",
    ),
    "nothing for an expression": (
        lambda t: t.update({"note": None}, where="true"),
        r'must be an SQL expression as text, such as .*"NULL"',
    ),
    "a text without quotes": (
        lambda t: t.update({"note": "zed"}, where="true"),
        r"No field named zed; there are: .*a text takes single quotes: 'zed'",
    ),
    "a tag that is not there": (
        lambda t: t.at(tag="silver"),
        r"^tag silver does not exist .*there are: gold",
    ),
    "a tag to take away": (lambda t: t.untag("silver"), r"^tag silver does not exist"),
    "a condition cut short": (lambda t: t.count("amount >"), r"^(?!Invalid user input)"),
    "a scan cut short": (lambda t: t.scan(where="amount >").to_arrow(), r"^(?!Invalid user input)"),
    "an update of no column": (
        lambda t: t.update({"amuont": "5"}, where="true"),
        r"^updates sets 'amuont': there is no column 'amuont'; nearest: amount$",
    ),
    "a merge without sides": (
        lambda t: t.merge("id").when_matched_update({"amount": "amount + 1"}).execute({"id": [1]}),
        r"columns are written source\.name and target\.name",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_refusal_says_what_to_do(tmp_path: Path, case: str) -> None:
    act, told = CASES[case]
    table = ty.create_table(
        tmp_path / "t.lance", pa.table({"id": [1, 2], "amount": [1.0, 2.0], "note": ["a", "b"]})
    )
    table.tag("gold")
    with pytest.raises(TiltyardError, match=told):
        act(table)
    assert table.version == 1


def test_indices_and_explanations_are_short_when_printed(tmp_path: Path) -> None:
    table = ty.create_table(tmp_path / "t.lance", pa.table({"id": [1, 2]}))
    table.create_index("id")
    table.append({"id": [3]})
    assert (
        str(table.indices()) == "[<IndexDescription id_idx: BTree on id, 2 rows indexed, 1 row not indexed>]"
    )
    told = str(table.explain_cleanup()).split("\n")
    assert told[0] == "would remove nothing"
    assert told[2].startswith("  1 to 2: it is not yet 14 days old (until ")
    assert told[3] == "  3: it is the newest version"
