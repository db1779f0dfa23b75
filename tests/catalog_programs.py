"""Programs of ours and of the official packages on one catalog, for tests of races: each gives its process a
`call(verb, id)` that answers "ok" or a code of the specification.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tiltyard.catalog import Catalog
from tiltyard.table.versions import list_versions
from workers import Crew, Worker

OURS = """
import pyarrow as pa
from tiltyard import errors
from tiltyard.catalog import open_catalog
from tiltyard.catalog.declaring import declare_table
from tiltyard.catalog.namespaces import create_namespace, drop_namespace
from tiltyard.catalog.purging import purge
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.tables import create_table
from tiltyard.catalog.trash import drop_table, undrop_table
catalog = open_catalog(root, properties=properties)
CODES = {"NamespaceNotFound": 1, "NamespaceAlreadyExists": 2, "NamespaceNotEmpty": 3,
         "TableNotFound": 4, "TableNotDropped": 4, "TableAlreadyExists": 5, "CatalogThrottled": 21}
data = pa.table({"by": [me]})

def call(verb, id):
    try:
        if verb == "create": create_table(catalog, id, data, mode="create")
        elif verb == "exist_ok":
            _, table = create_table(catalog, id, data, mode="exist_ok")
            return table.to_table()["by"][0].as_py()
        elif verb == "declare": declare_table(catalog, id)
        elif verb == "overwrite": create_table(catalog, id, data, mode="overwrite")
        elif verb == "drop": drop_table(catalog, id)
        elif verb == "undrop": undrop_table(catalog, id)
        elif verb == "purge": return len(purge(catalog, 0).given_up)
        elif verb == "rename": rename_table(catalog, id, (*id[:-1], id[-1] + "-new"))
        elif verb == "create_namespace": create_namespace(catalog, id)
        elif verb == "drop_namespace": drop_namespace(catalog, id)
    except errors.TiltyardError as error:
        return CODES.get(type(error).__name__) or f"{type(error).__name__}: {error}"
    return "ok"
"""
"""`call` in one of our processes: "ok", a code of the specification, or what else went wrong."""

PYLANCE = """
import io
import pyarrow as pa
import lance_namespace as ln
from lance.namespace import DirectoryNamespace
catalog = DirectoryNamespace(root=root, **properties)
sink = io.BytesIO()
with pa.ipc.new_stream(sink, pa.schema([("by", pa.int64())])) as stream:
    stream.write_table(pa.table({"by": [me]}))
body = sink.getvalue()

def call(verb, id):
    id = list(id)
    try:
        if verb == "create": catalog.create_table(ln.CreateTableRequest(id=id, mode="create"), body)
        elif verb == "declare": catalog.declare_table(ln.DeclareTableRequest(id=id))
        elif verb == "drop": catalog.drop_table(ln.DropTableRequest(id=id))
        elif verb == "create_namespace": catalog.create_namespace(ln.CreateNamespaceRequest(id=id))
        elif verb == "drop_namespace": catalog.drop_namespace(ln.DropNamespaceRequest(id=id))
    except Exception as error:
        return int(getattr(error, "code", 99))
    return "ok"
"""

LANCEDB = """
import pyarrow as pa
import lancedb
catalog = lancedb.connect_namespace("dir", {"root": root, **properties})
data = pa.table({"by": [me]})

def call(verb, id):
    space = list(id[:-1])
    try:
        if verb == "create": catalog.create_table(id[-1], data, namespace_path=space)
        elif verb == "drop": catalog.drop_table(id[-1], namespace_path=space)
        elif verb == "create_namespace": catalog.create_namespace(list(id))
    except Exception as error:
        return 99
    return "ok"
"""

EACH = "\nresult = [call(verb, tuple(id)) for id in ids]\n"

Answers = list[list[Any]]
Program = tuple[Worker, str]


def programs(crew: Crew, ours: int, pylance: int = 0, lancedb: int = 0) -> list[Program]:
    """Workers with the source that gives each its `call`."""
    theirs = crew.peers(pylance + lancedb) if pylance + lancedb else []
    return [
        *((worker, OURS) for worker in (crew.ours(ours) if ours else [])),
        *((worker, PYLANCE) for worker in theirs[:pylance]),
        *((worker, LANCEDB) for worker in theirs[pylance:]),
    ]


def at_once(
    running: list[Program],
    gate: Path,
    sources: list[str],
    properties: Mapping[str, str] | None = None,
    **variables: Any,
) -> Answers:
    """Each program runs its source on a catalog with these properties, all from the same moment on."""
    wait = f"\nimport os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.0005)\n"
    for me, ((worker, prelude), source) in enumerate(zip(running, sources, strict=True)):
        worker.begin(prelude + wait + source, me=me, properties=dict(properties or {}), **variables)
    gate.touch()
    answers = [worker.answer() for worker, _ in running]
    gate.unlink()
    return answers


def by_name(answers: Answers) -> Iterator[list[Any]]:
    return map(list, zip(*answers, strict=True))


def check_register(catalog: Catalog, *, orphans: int = 0) -> None:
    """No id twice, no gap in the versions, no hashed directory that nobody names, but so many."""
    register = catalog.register()
    assert not register.rows.duplicates()
    versions = sorted(each.version for each in list_versions(catalog.store.at("__manifest")))
    assert versions == list(range(1, len(versions) + 1))
    named = {row.location for row in register.rows}
    kept = " ".join(register.metadata.values())
    left = [
        name
        for name in catalog.store.list_names("")
        if re.match("[0-9a-f]{8}_", name) and name not in named and name not in kept
    ]
    assert len(left) <= orphans, left
    for row in register.rows:
        for end in range(1, row.object_id.count("$") + 1):
            above = "$".join(row.object_id.split("$")[:end])
            assert register.rows.find(above) is not None, f"{row.object_id} has no {above}"
