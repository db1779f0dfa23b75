"""The functions of regular expressions. Their patterns are translated by `regex.py`, all alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.expr.coerce import Mismatch
from tiltyard.expr.ragged import lists_of
from tiltyard.expr.regex import MARK, SPREAD, TOGETHER, Pattern, spread, translated
from tiltyard.expr.signatures import TEXT, WHOLE, Signature, array_of, by_pattern

MAX_REFERENCE = 9
"""The last group that a replacement of RE2 can name."""

_REFERENCE = re.compile(r"\\(\d)|\$(?:(\w+)|\{([^}]*)\}|(\$))|[^\\$]+|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Search:
    """A pattern, and the texts in which it is looked for: spread out where its boundaries ask for that."""

    pattern: Pattern
    texts: Any
    is_spread: bool

    def together(self, found: Any) -> Any:
        """Parts of the texts as they are without that."""
        import pyarrow.compute as pc

        return pc.replace_substring_regex(found, *TOGETHER) if self.is_spread else found


def _search(texts: Any, pattern: str, flags: str) -> _Search:
    """Raises `pa.ArrowInvalid` for what is no pattern."""
    import pyarrow.compute as pc

    try:
        made = translated(pattern, flags)
        if not made.has_boundaries or pc.all(pc.string_is_ascii(texts)).as_py() is not False:
            return _Search(made, texts, False)
        made = translated(pattern, flags, True)
    except Mismatch as error:
        raise pa.ArrowInvalid(str(error)) from error
    if made.may_be_empty:
        raise pa.ArrowInvalid(
            f"the regular expression {pattern!r} may match no more than a boundary of a word, which is not "
            r"known here in texts with more than ASCII: (?-u:\b) stands for those of ASCII words"
        )
    out = [None if text is None else spread(text) for text in texts.to_pylist()]
    return _Search(made, pa.array(out, texts.type), True)


def _flags_of(args: Sequence[Any], at: int) -> str | None:
    return "" if len(args) <= at else args[at].as_py()


def _refuse_global(flags: str) -> str:
    if "g" in flags:
        raise pa.ArrowInvalid("the flag g is for regexp_replace alone")
    return flags


def _like(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    flags = _flags_of(args, 2)
    if flags is None:
        return pa.nulls(rows, pa.bool_())
    _refuse_global(flags)

    def found(texts: Any, pattern: str) -> Any:
        search = _search(texts, pattern, flags)
        return pc.match_substring_regex(search.texts, search.pattern.text)

    return by_pattern(found, pa.bool_())([array_of(args[0], rows), *args[1:]], rows)


def _replacement(text: str, search: _Search, shift: int) -> str:
    r"""A replacement with references as `$1`, `${1}`, `$name` or `\1` in the form that RE2 takes, for groups
    whose numbers are moved by `shift`.
    """
    names = search.pattern.names
    numbers = {name: number for number, name in enumerate(names, 1)}

    def written(match: re.Match[str]) -> str:
        found = next((each for each in match.group(1, 2, 3) if each is not None), None)
        if found is None:
            plain = "$" if match[4] else match[0]
            return (spread(plain) if search.is_spread else plain).replace("\\", r"\\")
        number = int(found) if found.isdecimal() else numbers.get(found)
        if number is None or number > len(names):
            return ""
        if number + shift > MAX_REFERENCE:
            raise pa.ArrowInvalid(
                f"a replacement may name the groups 1 to {MAX_REFERENCE - shift}, not {number}"
            )
        return f"\\{number + shift}"

    return _REFERENCE.sub(written, text)


def _replace(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    pattern, by, flags = args[1].as_py(), args[2].as_py(), _flags_of(args, 3)
    if pattern is None or by is None or flags is None:
        return pa.nulls(rows, args[0].type)
    search = _search(array_of(args[0], rows), pattern, flags.replace("g", "", 1))
    if "g" in flags:
        whole, by = search.pattern.text, _replacement(by, search, 0)
    else:
        # Arrow replaces a number of matches one by one, without what stands around them. This replaces all,
        # which is one: the first, with what stands before it.
        whole = rf"\A((?s:.*?))({search.pattern.text})"
        by = rf"\1{_replacement(by, search, 2)}"
    return search.together(pc.replace_substring_regex(search.texts, whole, by))


def _match(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    flags = _flags_of(args, 2)
    arrow = pa.list_(args[0].type)
    if flags is None:
        return pa.nulls(rows, arrow)
    _refuse_global(flags)

    def groups(texts: Any, pattern: str) -> Any:
        search = _search(texts, pattern, flags)
        made = search.pattern
        count = len(made.names) or 1
        found = pc.extract_regex(search.texts, made.text if made.names else f"(?P<g1>{made.text})")
        flat = search.together(pa.concat_arrays(found.flatten()))
        places = np.arange(len(flat)).reshape(count, len(texts)).T.reshape(-1)
        known = found.is_valid().to_numpy(zero_copy_only=False)
        return lists_of(flat, places, np.full(len(texts), count), known)

    return by_pattern(groups, arrow)([array_of(args[0], rows), *args[1:]], rows)


def _from(column: pa.Array, start: Any) -> pa.Array:
    import pyarrow.compute as pc

    first = start.as_py()
    if first is None or first < 1:
        raise pa.ArrowInvalid("the place at which a search begins counts from 1")
    return pc.utf8_slice_codeunits(column, start=first - 1) if first > 1 else column


def _count(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    column = array_of(args[0], rows)
    if len(args) > 2:
        column = _from(column, args[2])
    flags = _flags_of(args, 3)
    if flags is None:
        return pa.nulls(rows, pa.int64())
    _refuse_global(flags)

    def counted(texts: Any, pattern: str) -> Any:
        search = _search(texts, pattern, flags)
        if not search.pattern.may_be_empty:
            return pc.count_substring_regex(search.texts, search.pattern.text).cast(pa.int64())
        # Arrow counts empty matches at each byte; where they are replaced, they are what they should be.
        marked = pc.replace_substring_regex(search.texts, search.pattern.text, MARK)
        return pc.count_substring(marked, MARK).cast(pa.int64())

    return by_pattern(counted, pa.int64())([column, args[1]], rows).fill_null(0)


# -- places -------------------------------------------------------------------------------------------------


_DEFAULTS: tuple[Any, ...] = (1, 1, "")
"""Where a search begins, which match is meant, flags."""


def _instr(args: Sequence[Any], rows: int) -> Any:
    """The place of a match by its number; of arguments in columns each combination is searched at once."""
    columns = [array_of(arg, rows).to_pylist() for arg in args]
    found: list[int | None] = [None] * rows
    asked: dict[tuple[Any, ...], list[int]] = {}
    for row, values in enumerate(zip(*columns, strict=True)):
        if all(value is not None for value in values):
            asked.setdefault(values[1:], []).append(row)
    if not asked and all(isinstance(arg, pa.Scalar) and arg.is_valid for arg in args[1:]):
        asked[tuple(arg.as_py() for arg in args[1:])] = []  # so that what is wrong with it is told
    for (pattern, *rest), places in asked.items():
        start, number, flags = (*rest, *_DEFAULTS[len(rest) :])
        if start < 1 or number < 1:
            raise pa.ArrowInvalid("the place at which a search begins and the number of a match count from 1")
        # What lies before the start is not looked at, so that ^ means the start.
        texts = pa.array([columns[0][row][start - 1 :] for row in places], pa.string())
        search = _search(texts, pattern, _refuse_global(flags))
        each = SPREAD if search.is_spread else 1
        for row, at in zip(
            places, _places(search.texts.to_pylist(), search.pattern.text, number), strict=True
        ):
            found[row] = 0 if at is None or not columns[0][row] else start + at // each
    return pa.array(found, pa.int64())


def _places(texts: Sequence[str], pattern: str, number: int) -> list[int | None]:
    """Where the match of that number begins in each text, in characters from 0. Matches do not overlap, and
    an empty one does not stand where the one before it ended.
    """
    found: list[int | None] = [None] * len(texts)
    seen, ends, starts = [0] * len(texts), [-1] * len(texts), [0] * len(texts)
    alive = list(range(len(texts)))
    while alive:
        going = []
        spans = _next_match([(texts[row], starts[row]) for row in alive], pattern)
        for row, span in zip(alive, spans, strict=True):
            if span is None:
                continue
            first, last = span
            if first == last == ends[row]:
                starts[row] = last + 1
            else:
                seen[row], ends[row] = seen[row] + 1, last
                starts[row] = last
                if seen[row] == number:
                    found[row] = first
                    continue
            if starts[row] <= len(texts[row]):
                going.append(row)
        alive = going
    return found


def _next_match(asked: list[tuple[str, int]], pattern: str) -> list[tuple[int, int] | None]:
    """The first match from a place on in each text, in characters. One character before the place stays with
    the text, for what looks at it (`^`, boundaries).
    """
    found: list[tuple[int, int] | None] = [None] * len(asked)
    for later in (False, True):
        rows = [row for row, (_, start) in enumerate(asked) if (start > 0) == later]
        if not rows:
            continue
        cut = [asked[row][0][max(asked[row][1] - 1, 0) :] for row in rows]
        whole = rf"\A(?s:.)(?s:.*?)(?P<found>{pattern})" if later else f"(?P<found>{pattern})"
        for row, text, span in zip(rows, cut, _spans(cut, whole), strict=True):
            if span is None:
                continue
            octets = text.encode()
            before = len(octets[: span[0]].decode())
            moved = before + max(asked[row][1] - 1, 0)
            found[row] = moved, moved + len(octets[span[0] : span[0] + span[1]].decode())
    return found


def _spans(texts: list[str], pattern: str) -> list[list[int] | None]:
    import pyarrow.compute as pc

    found = pc.extract_regex_span(pa.array(texts, pa.string()), pattern=pattern)
    spans: list[list[int] | None] = found.field("found").to_pylist()
    return [span if known.as_py() else None for span, known in zip(spans, found.is_valid(), strict=True)]


SIGNATURES: dict[str, Signature] = {
    "regexp_like": Signature((TEXT,), 2, 3, _like, frozenset({2})),
    "regexp_match": Signature((TEXT,), 2, 3, _match, frozenset({2})),
    "regexp_replace": Signature((TEXT,), 3, 4, _replace, frozenset({1, 2, 3})),
    "regexp_count": Signature((TEXT, TEXT, WHOLE, TEXT), 2, 4, _count, frozenset({2, 3})),
    "regexp_instr": Signature((TEXT, TEXT, WHOLE, WHOLE, TEXT), 2, 5, _instr),
}
