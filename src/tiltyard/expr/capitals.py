"""Small and capital letters by the full mapping of Unicode: 'ß' becomes 'SS', a sigma that ends a word 'ς'.

Arrow's kernels put one letter for one; rows with letters for which that is not so are done one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from tiltyard.expr.signatures import Run

CONTEXT = "\N{GREEK CAPITAL LETTER SIGMA}"
"""What becomes small as the letters around it say."""


@cache
def _special(of: Callable[[str], str]) -> str:
    """The class of letters, for a regular expression, that one letter does not stand for."""
    found = [one for one in map(chr, range(0x10000)) if len(of(one)) > 1]  # beyond there are none
    return f"[{re.escape(''.join(found) + CONTEXT)}]"


def cased(kernel: str, of: Callable[[str], str]) -> Run:
    """`upper` or `lower`: by an Arrow kernel where it does as `of`."""

    def run(args: Sequence[Any], rows: int) -> Any:
        import pyarrow.compute as pc

        texts = args[0]
        found = getattr(pc, kernel)(texts)
        if isinstance(texts, pa.Scalar):
            return pa.scalar(of(texts.as_py()), texts.type) if texts.is_valid else found
        if pc.all(pc.string_is_ascii(texts)).as_py() is not False:
            return found
        marked = pc.match_substring_regex(texts, _special(of)).fill_null(False)
        if not pc.any(marked).as_py():
            return found
        made = pa.array([of(text) for text in texts.filter(marked).to_pylist()], texts.type)
        return pc.replace_with_mask(found, marked, made)

    return run
