"""The house rules, read from the syntax trees: one door to the machine (D51), layers, lean imports (D44).

Each failure names the file, the line and the rule.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tiltyard"
MAX_LINES = 600

# Lowest first; layers of one rank may not import each other. `testing` and the public face may import
# everything.
LAYERS = [
    {"errors"},
    {"runtime"},
    {"session"},
    {"store", "kernels"},
    {"format"},
    {"encoding"},
    {"expr"},
    {"file"},
    {"index"},
    {"table"},
    {"memwal"},
    {"dataset"},
    {"catalog"},
    {"lake"},
    {"server", "integrations"},
    {"lance"},
    {"cli"},
]
RANK = {layer: rank for rank, layers in enumerate(LAYERS) for layer in layers}
FREE = ("__init__", "__main__", "testing")
ABOVE_TESTING = ("cli",)  # `tiltyard probe` runs the shipped tests

# -- one door to the machine ---------------------------------------------------------------------

DOORS = ("runtime", "testing")
_MODULES = """
    time random uuid secrets threading _thread queue concurrent asyncio multiprocessing subprocess signal
    select sched fcntl mmap tempfile shutil glob pathlib io fileinput atexit ctypes socket
"""
# Of `os`, what touches neither files, nor processes, nor chance.
_OS = "environ fspath fsencode fsdecode PathLike path sep stat_result strerror"
_OS_PATH = "join basename dirname normpath split splitext isabs commonpath"
_METHODS = "memory_map OSFile create_memory_map fromfile tofile memmap savetxt loadtxt utcnow today"
FORBIDDEN_MODULES = frozenset(_MODULES.split())
ALLOWED_OS = frozenset(_OS.split())
ALLOWED_OS_PATH = frozenset(_OS_PATH.split())
FORBIDDEN_METHODS = frozenset(_METHODS.split())
FORBIDDEN_BUILTINS = frozenset(("open", "input"))
# (file, word): reason. Every exception to the rule stands here.
EXCEPTIONS = {
    ("cli/serve_workers.py", "signal"): "a program that ends its workers when it is told to",
    ("cli/serve_workers.py", "socket"): "the one socket that the workers share",
    ("cli/serve.py", "secrets"): "a new key of a server, which nobody may guess",
    ("session/arena.py", "mmap"): "anonymous memory, no file",
    ("format/logical_types.py", "ctypes"): "reads Arrow's C schema from memory",
    ("dataset/blob_file.py", "io"): "classes of file objects; their bytes come from the store",
    ("lance/__main__.py", "pathlib"): "a program: it reads the script that it runs",
}
# The command line is a program that people run, not a part that a simulation replays: it may start other
# programs, read its input files and ask its terminal for its size. Clocks, chance and threads it takes from
# the runtime like everybody.
PROGRAM_LAYER = "cli"
# The server waits for sockets, which is asyncio's business, and hands its work to threads.
SERVER_LAYER = "server"
SERVER_MAY = frozenset(("asyncio", "concurrent"))
_PROGRAM = "subprocess tempfile pathlib io shutil OSFile memory_map open() input()"
PROGRAM_MAY = frozenset(_PROGRAM.split())


def _files(*layers: str) -> list[Path]:
    found = [path for path in SOURCE.rglob("*.py") if not path.name.endswith("_pb2.py")]
    return sorted(path for path in found if not layers or _layer(path) in layers)


def _layer(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _place(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def _running_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those of `if TYPE_CHECKING` blocks."""
    for child in ast.iter_child_nodes(tree):
        if not _is_type_checking(child):
            yield child
            yield from _running_nodes(child)


@cache
def _door_breaches(path: Path) -> list[tuple[ast.AST, str, str]]:
    """(node, word, what to use) for each use of the machine outside its doors."""
    return list(_breaches(path))


def _breaches(path: Path) -> Iterator[tuple[ast.AST, str, str]]:
    for node in _running_nodes(_tree(path)):
        match node:
            case ast.Import(names=names):
                for name in names:
                    if name.name.split(".")[0] in FORBIDDEN_MODULES:
                        yield node, name.name, "tiltyard.runtime or the store"
                    if name.name == "os" and name.asname:
                        yield node, "os as", "plain `import os`, so that this test can see its uses"
            case ast.ImportFrom(module=module, names=names, level=0) if module:
                if module.split(".")[0] in FORBIDDEN_MODULES:
                    yield node, module, "tiltyard.runtime or the store"
                allowed = {"os": ALLOWED_OS, "os.path": ALLOWED_OS_PATH}.get(module)
                for name in names:
                    if allowed is not None and name.name not in allowed:
                        yield node, f"{module}.{name.name}", "the store, or runtime.current().port"
            case ast.Attribute(value=ast.Name(id="os"), attr=attr) if attr not in ALLOWED_OS:
                yield node, f"os.{attr}", "the store, or runtime.current().port"
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="os"), attr="path"), attr=attr) if (
                attr not in ALLOWED_OS_PATH
            ):
                yield node, f"os.path.{attr}", "the store, or runtime.current().port"
            case ast.Attribute(attr=attr) if attr in FORBIDDEN_METHODS:
                yield node, attr, "the store"
            case ast.Attribute(value=ast.Name(id="datetime" | "date"), attr="now"):
                yield node, "datetime.now", "runtime.now_ns"
            case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_BUILTINS:
                yield node, f"{name}()", "the store"
            case ast.keyword(arg="key", value=value) if (word := _identity_in(value)) is not None:
                yield value, f"{word}()", "an order that is the same in every run"
            case ast.For(iter=iterable) if _is_set(iterable):
                yield iterable, "set order", "sorted(...): the order of a set changes with the hash seed"
            case (
                ast.ListComp(generators=loops)
                | ast.GeneratorExp(generators=loops)
                | ast.DictComp(generators=loops)
            ) if any(_is_set(loop.iter) for loop in loops):
                yield node, "set order", "sorted(...): the order of a set changes with the hash seed"


def _identity_in(value: ast.expr) -> str | None:
    """`id` or `hash` if a sort key is or calls it."""
    names = [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]
    return next((name for name in names if name in ("id", "hash")), None)


def _is_set(node: ast.AST) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.Call(func=ast.Name(id="list" | "tuple" | "enumerate"), args=[inner]):
            return _is_set(inner)
    return False


def test_only_the_runtime_touches_clocks_chance_threads_and_files() -> None:
    found = []
    for path in _files():
        if _layer(path) in DOORS:
            continue
        name = str(path.relative_to(SOURCE))
        found += [
            f"{_place(path, node)}: {word} -- use {instead} (decision D51)"
            for node, word, instead in _door_breaches(path)
            if (name, word) not in EXCEPTIONS
            and not (_layer(path) == PROGRAM_LAYER and word.split(".")[0] in PROGRAM_MAY)
            and not (_layer(path) == SERVER_LAYER and word.split(".")[0] in SERVER_MAY)
        ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("import time", "time"),
        ("from random import choice", "random"),
        ("def f():\n    import threading", "threading"),
        ("import concurrent.futures", "concurrent.futures"),
        ("import os\nos.listdir('.')", "os.listdir"),
        ("import os\nos.path.exists('x')", "os.path.exists"),
        ("from os import urandom", "os.urandom"),
        ("import os as o", "os as"),
        ("open('x')", "open()"),
        ("sorted(x, key=lambda v: id(v))", "id()"),
        ("for x in {'a', 'b'}: pass", "set order"),
        ("[x for x in list(set(y))]", "set order"),
        ("datetime.now()", "datetime.now"),
        ("pa.memory_map('x')", "memory_map"),
    ],
)
def test_the_rule_sees_what_it_forbids(tmp_path: Path, source: str, word: str) -> None:
    path = tmp_path / "sample.py"
    path.write_text(source)
    assert [found for _, found, _ in _door_breaches(path)] == [word]


def test_the_rule_lets_through_what_is_harmless(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text(
        "import os\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import random\n"
        "os.environ.get('X'); os.path.join('a', 'b'); os.fspath(p)\n"
        "{x for x in {1, 2}}; hash(x)\nfor x in sorted({1, 2}): pass\nstore.open('x')\n"
    )
    assert _door_breaches(path) == []


def test_exceptions_that_are_no_longer_needed_are_removed() -> None:
    used = {(str(path.relative_to(SOURCE)), word) for path in _files() for _, word, _ in _door_breaches(path)}
    assert set(EXCEPTIONS) <= used


# -- layers --------------------------------------------------------------------------------------


def _imports(path: Path) -> Iterator[tuple[ast.AST, str]]:
    """(node, absolute dotted name) of everything that a file imports, at any depth of nesting."""
    package = ["tiltyard", *path.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node, name.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for name in node.names:
                yield node, f"{module}.{name.name}"


def test_layers_import_only_downward() -> None:
    found = []
    for path in _files():
        mine = _layer(path)
        if mine in FREE:
            continue
        for node, name in _imports(path):
            parts = name.split(".")
            if parts[0] != "tiltyard" or len(parts) < 2 or parts[1] == mine or parts[1].startswith("__"):
                continue
            theirs = parts[1]
            if theirs == "testing" and mine in ABOVE_TESTING:
                continue
            if theirs not in RANK or RANK[theirs] >= RANK[mine]:
                found.append(f"{_place(path, node)}: {mine} imports {theirs}, which does not lie below it")
    assert not found, "\n" + "\n".join(found)


def test_every_folder_is_a_layer() -> None:
    folders = {_layer(path) for path in _files()}
    assert folders <= {*RANK, *FREE}, "give the folder a place in LAYERS and in the design"


INTERFACE = (
    "catalog/plugin/",
    "catalog/rest/",
    "server/",
    "lance/namespace.py",
    "dataset/namespace_client.py",
)
"""Where the interface of `lance_namespace` is spoken: its import takes a second, so that nobody else does."""


def test_the_official_packages_are_never_imported() -> None:
    foreign = ("lance", "lancedb", "pylance", "lance_namespace", "lance_namespace_urllib3_client")
    found = [
        f"{_place(path, node)}: {name}"
        for path in _files()
        for node, name in _imports(path)
        if name.split(".")[0] in foreign
        and not (name.startswith("lance_namespace") and str(path.relative_to(SOURCE)).startswith(INTERFACE))
    ]
    assert not found, "\n" + "\n".join(found)


def test_protobuf_messages_stay_inside_format() -> None:
    found = [
        f"{_place(path, node)}: {name}"
        for path in _files()
        if _layer(path) != "format"
        for node, name in _imports(path)
        if "_pb2" in name or name.startswith("google.protobuf")
    ]
    assert not found, "\n" + "\n".join(found)


def test_no_file_holds_a_whole_subsystem() -> None:
    checked = [
        *_files(),
        *sorted((ROOT / "tests").rglob("*.py")),
        *sorted((ROOT / "benchmarks").rglob("*.py")),
    ]
    found = [
        f"{path.relative_to(ROOT)}: {lines} lines, more than {MAX_LINES}"
        for path in checked
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MAX_LINES
    ]
    assert not found, "\n" + "\n".join(found)


def test_every_module_says_what_it_is_for() -> None:
    found = [str(path.relative_to(ROOT)) for path in _files() if not ast.get_docstring(_tree(path))]
    assert not found, "\n" + "\n".join(found)


def test_failures_are_never_swallowed_blindly() -> None:
    """No bare `except`, no `except Exception: pass`; `except BaseException` raises or hands the error on."""
    found = []
    for path in _files():
        for node in ast.walk(_tree(path)):
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = ast.unparse(node.type) if node.type else ""
            silent = all(isinstance(step, ast.Pass) for step in node.body)
            raises = any(isinstance(step, ast.Raise) for step in ast.walk(node))
            if not caught or (silent and caught in ("Exception", "BaseException")):
                found.append(f"{_place(path, node)}: except {caught or '(bare)'} swallows everything")
            elif caught == "BaseException" and not raises and not node.name:
                found.append(f"{_place(path, node)}: except BaseException without raising")
    assert not found, "\n" + "\n".join(found)


# -- lean imports --------------------------------------------------------------------------------


def _fresh(program: str) -> str:
    """The output of a program in a fresh interpreter that finds the package where this one does."""
    import tiltyard

    path = str(Path(tiltyard.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r})\n{program}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "module", ["tiltyard", "tiltyard.runtime", "tiltyard.errors", "tiltyard.runtime.combine"]
)
def test_importing_the_package_is_cheap_and_starts_nothing(module: str) -> None:
    heavy = (
        "'numpy', 'pyarrow', 'google.protobuf', 'sqlglot', 'pyroaring', 'ctypes', 'asyncio', 'uuid', 'random'"
    )
    assert (
        _fresh(
            f"import {module}, threading\n"
            f"print([m for m in ({heavy}) if m in sys.modules], threading.active_count())"
        )
        == "[] 1"
    )


def test_importing_the_store_loads_no_more_than_arrow() -> None:
    heavy = "'pyarrow.compute', 'pyarrow.dataset', 'sqlglot', 'pyroaring', 'obstore', 'asyncio'"
    assert (
        _fresh(
            "import tiltyard.store, threading\n"
            f"print([m for m in ({heavy}) if m in sys.modules], threading.active_count())"
        )
        == "[] 1"
    )
