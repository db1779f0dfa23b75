"""Tags and branches as the peer writes them, and tags as we do."""

from __future__ import annotations

import pytest

from tiltyard.errors import CorruptFile
from tiltyard.format import names
from tiltyard.format.refs import Branch, Tag, decode_branch, decode_tag, encode_tag


def test_the_peers_refs_are_read_and_it_reads_our_tags(peer, tmp_path) -> None:
    made = peer(
        """
ds = lance.write_dataset(pa.table({"a": [1, 2]}), path)
ds = lance.write_dataset(pa.table({"a": [3]}), path, mode="append")
ds.tags.create("gold", 1)
ds.create_branch("dev/x", 2)
result = ds.tags.list()
""",
        path=str(tmp_path),
    )
    path = tmp_path / names.tag_path("gold")
    tag = decode_tag(path.read_bytes(), "gold", str(path))
    assert (tag.name, tag.version, tag.branch, tag.metadata) == ("gold", 1, None, {})
    assert tag.manifest_size == made["gold"]["manifest_size"]
    assert encode_tag(tag) == path.read_bytes()
    branch_path = tmp_path / names.branch_file_path("dev/x")
    branch = decode_branch(branch_path.read_bytes(), "dev/x", str(branch_path))
    assert (branch.parent_version, branch.parent_branch) == (2, None)
    assert branch.identifier[0][0] == 2
    assert len(branch.identifier[0][1]) == 32
    own = tmp_path / names.tag_path("silver")
    own.write_bytes(
        encode_tag(Tag("silver", 2, None, 300, "2026-01-02T03:04:05.000000006Z", None, {"k": "ä"}))
    )
    assert peer("lance.dataset(path, version='silver').count_rows()", path=str(tmp_path)) == 3


def test_old_forms_are_read() -> None:
    assert decode_tag(b'{"version": 3, "manifestSize": 5}', "t", "p") == Tag("t", 3, None, 5)
    data = b'{"parentVersion": 3, "createAt": 7, "manifestSize": 5}'
    assert decode_branch(data, "b", "p") == Branch("b", 3, created_at=7, manifest_size=5)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b"{}",
        b'{"version": "3"}',
        b'{"version": -3}',
        b'{"version": true}',
        b'{"version": 3, "branch": 4}',
        b'{"version": 3, "metadata": {"a": 1}}',
    ],
)
def test_damaged_tags_name_the_file(data: bytes) -> None:
    with pytest.raises(CorruptFile, match=r"_refs/tags/t\.json"):
        decode_tag(data, "t", "_refs/tags/t.json")


@pytest.mark.parametrize(
    "identifier", [b"3", b'{"version_mapping": [1]}', b'{"version_mapping": [["x", "y"]]}']
)
def test_damaged_branches_name_the_file(identifier: bytes) -> None:
    with pytest.raises(CorruptFile, match=r"b\.json: 'identifier'"):
        decode_branch(b'{"parentVersion": 1, "identifier": ' + identifier + b"}", "b", "b.json")
