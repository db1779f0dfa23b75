"""What classes of characters mean in Lance's regular expressions, in the words of RE2."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

import numpy as np

SPACE = r"\t\n\v\f\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
"""White space, as Unicode has it."""
NOT_SPACE = (
    r"\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}"
    r"\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff}"
)
_CIRCLED = ((0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189))
"""Symbols that count as letters."""
_JOINERS = (0x200C, 0x200D)
_WORD_CATEGORIES = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc"})
WORD = r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}" + "".join(
    f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in _CIRCLED
)
"""Letters, marks, digits, connectors and joiners: what `\\w` matches, as Unicode's recommendation has it."""
_CODES = 0x110000


def is_word(character: str) -> bool:
    """Whether `\\w` matches a character."""
    code = ord(character)
    return (
        unicodedata.category(character) in _WORD_CATEGORIES
        or code in _JOINERS
        or any(first <= code <= last for first, last in _CIRCLED)
    )


@lru_cache(maxsize=1)
def not_word() -> str:
    """What a class has of `\\W`; of the code points that are not characters none."""
    inside = np.fromiter(
        (unicodedata.category(chr(code)) in _WORD_CATEGORIES for code in range(_CODES)), np.bool_, _CODES
    )
    inside[list(_JOINERS)] = True
    for first, last in _CIRCLED:
        inside[first : last + 1] = True
    inside[0xD800:0xE000] = True
    edges = np.flatnonzero(np.diff(np.concatenate(([True], inside, [True])).astype(np.int8)))
    return "".join(
        f"\\x{{{first:x}}}-\\x{{{last - 1:x}}}" for first, last in zip(edges[::2], edges[1::2], strict=True)
    )


_LONG = {
    "Cc": "control", "Cf": "format", "Co": "privateuse",
    "L": "letter", "Ll": "lowercaseletter", "Lm": "modifierletter", "Lo": "otherletter",
    "Lt": "titlecaseletter", "Lu": "uppercaseletter",
    "M": "mark", "Mc": "spacingmark", "Me": "enclosingmark", "Mn": "nonspacingmark",
    "N": "number", "Nd": "decimalnumber", "Nl": "letternumber", "No": "othernumber",
    "P": "punctuation", "Pc": "connectorpunctuation", "Pd": "dashpunctuation", "Pe": "closepunctuation",
    "Pf": "finalpunctuation", "Pi": "initialpunctuation", "Po": "otherpunctuation", "Ps": "openpunctuation",
    "S": "symbol", "Sc": "currencysymbol", "Sk": "modifiersymbol", "Sm": "mathsymbol", "So": "othersymbol",
    "Z": "separator", "Zl": "lineseparator", "Zp": "paragraphseparator", "Zs": "spaceseparator",
}  # fmt: skip
CATEGORIES = {
    **{each.lower(): each for each in _LONG},
    **{name: each for each, name in _LONG.items()},
    "any": "Any",
}
"""Categories by what they may be called, in small letters. Not C, Cn, Cs: RE2 knows no unassigned ones."""
_NAMES = """Arabic Armenian Bengali Bopomofo Cyrillic Devanagari Ethiopic Georgian Greek Gujarati Gurmukhi Han
    Hangul Hebrew Hiragana Kannada Katakana Khmer Lao Latin Malayalam Mongolian Myanmar Oriya Runic Sinhala
    Syriac Tamil Telugu Thaana Thai Tibetan Common Inherited"""
SCRIPTS = {name.lower(): name for name in _NAMES.split()}
"""Scripts that both know, by their names in small letters."""
