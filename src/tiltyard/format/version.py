"""Versions of the data file format."""

from __future__ import annotations

from enum import Enum

from tiltyard.errors import UnsupportedFeature

SUPPORTED = "2.1 and 2.2 are read and written, 2.0 is read"


class FileVersion(Enum):
    """A version of the data file format; the value is its usual name."""

    V2_0 = "2.0"
    V2_1 = "2.1"
    V2_2 = "2.2"
    V2_3 = "2.3"

    @property
    def footer(self) -> tuple[int, int]:
        """Major and minor number in the footer of a data file (2.0 says 0.3 there)."""
        return (0, 3) if self is FileVersion.V2_0 else self.manifest

    @property
    def manifest(self) -> tuple[int, int]:
        """Major and minor number in a manifest's `DataFile`."""
        return 2, int(self.value[2:])

    @classmethod
    def of_footer(cls, major: int, minor: int) -> FileVersion | None:
        """The version that a footer's numbers stand for; `None` when unknown (legacy files included)."""
        return _OF_FOOTER.get((major, minor))

    @classmethod
    def parse(cls, text: str) -> FileVersion:
        """The version that a user or a manifest names. Raises `UnsupportedFeature` for others."""
        name = _ALIASES.get(text, text)
        for version in cls:
            if version.value == name:
                return version
        raise UnsupportedFeature(f"data file version {text!r} is not supported: {SUPPORTED}")


_ALIASES = {"0.3": "2.0", "stable": "2.2", "next": "2.3"}
_OF_FOOTER = {(0, 3): FileVersion.V2_0, (2, 0): FileVersion.V2_0}
_OF_FOOTER |= {(2, minor): FileVersion(f"2.{minor}") for minor in (1, 2, 3)}
READ_VERSIONS = (FileVersion.V2_0, FileVersion.V2_1, FileVersion.V2_2)
"""Versions whose files this version of the library reads."""
