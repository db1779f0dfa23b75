"""The reports about catalogs once more, through two servers on one root: clients of ours and official ones
(N01 to N03, N05 to N07, N09 to N13).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance_namespace as interface
import pyarrow as pa
import pytest
from lance.namespace import RestNamespace as OfficialRest

from serving import ROWS, ipc, post, serving
from tiltyard.lance.namespace import RestNamespace
from tiltyard.server.adapter import InThread

CALLERS = 16
Uris = tuple[str, str]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[InThread, InThread]]:
    with serving(tmp_path / "lake") as one, serving(tmp_path / "lake") as two:
        post(one, "namespace/n/create")
        yield one, two


@pytest.fixture
def clients(servers: tuple[InThread, InThread]) -> list[Any]:
    """Sixteen, half of them official, half of them of the other server."""
    made = []
    for at in range(CALLERS):
        kind = RestNamespace if at % 2 else OfficialRest
        made.append(kind(uri=servers[at // 2 % 2].uri))
    return made


def at_once(clients: list[Any], call: Callable[[Any, int], Any]) -> list[Any]:
    """What each client's call gives: "ok", or the specification's code."""
    gate = threading.Barrier(len(clients))
    outcomes: list[Any] = [None] * len(clients)

    def run(at: int) -> None:
        gate.wait()
        try:
            call(clients[at], at)
            outcomes[at] = "ok"
        except interface.LanceNamespaceError as error:
            outcomes[at] = int(error.code)

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def create(client: Any, *id: str) -> None:
    client.create_table(interface.CreateTableRequest(id=list(id)), ipc(ROWS))


def names(client: Any, *namespace: str) -> list[str]:
    return list(client.list_tables(interface.ListTablesRequest(id=list(namespace))).tables)


@pytest.mark.parametrize("id", [("t",), ("n", "t")])
def test_n01_of_sixteen_creators_one_succeeds(
    clients: list[Any], tmp_path: Path, id: tuple[str, ...]
) -> None:
    outcomes = Counter(at_once(clients, lambda client, at: create(client, *id)))
    assert outcomes == {"ok": 1, 5: CALLERS - 1}
    assert names(clients[0], *id[:-1]) == ["t"]
    tables = [each for each in (tmp_path / "lake").iterdir() if not each.name.startswith("_")]
    assert len(tables) == 1


def test_n02_of_sixteen_droppers_one_succeeds(clients: list[Any]) -> None:
    for id in (["t"], ["n", "t"]):
        create(clients[0], *id)
        drop = interface.DropTableRequest(id=id)
        outcomes = Counter(at_once(clients, lambda client, at, drop=drop: client.drop_table(drop)))
        assert outcomes == {"ok": 1, 4: CALLERS - 1}


def test_n03_different_tables_are_created_and_dropped_at_once(clients: list[Any]) -> None:
    def work(client: Any, at: int) -> None:
        for turn in range(2):
            create(client, "n", f"t{at}-{turn}")
            client.drop_table(interface.DropTableRequest(id=["n", f"t{at}-{turn}"]))

    assert set(at_once(clients, work)) == {"ok"}
    assert names(clients[0], "n") == []


def test_n05_n06_folders_and_files_that_are_no_tables(clients: list[Any], tmp_path: Path) -> None:
    (tmp_path / "lake" / "ghost.lance" / "data").mkdir(parents=True)
    (tmp_path / "lake" / "loose.lance").write_bytes(b"")
    for client in clients[:4]:
        assert names(client) == []
        for name in ("ghost", "loose"):
            with pytest.raises(interface.TableNotFoundError):
                client.describe_table(interface.DescribeTableRequest(id=[name]))


def test_n07_walking_pages_gives_every_table_once(clients: list[Any]) -> None:
    for at in range(7):
        clients[0].declare_table(interface.DeclareTableRequest(id=["n", f"t{at}"]))
    for client in clients[:4]:
        found: list[str] = []
        token = None
        while True:
            page = client.list_tables(interface.ListTablesRequest(id=["n"], limit=3, page_token=token))
            found += page.tables
            token = page.page_token
            if not token:
                break
        assert found == [f"t{at}" for at in range(7)]


def test_n09_of_sixteen_creators_of_a_namespace_one_succeeds(clients: list[Any]) -> None:
    made = interface.CreateNamespaceRequest(id=["m"])
    outcomes = Counter(at_once(clients, lambda client, at: client.create_namespace(made)))
    assert outcomes == {"ok": 1, 2: CALLERS - 1}


def test_n10_declared_tables_become_real_ones(clients: list[Any]) -> None:
    for at, client in enumerate(clients[:4]):
        id = ["n", f"d{at}"]
        client.declare_table(interface.DeclareTableRequest(id=id))
        client.table_exists(interface.TableExistsRequest(id=id))
        asked = interface.DescribeTableRequest(id=id, check_declared=True)
        assert client.describe_table(asked).is_only_declared
        client.insert_into_table(interface.InsertIntoTableRequest(id=id), ipc(ROWS))
        assert client.count_table_rows(interface.CountTableRowsRequest(id=id)).count == 3
        assert not client.describe_table(asked).is_only_declared


def test_n11_a_reader_finishes_though_the_table_is_dropped(clients: list[Any]) -> None:
    import tiltyard as ty

    lake = ty.connect(clients[1].namespace_id().partition('"')[2].partition('"')[0])
    table = lake.create_table("n.t", ROWS)
    table.append(ROWS)
    batches = iter(table.scan())
    first = next(batches)
    clients[0].drop_table(interface.DropTableRequest(id=["n", "t"]))
    assert first.num_rows + sum(each.num_rows for each in batches) == 6


def test_n12_the_obvious_loop_over_a_listing_opens_each_table(clients: list[Any]) -> None:
    create(clients[0], "n", "t")
    ours = clients[1]
    for name in ours.list_tables(interface.ListTablesRequest(id=["n"])):
        found = ours.query_table({"id": ["n", name], "k": 0, "vector": {}})
        assert pa.ipc.open_file(pa.py_buffer(found)).read_all().num_rows == 3


def test_n13_a_page_is_one_request(clients: list[Any], servers: tuple[InThread, InThread]) -> None:
    for at in range(5):
        clients[0].declare_table(interface.DeclareTableRequest(id=["n", f"t{at}"]))
    ours = RestNamespace(uri=servers[0].uri, ops_metrics_enabled="true")
    assert len(ours.list_tables({"id": ["n"], "limit": 5}).tables) == 5
    assert ours.retrieve_ops_metrics() == {"list_tables": 1}
