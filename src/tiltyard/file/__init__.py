"""The .lance data file: reader and writer between a store and Arrow arrays (file format 1 to 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiltyard.file.reader import FileReader, open_file, read_file

if TYPE_CHECKING:
    from tiltyard.file.writer import FileWriter

__all__ = ["FileReader", "FileWriter", "open_file", "read_file"]


def __getattr__(name: str) -> Any:
    if name == "FileWriter":  # readers do not pay for the writer's modules
        from tiltyard.file.writer import FileWriter

        return FileWriter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
