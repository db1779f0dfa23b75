"""Regular expressions mean what they mean in the official package, or are refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from expr_rows import values
from peer import Peer
from tiltyard.errors import InvalidExpression

TEXTS = [
    *("abc", "a1b22", "héllo wörld", "x٣y", "a\nb", "aaa", "", "foo bar", "ab ab", "A_B", "½²", "e\u0301x"),
    *(
        "a\u00a0b",
        "a\x0bb",
        "日本語 テスト",
        "[a]",
        "a-b",
        "a&b",
        "{1}",
        "ΑΒΓ αβγ",
        "b\n",
        "x.y",
        "zzabzz ab",
    ),
]
PATTERNS = r"""
\d
\D+
\w+
\W
\s
\S+
[\d]+
[\W_]
[^\W\d_]+
[^\s]+
\bab\b
\bw
\Bb
(?:\b|x)l
(?-u:\w+)
(?-u:\b)ab
(?-u)\d
a.b
(?s)a.b
^b
(?m)^b
b$
(?m)b$
b\z
\Ab
a++
a*+
a**
a{2,}
a{1,2}?
\{1\}
(a)(b)
(?P<x>a)b
(?<x>a)(?<y.z>b)
\x41
\x{41}
\u0041
\u{41}
\pL
\P{L}
\p{Uppercase_Letter}
\p{Greek}+
\p{sc=Greek}
[[:^alpha:]]
[a[bc]]
[]a]
[^]a]
[a-]
[\-a]
[a\-b]
a|
(|a)
()
^*
(?i)ÖR
(?i:A)B
(?x) a b # c
(?U)a+
\_
\v
(?:a|ab)(?:c|b)
a??
x*
[\n]
$
^$
""".strip().split("\n")
NONE = r"""
(?=a)
(?!a)
(?<=a)b
(?<!a)b
(?>a)
(a)\1
\012
b\Z
\Qa\E
\C
\p{^L}
\p{foo}
a{,2}
a{
{1}
(?P<x>a)(?P<x>b)
(?-u:.)
[[]
[z-a]
[a-\d]
[^]
(
)
*a
(?z)a
(?
(?i
\é
\e
\h
[\b]
(?#c)a
(?P=x)
(?<1>a)
(?P<>a)
""".strip().split("\n")
OURS_ALONE = [
    *(r"[a&&b]", r"[\w--\d]", r"[a[^b]]", r"\<", r"\b{start}a", "(?R)a"),
    *(r"\p{Emoji}", r"\p{C}", "a{1001}"),
]


def _calls(pattern: str) -> list[str]:
    text = "'" + pattern.replace("'", "''") + "'"
    return [
        f"regexp_like(s, {text})",
        f"regexp_match(s, {text})",
        f"regexp_replace(s, {text}, '<$0|$$é>', 'g')",
        f"regexp_replace(s, {text}, '\\0')",
        f"regexp_count(s, {text})",
        f"regexp_instr(s, {text})",
        f"regexp_instr(s, {text}, 1, 2)",
        f"regexp_instr(s, {text}, 2, 1)",
    ]


def test_every_function_answers_as_there(peer: Peer, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    dataset = lance.write_dataset(pa.table({"s": TEXTS}), path)
    calls = [call for pattern in PATTERNS for call in _calls(pattern)]
    columns = {f"c{at}": call for at, call in enumerate(calls)}
    found = dataset.to_table(columns=columns).to_pydict()
    expected = peer("lance.dataset(p).to_table(columns=c).to_pydict()", p=path, c=columns)
    for name, call in columns.items():
        assert found[name] == expected[name], call


@pytest.mark.parametrize("pattern", [*NONE, *OURS_ALONE])
def test_every_function_refuses_what_is_no_pattern(pattern: str) -> None:
    for call in _calls(pattern):
        with pytest.raises(InvalidExpression, match="regular expression"):
            values(call, s=["a"])


def test_what_is_refused_is_refused_there(peer: Peer, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"s": TEXTS}), path)
    code = """
def refused(text):
    try:
        lance.dataset(p).to_table(columns={"c": text})
    except Exception:
        return True
    return False
result = [text for text in texts if not refused(text)]
"""
    assert peer(code, p=path, texts=[_calls(pattern)[0] for pattern in NONE]) == []


def test_patterns_in_columns_are_read_alike() -> None:
    s, p = ["éa b", "aa", "٣", None, "a"], [r"\ba", r"a+", r"\d", "a", None]
    assert values("regexp_count(s, p)", s=s, p=p) == [0, 1, 1, 0, 0]
    assert values("regexp_instr(s, p)", s=s, p=p) == [0, 1, 1, None, None]
    with pytest.raises(InvalidExpression, match="look-around"):
        values("s ~ p", s=["a"], p=["(?=a)"])


def test_a_boundary_alone_is_for_ascii() -> None:
    assert values(r"regexp_count(s, '\b')", s=["ab cd"]) == [4]
    with pytest.raises(InvalidExpression, match="boundary of a word"):
        values(r"regexp_count(s, '\b')", s=["é"])
    assert values(r"regexp_count(s, '(?-u:\b)a')", s=["éa"]) == [1]


@pytest.mark.parametrize("flags", ["g", "q", "ii", "e"])
def test_flags_that_are_none_are_refused(flags: str) -> None:
    with pytest.raises(InvalidExpression, match="flag"):
        values(f"regexp_like(s, 'a', '{flags}')", s=["a"])
