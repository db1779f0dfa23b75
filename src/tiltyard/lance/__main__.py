"""`python -m tiltyard.lance script.py [arguments]`: run a script with `import lance` bound to this
package.
"""

from __future__ import annotations

import importlib
import runpy
import sys

_MODULES = ("commit", "dataset", "fragment", "progress", "schema")


def bind() -> None:
    """Make `lance` and its submodules name ours in this process."""
    package = importlib.import_module("tiltyard.lance")
    sys.modules["lance"] = package
    for name in _MODULES:
        sys.modules[f"lance.{name}"] = importlib.import_module(f"tiltyard.lance.{name}")


def main() -> None:
    """Run the script named first on the command line as `__main__`, with the rest as its arguments."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m tiltyard.lance script.py [arguments]")
    del sys.argv[0]
    bind()
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
