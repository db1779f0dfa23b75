"""Requests that opening, taking and scanning cost, beside those of the official package on the same table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard.lance as ours
from peer import Peer
from s3_server import Request, S3Server


def _small() -> list[pa.Table]:
    names = [f"n{i}" for i in range(500)]
    return [pa.table({"id": range(k, k + 500), "name": names}) for k in range(0, 2000, 500)]


def _large() -> list[pa.Table]:
    rng = np.random.default_rng(7)
    n = 40_000
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(64 * n, np.float32)), 64)
    text = pa.array([f"{i * 2654435761 % (1 << 32):x}" * 3 for i in range(n)])
    return [pa.table({"id": np.arange(n), "value": rng.random(n), "text": text, "vector": vectors})]


TABLES: dict[str, Callable[[], list[pa.Table]]] = {"small": _small, "large": _large}
READS = {
    "open": "None",
    "open a version": "None",
    "count": "ds.count_rows()",
    "scan": "ds.to_table()",
    "project": "ds.to_table(columns=['id'])",
    "limit": "ds.to_table(limit=5)",
    "filter": "ds.to_table(filter='id >= 1000 AND id < 1100')",
    "take": "ds.take([3, 700, 1990])",
    "take columns": "ds.take([5, 900], columns=['id'])",
}


@pytest.fixture(scope="module", params=list(TABLES))
def place(request: pytest.FixtureRequest, s3: S3Server, peer: Peer) -> str:
    """A table by the official package, with some rows deleted."""
    where = f"s3://{s3.bucket()}/t.lance"
    append = "lance.write_dataset(t, p, mode='append', storage_options=o).version"
    for table in TABLES[request.param]():
        peer(append, t=table, p=where, o=s3.options())
    peer("lance.dataset(p, storage_options=o).delete('id = 4')", p=where, o=s3.options())
    return where


def test_a_lookup_through_an_index_costs_no_more_requests(s3: S3Server, bucket: str, peer: Peer) -> None:
    where, n = f"s3://{bucket}/t.lance", 100_000
    rng = np.random.default_rng(11)
    table = pa.table({"id": rng.permutation(n), "value": rng.random(n)})
    ours.write_dataset(table, where, storage_options=s3.options()).create_scalar_index("id", "BTREE")
    dataset = ours.dataset(where, storage_options=s3.options(), session=ours.Session())
    with s3.counting() as mine:
        found = dataset.to_table(filter="id = 777")
    opened = "kept['ds'] = lance.dataset(p, storage_options=o)"
    peer(opened, p=where, o=s3.options())
    with s3.counting() as theirs:
        right = peer("kept['ds'].to_table(filter='id = 777')")
    peer("kept.pop('ds') and None")
    assert found == right
    assert found.num_rows == 1
    assert len(mine) <= len(theirs), (_kinds(mine), _kinds(theirs))


def _kinds(seen: list[Request]) -> list[tuple[str, str, str]]:
    return [(each.kind, each.key, each.span) for each in seen]


@pytest.mark.parametrize("what", list(READS))
def test_no_read_costs_more_requests_than_with_the_official_package(
    what: str, place: str, s3: S3Server, peer: Peer
) -> None:
    variables: dict[str, Any] = {"p": place, "o": s3.options()}
    opening = "lance.dataset(p, storage_options=o" + (", version=2)" if what == "open a version" else ")")
    with s3.counting() as theirs:
        right = peer(f"ds = {opening}\nresult = {READS[what]}", **variables)
    with s3.counting() as mine:
        scope = {**variables, "lance": ours, "ds": None}
        scope["ds"] = eval(opening.replace("=o", "=o, session=lance.Session()"), scope)
        found = eval(READS[what], scope)
    assert found == right
    assert len(mine) <= len(theirs), (_kinds(mine), _kinds(theirs))
    if what == "open":
        assert [each.kind for each in mine] == ["LIST", "GET"]
