"""How many requests upkeep of a bucket takes to remove things: as many for a few as for hundreds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest

import tiltyard as ty
import tiltyard.lance as lance
from s3_server import Answer, Request, S3Server
from streamed import SHARD, rows
from tiltyard.catalog import open_catalog
from tiltyard.catalog.purging import purge
from tiltyard.memwal.collection import Grace, collect_streams
from tiltyard.memwal.compaction import compact_streams
from tiltyard.memwal.writer import ShardWriter

pytestmark = pytest.mark.usefixtures("one_clock")


def _removals(seen: list[Request]) -> Counter[str]:
    """How many requests removed how many objects."""
    return Counter(str(each.body.count(b"<Key>")) for each in seen if each.kind == "DELETE")


def _appended(s3: S3Server, bucket: str, times: int) -> lance.LanceDataset:
    where, options = f"s3://{bucket}/t.lance", s3.options()
    for number in range(times):
        lance.write_dataset(pa.table({"x": [number]}), where, mode="append", storage_options=options)
    table = lance.dataset(where, storage_options=options)
    table.optimize.compact_files()
    return lance.dataset(where, storage_options=options)


def test_a_cleanup_removes_manifests_and_files_with_one_request_each(s3: S3Server, bucket: str) -> None:
    table = _appended(s3, bucket, 9)
    with s3.counting() as seen:
        done = table.cleanup_old_versions(versions=range(1, table.version))
    assert done.old_versions == table.version - 1
    assert done.data_files_removed == 9
    assert len(s3.keys(bucket, "t.lance/data")) == 1
    assert _removals(seen).total() <= 4, _removals(seen)  # with the intent, and what tells the time
    assert table.to_table().num_rows == 9


def test_what_a_store_keeps_is_counted_as_not_removed(
    s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _appended(s3, bucket, 5)
    live = {file.path for fragment in table.get_fragments() for file in fragment.data_files()}
    kept = next(key for key in s3.keys(bucket, "t.lance/data") if key.rpartition("/")[2] not in live)
    forward = s3._forward

    def refusing(request: Request, path: str) -> Answer:
        if request.kind != "DELETE" or kept.encode() not in request.body:
            return forward(request, path)
        body = request.body.replace(b"<Object><Key>%b</Key></Object>" % kept.encode(), b"")
        headers = {k: v for k, v in request.headers.items() if not k.startswith(("content-md5", "x-amz-c"))}
        if b"<Key>" in body:
            forward(replace(request, headers=headers, body=body), path)
        error = f"<Error><Key>{kept}</Key><Code>AccessDenied</Code><Message>kept</Message></Error>"
        return Answer(200, "OK", [], f"<DeleteResult>{error}</DeleteResult>".encode())

    options = s3.options(client_max_retries=1)
    monkeypatch.setattr(s3, "_forward", refusing)
    found = lance.dataset(table.uri, storage_options=options)
    done = found.cleanup_old_versions(versions=range(1, found.version))
    assert (done.old_versions, done.data_files_removed, done.failed_deletes) == (found.version - 1, 4, 1)
    assert kept in s3.keys(bucket)
    monkeypatch.undo()
    assert found.cleanup_old_versions(timedelta(0)).data_files_removed == 1
    assert kept not in s3.keys(bucket)
    assert found.to_table().num_rows == 5


def test_a_purge_removes_a_table_with_a_few_requests(s3: S3Server, bucket: str) -> None:
    root = f"s3://{bucket}/lake"
    lake = ty.connect(root, storage_options=s3.options())
    lake.create_namespace("ns")
    for name in ("a", "ns.b"):
        table = lake.create_table(name, pa.table({"x": [0]}))
        for number in range(8):
            table.append(pa.table({"x": [number]}))
        lake.drop(name)
    catalog = open_catalog(root, properties={f"storage.{k}": v for k, v in s3.options().items()})
    with s3.counting() as seen:
        assert len(purge(catalog, 0).given_up) == 2
    assert not [key for key in s3.keys(bucket) if "/data/" in key and "__manifest" not in key]
    assert _removals(seen).total() <= 14, _removals(seen)


def test_a_collection_removes_the_log_with_one_request(s3: S3Server, bucket: str) -> None:
    where, options = f"s3://{bucket}/t.lance", s3.options()
    lance.write_dataset(rows([1]).slice(0, 0), where, storage_options=options).initialize_mem_wal()
    for turn in range(2):
        with ShardWriter.open(lance.dataset(where, storage_options=options), SHARD) as writer:
            for number in range(12):
                writer.put(rows([100 * turn + number]))
    table = lance.dataset(where, storage_options=options)
    assert not compact_streams(table._store, table._session).problems
    with s3.counting() as seen:
        done = collect_streams(table._store, table._session, grace=Grace(0, 0, 0))
    assert not done.problems
    assert done.entries >= 23
    assert _removals(seen)[str(done.entries)] == 1
    assert _removals(seen).total() <= 2 + done.directories + done.manifests, _removals(seen)
    assert lance.dataset(where, storage_options=options).count_rows() == 24
