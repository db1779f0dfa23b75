"""Versions that clients stage and the catalog publishes (`operations.publishing`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tiltyard.catalog.catalog import Catalog, open_catalog
from tiltyard.catalog.operations.opening import opened
from tiltyard.catalog.operations.publishing import create_table_version
from tiltyard.catalog.tables import create_table, declare_table
from tiltyard.dataset import LanceDataset, write_dataset
from tiltyard.errors import (
    InvalidInput,
    OutcomeUnknown,
    RetryableConflict,
    StoreError,
    TableNotFound,
    UnsupportedFeature,
)
from tiltyard.testing.faults import Fault, FaultyStore, Plan, Rule

T = pa.table({"id": [1, 2, 3]})
UUIDS = [f"{n:08x}-0000-4000-8000-000000000000" for n in range(9)]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = open_catalog(tmp_path / "lake")
    create_table(made, ("t",), T)
    return made


def staged(catalog: Catalog, version: int, uuid: str, source: int = 2) -> str:
    """Put a copy of a manifest beside its final place, as a client does; the key that it would send."""
    directory = Path(catalog.uri) / "t.lance" / "_versions"
    name = f"{2**64 - 1 - version:020d}.manifest"
    content = (
        Path(catalog.uri) / f"other{uuid[:8]}.lance" / "_versions" / f"{2**64 - 1 - source:020d}.manifest"
    )
    (directory / f"{name}-{uuid}").write_bytes(content.read_bytes())
    return str(directory / f"{name}-{uuid}").lstrip("/")


@pytest.fixture
def stage(catalog: Catalog) -> Callable[..., str]:
    """Stage the manifest of a version of a table of its own."""

    def make(version: int, at: int, source: int | None = None) -> str:
        uri = Path(catalog.uri) / f"other{UUIDS[at][:8]}.lance"
        for count in range(source or version):
            write_dataset(T, uri, mode="create" if not count else "append")
        return staged(catalog, version, UUIDS[at], source or version)

    return make


def files(catalog: Catalog) -> list[str]:
    return sorted(path.name for path in (Path(catalog.uri) / "t.lance" / "_versions").iterdir())


def test_a_staged_manifest_becomes_the_next_version(catalog: Catalog, stage: Callable[..., str]) -> None:
    key = stage(2, 1)
    content = (Path("/") / key).read_bytes()
    made = create_table_version(catalog, ("t",), 2, key, naming_scheme="V2")
    assert (made.version, made.manifest_size) == (2, len(content))
    assert (Path("/") / made.manifest_path).read_bytes() == content
    assert not (Path("/") / key).exists()
    assert opened(catalog, ("t",)).version == 2


def test_the_same_bytes_twice_are_the_same_success(catalog: Catalog, stage: Callable[..., str]) -> None:
    key = stage(2, 1)
    again = Path("/") / key.replace(UUIDS[1], UUIDS[2])
    again.write_bytes((Path("/") / key).read_bytes())
    first = create_table_version(catalog, ("t",), 2, key)
    assert create_table_version(catalog, ("t",), 2, str(again)) == first
    assert not again.exists()


def test_of_two_manifests_for_one_version_one_is_published(
    catalog: Catalog, stage: Callable[..., str]
) -> None:
    create_table_version(catalog, ("t",), 2, stage(2, 1))
    second = stage(2, 2)
    before = files(catalog)
    with pytest.raises(RetryableConflict, match=r"already exists .* with different content"):
        create_table_version(catalog, ("t",), 2, second)
    assert files(catalog) == before


def test_no_version_is_left_out(catalog: Catalog, stage: Callable[..., str]) -> None:
    key = stage(3, 1)
    before = files(catalog)
    with pytest.raises(RetryableConflict, match=r"requested 3, expected 2 \(latest 1\)"):
        create_table_version(catalog, ("t",), 3, key)
    assert files(catalog) == before


def test_what_is_no_staged_manifest_is_refused(catalog: Catalog, stage: Callable[..., str]) -> None:
    key = stage(2, 1)
    wrong = stage(2, 2, source=1)
    directory = Path(catalog.uri) / "t.lance" / "_versions"
    torn = directory / f"{2**64 - 3:020d}.manifest-{UUIDS[3]}"
    torn.write_bytes(b"nonsense")
    before = files(catalog)
    cases = {
        key.replace(UUIDS[1], UUIDS[8]): "not found",
        key.rpartition("-0000-")[0]: "no staged manifest",
        key.partition("-")[0]: "no staged manifest",
        f"{catalog.uri}/__manifest/_versions/{2**64 - 3:020d}.manifest-{UUIDS[1]}": "no staged manifest",
        f"{catalog.uri}/t.lance/_versions/../../x.manifest-{UUIDS[1]}": "no staged manifest",
        "": "no staged manifest",
        wrong: "is of version 1, not of 2",
        str(torn): "no manifest",
    }
    for path, told in cases.items():
        with pytest.raises(InvalidInput, match=told):
            create_table_version(catalog, ("t",), 2, path)
    with pytest.raises(InvalidInput, match="begin at 1"):
        create_table_version(catalog, ("t",), 0, key)
    with pytest.raises(InvalidInput, match="scheme V2"):
        create_table_version(catalog, ("t",), 2, key, naming_scheme="V1")
    with pytest.raises(UnsupportedFeature, match="branch"):
        create_table_version(catalog, ("t",), 2, key, branch="b")
    with pytest.raises(TableNotFound):
        create_table_version(catalog, ("no",), 2, key)
    assert files(catalog) == before


def test_a_first_version_makes_a_declared_table_real(catalog: Catalog) -> None:
    declare_table(catalog, ("d",))
    source = write_dataset(T, Path(catalog.uri) / "elsewhere")
    manifest = Path(source.uri) / source._held.location.path
    target = Path(catalog.uri) / "d.lance" / "_versions" / f"{manifest.name}-{UUIDS[1]}"
    target.parent.mkdir()
    target.write_bytes(manifest.read_bytes())
    assert create_table_version(catalog, ("d",), 1, str(target)).version == 1
    assert LanceDataset(Path(catalog.uri) / "d.lance").version == 1


def test_commits_beside_the_catalog_and_through_it_exclude_each_other(
    catalog: Catalog, stage: Callable[..., str]
) -> None:
    key = stage(2, 1)
    write_dataset(T, Path(catalog.uri) / "t.lance", mode="append")
    with pytest.raises(RetryableConflict):
        create_table_version(catalog, ("t",), 2, key)
    assert opened(catalog, ("t",)).count_rows() == 6


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (Fault.LOSE_ANSWER, None),  # it landed: a success
        (Fault.LOSE_REQUEST, OutcomeUnknown),
        (Fault.FAIL_BEFORE, StoreError),
    ],
)
def test_answers_that_storage_loses_are_told_as_what_they_are(
    fault: Fault, outcome: type[Exception] | None, catalog: Catalog, stage: Callable[..., str]
) -> None:
    key = stage(2, 1)
    plan = Plan(Rule(fault, "create", path="t.lance/_versions/*"))
    faulty = Catalog(FaultyStore(catalog.store, plan), catalog.settings, catalog.session)
    if outcome is None:
        assert create_table_version(faulty, ("t",), 2, key).version == 2
        assert not (Path("/") / key).exists()
    else:
        with pytest.raises(outcome) as caught:
            create_table_version(faulty, ("t",), 2, key)
        assert isinstance(caught.value, OutcomeUnknown) == (outcome is OutcomeUnknown)
        assert (Path("/") / key).exists()  # the same request again
        assert create_table_version(catalog, ("t",), 2, key).version == 2
    assert opened(catalog, ("t",)).version == 2
