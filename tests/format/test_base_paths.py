"""Where files stand that do not stand below a table's own root."""

from __future__ import annotations

import pytest

from tiltyard.errors import CorruptFile
from tiltyard.format.base_paths import BasePath, base_of, decode_base, encode_base


def test_a_dataset_root_has_the_usual_folders_and_another_place_has_none() -> None:
    assert BasePath(1, "/t", is_dataset_root=True).folder("_deletions") == "/t/_deletions"
    assert BasePath(1, "s3://b/t/", is_dataset_root=True).folder("data") == "s3://b/t/data"
    assert BasePath(1, "/t").folder("data") == "/t"
    assert BasePath(1, "/", is_dataset_root=True).folder("data") == "/data"
    assert BasePath(1, "/").folder("data") == "/"


def test_bases_are_found_by_id() -> None:
    bases = (BasePath(0, "/a"), BasePath(3, "/b", "named", True))
    assert base_of(bases, 3, "data file x") is bases[1]
    with pytest.raises(CorruptFile, match="data file x lies under base path 2"):
        base_of(bases, 2, "data file x")
    assert [decode_base(encode_base(each)) for each in bases] == list(bases)
