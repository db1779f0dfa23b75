"""Dotted names: what they mean, and that a listed one is read back as the id it stands for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.errors import InvalidName
from tiltyard.lake.names import id_of, text_of


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4).map(tuple))
def test_every_id_has_a_text_that_is_read_back(id: tuple[str, ...]) -> None:
    assert id_of(text_of(id)) == id


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet='ab."', max_size=8))
def test_a_text_is_an_id_or_refused(text: str) -> None:
    try:
        found = id_of(text)
    except InvalidName:
        return
    assert all(found)
    assert id_of(text_of(found)) == found


def test_parts_are_divided_by_dots() -> None:
    assert id_of("a.b.c") == ("a", "b", "c")
    assert id_of('a."b.c"') == ("a", "b.c")
    assert id_of('"say ""hi"""') == ('say "hi"',)
    assert id_of(["a.b", "c"]) == ("a.b", "c")
    assert text_of(("ops", "lance")) == 'ops."lance"'
    with pytest.raises(InvalidName, match=r"give 'ops\.t' instead"):
        id_of("ops.t.lance")
