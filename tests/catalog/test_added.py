"""Versions that tell what they add: what is put together from that is what the file holds, or the file is
read.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peer import Peer
from tiltyard.catalog import Catalog, added, open_catalog, register
from tiltyard.catalog.namespaces import create_namespace, drop_namespace
from tiltyard.catalog.register import Register
from tiltyard.catalog.rows import NAMESPACE, TABLE, Row
from tiltyard.catalog.tables import declare_table
from tiltyard.session import Session

ROWS = [
    Row("n$plain", TABLE, "0a_n$plain"),
    Row("n$told", TABLE, "0b_n$told", '{"ä":"\\u0000 \\"quoted\\" 日本"}'),
    Row("n$space", NAMESPACE, None, '{"a":"b"}'),
    Row("n$" + 300 * "long", TABLE, ""),
]


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = str(tmp_path / "lake")
    create_namespace(fresh(root), ("n",))
    return root


def fresh(root: str) -> Catalog:
    """The catalog as another process would open it."""
    return open_catalog(root, properties={"storage.durable": "false"}, session=Session())


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions whose files were read."""
    read: list[int] = []
    real = register.load

    def load(snapshot: Any) -> Register:
        read.append(snapshot.version)
        return real(snapshot)

    monkeypatch.setattr(register, "load", load)
    return read


def put(*rows: Row) -> Callable[[Any], None]:
    def change(draft: Any) -> None:
        for row in rows:
            draft.put(row)

    return change


def is_as_written(catalog: Catalog) -> bool:
    """Whether a catalog has what a reader of the file has, in the same order."""
    ours, theirs = catalog.register(), fresh(catalog.uri).register()
    assert ours.version == theirs.version
    assert ours.rows.batch.equals(theirs.rows.batch)
    assert [[*ours.rows.positions(each)] for each in ours.rows.ids] == [[at] for at in range(len(ours.rows))]
    return ours.rows.batch.schema.equals(theirs.rows.batch.schema) and ours.metadata == theirs.metadata


def test_what_others_add_is_known_without_reading_the_file(root: str, loads: list[int]) -> None:
    reader, writer = fresh(root), fresh(root)
    reader.register()
    for row in ROWS:
        writer.mutate(put(row))
        writer.mutate(put(replaced(row, "_2"), replaced(row, "_3")))
        before = loads[:]
        reader.register()
        assert loads == before
        assert is_as_written(reader)
    reader.mutate(put(Row("mine", NAMESPACE)))  # on what was put together
    assert is_as_written(reader)
    assert is_as_written(writer)


def replaced(row: Row, end: str) -> Row:
    return Row(row.object_id + end, row.object_type, row.location, row.metadata)


def test_many_versions_are_caught_up_with_by_the_file(root: str, loads: list[int]) -> None:
    reader, writer = fresh(root), fresh(root)
    reader.register()
    for number in range(added.MAX_VERSIONS + 1):
        writer.mutate(put(Row(f"a{number}", NAMESPACE)))
    del loads[:]
    assert len(reader.register().rows) == 2 + added.MAX_VERSIONS
    assert len(loads) == 1
    assert is_as_written(reader)


LONG = Row("long", NAMESPACE, None, json.dumps({"a": added.MAX_BYTES * "x"}))
CHANGES: list[Callable[[Catalog], Any]] = [
    lambda catalog: drop_namespace(catalog, ("gone",)),
    lambda catalog: create_namespace(catalog, ("gone",), {"a": "b"}, "overwrite"),
    lambda catalog: catalog.mutate(put(LONG)),
    lambda catalog: catalog.mutate(put(Row("based", "view", None, None, ("n$a", None)))),
    lambda catalog: catalog.mutate(lambda draft: draft.metadata.update(key="value")),
]


@pytest.mark.parametrize("number", range(5))
def test_other_changes_are_read_from_the_file(root: str, number: int, loads: list[int]) -> None:
    reader, writer = fresh(root), fresh(root)
    create_namespace(writer, ("gone",))
    reader.register()
    CHANGES[number](writer)
    create_namespace(writer, ("later",))
    assert is_as_written(reader)
    declare_table(reader, ("later", "t"))
    assert is_as_written(writer)


THEIRS = """
import lance.namespace
from lance_namespace import CreateNamespaceRequest
lance.namespace.DirectoryNamespace(root=root).create_namespace(CreateNamespaceRequest(id=["theirs"]))
"""


def test_what_pylance_adds_is_read_from_the_file(root: str, peer: Peer, loads: list[int]) -> None:
    reader = fresh(root)
    create_namespace(reader, ("ours",))
    del loads[:]
    peer(THEIRS, root=root)
    assert sorted(reader.register().rows.ids) == ["n", "ours", "theirs"]
    assert len(loads) == 1
    create_namespace(fresh(root), ("later",))
    assert is_as_written(reader)


def test_another_catalog_at_the_same_place_is_read(root: str, loads: list[int]) -> None:
    """Its versions go on where those of the first one ended, and each tells what it adds."""
    reader = fresh(root)
    known = reader.register()
    shutil.rmtree(root)
    other = fresh(root)
    create_namespace(other, ("x",))
    create_namespace(other, ("y",))
    snapshot = other.register().snapshot
    assert snapshot is not None
    assert known.snapshot is not None
    assert known.version < snapshot.version
    assert added.followed(known.snapshot, known.rows, snapshot) is None
    assert sorted(reader.register().rows.ids) == ["x", "y"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"after":1}', '{"after":"%s"}', '{"after":"%s","rows":[["a"]]}', "missing"]
)
def test_nonsense_is_not_followed(root: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = fresh(root), fresh(root)
    snapshot = reader.register().snapshot
    assert snapshot is not None
    before = snapshot.transaction()
    assert before is not None
    told = {} if text == "missing" else {added.PROPERTY: text.replace("%s", before.uuid)}
    monkeypatch.setattr(added, "told", lambda base, rows: told)
    create_namespace(writer, ("a",))
    assert is_as_written(reader)


def test_a_note_that_tells_too_little_is_not_followed(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest counts the rows."""
    reader, writer = fresh(root), fresh(root)
    snapshot = reader.register().snapshot
    assert snapshot is not None
    before = snapshot.transaction()
    assert before is not None
    few = {added.PROPERTY: json.dumps({"after": before.uuid, "rows": [["a", NAMESPACE, None, None]]})}
    monkeypatch.setattr(added, "told", lambda base, rows: few)
    writer.mutate(put(Row("a", NAMESPACE), Row("b", NAMESPACE)))
    assert is_as_written(reader)
