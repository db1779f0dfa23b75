"""Names, ids and locations."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.catalog import names
from tiltyard.errors import InvalidInput, InvalidName, WrongType

PLAIN = st.text(alphabet=string.ascii_letters + string.digits + "_-.+:'& ", min_size=1, max_size=12)


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", ".hidden", "a$b", "a/b", " a", "a ", "é", "a\nb", "a\x7f", "\0"),
        *(f"a{char}b" for char in sorted(names.UNSAFE)),
        *("a" * 181, "__manifest", "__manifest.lance"),
    ],
)
def test_names_that_not_every_program_finds_again_are_refused(name: str) -> None:
    with pytest.raises(InvalidName, match="cannot be the name of a table"):
        names.check_new_name(name, "a table")


@pytest.mark.parametrize("name", ["t", "a b", "x_1-2.3+4:5'6&7", "(a),;=@!", "t.lance", "a" * 180])
def test_names_that_every_program_finds_again_are_taken(name: str) -> None:
    names.check_new_name(name, "a table")


@pytest.mark.parametrize("name", [None, 3, b"a"])
def test_a_name_is_text(name: object) -> None:
    with pytest.raises(WrongType):
        names.check_new_name(name, "a table")  # type: ignore[arg-type]


def test_a_whole_id_must_fit_the_name_of_a_directory() -> None:
    names.check_new_id(("a" * 100, "b" * 100), "a table")
    with pytest.raises(InvalidName, match="use shorter names"):
        names.check_new_id(("a" * 100, "b" * 100, "c" * 100), "a table")
    assert len(names.hashed_location(("a" * 120, "b" * 119)).encode()) <= 255
    assert len(names.dropped_location("a" * 180).encode()) <= 255


@given(st.lists(PLAIN, max_size=4).map(tuple))
@settings(max_examples=50)
def test_an_id_comes_back_from_its_object_id(id: names.Id) -> None:
    assert names.parts(names.object_id(id)) == id


@pytest.mark.parametrize("id", ["ops", None, ["a", 3], 7])
def test_an_id_is_a_list_of_names(id: object) -> None:
    with pytest.raises(WrongType, match="must be a list of names"):
        names.checked_id(id)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("t.lance", "t.lance"),
        ("a//b/", "a/b"),
        ("/abs/dir", "abs/dir"),
        ("s3://b/k", "s3:/b/k"),
        ("e722da75_a$t1", "e722da75_a$t1"),
    ],
)
def test_locations_lie_below_the_root_whatever_they_look_like(location: str, path: str) -> None:
    """The pairs of the fact pack, section 2.2."""
    assert names.resolve(location) == path


@pytest.mark.parametrize("location", ["", "/", "..", "../up", "a/../b", "a/./b", "a\0b"])
def test_locations_that_leave_the_root_are_refused(location: str) -> None:
    with pytest.raises(InvalidInput, match="below the catalog's root"):
        names.resolve(location)


@pytest.mark.parametrize(
    ("root", "location", "uri"),
    [
        ("/data/lake", "0a1b2c3d_a$x y", "file:///data/lake/0a1b2c3d_a$x%20y"),
        ("/data/my lake/", "t.lance", "file:///data/my%20lake/t.lance"),
        ("memory://m", "t.lance", "memory://m/t.lance"),
        ("s3://bucket/key/?x=1", "a$b c", "s3://bucket/key/a$b%20c"),
    ],
)
def test_a_location_becomes_a_uri(root: str, location: str, uri: str) -> None:
    assert names.location_uri(root, location) == uri


def test_hashed_locations_are_told_by_their_id_and_differ() -> None:
    made = {names.hashed_location(("a", "t")) for _ in range(50)}
    assert len(made) == 50
    assert all(each[8:] == "_a$t" and int(each[:8], 16) >= 0 for each in made)
    assert names.dropped_location("t")[8:] == "_dropped_t"
