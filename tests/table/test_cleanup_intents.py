"""What cleanups write down, where it cannot be read or looked up."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from tiltyard.dataset import dataset, write_dataset
from tiltyard.errors import CorruptFile, OutcomeUnknown
from tiltyard.session import Session
from tiltyard.store import open_store
from tiltyard.table.cleanup import intents
from tiltyard.table.refs import read_tag
from tiltyard.table.snapshot import open_snapshot
from tiltyard.table.tagging import create_tag, move_tag
from tiltyard.testing.faults import Fault, FaultyStore, Plan, Rule


@pytest.fixture
def uri(tmp_path: Path) -> str:
    place = str(tmp_path / "t")
    for n in range(3):
        write_dataset(pa.table({"a": [n]}), place, mode="overwrite" if n else "create")
    return place


def test_a_plan_that_cannot_be_read_stops_everybody_for_an_hour_and_says_what_to_do(uri: str) -> None:
    stray = Path(uri) / intents.INTENTS_DIR / "stray.json"
    stray.parent.mkdir(parents=True)
    stray.write_text("{")
    ds = dataset(uri)
    for act in (
        lambda: ds.insert(pa.table({"a": [9]})),
        lambda: ds.cleanup_old_versions("0s"),
    ):
        with pytest.raises(CorruptFile, match=r"stray\.json.*no cleanup is running, remove the file"):
            act()
    assert ds.latest_version == 3
    with pytest.raises(OutcomeUnknown, match="no cleanup is running, remove the file"):
        ds.tags.create("gold", 1)
    ds.tags.delete("gold")

    an_hour_ago = os.stat(stray).st_mtime - 3_601
    os.utime(stray, (an_hour_ago, an_hour_ago))
    ds.insert(pa.table({"a": [9]}))
    ds.cleanup_old_versions("0s")
    assert not stray.exists()  # swept up as every plan that is an hour old


def test_a_tag_that_was_written_is_not_told_as_failed_when_the_look_at_cleanups_fails(uri: str) -> None:
    inner = open_store(uri)
    rule = Rule(Fault.FAIL_BEFORE, "list_names", path=intents.INTENTS_DIR, times=None)
    store = FaultyStore(inner, Plan(rule))
    for act, version in ((create_tag, 3), (move_tag, 2)):
        with pytest.raises(OutcomeUnknown, match=f"names version {version} now"):
            act(store, "gold", open_snapshot(store, Session(), version=version))
        assert read_tag(inner, "gold").version == version
