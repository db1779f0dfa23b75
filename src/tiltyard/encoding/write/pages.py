"""An encoded page: its layout and its buffers in order, as the file writer puts them down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiltyard.format.layouts import PageLayout
from tiltyard.format.version import FileVersion

Buffer = bytes | npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class EncodedPage:
    """`rows` is what `Page.length` holds. `items`: the items of an Arrow dictionary as binaries, one each."""

    layout: PageLayout
    buffers: Sequence[Buffer]
    rows: int
    items: Any = None


def large_chunks(version: FileVersion) -> bool:
    """Whether mini-block pages of a version have 32-bit words and sizes."""
    return version is not FileVersion.V2_1
