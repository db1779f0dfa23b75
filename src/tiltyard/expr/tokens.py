"""The words of the expression language: a scanner that reads one token at a time.

Scanning is lazy so that the parser can take a whole list of plain literals (`IN (1, 2, ...)`, 100,000 of
them) with one regular expression instead of one token each. Every token knows its offset in the text, so
that whatever is refused is refused at its place.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tiltyard.errors import InvalidExpression

SHOWN_CHARACTERS = 60
"""How many characters of the text an error message shows on each side of the position."""

_TOKEN = re.compile(
    r"""(?:\s+|--[^\n]*|/\*.*?\*/)*
    (?: (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?!\w))
      | (?P<text>'[^']*(?:''[^']*)*')
      | (?P<hex>[xX]'[0-9a-fA-F]*')
      | (?P<word>[^\W\d]\w*)
      | (?P<quoted>"[^"]*(?:""[^"]*)*"|`[^`]*(?:``[^`]*)*`)
      | (?P<sign>::|<=>|<<|>>|<>|!=|<=|>=|==|\|\||!?~\*?|/(?!\*)|[-+*%=<>(),.:{}\[\]])
      | (?P<end>\Z)
      | (?P<other>.) )""",
    re.VERBOSE | re.DOTALL,
)
RESERVED_WORDS = frozenset(
    """
    AND OR NOT IN IS NULL TRUE FALSE LIKE ILIKE BETWEEN ESCAPE CASE WHEN THEN ELSE END CAST TRY_CAST
    SELECT FROM WHERE GROUP ORDER BY HAVING LIMIT UNION EXCEPT INTERSECT JOIN AS DISTINCT ALL ANY SOME
    EXISTS COLLATE OVER SIMILAR RLIKE REGEXP GLOB WITH
    """.split()  # noqa: SIM905
)
"""Words that are no column name unless quoted, or where they cannot mean anything else."""

GRAMMAR_WORDS = frozenset(
    """
    AND OR NOT IN IS NULL TRUE FALSE LIKE ILIKE BETWEEN ESCAPE CASE WHEN THEN ELSE END CAST TRY_CAST
    SELECT FROM DISTINCT EXISTS
    """.split()  # noqa: SIM905
)
"""Those of them that begin or continue something in every place; the others, such as `by`, name a column
where a
value is expected and a column has that name."""

REFUSED_WORDS = {
    "SELECT": "a subquery",
    "WITH": "a subquery",
    "EXISTS": "EXISTS with a subquery",
    "ALL": "ALL",
    "ANY": "ANY",
    "SOME": "SOME",
    "COLLATE": "COLLATE",
    "OVER": "a window function",
    "FILTER": "an aggregate",
    "WITHIN": "an aggregate",
    "GLOB": "GLOB",
    "AT": "AT TIME ZONE",
    "DISTINCT": "DISTINCT",
    "ORDER": "ORDER BY",
    "GROUP": "GROUP BY",
    "LIMIT": "LIMIT",
    "UNION": "UNION",
    "AS": "an alias",
}
"""Words of SQL that have no place here, and what they would begin."""

_BLANK = r"(?:\s*)"
_INTEGERS = re.compile(rf"{_BLANK}-?\d{{1,18}}{_BLANK}(?:,{_BLANK}-?\d{{1,18}}{_BLANK})*\)")
_TEXTS = re.compile(rf"{_BLANK}'[^']*(?:''[^']*)*'{_BLANK}(?:,{_BLANK}'[^']*(?:''[^']*)*'{_BLANK})*\)")
_ONE_TEXT = re.compile(r"'([^']*(?:''[^']*)*)'")

_PARAMETERS_AND_TEXT = re.compile(r"\s*\(\s*\d+\s*(?:,\s*\d+\s*)?\)\s*'")

_TEXT_AND_BRACKET = re.compile(r"\s*'[^']*(?:''[^']*)*'\s*\]")

_UNCLOSED = {"'": "a text literal", '"': "a quoted name", "`": "a quoted name", "/": "a comment"}


_RUN_NAME = re.compile(r"""[oO][rR]\s+([^\W\d]\w*|"[^"]+")\s*=""")
_RUN_LITERAL = re.compile(r"=\s*(?:(-?\d+)|'([^']*(?:''[^']*)*)')\s*(?=[oO][rR]\b|\)|\Z)")


@lru_cache(16)
def _run_pattern(name: str) -> re.Pattern[str]:
    """`OR name = literal` again and again, all literals integers or all texts, up to the end of a term."""
    start, end = rf"[oO][rR]\s+{re.escape(name)}\s*=\s*", r"\s*(?=[oO][rR]\b|\)|\Z)"
    integers, texts = r"-?\d{1,18}+", r"'[^']*+(?:''[^']*+)*+'"
    return re.compile(rf"(?:{start}{integers}{end})++|(?:{start}{texts}{end})++")


def refuse(problem: str, text: str, position: int) -> InvalidExpression:
    """An `InvalidExpression` whose message shows the text around `position` with a caret under it."""
    start = max(0, position - SHOWN_CHARACTERS)
    shown = text[start : position + SHOWN_CHARACTERS].replace("\n", " ").replace("\t", " ")
    before = "..." if start else ""
    after = "..." if position + SHOWN_CHARACTERS < len(text) else ""
    caret = " " * (len(before) + position - start) + "^"
    return InvalidExpression(
        f"Invalid user input: {problem} (at character {position})\n  {before}{shown}{after}\n  {caret}",
        text,
        position,
    )


class Scanner:
    """The current token of a text: `kind`, `value` (words in capitals) and the offset `at` where it begins.

    Kinds: `number`, `text` (value unescaped), `hex`, `word`, `quoted` (value unescaped), `sign`, `end`.
    """

    __slots__ = ("_next", "at", "kind", "raw", "text", "value")

    def __init__(self, text: str) -> None:
        self.text = text
        self._next = 0
        self.kind = self.value = self.raw = ""
        self.at = 0
        self.advance()

    def advance(self) -> None:
        """Move to the next token; raises `InvalidExpression` for a character that begins none."""
        match = _TOKEN.match(self.text, self._next)
        assert match is not None  # `end` or `other` matches wherever nothing else does
        kind = match.lastgroup
        assert kind is not None
        self.raw = raw = match.group(kind)
        self.kind, self.at, self._next = kind, match.start(kind), match.end()
        if kind == "word":
            self.value = raw.upper()
        elif kind == "text":
            self.value = raw[1:-1].replace("''", "'")
        elif kind == "quoted":
            self.value = raw[1:-1].replace(raw[0] * 2, raw[0])
        elif kind == "hex":
            self.value = raw[2:-1]
        elif kind == "other":
            if raw in _UNCLOSED:
                raise refuse(f"{_UNCLOSED[raw]} is opened here and not closed", self.text, self.at)
            raise refuse(f"{raw!r} is not part of the expression language", self.text, self.at)
        else:
            self.value = raw

    def follows_text(self) -> bool:
        """Whether a text literal comes right after the current token."""
        match = _TOKEN.match(self.text, self._next)
        return match is not None and match.lastgroup == "text"

    def follows_parameters_and_text(self) -> bool:
        """Whether numbers in parentheses and then a text literal come right after the current token."""
        return _PARAMETERS_AND_TEXT.match(self.text, self._next) is not None

    def follows_text_and_bracket(self) -> bool:
        """Whether a text literal and a closing bracket come right after the current token."""
        return _TEXT_AND_BRACKET.match(self.text, self._next) is not None

    def follows_bracket(self) -> bool:
        """Whether an opening bracket comes right after the current token."""
        match = _TOKEN.match(self.text, self._next)
        return match is not None and match.group("sign") == "["

    def follows_quoted(self) -> bool:
        """Whether a word in double quotes comes right after the current token."""
        match = _TOKEN.match(self.text, self._next)
        return match is not None and match.lastgroup == "quoted" and match["quoted"].startswith('"')

    def follows_call(self) -> bool:
        """Whether an opening parenthesis comes right after the current token."""
        match = _TOKEN.match(self.text, self._next)
        return match is not None and match.group("sign") == "("

    def equalities(self, least: int) -> tuple[tuple[str, bool], list[int] | list[str]] | None:
        """`OR name = literal` from the current token on, `least` times or more: the name (and whether it is
        quoted) and the literals, which are all integers or all texts.

        Afterwards the current token is the one behind them. None (and nothing moves) for anything else.
        """
        name = _RUN_NAME.match(self.text, self.at)
        if name is None or name[1].upper() in RESERVED_WORDS:
            return None
        match = _run_pattern(name[1]).match(self.text, self.at)
        if match is None:
            return None
        pairs = _RUN_LITERAL.findall(match.group() + ")")
        if len(pairs) < least:
            return None
        is_quoted = name[1].startswith('"')
        self._next = match.end()
        self.advance()
        found: list[int] | list[str]
        if pairs[0][0]:
            found = [int(number) for number, _ in pairs]
        else:
            found = [text.replace("''", "'") for _, text in pairs]
        return (name[1][1:-1] if is_quoted else name[1], is_quoted), found

    def plain_list(self) -> list[int] | list[str] | None:
        """The rest of a parenthesis just opened, if it holds nothing but integers or nothing but texts.

        Call it with the current token on `(`; afterwards the current token is the one behind `)`. None (and
        nothing moves) where anything else stands in the list.
        """
        match = _INTEGERS.match(self.text, self._next)
        if match is not None:
            found: list[int] | list[str] = [int(item) for item in match.group()[:-1].split(",")]
        else:
            match = _TEXTS.match(self.text, self._next)
            if match is None:
                return None
            found = [item.replace("''", "'") for item in _ONE_TEXT.findall(match.group())]
        self._next = match.end()
        self.advance()
        return found
