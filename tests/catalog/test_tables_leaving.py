"""Creating, filling and overwriting a table that leaves meanwhile, or that others make over ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakes import fresh, has, over, values
from tiltyard.catalog.found import find_table
from tiltyard.catalog.namespaces import create_namespace
from tiltyard.catalog.purging import purge
from tiltyard.catalog.renaming import rename_table
from tiltyard.catalog.tables import create_table
from tiltyard.catalog.trash import drop_table
from tiltyard.errors import StoreError, TableAlreadyExists
from tiltyard.store import open_store
from tiltyard.testing.faults import FaultyStore, Plan

DATA = pa.table({"a": [1, 2]})
OTHER = pa.table({"a": [3]})


class _Leaving(FaultyStore):
    """A store on which the table's directory leaves: before we look at its versions, or before we open it."""

    def __init__(self, root: str, leave: Callable[[], object], when: str) -> None:
        super().__init__(open_store(root), Plan())
        self.leave: Callable[[], object] | None = leave
        self.when = when

    def _now(self, when: str, path: str) -> None:
        if self.leave is not None and self.when == when and "_n$t" in path:
            leave, self.leave = self.leave, None
            leave()

    def exists(self, path: str) -> bool:
        self._now("looked at", path if "_versions" in path else "")
        return super().exists(path)

    def at(self, prefix: str) -> FaultyStore:
        self._now("opened", prefix)
        return super().at(prefix)


@pytest.mark.parametrize("mode", ["create", "exist_ok", "overwrite"])
@pytest.mark.parametrize("when", ["looked at", "opened"])
@pytest.mark.parametrize("how", ["renamed", "purged"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_table_that_leaves_while_it_is_to_be_filled_is_no_directory_that_nobody_has(
    tmp_path: Path, mode: str, when: str, how: str, stream: bool
) -> None:
    root = str(tmp_path / "lake")
    lake = fresh(root)
    create_namespace(lake, ("n",))
    create_table(lake, ("n", "t"), DATA)

    def leave() -> None:
        if how == "renamed":
            rename_table(fresh(root), ("n", "t"), ("u",))
        else:
            drop_table(fresh(root), ("n", "t"), purge=True)
            purge(fresh(root), 0)

    store = _Leaving(root, leave, when)
    data = OTHER.to_reader() if stream else OTHER
    try:
        create_table(over(store), ("n", "t"), data, mode=mode)
    except TableAlreadyExists:
        assert (mode, when) == ("create", "opened"), "only while it still stood"
    if store.leave is None:
        assert values(fresh(root), ("n", "t")) == [3]
    expected = {find_table(fresh(root), id).location for id in (("n", "t"), ("u",)) if has(fresh(root), id)}
    if how == "purged":
        purge(fresh(root), 0)
    assert {path.relative_to(root).parts[0] for path in Path(root).rglob("*") if path.is_file()} == {
        *expected,
        "__manifest",
    }
    if how == "renamed" and store.leave is None:
        assert values(fresh(root), ("u",)) == [1, 2]


def test_an_overwrite_rests_on_a_row_that_is_safe(tmp_path: Path) -> None:
    """Found by the simulation: its maker dies before it is synced, the overwrite is told, the power goes."""
    root = str(tmp_path / "lake")
    lake = fresh(root)
    create_namespace(lake, ("n",))
    create_table(lake, ("n", "t"), DATA)

    class Failing(FaultyStore):
        def sync_dir(self, directory: str) -> None:
            if directory == "__manifest/_versions":
                raise StoreError("the disk fails")
            super().sync_dir(directory)

    with pytest.raises(StoreError, match="the disk fails"):
        create_table(over(Failing(open_store(root), Plan())), ("n", "t"), OTHER, mode="overwrite")
    assert values(fresh(root), ("n", "t")) == [1, 2]


@pytest.mark.parametrize("mode", ["create", "exist_ok", "overwrite"])
def test_a_root_table_that_others_wrote_over_before_its_row_is_theirs(tmp_path: Path, mode: str) -> None:
    """The official package does so where it found the name free: both were told that they made the table."""
    root = str(tmp_path / "lake")
    create_table(fresh(root), ("before",), DATA)

    class WritingOver(FaultyStore):
        """Another program makes the table over version 1, right after that is there, and its row."""

        def create(self, path: str, data: Any) -> Any:
            answer = super().create(path, data)
            if self._full(path).startswith("t.lance/_versions/") and not made:
                made.append(create_table(fresh(root), ("t",), OTHER, mode="overwrite"))
            return answer

    made: list[Any] = []
    store: Any = WritingOver(open_store(root), Plan())
    late = over(store)
    if mode == "create":
        with pytest.raises(TableAlreadyExists):
            create_table(late, ("t",), DATA)
    else:
        _, dataset = create_table(late, ("t",), DATA, mode=mode)
        assert dataset.to_table()["a"].to_pylist() == ([3] if mode == "exist_ok" else [1, 2])
    assert made
    _, dataset = create_table(fresh(root), ("t",), OTHER, mode="exist_ok")
    assert dataset.to_table()["a"].to_pylist() == [3]
