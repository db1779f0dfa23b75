"""SQL text to a bound tree, in one pass.

The grammar is the allow-list: what it does not spell out, down to the last argument, is refused with its
place in the text. Precedence from loose to tight: OR; AND; NOT; IS; comparisons, IN, BETWEEN, LIKE; ||; +
-; * / %; unary minus; ::. Productions are generators run by `_run` on a stack of its own, so that the depth
of a text is bounded by `MAX_HEIGHT` of the tree it makes and never by Python's stack (chains of 5,000 ORs,
in parentheses or not, are one node).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

import pyarrow as pa

from tiltyard import runtime
from tiltyard.errors import InvalidExpression, nearest
from tiltyard.expr import build, patterns
from tiltyard.expr.coerce import DAY_NANOS, Mismatch, date_literal, instant_literal, time_literal
from tiltyard.expr.functions import AGGREGATES, ALIASES, SIGNATURES, SPECIAL_FUNCTIONS
from tiltyard.expr.intervals import interval_literal, unit_of
from tiltyard.expr.lists import LIST_FUNCTIONS
from tiltyard.expr.names import find_column
from tiltyard.expr.tokens import GRAMMAR_WORDS, REFUSED_WORDS, RESERVED_WORDS, Scanner, refuse
from tiltyard.expr.type_names import read_type
from tiltyard.expr.types import BOOL, NULL, Column, Literal, Node

MAX_PARENTHESES = 20_000
"""Levels of parentheses, calls and prefix operators of a text while it is read."""

PRESENT = {
    "CURRENT_DATE": pa.date32(),
    "TODAY": pa.date32(),
    "CURRENT_TIME": pa.time64("ns"),
    "CURRENT_TIMESTAMP": pa.timestamp("ns", "UTC"),
    "NOW": pa.timestamp("ns", "UTC"),
}
"""The present moment in UTC, and the type in which each of its names gives it."""
_BARE = ("CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP")

T = TypeVar("T")

_Steps = Generator[Any, Any, Any]

_COMPARISONS = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_MATCHES = {"~": (False, False), "~*": (True, False), "!~": (False, True), "!~*": (True, True)}
"""Operators of regular expressions: whether capitals do not matter, and whether it is the negation."""
_OR, _AND, _NOT, _IS, _COMPARE, _CONCAT, _SHIFT, _SUM, _PRODUCT, _UNARY, _CAST = range(1, 12)
_LEVEL_OF_SIGN = {
    **dict.fromkeys(_COMPARISONS, _COMPARE),
    **dict.fromkeys(_MATCHES, _COMPARE),
    "||": _CONCAT,
    "<<": _SHIFT,
    ">>": _SHIFT,
    "+": _SUM,
    "-": _SUM,
    "*": _PRODUCT,
    "/": _PRODUCT,
    "%": _PRODUCT,
    "::": _CAST,
}
_TEXT_TYPES = {"DATE": date_literal, "TIMESTAMP": instant_literal, "TIME": time_literal}
_LEVEL_OF_WORD = {
    "OR": _OR,
    "AND": _AND,
    "IS": _IS,
    "IN": _COMPARE,
    "BETWEEN": _COMPARE,
    "LIKE": _COMPARE,
    "ILIKE": _COMPARE,
    "SIMILAR": _COMPARE,
    "RLIKE": _COMPARE,
    "REGEXP": _COMPARE,
    "NOT": _COMPARE,
}


def _run(production: _Steps) -> Any:
    """Run a production and those it yields, depth first, on an explicit stack."""
    stack = [production]
    answer: Any = None
    while stack:
        try:
            deeper = stack[-1].send(answer)
        except StopIteration as done:
            stack.pop()
            answer = done.value
        else:
            stack.append(deeper)
            answer = None
    return answer


class Parser:
    """One text against one schema; the current token is in `scan`."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self.text = text
        self.schema = schema
        self.scan = Scanner(text)
        self.depth = 0

    # -- places in the text -----------------------------------------------------------------------

    def made(self, at: int, make: Callable[..., T], *args: Any) -> T:
        """A node from a builder; what the builder refuses is refused at `at`."""
        try:
            return make(*args)
        except Mismatch as error:
            raise refuse(str(error), self.text, at) from error

    def unexpected(self, wanted: str) -> InvalidExpression:
        scan = self.scan
        if scan.kind == "end":
            return refuse(f"the text ends where {wanted} is expected", self.text, scan.at)
        if scan.kind == "word" and scan.value in ("SELECT", "WHERE") and not self.text[: scan.at].strip():
            return refuse("a whole query is not taken: give only what follows WHERE", self.text, scan.at)
        if scan.kind == "word" and any(name.upper() == scan.value for name in self.schema.names):
            hint = "the column of this name is written in double quotes"
            return refuse(f"{scan.raw!r} stands where {wanted} is expected; {hint}", self.text, scan.at)
        if scan.kind == "word" and scan.value in REFUSED_WORDS:
            return refuse(f"{REFUSED_WORDS[scan.value]} is not supported", self.text, scan.at)
        if scan.value == "<=>":
            return refuse("<=> is not supported: write IS NOT DISTINCT FROM", self.text, scan.at)
        return refuse(f"{scan.raw!r} stands where {wanted} is expected", self.text, scan.at)

    def expect(self, value: str) -> None:
        if self.scan.value != value or self.scan.kind not in ("word", "sign"):
            raise self.unexpected(value)
        self.scan.advance()

    def word(self) -> str:
        """The current word in capitals, '' for every other token."""
        return self.scan.value if self.scan.kind == "word" else ""

    def sign(self) -> str:
        return self.scan.value if self.scan.kind == "sign" else ""

    def took(self, word: str) -> bool:
        if self.word() != word:
            return False
        self.scan.advance()
        return True

    # -- operators ------------------------------------------------------------------------------------

    def whole(self) -> Node:
        node: Node = _run(self.expression(_OR))
        if self.scan.kind != "end":
            raise self.unexpected("an operator or the end")
        return node

    def expression(self, least: int) -> _Steps:
        """An operand and the operators behind it that bind at `least` or tighter."""
        self.depth += 1
        if self.depth > MAX_PARENTHESES:
            raise refuse(f"more than {MAX_PARENTHESES} levels of nesting", self.text, self.scan.at)
        left = yield self.operand()
        while True:
            level = _LEVEL_OF_SIGN.get(self.sign()) or _LEVEL_OF_WORD.get(self.word(), 0)
            if level < least or not level:
                self.depth -= 1
                return left
            left = yield self.operation(left, level)

    def operation(self, left: Node, level: int) -> _Steps:
        at, name = self.scan.at, self.scan.value
        if level in (_OR, _AND):
            return (yield self.chain(left, level, name))
        if level == _IS:
            return (yield self.is_something(left))
        if level == _COMPARE and name in _MATCHES:
            self.scan.advance()
            ignore_case, negated = _MATCHES[name]
            pattern = yield self.expression(level + 1)
            node = self.made(at, patterns.matches, left, pattern, ignore_case)
            return self.made(at, build.not_, node) if negated else node
        if level == _COMPARE and name not in _COMPARISONS:
            return (yield self.word_predicate(left))
        self.scan.advance()
        if level == _CAST:
            return self.made(at, build.cast, left, read_type(self.scan))
        if level == _CONCAT:
            parts = [left, (yield self.expression(level + 1))]
            while self.sign() == "||":
                self.scan.advance()
                parts.append((yield self.expression(level + 1)))
            return self.made(at, build.call, "||", parts)
        right = yield self.expression(level + 1)
        if level == _COMPARE:
            return self.made(at, build.compare, _COMPARISONS[name], left, right)
        return self.made(at, build.arithmetic, name, left, right)

    def chain(self, left: Node, level: int, name: str) -> _Steps:
        """All that one row of ANDs or ORs joins."""
        at, items = self.scan.at, [left]
        while self.word() == name:
            here = self.scan.at
            run = self.scan.equalities(build.MANY_EQUALITIES) if level == _OR else None
            if run is not None:
                column = find_column(self.schema, [run[0]])
                items = self.made(here, build.with_equalities, items, column, run[1])
                continue
            self.scan.advance()
            items.append((yield self.expression(level + 1)))
        return self.made(at, build.or_ if level == _OR else build.and_, items)

    def is_something(self, item: Node) -> _Steps:
        at = self.scan.at
        self.scan.advance()
        negated = self.took("NOT")
        word = self.word()
        if word == "DISTINCT":
            self.scan.advance()
            self.expect("FROM")
            other = yield self.expression(_COMPARE)
            node = self.made(at, build.is_distinct, item, other)
        elif word in ("NULL", "UNKNOWN"):
            self.scan.advance()
            if word == "UNKNOWN":
                item = self.made(at, build.require_boolean, item)
            node = self.made(at, build.is_null, item)
        elif word in ("TRUE", "FALSE"):
            self.scan.advance()
            node = self.made(at, build.is_truth, item, word == "TRUE")
        else:
            raise self.unexpected("NULL, TRUE, FALSE or DISTINCT FROM")
        return self.made(at, build.not_, node) if negated else node

    def word_predicate(self, item: Node) -> _Steps:
        at = self.scan.at
        negated = self.took("NOT")
        word = self.word()
        if word not in ("IN", "BETWEEN", "LIKE", "ILIKE", "SIMILAR", "RLIKE", "REGEXP"):
            raise self.unexpected("IN, BETWEEN or LIKE")
        at = at if negated else self.scan.at
        if word == "IN":
            node = yield self.membership(item)
        elif word == "BETWEEN":
            self.scan.advance()
            low = yield self.expression(_CONCAT)
            self.expect("AND")
            high = yield self.expression(_CONCAT)
            sides = [
                self.made(at, build.compare, ">=", item, low),
                self.made(at, build.compare, "<=", item, high),
            ]
            node = self.made(at, build.and_, sides)
        elif word in ("SIMILAR", "RLIKE", "REGEXP"):
            self.scan.advance()
            if word == "SIMILAR":
                self.expect("TO")
            pattern = yield self.expression(_CONCAT)
            if word == "SIMILAR":
                node = self.made(at, patterns.similar, item, pattern, self.escape())
            else:
                node = self.made(at, patterns.matches, item, pattern, False)
        else:
            self.scan.advance()
            pattern = yield self.expression(_CONCAT)
            node = self.made(at, patterns.like, item, pattern, self.escape(), word == "ILIKE")
        return self.made(at, build.not_, node) if negated else node

    def escape(self) -> str | None:
        """The character of an ESCAPE clause; a backslash without one, None for the empty text."""
        if not self.took("ESCAPE"):
            return "\\"
        if self.scan.kind != "text" or len(self.scan.value) > 1:
            raise refuse("ESCAPE takes a text of one character", self.text, self.scan.at)
        character = self.scan.value
        self.scan.advance()
        return character or None

    def membership(self, item: Node) -> _Steps:
        at = self.scan.at
        self.scan.advance()
        if self.sign() != "(":
            raise self.unexpected("(")
        plain = self.scan.plain_list()
        if plain is not None:
            return self.made(at, build.in_plain, item, plain)
        self.scan.advance()
        if self.sign() == ")":
            raise refuse("IN needs at least one value", self.text, self.scan.at)
        members = yield self.listed(")")
        return self.made(at, build.in_, item, members)

    def listed(self, end: str) -> _Steps:
        """Expressions between commas up to `end`, which is taken too."""
        found: list[Node] = []
        while self.sign() != end or found:
            found.append((yield self.expression(_OR)))
            if self.sign() == end:
                break
            if self.sign() != ",":
                raise self.unexpected(f"a comma or {end}")
            self.scan.advance()
        self.scan.advance()
        return found

    # -- operands ---------------------------------------------------------------------------------------

    def operand(self) -> _Steps:
        scan = self.scan
        at, kind = scan.at, scan.kind
        if kind == "number":
            node = self.made(at, build.number, scan.value)
            scan.advance()
            return node
        if kind == "text":
            node = Literal(scan.value, pa.string())
            scan.advance()
            return node
        if kind == "hex":
            if len(scan.value) % 2:
                raise refuse("a binary literal has two digits for each byte", self.text, at)
            node = Literal(bytes.fromhex(scan.value), pa.binary())
            scan.advance()
            return node
        if kind == "quoted":
            return (yield self.column())
        if kind == "word":
            return (yield self.word_operand())
        sign = self.sign()
        if sign == "(":
            scan.advance()
            node = yield self.expression(_OR)
            self.expect(")")
            return (yield self.subscripts(node)) if self.sign() in (".", "[") else node
        if sign in ("-", "+"):
            scan.advance()
            node = yield self.expression(_UNARY)
            # a plus sign only asserts that there is a number
            return self.made(at, build.negate, node) if sign == "-" else self.made(at, build.plus, node)
        if sign == "[":
            return (yield self.subscripts((yield self.array())))
        if sign == "{":
            return (yield self.subscripts((yield self.struct())))
        raise self.unexpected("a value")

    def array(self) -> _Steps:
        """`[1, 2]`: a list."""
        at = self.scan.at
        self.scan.advance()
        items = yield self.listed("]")
        return self.made(at, build.call, "make_array", items)

    def struct(self) -> _Steps:
        """`{'a': 1, 'b': x}`: a struct."""
        at = self.scan.at
        self.scan.advance()
        args: list[Node] = []
        while not args or self.sign() == ",":
            if args:
                self.scan.advance()
            if self.scan.kind not in ("text", "word", "quoted"):
                raise self.unexpected("the name of a field")
            args.append(Literal(self.scan.raw if self.scan.kind == "word" else self.scan.value, pa.string()))
            self.scan.advance()
            self.expect(":")
            args.append((yield self.expression(_OR)))
        self.expect("}")
        return self.made(at, build.call, "named_struct", args)

    def word_operand(self) -> _Steps:
        scan = self.scan
        at, word = scan.at, scan.value
        if word == "NOT":
            scan.advance()
            node = yield self.expression(_NOT)
            return self.made(at, build.not_, node)
        if word in ("TRUE", "FALSE", "NULL"):
            scan.advance()
            return Literal(None, NULL) if word == "NULL" else Literal(word == "TRUE", BOOL)
        if word == "CASE":
            return (yield self.case())
        if word in ("CAST", "TRY_CAST"):
            return (yield self.cast())
        if word in (*_TEXT_TYPES, "INTERVAL") and scan.follows_text():
            return self.typed_literal()
        if scan.follows_parameters_and_text():
            return self.literal_of_type()
        if scan.follows_text() and word not in RESERVED_WORDS:
            raise refuse(f"{scan.raw} before a text literal is not supported", self.text, at)
        if word == "ARRAY" and scan.follows_bracket():
            scan.advance()
            return (yield self.subscripts((yield self.array())))
        if word in _TEXT_TYPES and scan.follows_quoted() and not self.has_column(word):
            return self.typed_literal()
        if word in PRESENT and (scan.follows_call() or (word in _BARE and not self.has_column(word))):
            return self.present()
        if scan.follows_call() and word not in RESERVED_WORDS:
            return (yield self.call())
        if word in RESERVED_WORDS and not self.names_column():
            raise self.unexpected("a value")
        return (yield self.column())

    def names_column(self) -> bool:
        """Whether a reserved word can only be the name of a column here."""
        scan = self.scan
        return scan.value not in GRAMMAR_WORDS and not scan.follows_call() and self.has_column(scan.value)

    def has_column(self, word: str) -> bool:
        """Whether a column is named like a word in capitals."""
        return any(name.upper() == word for name in self.schema.names)

    def typed_literal(self) -> Node:
        word, at = self.scan.value, self.scan.at
        self.scan.advance()
        if word == "INTERVAL":
            return self.interval(at)
        make = _TEXT_TYPES[word]
        node = self.made(at, make, self.scan.value)
        self.scan.advance()
        return node

    def interval(self, at: int) -> Node:
        """`INTERVAL '1 day'` or `INTERVAL '1' DAY`, from the text on."""
        text = self.scan.value
        self.scan.advance()
        unit = (
            unit_of(self.scan.value)
            if self.scan.kind == "word" and text.strip().lstrip("+-").isdecimal()
            else None
        )
        if unit is not None:
            self.scan.advance()
        return self.made(at, interval_literal, text, unit)

    def literal_of_type(self) -> Node:
        """`TYPE(parameters) 'text'`: the text as a value of the type."""
        at = self.scan.at
        arrow = read_type(self.scan)
        node = self.made(at, build.cast, Literal(self.scan.value, pa.string()), arrow)
        self.scan.advance()
        return node

    def present(self) -> Node:
        """`current_date()`, `now()`, ...; without parentheses too: the moment of binding."""
        arrow = PRESENT[self.scan.value]
        self.scan.advance()
        if self.sign() == "(":
            self.scan.advance()
            self.expect(")")
        now = runtime.now_ns()
        if pa.types.is_date(arrow):
            return Literal(now // DAY_NANOS, arrow)
        return Literal(now % DAY_NANOS if pa.types.is_time(arrow) else now, arrow)

    def column(self) -> _Steps:
        scan = self.scan
        steps = [self.name()]
        while self.sign() == "." or (self.sign() == "[" and scan.follows_text_and_bracket()):
            is_bracket = self.sign() == "["
            scan.advance()
            if not is_bracket:
                steps.append(self.name())
                continue
            steps.append((scan.value, True))
            scan.advance()
            self.expect("]")
        found = find_column(self.schema, steps)
        return (yield self.subscripts(found)) if self.sign() == "[" else found

    def subscripts(self, node: Node) -> _Steps:
        """What brackets and dots name below a list or a struct: `a[1]['b'].c`, `a[2:3]`."""
        scan = self.scan
        while self.sign() == "[" or (self.sign() == "." and not isinstance(node, Column)):
            at = scan.at
            is_bracket = self.sign() == "["
            scan.advance()
            if not is_bracket:
                node = self.made(at, build.call, "get_field", [node, Literal(self.name()[0], pa.string())])
                continue
            step = yield self.expression(_OR)
            if self.sign() == ":":
                scan.advance()
                end = yield self.expression(_OR)
                node = self.made(at, build.call, "array_slice", [node, step, end])
            else:
                is_field = isinstance(step, Literal) and isinstance(step.value, str)
                node = self.made(at, build.call, "get_field" if is_field else "array_element", [node, step])
            self.expect("]")
        return node

    def name(self) -> tuple[str, bool]:
        scan = self.scan
        if scan.kind not in ("word", "quoted"):
            raise self.unexpected("a name")
        step = (scan.raw if scan.kind == "word" else scan.value, scan.kind == "quoted")
        scan.advance()
        return step

    def cast(self) -> _Steps:
        at, lenient = self.scan.at, self.scan.value == "TRY_CAST"
        self.scan.advance()
        self.expect("(")
        item = yield self.expression(_OR)
        self.expect("AS")
        arrow = read_type(self.scan)
        self.expect(")")
        return self.made(at, build.cast, item, arrow, lenient)

    def case(self) -> _Steps:
        at = self.scan.at
        self.scan.advance()
        subject = None if self.word() == "WHEN" else (yield self.expression(_OR))
        whens: list[tuple[Node, Node]] = []
        while self.took("WHEN"):
            here = self.scan.at
            condition = yield self.expression(_OR)
            if subject is not None:
                condition = self.made(here, build.compare, "=", subject, condition)
            else:
                condition = self.made(here, build.require_boolean, condition)
            self.expect("THEN")
            whens.append((condition, (yield self.expression(_OR))))
        if not whens:
            raise self.unexpected("WHEN")
        otherwise = (yield self.expression(_OR)) if self.took("ELSE") else None
        self.expect("END")
        return self.made(at, build.case, whens, otherwise)

    def call(self) -> _Steps:
        scan = self.scan
        at, name = scan.at, scan.raw.lower()
        known = name in SIGNATURES or name in ALIASES or name in LIST_FUNCTIONS or name in SPECIAL_FUNCTIONS
        if name in AGGREGATES:
            raise refuse(f"the aggregate function {name} has no meaning for a single row", self.text, at)
        if not known and name != "extract":
            names = sorted({*SIGNATURES, *ALIASES, *LIST_FUNCTIONS, *SPECIAL_FUNCTIONS} - {"||"})
            raise refuse(f"the function {name} is not known; {nearest(name, names)}", self.text, at)
        scan.advance()
        scan.advance()
        if name == "extract":
            part = Literal(scan.value.lower(), pa.string())
            if scan.kind not in ("word", "text"):
                raise self.unexpected("a part of a date")
            scan.advance()
            self.expect("FROM")
            item = yield self.expression(_OR)
            self.expect(")")
            return self.made(at, build.call, "date_part", [part, item])
        args = yield self.listed(")")
        node = self.made(at, build.call, name, args)
        if self.word() in ("OVER", "FILTER", "WITHIN"):
            raise self.unexpected("an operator")
        return (yield self.subscripts(node)) if self.sign() in (".", "[") else node
