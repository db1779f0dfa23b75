"""The code of the documentation runs."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATHS = [str(Path(each).absolute()) for each in sys.path if each]


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    "page",
    [
        "docs/guide.md",
        "docs/streaming.md",
        "docs/testing.md",
        "docs/engines.md",
        "docs/server.md",
        "README.md",
    ],
)
def test_every_block_of_the_page_runs_in_order(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Pages that begin processes of their own: these find what is imported here, wherever it was begun.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(PATHS))
    found = blocks(page)
    assert found
    scope: dict[str, object] = {"__name__": page}
    for number, block in enumerate(found):
        exec(compile(block, f"{page}, block {number}", "exec"), scope)


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_page_about_sql_lists_every_function_and_no_other() -> None:
    from tiltyard.expr.functions import ALIASES, SIGNATURES, SPECIAL_FUNCTIONS
    from tiltyard.expr.lists import LIST_FUNCTIONS
    from tiltyard.expr.parse import PRESENT

    text = (ROOT / "docs/sql.md").read_text().partition("## Functions")[2].partition("## Where")[0]
    listed = set(re.findall(r"`([a-z_0-9]+)[(`]", text))
    known = {*SIGNATURES, *ALIASES, *LIST_FUNCTIONS, *SPECIAL_FUNCTIONS, *map(str.lower, PRESENT)} - {"||"}
    # the page says once that names with array_ exist with list_ too
    named = {name for name in known if f"array_{name.removeprefix('list_')}" not in known - {name}}
    assert named - listed == set()
    called = set(re.findall(r"`([a-z_0-9]+)\(", text))
    assert called - known == set()


def test_the_page_about_sql_lists_the_words_that_need_quotes() -> None:
    from tiltyard.expr.tokens import GRAMMAR_WORDS

    text = (ROOT / "docs/sql.md").read_text().partition("could\n")[2].partition("- Text")[0]
    assert set(re.findall(r"`([A-Z_]+)`", text)) == GRAMMAR_WORDS
