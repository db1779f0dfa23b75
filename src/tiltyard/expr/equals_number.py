"""Filters that say no more than `name = number`, known without being read: what lookups by key ask."""

from __future__ import annotations

import re

_FORM = re.compile(r"([A-Za-z_]\w*) = (0|-?[1-9][0-9]{0,17})", re.ASCII)


def equals_number(text: str) -> tuple[str, int] | None:
    """The name and the number; None for a text of any other form. What the name means is not looked at."""
    found = _FORM.fullmatch(text)
    return None if found is None else (found[1], int(found[2]))
