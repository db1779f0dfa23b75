"""Variable: offsets and bytes (compression 3.5), also as one block (dictionaries) and as a scalar."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiltyard.encoding.program import VALUE_VARIABLE, P, PageProgram
from tiltyard.errors import CorruptFile
from tiltyard.format.layouts import Variable

READS = (Variable,)

OFFSET_BITS = (32, 64)


def plan(encoding: Variable, program: PageProgram) -> None:
    """Fill in the program."""
    if encoding.offset_bits not in OFFSET_BITS:
        raise CorruptFile(f"offsets of {encoding.offset_bits} bits; expected 32 or 64")
    program.row[P.VALUE_CODEC] = VALUE_VARIABLE
    program.row[P.OFFSET_BITS] = encoding.offset_bits


def read_block(
    encoding: Variable, data: npt.NDArray[np.uint8], n: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Offsets (int64, n + 1, from 0) and bytes of a block of `n` values. Raises `CorruptFile`."""
    width = encoding.offset_bits // 8
    if encoding.offset_bits not in OFFSET_BITS:
        raise CorruptFile(f"offsets of {encoding.offset_bits} bits; expected 32 or 64")
    dtype = np.dtype(f"<u{width}")
    if len(data) < 2 * width:
        raise CorruptFile(f"a block of strings needs {2 * width} bytes at least, found {len(data)}")
    bits, start = (int(x) for x in data[: 2 * width].view(dtype))
    if bits != encoding.offset_bits or start != width * (n + 3) or start > len(data):
        raise CorruptFile(
            f"a block of {n} strings says {bits}-bit offsets and bytes from {start} of {len(data)}; expected "
            f"{encoding.offset_bits} and {width * (n + 3)}"
        )
    offsets = data[2 * width : start].view(dtype).astype(np.int64)
    body = data[start:]
    if offsets[0] != 0 or offsets[-1] > len(body) or (np.diff(offsets) < 0).any():
        raise CorruptFile("offsets of a block of strings decrease or lie outside of it")
    return offsets, body
