"""`python -m tiltyard.lance script.py [arguments]`: run a script with `import lance` bound to this
package.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import traceback
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType


class _Bound(MetaPathFinder, Loader):
    """Finds `lance.x` as the very module `tiltyard.lance.x`, where there is one."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if not fullname.startswith("lance."):
            return None
        ours = f"tiltyard.{fullname}"
        found = importlib.util.find_spec(ours)
        if found is None:
            return None
        is_package = found.submodule_search_locations is not None
        return ModuleSpec(fullname, self, origin=ours, is_package=is_package)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(str(spec.origin))

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do: it was run under its own name."""


def bind() -> None:
    """Make `lance` and its submodules name ours in this process."""
    package = importlib.import_module("tiltyard.lance")
    sys.modules["lance"] = package
    # Those that the package has loaded; importing them anew would put them in place of functions named alike.
    for name in [each for each in sys.modules if each.startswith("tiltyard.lance.")]:
        sys.modules[name.removeprefix("tiltyard.")] = sys.modules[name]
    sys.meta_path.insert(0, _Bound())


def main() -> int:
    """Run the script named first on the command line as `__main__`, with the rest as its arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m tiltyard.lance",
        description="Run a script that was written for pylance: 'import lance' gives tiltyard.lance in it.",
    )
    parser.add_argument("script", help="a Python file")
    rest = parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="what the script finds in sys.argv[1:]"
    )
    rest.required = False  # argparse would name it as missing, too, when the script is
    given = parser.parse_args()
    try:
        code = compile(Path(given.script).read_bytes(), given.script, "exec")
    except OSError as error:
        parser.exit(2, f"tiltyard.lance: cannot read {given.script}: {error.strerror}\n")
    except (SyntaxError, ValueError):
        traceback.print_exc(limit=0)
        return 1
    bind()
    sys.argv = [given.script, *given.arguments]
    sys.path[0] = str(Path(given.script).resolve().parent)
    module = ModuleType("__main__")
    module.__dict__.update(__file__=str(Path(given.script).resolve()), __cached__=None)
    sys.modules["__main__"] = module
    return _run(code, module)


def _run(code: object, module: ModuleType) -> int:
    """Run the script; the trace of what it raises begins with its own lines."""
    try:
        exec(code, module.__dict__)  # type: ignore[arg-type]
    except Exception as error:
        trace = error.__traceback__
        traceback.print_exception(type(error), error, trace.tb_next if trace else None)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
