"""Random damage to a file's bytes, from a seed."""

from __future__ import annotations

import random

KINDS = ("flip", "flip several", "zero", "fill", "noise", "truncate", "extend", "swap", "cut out", "number")
LONGEST = 64  # bytes of a damaged range
TAIL = 512  # bytes at the end of a file, where its tables of contents lie; hit more often than chance would


def damaged(data: bytes, seed: int) -> tuple[bytes, str]:
    """The bytes after one accident, and what happened."""
    dice = random.Random(seed)
    out = bytearray(data)
    kind = KINDS[seed % len(KINDS)]
    if not out:
        return b"\x00" * dice.randint(1, LONGEST), "extend an empty file"
    at = _place(dice, len(out))
    length = min(dice.randint(1, LONGEST), len(out) - at)
    match kind:
        case "flip":
            out[at] ^= 1 << dice.randrange(8)
        case "flip several":
            for _ in range(dice.randint(2, 20)):
                out[_place(dice, len(out))] ^= 1 << dice.randrange(8)
        case "zero":
            out[at : at + length] = bytes(length)
        case "fill":
            out[at : at + length] = b"\xff" * length
        case "noise":
            out[at : at + length] = dice.randbytes(length)
        case "truncate":
            del out[at if dice.random() < 0.5 else dice.randrange(len(out)) :]
        case "extend":
            out += dice.randbytes(dice.choice((1, 8, 4096)))
        case "swap":
            other = _place(dice, len(out))
            length = min(length, len(out) - other)
            first, second = bytes(out[at : at + length]), bytes(out[other : other + length])
            out[at : at + length], out[other : other + length] = second, first
        case "cut out":
            del out[at : at + length]
        case "number":  # a plausible but wrong little-endian number where there was another
            value = dice.choice(
                (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1, len(out), len(out) + 1)
            )
            raw = value.to_bytes(8, "little")[: dice.choice((4, 8))]
            at = min(at, max(0, len(out) - len(raw)))
            out[at : at + len(raw)] = raw
    return bytes(out), f"{kind} at {at}, {length} bytes"


def _place(dice: random.Random, size: int) -> int:
    if dice.random() < 0.4:
        return dice.randrange(max(0, size - TAIL), size)
    return dice.randrange(size)
