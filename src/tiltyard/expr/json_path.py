"""Paths into JSON documents: `$.user.name`, `$.tags[0]`, `$.items[*].price`, `$.items[*] ? (@.price > 10)`.

The dialect is that of the official package: `$` may be left out, names are case-sensitive, `[*]` of what is
no array is the value itself, and a whole path may be a condition (`$.age > 30`), which gives true or false.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tiltyard.errors import InvalidInput
from tiltyard.expr.coerce import Mismatch
from tiltyard.format import jsonb
from tiltyard.format.jsonb import Place

MAX_NESTED = 50
"""Parentheses in the conditions of a path."""

_PART = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<word>[^\W\d]\w*)
    |(?P<sign>\.\*\*|&&|\|\||==|!=|<>|<=|>=|[$@.:\[\]*,?()<>-])|(?P<end>\Z))""",
    re.VERBOSE,
)
_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

Found = tuple[bytes, Place]
Step = Callable[[bytes, list[Place], Place], list[Place]]
Condition = Callable[[bytes, Place, Place], "bool | None"]


@dataclass(frozen=True, slots=True)
class JsonPath:
    """`steps` from the document on, or a `condition` on all of it."""

    steps: tuple[Step, ...]
    condition: Condition | None = None

    def select(self, data: bytes) -> list[Found]:
        """The documents and places that the path names; of a condition its answer, as a document."""
        top = jsonb.root(data)
        if self.condition is not None:
            answer = jsonb.from_value(self.condition(data, top, top))
            return [(answer, jsonb.root(answer))]
        return [(data, place) for place in _walked(self.steps, data, top, top)]


def _walked(steps: tuple[Step, ...], data: bytes, at: Place, top: Place) -> list[Place]:
    found = [at]
    for step in steps:
        found = step(data, found, top)
        if not found:
            break
    return found


# -- steps --------------------------------------------------------------------------------------------------


def _member(name: str) -> Step:
    wanted = name.encode()

    def step(data: bytes, places: list[Place], top: Place) -> list[Place]:
        return [each for place in places for key, each in jsonb.members(data, place) or () if key == wanted]

    return step


def _all_members(data: bytes, places: list[Place], top: Place) -> list[Place]:
    return [each for place in places for _, each in jsonb.members(data, place) or ()]


def _all_elements(data: bytes, places: list[Place], top: Place) -> list[Place]:
    found: list[Place] = []
    for place in places:
        inside = jsonb.elements(data, place)
        found.extend([place] if inside is None else inside)
    return found


def _everything(data: bytes, places: list[Place], top: Place) -> list[Place]:
    found: list[Place] = []
    pending = list(reversed(places))
    while pending:
        place = pending.pop()
        found.append(place)
        inside = jsonb.elements(data, place)
        below = [each for _, each in jsonb.members(data, place) or ()] if inside is None else inside
        pending.extend(reversed(below))
    return found


Bound = tuple[bool, int]
"""Whether it counts from the last element, and the number."""


def _indices(wanted: list[tuple[Bound, Bound]]) -> Step:
    def number(bound: Bound, count: int) -> int:
        return count - 1 + bound[1] if bound[0] else bound[1]

    def step(data: bytes, places: list[Place], top: Place) -> list[Place]:
        found: list[Place] = []
        for place in places:
            inside = jsonb.elements(data, place) or []
            for low, high in wanted:
                first, last = number(low, len(inside)), number(high, len(inside))
                found.extend(inside[max(first, 0) : last + 1] if last >= 0 and first <= last else [])
        return found

    return step


def _filtered(condition: Condition) -> Step:
    return lambda data, places, top: [place for place in places if condition(data, place, top)]


# -- conditions ---------------------------------------------------------------------------------------------

Operand = Callable[[bytes, Place, Place], list[Any]]
_NESTED = object()


def _values_of(steps: tuple[Step, ...], from_top: bool) -> Operand:
    def values(data: bytes, at: Place, top: Place) -> list[Any]:
        places = _walked(steps, data, top if from_top else at, top)
        return [_NESTED if each.kind == jsonb.CONTAINER else jsonb.scalar(data, each) for each in places]

    return values


def _compared(op: str, left: Operand, right: Operand) -> Condition:
    """Whether any pair of values compares so; unknown where there is a pair and none of one kind."""

    def condition(data: bytes, at: Place, top: Place) -> bool | None:
        pairs = [(a, b) for a in left(data, at, top) for b in right(data, at, top)]
        answers = [_pair(op, a, b) for a, b in pairs]
        if any(answer for answer in answers):
            return True
        return None if answers and all(answer is None for answer in answers) else False

    return condition


def _family(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "null" if value is None else "text" if isinstance(value, str) else "number"


def _pair(op: str, left: Any, right: Any) -> bool | None:
    if left is _NESTED or right is _NESTED:
        return None
    if _family(left) != _family(right):
        return None
    if left is None:
        return op in ("==", "<=", ">=")
    return bool(_COMPARED[op](left, right))


def _starts(left: Operand, prefix: str) -> Condition:
    def condition(data: bytes, at: Place, top: Place) -> bool | None:
        return any(isinstance(each, str) and each.startswith(prefix) for each in left(data, at, top))

    return condition


def _all_of(parts: list[Condition]) -> Condition:
    return lambda data, at, top: all(part(data, at, top) for part in parts)


def _any_of(parts: list[Condition]) -> Condition:
    def condition(data: bytes, at: Place, top: Place) -> bool | None:
        answers = [part(data, at, top) for part in parts]
        return None if None in answers else any(answers)  # one that is unknown makes all of it unknown

    return condition


# -- the text -----------------------------------------------------------------------------------------------


class _Reader:
    """A path's text, part by part."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.end = self.start = 0
        self.kind = self.value = ""
        self.nested = 0
        self.advance()

    def wrong(self) -> Mismatch:
        return Mismatch(
            f"{self.text!r} is no JSON path (at its character {self.start}): write it as '$.a.b', '$.a[0]', "
            "'$.a[*] ? (@.b > 1)'"
        )

    def advance(self) -> None:
        self.start = self.end
        match = _PART.match(self.text, self.end)
        if match is None or match.lastgroup is None:
            raise self.wrong()
        self.kind, self.value, self.end = match.lastgroup, match[match.lastgroup], match.end()

    def took(self, value: str) -> bool:
        if self.value != value or self.kind == "text":
            return False
        self.advance()
        return True

    def expect(self, value: str) -> None:
        if not self.took(value):
            raise self.wrong()

    def name(self) -> str:
        if self.kind not in ("word", "text"):
            raise self.wrong()
        name = self.literal() if self.kind == "text" else self.value
        self.advance()
        return str(name)

    def literal(self) -> Any:
        return jsonb.scalar(*_parsed(self.value))

    # steps

    def steps(self) -> tuple[Step, ...]:
        found: list[Step] = []
        while self.kind == "sign" and self.value in (".", ":", "[", "?", ".**"):
            if self.took(".**"):
                found.append(_everything)
            elif self.took("["):
                found.append(self.bracket())
            elif self.took("?"):
                self.deeper()
                self.expect("(")
                found.append(_filtered(self.any_of()))
                self.expect(")")
            else:
                self.advance()
                found.append(_all_members if self.took("*") else _member(self.key()))
        return tuple(found)

    def key(self) -> str:
        if self.kind == "number" and self.value.isdecimal():
            name = self.value
            self.advance()
            return name
        return self.name()

    def bracket(self) -> Step:
        if self.took("*"):
            step: Step = _all_elements
        elif self.kind == "text":
            step = _member(self.name())
        else:
            wanted = [self.span()]
            while self.took(","):
                wanted.append(self.span())
            step = _indices(wanted)
        self.expect("]")
        return step

    def span(self) -> tuple[Bound, Bound]:
        low = self.bound()
        return (low, self.bound()) if self.took("to") else (low, low)

    def bound(self) -> Bound:
        if self.took("last"):
            if self.took("-"):
                return True, -self.whole()
            return True, self.whole() if self.kind == "number" and self.value.startswith("-") else 0
        return False, self.whole()

    def whole(self) -> int:
        text = self.value
        if self.kind != "number" or not text.lstrip("-").isdecimal() or len(text) > 10:
            raise self.wrong()
        self.advance()
        return int(text)

    # conditions

    def any_of(self, first: Condition | None = None) -> Condition:
        """Conditions between `||`; `first` has been read already."""
        parts = [self.all_of(first)]
        while self.took("||"):
            parts.append(self.all_of())
        return parts[0] if len(parts) == 1 else _any_of(parts)

    def all_of(self, first: Condition | None = None) -> Condition:
        parts = [self.comparison() if first is None else first]
        while self.took("&&"):
            parts.append(self.comparison())
        return parts[0] if len(parts) == 1 else _all_of(parts)

    def comparison(self) -> Condition:
        if self.value in ("(", "exists") and self.kind != "text":
            self.deeper()
        if self.took("("):
            found = self.any_of()
            self.expect(")")
            return found
        if self.took("exists"):
            self.expect("(")
            steps, from_top = self.path()
            self.expect(")")
            return lambda data, at, top: bool(_walked(steps, data, top if from_top else at, top))
        return self.compared(self.operand())

    def deeper(self) -> None:
        self.nested += 1
        if self.nested > MAX_NESTED:
            raise Mismatch(f"a JSON path with more than {MAX_NESTED} parentheses in its conditions")

    def compared(self, left: Operand) -> Condition:
        if self.took("starts"):
            self.expect("with")
            if self.kind != "text":
                raise self.wrong()
            return _starts(left, self.name())
        op = self.value
        if op not in _COMPARED or self.kind != "sign":
            raise self.wrong()
        self.advance()
        return _compared(op, left, self.operand())

    def path(self) -> tuple[tuple[Step, ...], bool]:
        from_top = self.value == "$"
        if not (self.took("$") or self.took("@")):
            raise self.wrong()
        return self.steps(), from_top

    def operand(self) -> Operand:
        if self.kind == "sign":
            return _values_of(*self.path())
        if self.kind == "word" and self.value not in ("true", "false", "null"):
            raise self.wrong()
        if self.kind == "end":
            raise self.wrong()
        value = self.literal()
        self.advance()
        return lambda data, at, top: [value]


def _parsed(text: str) -> Found:
    try:
        data = jsonb.from_text(text)
    except InvalidInput as error:
        raise Mismatch(str(error)) from error
    return data, jsonb.root(data)


@lru_cache(256)
def json_path(text: str) -> JsonPath:
    """A path from its text; raises `Mismatch` where it is none."""
    read = _Reader(text)
    if read.kind == "end":
        return JsonPath(())
    if not read.took("$") and read.kind in ("word", "text"):
        steps: tuple[Step, ...] = (_member(read.name()), *read.steps())
    else:
        steps = read.steps()
    if read.kind != "end":
        condition = read.any_of(read.compared(_values_of(steps, True)))
        if read.kind != "end":
            raise read.wrong()
        return JsonPath((), condition)
    return JsonPath(steps)
