"""Names of files: built, matched, and everybody else's left alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.errors import InvalidInput
from tiltyard.format import names


def test_worked_names() -> None:
    assert names.manifest_path(1) == "_versions/18446744073709551614.manifest"
    assert names.manifest_name(12, "V1") == "12.manifest"
    assert names.manifest_name(14730022031025594434, "detached") == "d14730022031025594434.manifest"
    assert names.transaction_path(names.transaction_name(3, "u")) == "_transactions/3-u.txn"
    assert names.hint_body(7) == b'{"version":7}'


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 2**63 - 1))
def test_manifest_names_round_trip(version: int) -> None:
    assert names.parse_manifest_name(names.manifest_name(version)) == (version, "V2")
    assert names.parse_manifest_name(names.manifest_name(version | 2**63, "detached")) == (
        version | 2**63,
        "detached",
    )
    if version < 10**19:
        assert names.parse_manifest_name(names.manifest_name(version, "V1")) == (version, "V1")


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".tmp_1.manifest",
        "1.manifest.tmp",
        "1.manifest-0000",
        "18446744073709551614.manifest-4f7b",
        "18446744073709551614.manifest.tmp",
        ".18446744073709551614.manifest",
        "0.manifest",
        "01.manifest",
        "00000000000000000001.manifest",
        "99999999999999999999.manifest",
        "1846744073709551614x.manifest",
        "x.manifest",
        "d12.manifest",
        "+1.manifest",
        "١.manifest",
        "latest_version_hint.json",
        "1.Manifest",
        "1.manifest\n",
        "18446744073709551615.manifest",
    ],
)
def test_other_names_are_nobodys(name: str) -> None:
    assert names.parse_manifest_name(name) is None


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (b'{"version":7}', 7),
        (b' {"version": 12}\n', 12),
        (b"", None),
        (b'{"version":', None),
        (b'{"version":0}', None),
        (b'{"version":-1}', None),
        (b'{"version":99999999999999999999}', None),
        (b'{"version":7}x', None),
        (b"\x00" * 13, None),
    ],
)
def test_hints(body: bytes, version: int | None) -> None:
    assert names.parse_hint(body) == version


def test_data_files_are_named_by_binary_digits_and_hex() -> None:
    id = bytes([0b10100000, 0, 1]) + bytes(range(13))
    name = names.data_file_name(id)
    assert name == "101000000000000000000001" + bytes(range(13)).hex() + ".lance"
    assert names.is_data_file_name(name)
    assert not names.is_data_file_name("." + name)
    assert not names.is_data_file_name(name + ".tmp")
    assert names.new_data_file_name() != names.new_data_file_name()
    with pytest.raises(ValueError, match="16 bytes"):
        names.data_file_name(b"x")


def test_the_peers_names_are_ours(peer, tmp_path) -> None:
    peer(
        """
lance.write_dataset(pa.table({"a": range(10)}), path)
lance.dataset(path).delete("a = 1")
lance.dataset(path).create_scalar_index("a", "BTREE")
""",
        path=str(tmp_path),
    )
    listed = {each.name: [one.name for one in each.iterdir()] for each in tmp_path.iterdir()}
    assert all(map(names.is_data_file_name, listed["data"]))
    assert all(map(names.parse_transaction_name, listed["_transactions"]))
    assert all(map(names.parse_deletion_name, listed["_deletions"]))
    assert all(map(names.is_index_directory, listed["_indices"]))
    hint = tmp_path / "_versions" / "latest_version_hint.json"
    assert names.parse_hint(hint.read_bytes()) == 3
    found = {names.parse_manifest_name(each) for each in listed["_versions"] if each != hint.name}
    assert found == {(1, "V2"), (2, "V2"), (3, "V2")}


@pytest.mark.parametrize("name", ["gold", "v1.2-rc_3", "A"])
def test_tag_names(name: str) -> None:
    assert names.parse_tag_name(f"{name}.json") == name
    assert names.tag_path(name) == f"_refs/tags/{name}.json"


@pytest.mark.parametrize("name", ["", "a/b", "..", "a..b", ".a", "a.", "a.lock", "é", "a b", "a\n"])
def test_names_that_no_tag_may_have(name: str) -> None:
    assert names.parse_tag_name(f"{name}.json") is None
    with pytest.raises(InvalidInput, match="name of a tag"):
        names.tag_path(name)


@pytest.mark.parametrize(("name", "file"), [("dev", "dev"), ("a/b", "a%2Fb"), ("é", "%C3%A9")])
def test_branch_names(name: str, file: str) -> None:
    assert names.branch_path(name) == f"tree/{name}"
    assert names.branch_file_path(name) == f"_refs/branches/{file}.json"
    assert names.parse_branch_file_name(f"{file}.json") == name


@pytest.mark.parametrize("name", ["", "main", "/a", "a/", "a//b", "a/../b", "a\\b", "a.lock", "a b"])
def test_names_that_no_branch_may_have(name: str) -> None:
    with pytest.raises(InvalidInput, match="name of a branch"):
        names.branch_path(name)
    assert names.parse_branch_file_name(f"{name}.json") is None
    assert names.parse_branch_file_name(name) is None
