"""Malformed requests: the specification's error, and nothing is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance_namespace as interface
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiltyard.catalog.plugin import DirectoryNamespace
from tiltyard.catalog.plugin.requests import Given, after_token
from tiltyard.errors import TiltyardError

T = pa.table({"id": [1, 2, 3], "vector": pa.array([[1.0]] * 3, pa.list_(pa.float32(), 1))})
ID = ["ops", "t"]


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
    made.create_table({"id": ID}, ROWS)
    return made


def files(ns: DirectoryNamespace) -> dict[str, bytes]:
    root = Path(ns._root)
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


class Dumped:
    """What looks like a model, and gives anything."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def model_dump(self) -> Any:
        return self._value


BAD: list[tuple[str, Any]] = [
    ("create_namespace", {}),
    ("create_namespace", {"id": ["x"], "mode": "Sometimes"}),
    ("create_namespace", {"id": ["x"], "properties": {"a": 1}}),
    ("create_namespace", {"id": ["x"], "properties": ["a"]}),
    ("create_namespace", {"id": "x"}),
    ("create_namespace", {"id": ["x", 7]}),
    ("create_namespace", {"id": ["a$b"]}),
    ("create_namespace", {"id": [""]}),
    ("create_namespace", {"id": [".."]}),
    ("create_namespace", {"id": ["a/b"]}),
    ("create_namespace", {"id": ["ünsafe"]}),
    ("create_namespace", {"id": ["x" * 300]}),
    ("create_namespace", 7),
    ("create_namespace", "ops"),
    ("drop_namespace", {"id": []}),
    ("drop_namespace", {"id": ["ops"], "mode": "Perhaps"}),
    ("drop_namespace", {"id": ["ops"], "behavior": "Explode"}),
    ("list_namespaces", {"id": [], "limit": "ten"}),
    ("list_namespaces", {"id": [], "page_token": 7}),
    ("list_tables", {}),
    ("list_tables", {"id": [], "include_declared": "yes"}),
    ("list_tables", {"id": ["x"] * 100}),
    ("describe_table", {}),
    ("describe_table", {"id": []}),
    ("describe_table", {"id": ID, "version": "one"}),
    ("describe_table", {"id": ID, "version": 1, "tag": "x"}),
    ("table_exists", {"id": None}),
    ("declare_table", {"id": ["ops", "d"], "location": "elsewhere"}),
    ("declare_table", {"id": ["ops", "d"], "location": 7}),
    ("declare_table", {"id": ["ops", "d#"]}),
    ("register_table", {"id": ["ops", "r"]}),
    ("register_table", {"id": ["ops", "r"], "location": "/tmp/x"}),
    ("register_table", {"id": ["ops", "r"], "location": "s3://b/x"}),
    ("register_table", {"id": ["ops", "r"], "location": "../x"}),
    ("register_table", {"id": ["ops", "r"], "location": ""}),
    ("register_table", {"id": ["ops", "r"], "location": "x.lance", "mode": "Twice"}),
    ("rename_table", {"id": ID}),
    ("rename_table", {"id": ID, "new_table_name": ""}),
    ("rename_table", {"id": ID, "new_table_name": "a$b"}),
    ("rename_table", {"id": ID, "new_table_name": "x", "new_namespace_id": "ops"}),
    ("delete_from_table", {"id": ID}),
    ("delete_from_table", {"id": ID, "predicate": " "}),
    ("update_table", {"id": ID, "updates": []}),
    ("update_table", {"id": ID, "updates": [["id"]]}),
    ("update_table", {"id": ID, "updates": "id = 1"}),
    ("count_table_rows", {"id": ID, "predicate": "("}),
    ("count_table_rows", {"id": ID, "predicate": 7}),
    ("query_table", {"id": ID}),
    ("query_table", {"id": ID, "k": 1}),
    ("query_table", {"id": ID, "k": -1, "vector": {}}),
    ("query_table", {"id": ID, "k": 1, "vector": {"single_vector": ["x"]}}),
    ("query_table", {"id": ID, "k": 1, "vector": {"single_vector": [1.0, 2.0]}}),
    ("query_table", {"id": ID, "k": 1, "vector": {"single_vector": [10**400]}}),
    ("query_table", {"id": ID, "k": 1, "vector": {"multi_vector": [[10**400]]}}),
    ("query_table", {"id": ID, "k": 1, "vector": {"single_vector": [1.0]}, "lower_bound": 10**400}),
    ("query_table", {"id": ID, "k": 1, "vector": {"single_vector": [1.0]}, "upper_bound": -(10**400)}),
    ("query_table", Dumped(5)),
    ("query_table", Dumped([("id", ID)])),
    ("query_table", {"id": ID, "k": 1, "vector": Dumped("x")}),
    ("query_table", {"id": ID, "k": 1, "vector": {}, "filter": "id ="}),
    ("query_table", {"id": ID, "k": 1, "vector": {}, "offset": -1}),
    ("query_table", {"id": ID, "k": 1, "vector": {"single_vector": [1.0]}, "distance_type": "taxi"}),
    (
        "query_table",
        {"id": ID, "k": 1, "vector": {}, "columns": {"column_names": ["id"], "column_aliases": {"a": "id"}}},
    ),
    ("explain_table_query_plan", {"id": ID}),
    ("create_table_index", {"id": ID, "column": "id"}),
    ("create_table_index", {"id": ID, "column": "id", "index_type": "MAGIC"}),
    ("create_table_index", {"id": ID, "column": "", "index_type": "BTREE"}),
    ("create_table_scalar_index", {"id": ID, "column": "vector", "index_type": "IVF_PQ"}),
    ("describe_table_index_stats", {"id": ID}),
    ("drop_table_index", {"id": ID}),
    ("create_table_tag", {"id": ID, "tag": "a b", "version": 1}),
    ("create_table_tag", {"id": ID, "tag": "a", "version": 0}),
    ("create_table_tag", {"id": ID, "tag": "a"}),
    ("list_table_versions", {"id": ID, "page_token": "abc"}),
    ("batch_delete_table_versions", {"id": ID, "ranges": [{"start_version": 1}]}),
    ("batch_delete_table_versions", {"id": ID, "ranges": [{"start_version": 1, "end_version": 2_000_000}]}),
    ("batch_delete_table_versions", {"id": ID, "ranges": [{"start_version": 0, "end_version": -1}]}),
    ("create_table_version", {"id": ID, "version": 2}),
    ("create_table_version", {"id": ID, "version": -2, "manifest_path": "x"}),
    ("create_table_version", {"id": ID, "version": 2, "manifest_path": "x"}),
    ("describe_transaction", {"id": ["ops"]}),
    ("alter_transaction", {"id": [*ID, "1"], "actions": []}),
    ("alter_transaction", {"id": [*ID, "1"], "actions": [{}]}),
    ("alter_transaction", {"id": [*ID, "1"], "actions": [{"setPropertyAction": {"key": "uuid"}}]}),
    ("update_table_schema_metadata", {"id": ID, "metadata": {"a": 1}}),
    ("update_field_metadata", {"id": ID, "updates": []}),
    ("update_field_metadata", {"id": ID, "updates": [{"path": "id"}]}),
]


@pytest.mark.parametrize(
    ("operation", "request_"), BAD, ids=[f"{at}-{each[0]}" for at, each in enumerate(BAD)]
)
def test_a_malformed_request_is_invalid_and_changes_nothing(
    operation: str, request_: Any, ns: DirectoryNamespace
) -> None:
    before = files(ns)
    with pytest.raises(interface.InvalidInputError) as caught:
        getattr(ns, operation)(request_)
    assert caught.value.code == 13
    assert isinstance(caught.value, TiltyardError)
    assert files(ns) == before


@pytest.mark.parametrize(
    ("vector", "named"),
    [
        ({"multi_vector": 5}, "'multi_vector'"),
        ({"multi_vector": [5]}, r"'multi_vector'\[0\]"),
        ({"multi_vector": [["x"]]}, r"'multi_vector'\[0\]\[0\]"),
        ({"single_vector": 5}, "'single_vector'"),
        ({"single_vector": [1.0, "x"]}, r"'single_vector'\[1\]"),
    ],
)
def test_a_wrong_vector_is_named(vector: Any, named: str, ns: DirectoryNamespace) -> None:
    with pytest.raises(interface.InvalidInputError, match=named):
        ns.query_table({"id": ID, "k": 1, "vector": vector})


@pytest.mark.parametrize(
    ("operation", "request_", "data"),
    [
        ("create_table", {"id": ["new"]}, b""),
        ("create_table", {"id": ["new"]}, None),
        ("create_table", {"id": ["new"]}, b"nonsense"),
        ("create_table", {"id": ["new"]}, ROWS[:200]),
        ("create_table", {"id": ["new"], "mode": "upsert"}, ROWS),
        ("create_table", {"id": []}, ROWS),
        ("create_table", {"id": ["new"], "properties": {"a": None}}, ROWS),
        ("create_table", {"id": ["new"], "storage_options": {"a": 1}}, ROWS),
        ("create_table", {"id": ["ne#w"]}, ROWS),
        ("insert_into_table", {"id": ID}, b""),
        ("insert_into_table", {"id": ID, "mode": "merge"}, ROWS),
        ("merge_insert_into_table", {"id": ID}, ROWS),
        ("merge_insert_into_table", {"id": ID, "on": ["id", "id"]}, ROWS),
        ("merge_insert_into_table", {"id": ID, "on": ["nope"]}, ROWS),
        ("merge_insert_into_table", {"id": ID, "on": ["id"], "when_not_matched_insert_all": False}, ROWS),
        ("merge_insert_into_table", {"id": ID, "on": ["id"]}, ROWS[:-20] + b"x" * 9),
    ],
)
def test_malformed_data_is_invalid_and_changes_nothing(
    operation: str, request_: Any, data: Any, ns: DirectoryNamespace
) -> None:
    before = files(ns)
    with pytest.raises(interface.InvalidInputError):
        getattr(ns, operation)(request_, data)
    assert files(ns) == before


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 1 << 70)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = """id mode properties version tag branch limit page_token predicate updates columns k vector
    filter offset on ranges column index_type name actions metadata location new_table_name new_namespace_id
    manifest_path operations entries descending"""
_READ_ONLY = """list_namespaces describe_namespace namespace_exists list_tables list_all_tables describe_table
    table_exists count_table_rows query_table explain_table_query_plan analyze_table_query_plan
    list_table_indices describe_table_index_stats list_table_versions describe_table_version list_table_tags
    get_table_tag_version list_table_branches describe_transaction get_table_stats"""
FIELDS, READ_ONLY = _FIELDS.split(), _READ_ONLY.split()


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    operation=st.sampled_from(READ_ONLY),
    fields=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4),
    with_id=st.booleans(),
)
def test_any_request_is_answered_or_refused_with_an_error_of_the_interface(
    operation: str, fields: dict[str, Any], with_id: bool, ns: DirectoryNamespace
) -> None:
    request = {"k": 1, "vector": {}, **fields}
    if with_id:
        request["id"] = ID
    before = files(ns)
    told = None
    try:
        getattr(ns, operation)(request)
    except interface.LanceNamespaceError as error:
        told = error
    assert told is None or (isinstance(told, TiltyardError) and told.code != 18)
    assert files(ns) == before


@settings(max_examples=50)
@given(
    names=st.lists(st.text("abc", min_size=1, max_size=2), unique=True, max_size=9).map(sorted),
    limit=st.integers(1, 10),
)
def test_pages_give_every_name_once(names: list[str], limit: int) -> None:
    found: list[str] = []
    token: str | None = None
    while True:
        page, token = after_token(names, token, limit)
        found += page
        assert len(page) <= limit
        if token is None:
            break
    assert found == names
    assert after_token(names, None, 0) == ([], None)
    assert after_token(names, "zzz", None) == ([], None)


def test_words_are_read_whatever_their_case() -> None:
    words = {"existok": "exist_ok"}
    for word in ("ExistOk", "exist_ok", "EXISTOK", "Exist_Ok"):
        assert Given("x", {"mode": word}).word("mode", words, "none") == "exist_ok"
    assert Given("x", {}).word("mode", words, "none") == "none"
