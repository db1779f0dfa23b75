"""Regular expressions of Lance's dialect, which are those of Rust's `regex`, in the words of RE2: Arrow's.

Both take time linear in the text, prefer the leftmost match, have neither look-around nor back references.
What they spell alike but mean differently (`\\d`, `\\w`, `\\s` and properties, which are Unicode's in the
dialect), or what only one of them spells, is rewritten here or refused by name. Boundaries of words cannot
be rewritten: RE2 knows those of ASCII alone. A text with more than ASCII is spread out for them
(`spread`): each character stands between two that say in ASCII whether it is part of a word, behind a mark
that is in no text; so does what matches a character in the pattern, which can match nowhere else then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn

from tiltyard.errors import nearest
from tiltyard.expr.coerce import Mismatch
from tiltyard.expr.regex_classes import CATEGORIES, NOT_SPACE, SCRIPTS, SPACE, WORD, is_word, not_word

MAX_REPEATS = 1000
"""What RE2 takes as a count in `{n,m}`."""
MAX_GROUPS_WITHIN = 250
"""How deep groups may stand within each other, as in the dialect."""
CACHED = 256
"""Patterns whose translation is kept."""

FLAGS = "imsUxRu"
_PASSED_ON = "imsU"
_CONTROL = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_DIGITS = {"x": 2, "u": 4, "U": 8}
_META = "\\.+*?()|[]{}^$"
_POSIX = {
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
}  # fmt: skip
_ASCII = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\v\f\r "}
_UNICODE = {"d": r"\p{Nd}", "w": WORD, "s": SPACE}
_LAST = 0x10FFFF


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression as RE2 takes it."""

    text: str
    """Every group has the name `g1`, `g2`, ... by its number."""
    names: tuple[str | None, ...]
    """The names that the groups have in the pattern."""
    has_boundaries: bool
    """Whether it asks for boundaries of words, so that it is for texts of ASCII, or for spread ones."""
    may_be_empty: bool
    """Whether it may match between two characters."""


class _Spreading(dict[int, str]):
    """What stands for each character of a text that is spread out; made when it is first asked for."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        told = "\n" if character == "\n" else "w" if is_word(character) else "!"
        found = self[code] = f"{told}{MARK}{character}{told}"
        return found


MARK = "\ufdd0"
"""No character, and never one: it stands in no text."""
SPREAD = 4
"""Characters of a spread text for each of the text."""
TOGETHER = (f"(?s:.){MARK}((?s:.))(?s:.)", "\\1")
"""What to replace in a spread text, and by what, to have the text again."""
_SPREADING = _Spreading()


def spread(text: str) -> str:
    """A text for a pattern that was translated with `spread_out`."""
    return text.translate(_SPREADING)


@lru_cache(maxsize=CACHED)
def translated(pattern: str, flags: str = "", spread_out: bool = False) -> Pattern:
    """A pattern of the dialect for RE2; `flags` count for all of it. Raises `Mismatch`, with the place, for
    what is no pattern and for what has no counterpart.
    """
    for flag in flags:
        if flag not in FLAGS:
            raise Mismatch(f"{flag!r} is no flag of a regular expression: i, m, s, U and x are")
    return _Reader(pattern, flags, spread_out).pattern()


@dataclass(slots=True)
class _Scope:
    """A group that is being read: what it begins with, and the flags that hold after it."""

    opened: str
    unicode: bool
    spaced: bool
    parts: list[str] = field(default_factory=list)
    least: list[int] = field(default_factory=lambda: [0])
    """The fewest characters that each alternative matches, the last one so far; and of its parts."""
    last: int = 0
    """The fewest characters that the last part matches."""

    def add(self, part: str, least: int) -> None:
        self.parts.append(part)
        self.least[-1] += least
        self.last = least

    def repeat(self, part: str, times: int) -> None:
        self.parts[-1] = part
        self.least[-1] += (times - 1) * self.last
        self.last *= times


class _Reader:
    """Reads a pattern once, from left to right."""

    def __init__(self, pattern: str, flags: str, spread_out: bool) -> None:
        self._around = (f"(?:(?s:.){MARK}", "(?s:.))") if spread_out else ("", "")
        self._text = pattern
        self._at = 0
        self._unicode, self._spaced = True, False
        self._names: list[str | None] = []
        self._has_boundaries = False
        self._prefix = self._with_flags(flags, False) if flags else ""

    def pattern(self) -> Pattern:
        scopes = [_Scope("", True, False)]
        repeated: bool | None = None
        """Whether the last part is repeated already; None where there is nothing to repeat."""
        while self._at < len(self._text):
            scope = scopes[-1]
            character = self._next()
            if self._spaced and character in " \t\n\r\v\f#":
                self._skip_comment(character)
                continue
            if character == "(":
                opened = self._group(scopes)
                repeated = None
                if opened is not None:
                    scope.add(opened, 0)
            elif character == ")":
                if len(scopes) == 1:
                    self._refuse("a ) without its (")
                closed = scopes.pop()
                self._unicode, self._spaced = closed.unicode, closed.spaced
                scopes[-1].add(f"{closed.opened}{''.join(closed.parts)})", min(closed.least))
                repeated = False
            elif character == "|":
                scope.parts.append("|")
                scope.least.append(0)
                repeated = None
            elif character in "*+?{":
                if repeated is None:
                    self._refuse(f"there is nothing that {character} could repeat")
                times, least = self._times(character)
                last = scope.parts[-1]
                scope.repeat(f"(?:{last}){times}" if repeated else last + times, least)
                repeated = True
            else:
                self._one(character, scope)
                repeated = False
        if len(scopes) > 1:
            self._refuse("a ( without its )")
        text = f"{self._prefix}{''.join(scopes[0].parts)}"
        return Pattern(text, tuple(self._names), self._has_boundaries, min(scopes[0].least) == 0)

    # -- pieces --------------------------------------------------------------------------------------------

    def _one(self, character: str, scope: _Scope) -> None:
        if character in "^$":
            scope.add(character, 0)
        elif character == "\\" and self._text[self._at : self._at + 1] in ("A", "z", "b", "B"):
            scope.add(self._boundary(self._next()), 0)
        else:
            before, after = self._around
            scope.add(f"{before}{self._character(character)}{after}", 1)

    def _character(self, character: str) -> str:
        """What matches one character."""
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escape()
        if character == "." and not self._unicode:
            self._refuse("(?-u) with a dot, which could match a part of a character")
        return character if character == "." else _literal(ord(character))

    def _group(self, scopes: list[_Scope]) -> str | None:
        """Open a group; or give the text of a piece that only sets flags."""
        if len(scopes) > MAX_GROUPS_WITHIN:
            self._refuse(f"groups more than {MAX_GROUPS_WITHIN} deep")
        before = self._unicode, self._spaced
        if not self._taken("?"):
            scopes.append(_Scope(self._capture(None), *before))
            return None
        for look in ("=", "!", "<=", "<!"):
            if self._text.startswith(look, self._at):
                self._refuse(f"look-around, (?{look}...)")
        if self._taken("P<") or self._taken("<"):
            scopes.append(_Scope(self._capture(self._name()), *before))
            return None
        start = self._at
        while (character := self._next("a ( without its )")) not in ":)":
            if character not in FLAGS + "-":
                self._refuse(f"(?{character}: i, m, s, U and x are the flags of a group")
        given = self._text[start : self._at - 1]
        if character == ")":
            if not given:
                self._refuse("(?) sets no flag")
            return self._with_flags(given, False)
        scopes.append(_Scope(self._with_flags(given, True), *before))
        return None

    def _capture(self, name: str | None) -> str:
        self._names.append(name)
        return f"(?P<g{len(self._names)}>"

    def _name(self) -> str:
        start = self._at
        while self._next("a name without its >") != ">":
            pass
        name = self._text[start : self._at - 1]
        bare = name.translate(dict.fromkeys(map(ord, ".[]")))
        if not name or not (name[0] == "_" or name[0].isalpha()) or (bare and not f"_{bare}".isidentifier()):
            self._refuse(f"{name!r} is no name of a group")
        if name in self._names:
            self._refuse(f"two groups with the name {name!r}")
        return name

    def _with_flags(self, given: str, scoped: bool) -> str:
        on, minus, off = given.partition("-")
        if "-" in off or (minus and not off) or len(set(on + off)) < len(on + off):
            self._refuse(f"the flags {given!r}")
        for flag, value in [*((each, True) for each in on), *((each, False) for each in off)]:
            if flag == "u":
                self._unicode = value
            elif flag == "x":
                self._spaced = value
            elif flag == "R" and value:
                self._refuse("the flag R")
        on, off = ("".join(each for each in flags if each in _PASSED_ON) for flags in (on, off))
        passed = on + (f"-{off}" if off else "")
        if scoped:
            return f"(?{passed}:"
        return f"(?{passed})" if passed else ""

    def _times(self, character: str) -> tuple[str, int]:
        """A repetition, and how often at least."""
        least = int(character == "+")
        if character == "{":
            close = self._text.find("}", self._at)
            given = self._text[self._at : close] if close >= 0 else ""
            low, comma, high = (each.strip() for each in given.partition(","))
            if not low.isdecimal() or (high and not high.isdecimal()) or not (given.isascii()):
                self._refuse("{ begins a count as {2}, {2,} or {2,5}: write \\{ for the character")
            if max(int(low), int(high or 0)) > MAX_REPEATS:
                self._refuse(f"a count of more than {MAX_REPEATS}")
            if high and int(high) < int(low):
                self._refuse(f"a count from {low} to {high}")
            self._at = close + 1
            least = int(low)
            character = f"{{{least}{comma}{int(high) if high else ''}}}"
        return character + ("?" if self._taken("?") else ""), least

    def _escape(self) -> str:
        letter = self._next("a backslash at the end")
        if letter in "dwsDWS":
            return f"[{self._perl(letter)}]"
        if letter in "pP":
            return self._property(letter)
        return _literal(self._code_point(letter))

    def _boundary(self, letter: str) -> str:
        if letter in "bB":
            if self._taken("{"):
                self._refuse("\\b{...}")
            if letter == "B" and not self._unicode:
                self._refuse("(?-u:\\B), which could match within a character")
            self._has_boundaries |= self._unicode
        return f"\\{letter}"

    def _perl(self, letter: str) -> str:
        """What a class has of `\\d` and its like."""
        if letter.islower():
            return (_UNICODE if self._unicode else _ASCII)[letter]
        if not self._unicode:
            self._refuse(f"(?-u:\\{letter}), which could match a part of a character")
        return {"D": r"\P{Nd}", "S": NOT_SPACE, "W": not_word()}[letter]

    def _property(self, letter: str) -> str:
        if not self._unicode:
            self._refuse("properties of characters without Unicode")
        given = self._next(f"\\{letter} without a name")
        if given == "{":
            start = self._at
            while self._next("a property without its }") != "}":
                pass
            given = self._text[start : self._at - 1]
        kind, equals, value = given.partition("=")
        asked = _loose(value if equals else given)
        if equals and _loose(kind) not in ("sc", "script", "gc", "generalcategory"):
            self._refuse(f"the property {given!r}: categories and scripts are known")
        found = CATEGORIES.get(asked) if _loose(kind) not in ("sc", "script") else None
        if found is None and _loose(kind) not in ("gc", "generalcategory"):
            found = SCRIPTS.get(asked)
        if found is None:
            hint = nearest(given, ["Letter", "Lu", "Nd", *sorted(SCRIPTS.values())])
            self._refuse(f"the property {given!r}, which is neither a category nor a script; {hint}")
        return f"\\{letter}{{{found}}}"

    def _code_point(self, letter: str) -> int:
        if letter in _CONTROL:
            return _CONTROL[letter]
        if letter in _DIGITS:
            return self._hex(letter)
        if letter.isdecimal():
            self._refuse(f"\\{letter}: there are no back references, nor octal numbers")
        if letter.isascii() and (not letter.isalnum()) and letter not in "<>":
            return ord(letter)
        self._refuse(f"the escape \\{letter}")

    def _hex(self, letter: str) -> int:
        if self._taken("{"):
            close = self._text.find("}", self._at)
            digits, self._at = self._text[self._at : max(close, 0)], close + 1
        else:
            digits = self._text[self._at : self._at + _DIGITS[letter]]
            self._at += len(digits)
            digits = digits if len(digits) == _DIGITS[letter] else ""
        found = int(digits, 16) if digits and not set(digits) - set("0123456789abcdefABCDEF") else -1
        if found < 0 or found > _LAST or 0xD800 <= found < 0xE000:
            self._refuse(f"\\{letter} is followed by the number of a character, as in \\x41 or \\x{{e9}}")
        return found

    # -- classes -------------------------------------------------------------------------------------------

    def _class(self) -> str:
        negated = self._taken("^")
        return f"[{'^' if negated else ''}{self._members()}]"

    def _members(self) -> str:
        """The rest of a class, as what stands between the brackets."""
        found: list[str] = []
        while True:
            character = self._next("a [ without its ]")
            if self._spaced and character in " \t\n\r\v\f#":
                self._skip_comment(character)
            elif character == "]" and found:
                return "".join(found)
            elif character == "[":
                found.append(self._inner())
            elif character + self._text[self._at : self._at + 1] in ("&&", "--", "~~"):
                self._refuse(
                    f"the operation {character * 2} on classes: write \\{character} for the character"
                )
            else:
                found.append(self._member(character))

    def _inner(self) -> str:
        if self._taken(":"):
            close = self._text.find(":]", self._at)
            name = self._text[self._at : max(close, self._at)]
            if name.removeprefix("^") not in _POSIX:
                self._refuse(f"[:{name}:]; {nearest(name, sorted(_POSIX))}")
            self._at = close + 2
            return f"[:{name}:]"
        if self._taken("^"):
            self._refuse("a class with ^ within another")
        return self._members()

    def _member(self, character: str) -> str:
        if character == "\\":
            letter = self._next("a backslash at the end")
            if letter in "dwsDWS":
                return self._perl(letter)
            if letter in "pP":
                return self._property(letter)
            first = self._code_point(letter)
        else:
            first = ord(character)
        following = self._text[self._at : self._at + 2]
        if following[:1] != "-" or len(following) < 2 or following[1] in "]-":
            return _member(first)
        self._at += 2
        last = ord(following[1])
        if following[1] == "\\":
            last = self._code_point(self._next("a backslash at the end"))
        elif following[1] == "[":
            self._refuse("a range that ends with a class")
        if last < first:
            self._refuse(f"the range {chr(first)}-{chr(last)}, whose start comes after its end")
        return f"{_member(first)}-{_member(last)}"

    # -- reading -------------------------------------------------------------------------------------------

    def _next(self, missing: str = "") -> str:
        if self._at >= len(self._text):
            self._refuse(missing)
        self._at += 1
        return self._text[self._at - 1]

    def _taken(self, expected: str) -> bool:
        if not self._text.startswith(expected, self._at):
            return False
        self._at += len(expected)
        return True

    def _skip_comment(self, character: str) -> None:
        if character == "#":
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end + 1

    def _refuse(self, what: str) -> NoReturn:
        raise Mismatch(
            f"the regular expression {self._text!r} cannot be used: {what} (at its character {self._at})"
        )


def _literal(code: int) -> str:
    character = chr(code)
    if character in _META:
        return f"\\{character}"
    return character if character.isprintable() else f"\\x{{{code:x}}}"


def _member(code: int) -> str:
    character = chr(code)
    return character if character.isalnum() else f"\\x{{{code:x}}}"


def _loose(name: str) -> str:
    """A name of a property as it is compared: without regard to capitals, spaces, - and _."""
    return "".join(each for each in name.lower() if each not in " -_")
