"""Locations and options: what is opened, what is refused, and how it says so."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tiltyard.errors import InvalidInput, InvalidUri, StoreError, UnsupportedFeature
from tiltyard.store import Created, Store, open_store
from tiltyard.store.local import LocalStore
from tiltyard.store.memory import MemoryStore


def test_paths_and_file_locations_open_local_stores(tmp_path: Path) -> None:
    spaced = tmp_path / "a b%20"
    for location in (
        spaced,
        str(spaced),
        f"file://{tmp_path}/a%20b%2520",
        f"file://localhost{tmp_path}/a b%2520",
    ):
        store = open_store(location)
        assert isinstance(store, LocalStore)
        assert isinstance(store, Store)
        assert store.uri == str(spaced)


def test_opening_makes_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t")
    assert store.list() == []
    assert store.list_names("x") == []
    assert not store.exists("x")
    assert list(tmp_path.iterdir()) == []


def test_memory_spaces_are_shared_by_name() -> None:
    one, two = open_store("memory://shared-by-name/t.lance"), open_store("memory://shared-by-name")
    assert isinstance(one, MemoryStore)
    assert one.create("x", b"1") is Created.WON
    assert two.read("t.lance/x").to_pybytes() == b"1"
    assert two.at("t.lance").identity == one.identity
    assert open_store("memory://another-name").list() == []
    assert open_store("memory://").identity != open_store("memory://").identity


def test_memory_stores_say_at_pickling_that_they_do_not_travel() -> None:
    store = open_store("memory://stays-here/t")
    with pytest.raises(InvalidInput, match="memory://stays-here/t lives in the memory of this process"):
        pickle.dumps(store)


@pytest.mark.parametrize("location", ["memory:", "memory:x", "file:/x", "S3:bucket"])
def test_a_scheme_without_slashes_is_no_directory(location: str) -> None:
    with pytest.raises(InvalidUri, match="two slashes are missing"):
        open_store(location)


def test_a_file_in_the_way_of_a_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in ("file", "file/below"):
        store = open_store(tmp_path / place)
        with pytest.raises(StoreError, match="a file stands where a directory is needed"):
            store.put("x", b"1")


@pytest.mark.parametrize("scheme", ["s3+ddb", "hf", "oss", "R2", "wasbs"])
def test_other_object_stores_are_refused_by_name(scheme: str) -> None:
    with pytest.raises(UnsupportedFeature, match=f"(?i){scheme.replace('+', '.')}:// is not served"):
        open_store(f"{scheme}://bucket/path")


@pytest.mark.parametrize("location", ["", "nonsense://x", "file://host/x", "file://relative", "a\0b"])
def test_other_locations_are_invalid_and_say_what_is_expected(location: str) -> None:
    with pytest.raises(InvalidUri, match="file:///"):
        open_store(location)


def test_locations_that_are_no_text_are_invalid() -> None:
    for location in (b"/tmp/x", 7):
        with pytest.raises((InvalidUri, TypeError)):
            open_store(location)  # type: ignore[arg-type]


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'durable'"):
        open_store("x", {"Durabel": True})
    with pytest.raises(InvalidInput, match="knows: durable"):
        open_store("x", {"aws_region": "eu"})
    with pytest.raises(InvalidInput, match="true or false"):
        open_store("x", {"durable": "maybe"})


def test_parts_that_lead_out_of_a_memory_space_are_refused() -> None:
    with pytest.raises(InvalidInput):
        open_store("memory://space/../other")
