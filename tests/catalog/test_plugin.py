"""The catalog through the `lance_namespace` interface, in this process."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance_namespace as interface
import pyarrow as pa
import pytest

import tiltyard.lance as lance
from tiltyard.catalog.plugin import DirectoryNamespace, DynamicContextProvider
from tiltyard.errors import InvalidInput, TableAlreadyExists

T = pa.table({"id": [1, 2, 3], "s": ["a", "b", "c"]})


def stream_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    made: bytes = sink.getvalue().to_pybytes()
    return made


ROWS = stream_of(T)


@pytest.fixture
def ns(tmp_path: Path) -> DirectoryNamespace:
    made = DirectoryNamespace(root=str(tmp_path / "lake"))
    made.create_namespace({"id": ["ops"]})
    made.create_table({"id": ["ops", "t"], "properties": {"p": "q"}}, ROWS)
    return made


def files(ns: DirectoryNamespace) -> list[str]:
    root = Path(ns._root)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def code_of(call: Callable[[], object]) -> int:
    with pytest.raises(interface.LanceNamespaceError) as caught:
        call()
    return int(caught.value.code)


# -- how it is found -----------------------------------------------------------------------------


def test_the_class_is_found_by_its_path(tmp_path: Path) -> None:
    made = interface.connect("tiltyard.lance.namespace.DirectoryNamespace", {"root": f"{tmp_path}/"})
    assert type(made) is lance.namespace.DirectoryNamespace
    assert made.namespace_id() == f'DirectoryNamespace {{ root: "{tmp_path}" }}'
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="root"):
        interface.connect("tiltyard.lance.namespace.DirectoryNamespace", {})


LEAN = """
import sys
from tiltyard.catalog import open_catalog
from tiltyard.catalog.listing import list_tables
from tiltyard.catalog.namespaces import create_namespace
from tiltyard.catalog.operations import indexing, reading, rows, tagging, versions
from tiltyard.catalog.tables import declare_table, describe
import tiltyard.lance
catalog = open_catalog(sys.argv[1])
create_namespace(catalog, ("ops",))
declare_table(catalog, ("ops", "t"))
describe(catalog, ("ops", "t"))
list_tables(catalog, ("ops",))
print([name for name in ("lance_namespace", "pydantic", "pyarrow.dataset", "urllib3") if name in sys.modules])
"""


def test_only_the_plugin_loads_the_interface(tmp_path: Path) -> None:
    """It takes a second."""
    source = Path(lance.__file__).parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", LEAN, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(source)},
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_every_method_of_the_interface_is_served_or_refused_by_name(ns: DirectoryNamespace) -> None:
    later = []
    for name, method in inspect.getmembers(interface.LanceNamespace, inspect.isfunction):
        if name.startswith("_"):
            continue
        assert getattr(DirectoryNamespace, name) is not method, f"{name} is not served"
        if getattr(DirectoryNamespace, name).__name__ == name and not hasattr(
            getattr(DirectoryNamespace, name), "__wrapped__"
        ):
            later.append(name)
    later.remove("namespace_id")
    assert later == [
        "alter_table_add_columns",
        "alter_table_alter_columns",
        "alter_table_backfill_columns",
        "alter_table_drop_columns",
        "create_materialized_view",
        "create_table_branch",
        "refresh_materialized_view",
    ]
    for name in later:
        with pytest.raises(interface.UnsupportedOperationError, match=f"Not supported: {name}"):
            getattr(ns, name)({"id": ["ops", "t"]})


def test_a_namespace_is_pickled_by_its_properties(ns: DirectoryNamespace) -> None:
    again = pickle.loads(pickle.dumps(ns))
    assert again.namespace_id() == ns.namespace_id()
    assert again.table_exists({"id": ["ops", "t"]}) is not None
    with pytest.raises(InvalidInput, match="memory"):
        pickle.dumps(DirectoryNamespace(root="memory://pickle"))


class Provider(DynamicContextProvider):
    def __init__(self, token: str) -> None:
        self.token = token

    def provide_context(self, info: dict[str, str]) -> dict[str, str]:
        raise AssertionError("a directory asks for no context")


def test_a_context_provider_is_kept_and_never_asked(tmp_path: Path) -> None:
    properties = {
        "root": str(tmp_path),
        "dynamic_context_provider.impl": f"{__name__}.Provider",
        "dynamic_context_provider.token": "secret",
    }
    made = DirectoryNamespace(**properties)
    assert made._context_provider.token == "secret"
    made.list_tables({"id": []})
    for impl in ("Provider", "no.such.Class", f"{__name__}.Nobody"):
        with pytest.raises(InvalidInput, match=r"dynamic_context_provider\.impl"):
            DirectoryNamespace(**{**properties, "dynamic_context_provider.impl": impl})


# -- requests and answers ------------------------------------------------------------------------


class Dumped(dict[str, Any]):
    """What lancedb's native part sends."""

    def model_dump(self) -> dict[str, Any]:
        return dict(self)


@pytest.mark.parametrize("form", [dict, Dumped, lambda **named: interface.DescribeTableRequest(**named)])
def test_requests_come_as_models_and_as_mappings(form: Any, ns: DirectoryNamespace) -> None:
    told = ns.describe_table(form(id=["ops", "t"], load_detailed_metadata=True))
    assert isinstance(told, interface.DescribeTableResponse)
    assert (told.table, told.namespace, told.version, told.properties) == ("t", ["ops"], 1, {"p": "q"})
    assert told.to_dict()["schema"]["fields"][1] == {"name": "s", "nullable": True, "type": {"type": "utf8"}}
    assert told.metadata is not None
    assert told.metadata["total_rows"] == "3"
    assert told.is_only_declared is False
    assert told.location == told.table_uri
    assert told.managed_versioning is None


def test_arguments_can_be_named_as_in_the_interface(ns: DirectoryNamespace) -> None:
    ns.create_table(request={"id": ["ops", "named"]}, request_data=ROWS)
    ns.insert_into_table(interface.InsertIntoTableRequest(id=["ops", "named"]), request_data=ROWS)
    assert ns.count_table_rows(request={"id": ["ops", "named"]}).count == 6
    with pytest.raises(TypeError):
        ns.describe_table({"id": ["ops", "t"]}, b"")


def test_query_answers_are_bytes_and_have_data(ns: DirectoryNamespace) -> None:
    answer = ns.query_table(
        interface.QueryTableRequest(
            id=["ops", "t"], k=2, vector=interface.QueryTableRequestVector(), columns={"column_names": ["s"]}
        )
        if hasattr(interface, "QueryTableRequestVector")
        else {"id": ["ops", "t"], "k": 2, "vector": {}, "columns": {"column_names": ["s"]}}
    )
    assert isinstance(answer, bytes)
    assert answer.data == answer
    assert answer.context is None
    assert pa.ipc.open_file(pa.py_buffer(answer)).read_all().to_pydict() == {"s": ["a", "b"]}


def test_looping_over_a_listing_gives_names(ns: DirectoryNamespace) -> None:
    """Case N12."""
    assert list(ns.list_tables({"id": ["ops"]})) == ["t"]
    assert list(ns.list_namespaces({"id": []})) == ["ops"]
    assert "t" in ns.list_tables({"id": ["ops"]})
    assert isinstance(ns.list_tables({"id": ["ops"]}), interface.ListTablesResponse)


MODES = {
    "create": ("create", "Create", "CREATE", None),
    "exist_ok": ("exist_ok", "ExistOk", "existok", "EXIST_OK"),
    "overwrite": ("overwrite", "Overwrite"),
}


@pytest.mark.parametrize(("meaning", "word"), [(key, word) for key, words in MODES.items() for word in words])
def test_modes_of_a_creation_in_every_spelling(
    meaning: str, word: str | None, ns: DirectoryNamespace
) -> None:
    def again() -> Any:
        return ns.create_table({"id": ["ops", "t"], "mode": word, "properties": None}, ROWS)

    if meaning == "create":
        with pytest.raises(interface.TableAlreadyExistsError) as caught:
            again()
        assert isinstance(caught.value, TableAlreadyExists)
        assert caught.value.code == 5
    else:
        told = again()
        assert told.location == ns.describe_table({"id": ["ops", "t"]}).location
        assert told.version == (1 if meaning == "exist_ok" else 2)
        assert told.properties == ({"p": "q"} if meaning == "exist_ok" else None)

    def namespace() -> Any:
        return ns.create_namespace({"id": ["ops"], "mode": word})

    if meaning == "create":
        assert code_of(namespace) == 2
    else:
        namespace()
        left = [] if meaning == "overwrite" else ["t"]
        assert ns.list_tables({"id": ["ops"]}).tables == left


def test_drops_of_a_namespace(ns: DirectoryNamespace) -> None:
    assert code_of(lambda: ns.drop_namespace({"id": ["ops"]})) == 3
    assert code_of(lambda: ns.drop_namespace({"id": ["no"]})) == 1
    ns.drop_namespace({"id": ["no"], "mode": "Skip"})
    ns.drop_namespace({"id": ["ops"], "behavior": "Cascade"})
    assert code_of(lambda: ns.describe_namespace({"id": ["ops"]})) == 1
    assert code_of(lambda: ns.describe_table({"id": ["ops", "t"]})) == 4


def test_a_table_lives_through_all_its_names(ns: DirectoryNamespace) -> None:
    ns.create_namespace({"id": ["other"]})
    before = ns.describe_table({"id": ["ops", "t"]}).location
    ns.rename_table({"id": ["ops", "t"], "new_table_name": "u"})
    assert ns.describe_table({"id": ["ops", "u"]}).location == before
    ns.rename_table({"id": ["ops", "u"], "new_table_name": "t", "new_namespace_id": ["other"]})
    assert ns.list_tables({"id": ["ops"]}).tables == []
    assert ns.count_table_rows({"id": ["other", "t"]}).count == 3
    gone = ns.deregister_table({"id": ["other", "t"]})
    assert (gone.id, gone.location) == (["other", "t"], before)
    location = before.rpartition("/")[2]
    ns.register_table({"id": ["ops", "back"], "location": location})
    assert ns.count_table_rows({"id": ["ops", "back"]}).count == 3
    dropped = ns.drop_table({"id": ["ops", "back"]})
    assert (dropped.id, dropped.location) == (["ops", "back"], before)
    assert code_of(lambda: ns.drop_table({"id": ["ops", "back"]})) == 4


def test_declared_tables_are_told_apart(ns: DirectoryNamespace) -> None:
    """Case N10."""
    told = ns.declare_table({"id": ["ops", "d"], "properties": {"a": "b"}})
    assert told.properties == {"a": "b"}
    assert code_of(lambda: ns.declare_table({"id": ["ops", "d"]})) == 5
    ns.table_exists({"id": ["ops", "d"]})
    found = ns.describe_table({"id": ["ops", "d"], "check_declared": True})
    assert (found.is_only_declared, found.location) == (True, told.location)
    detailed = ns.describe_table({"id": ["ops", "d"], "load_detailed_metadata": True})
    assert (detailed.version, detailed.var_schema, detailed.is_only_declared) == (None, None, True)
    assert ns.list_tables({"id": ["ops"]}).tables == ["d", "t"]
    assert ns.list_tables({"id": ["ops"], "include_declared": False}).tables == ["t"]
    assert code_of(lambda: ns.count_table_rows({"id": ["ops", "d"]})) == 4
    assert ns.insert_into_table({"id": ["ops", "d"]}, ROWS).version == 1
    assert ns.list_tables({"id": ["ops"], "include_declared": False}).tables == ["d", "t"]
    ns.create_empty_table({"id": ["ops", "e"]})
    assert code_of(lambda: ns.create_empty_table({"id": ["ops", "e"]})) == 5


def test_an_empty_stream_makes_an_empty_table(ns: DirectoryNamespace) -> None:
    ns.create_table({"id": ["empty"]}, stream_of(T.slice(0, 0)))
    assert ns.count_table_rows({"id": ["empty"]}).count == 0
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, T.schema):
        pass
    ns.create_table({"id": ["ops", "empty"]}, sink.getvalue().to_pybytes())
    assert ns.count_table_rows({"id": ["ops", "empty"]}).count == 0


def test_versions_tags_and_indices_come_in_pages(ns: DirectoryNamespace) -> None:
    id = ["ops", "t"]
    for _ in range(4):
        ns.insert_into_table({"id": id}, ROWS)
    for version in range(1, 6):
        ns.create_table_tag({"id": id, "tag": f"v{version}", "version": version})
    ns.create_table_scalar_index({"id": id, "column": "id", "index_type": "BTREE"})
    ns.create_table_index({"id": id, "column": "s", "index_type": "scalar"})

    def walk(call: Any, field: str, **named: Any) -> list[Any]:
        found: list[Any] = []
        token = None
        for _ in range(9):
            answer = call({"id": id, "limit": 2, "page_token": token, **named})
            found += list(getattr(answer, field))
            token = answer.page_token
            if token is None:
                return found
        raise AssertionError("the pages do not end")

    assert [each.version for each in walk(ns.list_table_versions, "versions")] == [1, 2, 3, 4, 5, 6, 7]
    newest_first = walk(ns.list_table_versions, "versions", descending=True)
    assert [each.version for each in newest_first] == [7, 6, 5, 4, 3, 2, 1]
    assert walk(ns.list_table_tags, "tags") == ["v1", "v2", "v3", "v4", "v5"]
    assert [each.index_name for each in walk(ns.list_table_indices, "indexes")] == ["id_idx", "s_idx"]
    assert ns.list_table_tags({"id": id}).to_dict()["tags"]["v2"].keys() >= {"version", "manifestSize"}
    assert ns.describe_table({"id": id, "tag": "v2", "load_detailed_metadata": True}).version == 2
    assert ns.describe_table({"id": id, "version": 3, "load_detailed_metadata": True}).version == 3


def test_what_is_missing_has_its_own_code(ns: DirectoryNamespace) -> None:
    id = ["ops", "t"]
    codes = {
        lambda: ns.describe_table({"id": id, "version": 99, "load_detailed_metadata": True}): 11,
        lambda: ns.describe_table({"id": id, "tag": "no"}): 8,
        lambda: ns.describe_table({"id": id, "branch": "no"}): 22,
        lambda: ns.table_exists({"id": id, "version": 99}): 11,
        lambda: ns.table_exists({"id": ["ops"]}): 4,
        lambda: ns.namespace_exists({"id": id}): 1,
        lambda: ns.restore_table({"id": id, "version": 99}): 11,
        lambda: ns.count_table_rows({"id": id, "version": 99}): 11,
        lambda: ns.get_table_tag_version({"id": id, "tag": "no"}): 8,
        lambda: ns.describe_table_index_stats({"id": id, "index_name": "no"}): 6,
        lambda: ns.create_table_index({"id": id, "column": "no", "index_type": "BTREE"}): 12,
        lambda: ns.create_table_index({"id": id, "column": "s", "index_type": "FTS"}): 0,
        lambda: ns.update_table({"id": id, "updates": [["no", "1"]]}): 13,
        lambda: ns.describe_transaction({"id": [*id, "99"]}): 10,
        lambda: ns.create_table({"id": ["no", "t"]}, ROWS): 1,
        lambda: ns.insert_into_table({"id": id}, stream_of(pa.table({"x": [1]}))): 20,
        lambda: ns.query_table(
            {"id": id, "k": 1, "vector": {}, "full_text_query": {"string_query": {"query": "x"}}}
        ): 0,
    }
    for call, code in codes.items():
        assert code_of(call) == code


# -- what properties ask for ---------------------------------------------------------------------


def test_operations_are_counted_where_asked_for(tmp_path: Path) -> None:
    made = DirectoryNamespace(root=str(tmp_path), ops_metrics_enabled="true")
    made.list_tables({"id": []})
    made.list_tables({"id": []})
    assert code_of(lambda: made.describe_table({"id": ["no"]})) == 4
    assert made.retrieve_ops_metrics() == {"list_tables": 2, "describe_table": 1}
    made.reset_ops_metrics()
    assert made.retrieve_ops_metrics() == {}
    silent = DirectoryNamespace(root=str(tmp_path))
    silent.list_tables({"id": []})
    assert silent.retrieve_ops_metrics() == {}


def test_storage_options_are_given_out_only_where_asked_for(tmp_path: Path) -> None:
    options = {"root": str(tmp_path), "storage.secret": "s", "storage.durable": "false"}
    quiet = DirectoryNamespace(**options)
    assert quiet.create_table({"id": ["t"]}, ROWS).storage_options is None
    assert quiet.describe_table({"id": ["t"]}).storage_options is None
    vending = DirectoryNamespace(
        **options,
        vend_input_storage_options="true",
        vend_input_storage_options_refresh_interval_millis="60000",
    )
    told = vending.describe_table({"id": ["t"]}).storage_options
    assert told is not None
    assert int(told.pop("expires_at_millis")) > 1_700_000_000_000
    assert told == {"secret": "s", "durable": "false"}
    assert vending.declare_table({"id": ["d"]}).storage_options is not None
    assert vending.describe_table({"id": ["t"], "vend_credentials": False}).storage_options is None


def test_managed_versioning_is_announced(tmp_path: Path) -> None:
    made = DirectoryNamespace(root=str(tmp_path), table_version_tracking_enabled="true")
    assert made.declare_table({"id": ["d"]}).managed_versioning is True
    assert made.describe_table({"id": ["d"]}).managed_versioning is True
    ds = lance.write_dataset(T, namespace_client=made, table_id=["t"])
    ds.delete("id = 1")
    again = lance.dataset(namespace_client=made, table_id=["t"])
    again.insert(T)
    assert (again.version, again.count_rows()) == (3, 5)
    assert [each.version for each in made.list_table_versions({"id": ["t"]}).versions] == [1, 2, 3]


def test_batches_are_served(ns: DirectoryNamespace) -> None:
    done = ns.batch_commit_tables(
        {
            "operations": [
                {"declare_table": {"id": ["ops", "new"], "properties": {"a": "b"}}},
                {"deregister_table": {"id": ["ops", "t"]}},
            ]
        }
    )
    assert done.results[0].declare_table.properties == {"a": "b"}
    assert done.results[1].deregister_table.id == ["ops", "t"]
    assert ns.list_tables({"id": ["ops"]}).tables == ["new"]
    refused = {
        "operations": [
            {"declare_table": {"id": ["ops", "more"]}},
            {"deregister_table": {"id": ["ops", "no"]}},
        ]
    }
    assert code_of(lambda: ns.batch_commit_tables(refused)) == 4
    assert ns.list_tables({"id": ["ops"]}).tables == ["new"]
    for bad in ({}, {"operations": [{}]}, {"operations": 7}):
        assert code_of(lambda bad=bad: ns.batch_commit_tables(bad)) == 13
    assert code_of(lambda: ns.batch_create_table_versions({"entries": []})) == 13
