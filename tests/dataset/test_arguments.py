"""Every wrong argument is told as `InvalidInput` and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tiltyard
import tiltyard.lance as lance
from tiltyard.dataset import arguments
from tiltyard.errors import (
    InvalidInput,
    SchemaMismatch,
    TiltyardError,
    VersionNotFound,
    WrongType,
)
from tiltyard.lance._dataset.sharded_batch_iterator import ShardedBatchIterator
from tiltyard.lance.dataset import ColumnOrdering
from tiltyard.lance.debug import format_fragment
from tiltyard.lance.file import LanceFileWriter
from tiltyard.lance.fragment import (
    DataFile,
    DeletionFile,
    FragmentMetadata,
    LanceFragment,
    RowIdMeta,
    write_fragments,
)
from tiltyard.lance.schema import LanceSchema
from tiltyard.lance.vector import vec_to_table
from tiltyard.session import Limits
from wrong_arguments import FAST, Case, Thing, files_of, refused

DATA = pa.table({"a": pa.array(range(20)), "s": [f"x{i}" for i in range(20)]})
LISTS = "list, nested, pair, nothing, array, set"
EMPTY = "nothing"
OP = lance.LanceOperation


def _reading() -> Iterator[Case]:
    def scan(name: str) -> Callable[[str, Any], Any]:
        return lambda path, junk: lance.dataset(path).scanner(**{name: junk}).to_table()

    def opened(name: str) -> Callable[[str, Any], Any]:
        return lambda path, junk: lance.dataset(path, **{name: junk})

    yield "dataset", lambda path, junk: lance.dataset(junk), "text"
    yield "dataset(version)", opened("version"), "int, negative, text, empty"
    yield "dataset(asof)", opened("asof"), ""
    yield "dataset(session)", opened("session"), ""
    yield "dataset(freshness)", opened("freshness"), "int, float, huge"
    yield "dataset(storage_options)", opened("storage_options"), ""
    yield "dataset(default_scan_options)", opened("default_scan_options"), "map, map of surrogate"
    yield "dataset(read_params)", opened("read_params"), "map, map of surrogate"
    for name in ("with_row_id", "with_row_address", "strict_batch_size"):
        yield f"scanner({name})", scan(name), "true"
    yield "scanner(include_deleted_rows)", scan("include_deleted_rows"), ""
    for name in ("limit", "offset"):
        yield f"scanner({name})", scan(name), "int"
    yield "scanner(batch_size)", scan("batch_size"), "int"
    for name in ("batch_readahead", "fragment_readahead", "io_buffer_size"):
        yield f"scanner({name})", scan(name), "int, huge"
    yield "scanner(columns)", scan("columns"), "nothing, set"
    yield "scanner(filter)", scan("filter"), ""
    yield "scanner(order_by)", scan("order_by"), "nothing, set"
    yield "scanner(fragments)", scan("fragments"), "nothing"
    yield "scanner(unknown)", scan("unknown"), ""
    yield (
        "scanner(ColumnOrdering)",
        (lambda path, junk: lance.dataset(path).scanner(order_by=[ColumnOrdering("a", junk)])),
        "true",
    )
    yield "count_rows", lambda path, junk: lance.dataset(path).count_rows(junk), ""
    yield "head", lambda path, junk: lance.dataset(path).head(junk), "int"
    yield "slice", lambda path, junk: lance.dataset(path).slice(junk, 30), "int"
    yield "sample", lambda path, junk: lance.dataset(path).sample(junk), "int"
    yield "take", lambda path, junk: lance.dataset(path).take(junk), "pair, nothing, array"
    yield "take(slice)", lambda path, junk: lance.dataset(path).take(slice(junk)), "int, negative"
    yield "take([0, x])", lambda path, junk: lance.dataset(path).take([0, junk]), "int, true"
    yield "take(columns)", lambda path, junk: lance.dataset(path).take([0], junk), "nothing, set"
    yield "_take_rows", lambda path, junk: lance.dataset(path)._take_rows(junk), "pair, nothing, array"
    yield "get_fragment", lambda path, junk: lance.dataset(path).get_fragment(junk), "int"
    yield (
        "checkout_version",
        lambda path, junk: lance.dataset(path).checkout_version(junk),
        ("int, negative, text, empty"),
    )
    yield "read_transaction", lambda path, junk: lance.dataset(path).read_transaction(junk), "int, negative"
    yield "get_transactions", lambda path, junk: lance.dataset(path).get_transactions(junk), "int"
    yield "tags.get_version", lambda path, junk: lance.dataset(path).tags.get_version(junk), "text, empty"
    yield "tags.list_ordered", lambda path, junk: lance.dataset(path).tags.list_ordered(junk), ""
    yield "dataset_stats", lambda path, junk: lance.dataset(path).stats.dataset_stats(junk), "int"
    yield "lance_schema.field", lambda path, junk: lance.dataset(path).lance_schema.field(junk), "text, empty"
    yield "LanceSchema.from_pyarrow", lambda path, junk: LanceSchema.from_pyarrow(junk), ""
    yield "LanceFragment", lambda path, junk: LanceFragment(lance.dataset(path), junk), ""
    yield "LanceFragment(dataset)", lambda path, junk: LanceFragment(junk, 0), ""
    yield "fragment.take", lambda path, junk: _fragment(path).take(junk), "pair, nothing, array"
    yield "fragment.head", lambda path, junk: _fragment(path).head(junk), "int"
    yield "fragment.to_table", lambda path, junk: _fragment(path).to_table(junk), "nothing, set"
    yield "FragmentMetadata.from_json", lambda path, junk: FragmentMetadata.from_json(junk), ""
    yield "DeletionFile.from_json", lambda path, junk: DeletionFile.from_json(junk), ""
    yield "RowIdMeta.from_json", lambda path, junk: RowIdMeta.from_json(junk), ""
    yield "RowIdMeta", lambda path, junk: RowIdMeta(junk), "bytes"
    yield "Session", lambda path, junk: tiltyard.Session(junk), ""
    yield "Session(sizes)", lambda path, junk: tiltyard.Session(index_cache_size_bytes=junk), "int, huge"
    for name in ("index_cache_size_bytes", "metadata_cache_size_bytes"):
        yield f"dataset({name})", opened(name), "int"
    yield "validate", lambda path, junk: lance.dataset(path).validate(checksums=junk), "true"
    yield "verify", lambda path, junk: lance.dataset(path).verify(checksums=junk), "true"
    yield "fragment.validate", lambda path, junk: _fragment(path).validate(checksums=junk), "true"
    yield "fragment.open_session", lambda path, junk: _fragment(path).open_session(junk), "nothing, set"
    yield (
        "FragmentSession.take",
        lambda path, junk: _fragment(path).open_session().take(junk),
        ("pair, nothing, array"),
    )
    yield (
        "create_from_file",
        lambda path, junk: LanceFragment.create_from_file(junk, lance.dataset(path), 0),
        ("text, empty"),
    )
    yield "create_from_file(dataset)", lambda path, junk: LanceFragment.create_from_file("x", junk, 0), ""
    yield "ShardedBatchIterator", lambda path, junk: list(ShardedBatchIterator(junk, 0, 1)), "text"
    yield "ShardedBatchIterator(rank)", lambda path, junk: ShardedBatchIterator(path, junk, 2), ""
    yield "ShardedBatchIterator(world_size)", lambda path, junk: ShardedBatchIterator(path, 0, junk), "int"
    yield "vec_to_table", lambda path, junk: vec_to_table(junk), "nested, array"
    yield "vec_to_table(names)", lambda path, junk: vec_to_table([[1]], junk), "text, empty, set"
    yield "schema_to_json", lambda path, junk: lance.schema_to_json(junk), ""
    yield "json_to_schema", lambda path, junk: lance.json_to_schema(junk), ""
    yield "format_fragment", lambda path, junk: format_fragment(junk, lance.dataset(path)), ""
    yield "Limits", lambda path, junk: Limits(cache_bytes=junk), "int, huge"
    yield "open_table", lambda path, junk: tiltyard.open_table(junk), "text"
    yield (
        "open_table(freshness)",
        lambda path, junk: tiltyard.open_table(path, freshness=junk),
        ("int, float, huge"),
    )
    yield "connect", lambda path, junk: tiltyard.connect(junk), "text"
    yield "connect.table", lambda path, junk: tiltyard.connect(path + "/..").table(junk), "text, texts"
    yield "Table.at(version)", lambda path, junk: tiltyard.open_table(path).at(junk), "int"
    yield "Table.at(tag)", lambda path, junk: tiltyard.open_table(path).at(tag=junk), "text, empty"
    yield "Table.at(asof)", lambda path, junk: tiltyard.open_table(path).at(asof=junk), ""
    yield "Table.stream(shards)", lambda path, junk: tiltyard.open_table(path).stream(shards=junk), "int"
    yield (
        "Table.stream(aside)",
        lambda path, junk: tiltyard.open_table(path).stream(set_shards_aside=junk),
        "true",
    )
    yield (
        "Table.stream(max_memtable_rows)",
        lambda path, junk: tiltyard.open_table(path).stream(max_memtable_rows=junk),
        "int",
    )
    yield "Table.tail", lambda path, junk: tiltyard.open_table(path).tail(junk), "mapping"
    yield "Table.tail(follow)", lambda path, junk: tiltyard.open_table(path).tail(follow=junk), "true"
    yield (
        "Table.tail(timeout)",
        lambda path, junk: tiltyard.open_table(path).tail(follow=True, timeout=junk),
        "int, float, huge",
    )
    yield "Live.scan", lambda path, junk: tiltyard.open_table(path).live().scan(junk), "nothing, set"
    yield "Live.scan(where)", lambda path, junk: tiltyard.open_table(path).live().scan(where=junk), ""
    yield "Live.scan(limit)", lambda path, junk: tiltyard.open_table(path).live().scan(limit=junk), "int"
    yield "Live.scan(offset)", lambda path, junk: tiltyard.open_table(path).live().scan(offset=junk), "int"
    yield "Live.lookup", lambda path, junk: tiltyard.open_table(path).live().lookup(junk), ""
    yield "Live.search(k)", lambda path, junk: tiltyard.open_table(path).live().search([1.0], k=junk), ""
    yield "Table.scan", lambda path, junk: tiltyard.open_table(path).scan(junk), "nothing, set"
    yield "Table.scan(where)", lambda path, junk: tiltyard.open_table(path).scan(where=junk), ""
    yield "Table.scan(limit)", lambda path, junk: tiltyard.open_table(path).scan(limit=junk), "int"
    yield "Table.take", lambda path, junk: tiltyard.open_table(path).take(junk), "pair, nothing, array"
    yield "Table.count", lambda path, junk: tiltyard.open_table(path).count(junk), ""


def _fragment(path: str) -> LanceFragment:
    found = lance.dataset(path).get_fragment(0)
    assert found is not None
    return found


def _keeping() -> Iterator[Case]:
    def tags(act: Callable[[Any, Any], Any]) -> Callable[[str, Any], Any]:
        return lambda path, junk: act(lance.dataset(path).tags, junk)

    def clean(name: str) -> Callable[[str, Any], Any]:
        return lambda path, junk: lance.dataset(path).cleanup_old_versions(**{name: junk})

    yield "tags.create", tags(lambda tags, junk: tags.create(junk, 1)), "text"
    yield "tags.create(at)", tags(lambda tags, junk: tags.create("t", junk)), "int, negative, text, empty"
    yield "tags.create(metadata)", tags(lambda tags, junk: tags.create("t", 1, metadata=junk)), ""
    yield "tags.update", tags(lambda tags, junk: tags.update(junk, 1)), "text, empty"
    yield "tags.delete", tags(lambda tags, junk: tags.delete(junk)), "text, empty"
    yield "tags.replace_metadata", tags(lambda tags, junk: tags.replace_metadata("t", junk)), ""
    yield "branches.delete", lambda path, junk: lance.dataset(path).branches.delete(junk), "text, empty"
    yield "cleanup(older_than)", clean("older_than"), ""
    yield "cleanup(versions)", clean("versions"), "pair, array"
    for name in ("retain_versions", "delete_rate_limit", "delete_concurrency"):
        yield f"cleanup({name})", clean(name), "int"
    for name in ("delete_unverified", "error_if_tagged_old_versions"):
        yield f"cleanup({name})", clean(name), "true"
    yield (
        "explain(max_files)",
        lambda path, junk: lance.dataset(path).explain_cleanup_old_versions(max_files=junk),
        "int",
    )
    yield "auto", lambda path, junk: lance.dataset(path).optimize.enable_auto_cleanup(junk), ""
    yield "write(auto)", lambda path, junk: lance.write_dataset(DATA, "new", auto_cleanup_options=junk), ""


def _writing() -> Iterator[Case]:
    def written(name: str, mode: str = "append") -> Callable[[str, Any], Any]:
        return lambda path, junk: lance.write_dataset(DATA, path, **{"mode": mode, name: junk})

    def fragments(name: str) -> Callable[[str, Any], Any]:
        return lambda path, junk: write_fragments(DATA, path, **{name: junk})

    yield "write_dataset", lambda path, junk: lance.write_dataset(junk, path, mode="append"), "nothing"
    yield (
        "write_dataset(overwrite)",
        (lambda path, junk: lance.write_dataset(junk, path, mode="overwrite")),
        "nothing",
    )
    yield (
        "write_dataset(a list)",
        lambda path, junk: lance.write_dataset([{"a": 1}, junk], path, mode="append"),
        ("map"),
    )
    yield (
        "write_dataset(a column)",
        lambda path, junk: lance.write_dataset({"a": junk}, path, mode="append"),
        ("list, pair, nothing, array"),
    )
    yield (
        "write_dataset(a value)",
        lambda path, junk: lance.write_dataset({"s": [junk]}, path, mode="append"),
        ("text, empty, bytes"),
    )
    yield (
        "write_dataset(a name)",
        (lambda path, junk: lance.write_dataset({_hashable(junk): [1]}, path, mode="append")),
        "",
    )
    yield "write_dataset(uri)", lambda path, junk: lance.write_dataset(DATA, junk, mode="append"), "text"
    for name in ("schema", "session", "storage_options", "commit_message"):
        yield f"write_dataset({name})", written(name), "text, empty" if name == "commit_message" else ""
    yield "write_dataset(mode)", lambda path, junk: lance.write_dataset(DATA, path, mode=junk), ""
    yield "write_dataset(transaction_properties)", written("transaction_properties"), ""
    yield "write_dataset(progress)", written("progress"), "class"
    for name in ("max_rows_per_file", "max_bytes_per_file", "max_rows_per_group", "max_page_bytes"):
        yield f"write_dataset({name})", written(name), "int"
    for name in ("enable_stable_row_ids", "enable_v2_manifest_paths", "allow_external_blob_outside_bases"):
        yield f"write_dataset({name})", written(name), "true"
    yield "write_dataset(data_storage_version)", written("data_storage_version"), "text, empty"
    for name in ("schema", "session", "storage_options", "mode"):
        yield f"write_fragments({name})", fragments(name), ""
    yield "LanceFileWriter", lambda path, junk: LanceFileWriter(junk), "text"
    for name in ("schema", "version", "max_page_bytes", "storage_options"):
        taken = "int" if name == "max_page_bytes" else ""
        yield f"LanceFileWriter({name})", _file_writer(name), taken
    yield "LanceFileWriter.write_batch", _file_batch, ""
    yield "write_fragments", lambda path, junk: write_fragments(junk, path), "nothing"
    yield "write_fragments(uri)", lambda path, junk: write_fragments(DATA, junk), "text"
    yield "write_fragments(return_transaction)", fragments("return_transaction"), "true"
    yield "write_fragments(max_rows_per_file)", fragments("max_rows_per_file"), "int"
    yield "write_fragments(progress)", fragments("progress"), "class"
    yield (
        "create_table(exist_ok)",
        lambda path, junk: tiltyard.create_table(path, DATA, exist_ok=junk),
        "true",
    )
    yield "Table.append", lambda path, junk: tiltyard.open_table(path).append(junk), "nothing"
    yield "Table.append(schema)", lambda path, junk: tiltyard.open_table(path).append(DATA, schema=junk), ""
    yield "Table.delete", lambda path, junk: tiltyard.open_table(path).delete(junk), ""
    yield "Table.restore", lambda path, junk: tiltyard.open_table(path).restore(expected_latest=junk), "int"
    yield "delete", lambda path, junk: lance.dataset(path).delete(junk), ""
    yield (
        "delete(conflict_retries)",
        lambda path, junk: lance.dataset(path).delete("a = 1", conflict_retries=junk),
        ("int, huge"),
    )
    yield (
        "delete(retry_timeout)",
        lambda path, junk: lance.dataset(path).delete("a = 1", retry_timeout=junk),
        ("int, float, huge"),
    )
    yield "fragment.delete", lambda path, junk: _fragment(path).delete(junk), ""
    yield "fragment.delete_rows", lambda path, junk: _fragment(path).delete_rows(junk), "pair, nothing, array"
    for name in ("update_config", "update_metadata", "update_schema_metadata", "replace_schema_metadata"):
        taken = "" if name == "replace_schema_metadata" else "map"
        yield name, _method(name), taken
        yield f"{name}(a value)", _value(name), "text, empty"
    yield (
        "update_config(replace)",
        lambda path, junk: lance.dataset(path).update_config({"k": "v"}, replace=junk),
        ("true"),
    )
    yield "update_field_metadata", _method("update_field_metadata"), ""
    yield (
        "update_field_metadata(a value)",
        (lambda path, junk: lance.dataset(path).update_field_metadata({"a": junk})),
        "map",
    )
    yield "delete_config_keys", _method("delete_config_keys"), "nothing, set"
    yield (
        "drop(ignore_not_found)",
        lambda path, junk: lance.LanceDataset.drop(path, ignore_not_found=junk),
        "true",
    )
    yield "commit_batch", lambda path, junk: lance.LanceDataset.commit_batch(path, junk), ""


def _file_writer(name: str) -> Callable[[str, Any], Any]:
    return lambda path, junk: LanceFileWriter(f"{path}/data/new.lance", **{name: junk})


def _file_batch(path: str, junk: Any) -> None:
    with LanceFileWriter(f"{path}/data/new.lance") as writer:
        writer.write_batch(junk)


def _hashable(junk: Any) -> Any:
    return junk if type(junk).__hash__ is not None else None


def _method(name: str) -> Callable[[str, Any], Any]:
    return lambda path, junk: getattr(lance.dataset(path), name)(junk)


def _value(name: str) -> Callable[[str, Any], Any]:
    return lambda path, junk: getattr(lance.dataset(path), name)({"k": junk})


def _committing() -> Iterator[Case]:
    def commit(make: Callable[[Any], Any]) -> Callable[[str, Any], Any]:
        return lambda path, junk: lance.LanceDataset.commit(path, make(junk), read_version=1)

    def option(name: str) -> Callable[[str, Any], Any]:
        made = OP.UpdateConfig(config_updates={"k": "v"})
        return lambda path, junk: lance.LanceDataset.commit(path, made, **{"read_version": 1, name: junk})

    def fragment(**facts: Any) -> FragmentMetadata:
        return FragmentMetadata(**{"id": 0, "files": [], "physical_rows": 1, **facts})

    yield (
        "commit(base_uri)",
        (lambda path, junk: lance.LanceDataset.commit(junk, OP.UpdateConfig({"k": "v"}), read_version=1)),
        "text",
    )
    yield "commit(read_version)", option("read_version"), "int"
    yield "commit(max_retries)", option("max_retries"), "int, huge"
    yield "commit(commit_timeout)", option("commit_timeout"), "int, float, huge"
    yield "commit(commit_message)", option("commit_message"), "text, empty"
    yield "commit(enable_v2_manifest_paths)", option("enable_v2_manifest_paths"), "true"
    yield "commit(enable_stable_row_ids)", option("enable_stable_row_ids"), "true"
    yield "commit(storage_options)", option("storage_options"), ""
    yield "commit", commit(lambda junk: junk), ""
    yield (
        "commit(Transaction)",
        (lambda path, junk: lance.LanceDataset.commit(path, lance.Transaction(junk, OP.Append([])))),
        "int",
    )
    yield "commit(uuid)", commit(lambda junk: lance.Transaction(1, OP.Append([]), junk)), "text"
    yield "commit(properties)", commit(lambda junk: lance.Transaction(1, OP.Append([]), "u", junk)), ""
    yield "Append", commit(OP.Append), EMPTY
    yield "Append([x])", commit(lambda junk: OP.Append([junk])), ""
    yield "Append(id)", commit(lambda junk: OP.Append([fragment(id=junk)])), "int"
    yield "Append(files)", commit(lambda junk: OP.Append([fragment(files=junk)])), "nothing"
    yield "Append(deletion_file)", commit(lambda junk: OP.Append([fragment(deletion_file=junk)])), ""
    yield "Append(physical_rows)", commit(lambda junk: OP.Append([fragment(physical_rows=junk)])), "int"
    yield "Append(path)", commit(lambda junk: OP.Append([fragment(files=[DataFile(junk, [0])])])), ""
    yield "Append(fields)", commit(lambda junk: OP.Append([fragment(files=[DataFile("x", junk)])])), ""
    yield "Overwrite(schema)", commit(lambda junk: OP.Overwrite(junk, [])), ""
    yield "Overwrite(fragments)", commit(lambda junk: OP.Overwrite(DATA.schema, junk)), EMPTY
    yield "Delete(updated)", commit(lambda junk: OP.Delete(junk, [], "x")), EMPTY
    yield "Delete(removed)", commit(lambda junk: OP.Delete([], junk, "x")), "pair, nothing, array"
    yield "Delete([x])", commit(lambda junk: OP.Delete([], [junk], "x")), "int"
    yield "Delete(predicate)", commit(lambda junk: OP.Delete([], [], junk)), "text, empty"
    yield "Restore", commit(OP.Restore), "int"
    yield "Merge(fragments)", commit(lambda junk: OP.Merge(junk, DATA.schema)), EMPTY
    yield "Merge(schema)", commit(lambda junk: OP.Merge([], junk)), ""
    yield "Project", commit(OP.Project), ""
    yield "Rewrite", commit(lambda junk: OP.Rewrite(junk, [])), EMPTY
    yield "Rewrite([x])", commit(lambda junk: OP.Rewrite([junk], [])), ""
    yield "Rewrite(indices)", commit(lambda junk: OP.Rewrite([], junk)), EMPTY
    yield "RewriteGroup", commit(lambda junk: OP.Rewrite([OP.RewriteGroup(junk, [])], [])), EMPTY
    yield (
        "RewrittenIndex",
        (commit(lambda junk: OP.Rewrite([], [OP.RewrittenIndex("a", "b", "c", b"", junk)]))),
        "int",
    )
    yield "CreateIndex", commit(lambda junk: OP.CreateIndex(junk, [])), EMPTY
    yield "DataReplacement", commit(OP.DataReplacement), EMPTY
    yield "DataReplacement([x])", commit(lambda junk: OP.DataReplacement([junk])), ""
    yield (
        "DataReplacementGroup",
        (commit(lambda junk: OP.DataReplacement([OP.DataReplacementGroup(0, junk)]))),
        "",
    )
    yield "Update(removed)", commit(lambda junk: OP.Update(removed_fragment_ids=junk)), "pair, nothing, array"
    yield "Update([x])", commit(lambda junk: OP.Update(removed_fragment_ids=[junk])), "int"
    yield "Update(fields)", commit(lambda junk: OP.Update(fields_modified=[junk])), "int"
    yield "Update(mode)", commit(lambda junk: OP.Update(update_mode=junk)), "empty"
    yield "Update(offsets)", commit(lambda junk: OP.Update(updated_fragment_offsets=junk)), ""
    for name in ("config_updates", "table_metadata_updates", "schema_metadata_updates"):
        yield f"UpdateConfig({name})", commit(lambda junk, name=name: OP.UpdateConfig(**{name: junk})), "map"
    yield "UpdateConfig(a value)", commit(lambda junk: OP.UpdateConfig({"k": junk})), "text, empty"
    yield "UpdateConfig(fields)", commit(lambda junk: OP.UpdateConfig(field_metadata_updates=junk)), ""
    yield "UpdateMap", commit(lambda junk: OP.UpdateConfig(OP.UpdateMap({"k": "v"}, junk))), "true"
    yield "Clone", commit(lambda junk: OP.Clone(junk, "r", 1, "p")), "true"
    yield "Other", commit(lambda junk: OP.Other("x", junk)), ""


CASES = [*_reading(), *_keeping(), *_writing(), *_committing()]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of three fragments, which no test here changes."""
    place = str(tmp_path_factory.mktemp("junk") / "t.lance")
    lance.write_dataset(DATA, place, max_rows_per_file=7, storage_options=FAST)
    return place


@pytest.mark.parametrize(("call", "takes"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_wrong_argument_is_told_and_changes_nothing(
    path: str, call: Callable[[str, Any], Any], takes: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(path, call, takes)
    assert not list(tmp_path.iterdir())


def test_messages_name_the_argument_what_is_expected_and_what_was_found(path: str) -> None:
    for make, told in [
        (lambda: lance.dataset(path, storage_options=5), "storage_options must be a map from text, found 5"),
        (lambda: lance.dataset(path).scanner(columns=5), "columns must be a list of names or a map"),
        (
            lambda: lance.dataset(path).scanner(with_row_id="x"),
            "with_row_id must be True or False, found the str",
        ),
        (lambda: OP.DataReplacement([5]), r"replacements\[0\] must be a DataReplacementGroup, found 5"),
        (lambda: OP.UpdateConfig({"k": 5}), r"config_updates\['k'\] must be text, found 5"),
        (
            lambda: lance.dataset(path).delete("a = 1", retry_timeout="x"),
            "a number of seconds or a timedelta",
        ),
    ]:
        with pytest.raises(WrongType, match=told):
            make()
        with pytest.raises(TypeError):
            make()


def test_a_span_is_a_number_of_seconds_or_a_timedelta(path: str, tmp_path: Path) -> None:
    for span in (5, 0.5, timedelta(seconds=5), np.float32(1), np.int64(2)):
        assert arguments.seconds("span", span) > 0
    ds = lance.write_dataset(DATA, tmp_path / "t.lance", storage_options=FAST)
    assert ds.delete("a = 1", retry_timeout=5) == {"num_deleted_rows": 1}
    assert ds.delete("a = 2", retry_timeout=timedelta(seconds=5)) == {"num_deleted_rows": 1}
    again = lance.LanceDataset.commit(ds, OP.UpdateConfig({"k": "v"}), read_version=1, commit_timeout=5)
    assert again.config()["k"] == "v"


def test_numbers_and_flags_of_numpy_are_taken(path: str) -> None:
    ds = lance.dataset(path, version=np.int64(1))
    assert ds.to_table(limit=np.int32(3), with_row_id=np.True_).num_rows == 3
    assert ds.checkout_version(np.uint8(1)).version == 1


def test_a_version_that_no_table_can_have_is_not_found(path: str) -> None:
    for number in (0, -1, 2**63, 2**64 - 1):
        with pytest.raises(VersionNotFound):
            lance.dataset(path, version=number)


def test_names_of_a_transaction_stay_in_the_table(path: str) -> None:
    before = files_of(path)
    with pytest.raises(InvalidInput, match="uuid"):
        lance.LanceDataset.commit(path, lance.Transaction(1, OP.Append([]), "../../x"))
    assert files_of(path) == before


def test_a_scanner_says_what_to_pickle_instead(path: str) -> None:
    import pickle

    with pytest.raises(TiltyardError, match="send the dataset"):
        pickle.dumps(lance.dataset(path).scanner())


def test_members_set_later_are_checked_by_the_commit(path: str) -> None:
    made = OP.Delete([], [], "x")
    made.deleted_fragment_ids = 5  # type: ignore[assignment]
    with pytest.raises(WrongType, match="deleted_fragment_ids"):
        lance.LanceDataset.commit(path, made, read_version=1)


def test_a_frame_whose_whole_numbers_have_gaps_is_told_what_to_do(path: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    ds = lance.write_dataset(DATA, tmp_path / "t.lance", storage_options=FAST)
    frame = pandas.DataFrame({"a": [1.0, None]})
    with pytest.raises(SchemaMismatch, match=r"frame.astype\({'a': 'Int64'}\)"):
        ds.insert(frame)
    ds.insert(frame.astype({"a": "Int64"}))
    assert ds.to_table().column("a").to_pylist()[20:] == [1, None]


class _Reader:
    """Claims to be data, and gives what is none."""

    schema = DATA.schema

    def to_batches(self) -> list[int]:
        return [5]


class _Capsule:
    def __arrow_c_stream__(self, requested_schema: object = None) -> int:
        return 5


@pytest.mark.parametrize(
    "data",
    [
        lambda: pa.RecordBatchReader.from_batches(DATA.schema, iter([5])),
        lambda: pa.RecordBatchReader.from_batches(DATA.schema, iter([{"a": [1]}])),
        _Reader,
        _Capsule,
        lambda: [None],
        lambda: [{"a": 1}, 5],
        lambda: [DATA, 5],
        lambda: iter([{"a": 1}, {"a": "x"}]),
        lambda: {"a": {1, 2}},
        lambda: {"\ud800": [1]},
        lambda: {"a": [Thing()]},
        lambda: {"a": np.zeros((2, 2, 2))},
        lambda: pa.array([1]),
    ],
)
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_data_that_is_none_is_told_and_changes_nothing(path: str, data: Callable[[], Any], mode: str) -> None:
    before = files_of(path)
    with pytest.raises(InvalidInput):
        lance.write_dataset(data(), path, mode=mode)
    assert [each[:2] for each in files_of(path)] == [each[:2] for each in before]


def test_what_a_callers_iterator_raises_comes_through(path: str) -> None:
    def broken() -> Iterator[Any]:
        yield DATA
        raise RuntimeError("the source went away")

    before = [each[0] for each in files_of(path)]
    with pytest.raises(RuntimeError, match="went away"):
        lance.write_dataset(broken(), path, mode="append")
    assert [each[0] for each in files_of(path)] == before
