"""Regenerate the protobuf modules of `tiltyard/format/protos` (needs `grpcio-tools`).

Run from anywhere: `python tools/generate_protos.py`. The results are committed, so that an installation needs
no protobuf compiler.
"""

from __future__ import annotations

import sys
from pathlib import Path

SOURCES = ("file", "encodings21", "index", "table", "transaction", "mem_wal")


def main() -> int:
    from grpc_tools import protoc

    root = Path(__file__).resolve().parent.parent / "src"
    files = [f"tiltyard/format/protos/{name}.proto" for name in SOURCES]
    return int(protoc.main(["protoc", f"-I{root}", f"--python_out={root}", f"--pyi_out={root}", *files]))


if __name__ == "__main__":
    sys.exit(main())
