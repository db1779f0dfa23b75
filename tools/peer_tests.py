"""Run the official package's public Python tests on `tiltyard.lance`, and count.

    python tools/peer_tests.py CHECKOUT [--listed FILE] [--files test_dataset,test_fragment] [-k WORDS] [-v]

CHECKOUT is a clone of the official repository (or its `python/python` folder); nothing of it is kept here.
The tests run unchanged in this process with the name `lance` bound to `tiltyard.lance`. LISTED names, one a
line, the tests that pass on the official package itself (`tests/test_x.py::test_y`); without it all that are
collected count. Modules and names that `tiltyard.lance` does not have are stood in for by objects that raise
when they are used, so that a test file is not lost for one import. Prints passing / listed for each file, and
what fails grouped by its error.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import os
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

FILES = """dataset fragment filter lance schema optimize session table_ops file json multi_base order_by
    sampler"""
"""The files that `docs/peer_tests.md` reports."""
MAX_REASON = 110
"""Characters of an error that a group is named by."""


class _StandInType(type):
    """Classes that raise when they are called or asked for anything."""

    def __call__(cls, *given: Any, **named: Any) -> Any:
        raise NotImplementedError(f"tiltyard.lance has no {cls.__qualname__}")

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotImplementedError(f"tiltyard.lance has no {cls.__qualname__}.{name}")


def _stand_in(name: str) -> Any:
    made = _StandInType(name.rpartition(".")[2], (), {})
    made.__qualname__ = name
    return made


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module below `lance` that nobody else found."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if not fullname.startswith("lance."):
            return None
        ours = "tiltyard." + fullname
        try:
            known = importlib.util.find_spec(ours) is not None
        except ImportError:
            known = False
        return importlib.machinery.ModuleSpec(fullname, self, origin=ours if known else None, is_package=True)

    def create_module(self, spec: Any) -> ModuleType | None:
        if spec.origin is not None:
            return _opened(importlib.import_module(spec.origin))
        module = ModuleType(spec.name)
        return _opened(module)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.setdefault("__path__", [])


def _opened(module: ModuleType) -> ModuleType:
    """The module, with a stand-in for every name that it lacks."""
    own = module.__dict__.get("__getattr__")

    def lookup(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if own is not None:
            try:
                return own(name)
            except AttributeError:
                pass  # stood in for below
        return _stand_in(f"{module.__name__}.{name}")

    module.__dict__["__getattr__"] = lookup
    return module


def bind() -> None:
    """Make `lance` name `tiltyard.lance`, with stand-ins for what it lacks."""
    from tiltyard.lance import __main__ as binding

    binding.bind()
    for name in [each for each in sys.modules if each.startswith("lance.")]:
        _opened(sys.modules[name])
    package = _opened(sys.modules["lance"])
    package.__dict__.setdefault("__path__", [])
    sys.meta_path.insert(0, _Absent())  # before the one that would load our files under a second name


class Outcomes:
    """A pytest plugin that keeps how each test ended, and why."""

    def __init__(self) -> None:
        self.ended: dict[str, str] = {}
        self.reasons: dict[str, str] = {}

    def pytest_runtest_setup(self) -> None:
        """Spaces of `memory://name` last as long as the process here: each test begins without any."""
        from tiltyard.store import memory

        memory._SPACES.clear()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            if self.ended.get(report.nodeid) != "failed":
                self.ended[report.nodeid] = report.outcome
            if report.outcome == "failed":
                self.reasons[report.nodeid] = _reason(report.longrepr)

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome == "failed":
            self.ended[report.nodeid] = "failed"
            self.reasons[report.nodeid] = "not collected: " + str(report.longrepr).strip().splitlines()[-1]


def _reason(longrepr: Any) -> str:
    crash = getattr(longrepr, "reprcrash", None)
    text = str(longrepr) if crash is None else crash.message
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    shown = " ".join(lines[:2]) if lines else "?"
    return re.sub(r"/tmp/[^ '\"]*", "PATH", shown)


def run(folder: Path, files: Sequence[str], words: str | None, verbose: bool) -> Outcomes:
    """Run test files below `folder/tests` in this process."""
    import pytest

    bind()
    outcomes = Outcomes()
    os.chdir(folder)
    arguments = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={folder}", "-W", "ignore"]
    arguments += ["--import-mode=prepend", "--continue-on-collection-errors", "--no-header"]
    arguments += ["--tb=short"] if verbose else ["--tb=no", "--no-summary"]
    if words:
        arguments += ["-k", words]
    arguments += [f"tests/{name}.py" for name in files]
    pytest.main(arguments, plugins=[outcomes])
    return outcomes


def report(outcomes: Outcomes, listed: list[str], files: Sequence[str], all_failures: bool) -> int:
    """Print the counts and the failures by reason; 1 if a listed test failed."""
    by_file: dict[str, list[str]] = {name: [] for name in files}
    for node in listed:
        name = Path(node.partition("::")[0]).stem
        if name in by_file:
            by_file[name].append(node)
    reasons: dict[str, list[str]] = defaultdict(list)
    total = passed = 0
    print()
    for name, nodes in by_file.items():
        good = [node for node in nodes if outcomes.ended.get(node) == "passed"]
        total, passed = total + len(nodes), passed + len(good)
        print(f"{name:24} {len(good):4} / {len(nodes)}")
        for node in sorted(set(nodes) - set(good)):
            ended = outcomes.ended.get(node, "not run")
            broken = outcomes.reasons.get(node.partition("::")[0])
            why = outcomes.reasons.get(node, broken or ended)
            reasons[why if all_failures else why[:MAX_REASON]].append(
                node.replace("tests/", "").replace(".py::", " ")
            )
    print(f"{'together':24} {passed:4} / {total}   {100 * passed / max(1, total):.1f} %\n")
    for why, nodes in sorted(reasons.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        print(f"{len(nodes):3}  {why}")
        for node in nodes:
            print(f"       {node}")
    return 0 if passed == total else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--listed", type=Path, help="names of the tests that count, one a line")
    parser.add_argument("--files", default=",".join(f"test_{name}" for name in FILES.split()))
    parser.add_argument("-k", dest="words", help="only tests that match, as for pytest")
    parser.add_argument("-v", dest="verbose", action="store_true", help="show the trace of each failure")
    given = parser.parse_args()
    folder = given.checkout.resolve()
    if (folder / "python" / "python").is_dir():
        folder = folder / "python" / "python"
    if not (folder / "tests").is_dir():
        parser.error(f"{folder} has no folder 'tests'")
    listed: list[str] | None = None
    if given.listed is not None:
        lines = [line.strip() for line in given.listed.read_text().splitlines()]
        listed = [line for line in lines if line and not line.startswith("#")]
    files = given.files.split(",")
    outcomes = run(folder, files, given.words, given.verbose)
    if listed is None:
        listed = [node for node, ended in outcomes.ended.items() if ended != "skipped"]
    elif given.words:
        listed = [node for node in listed if node in outcomes.ended]
    return report(outcomes, listed, files, given.verbose)


if __name__ == "__main__":
    sys.exit(main())
