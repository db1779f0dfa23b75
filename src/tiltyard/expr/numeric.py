"""Functions of numbers.

Those of analysis are computed in 64-bit floats and follow IEEE 754: the logarithm of a negative number is
NaN, not an error. `signum`, `trunc` and `round` of a float column keep its width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tiltyard.expr.signatures import NUMBER, WHOLE, Run, Signature, array_of, by_value, one


def _floats(arg: Any, rows: int) -> tuple[np.ndarray, np.ndarray]:
    array = array_of(arg, rows).cast(pa.float64(), safe=False)
    return array.fill_null(0.0).to_numpy(zero_copy_only=False), array.is_null().to_numpy(zero_copy_only=False)


def _real(of: Callable[..., np.ndarray]) -> Run:
    """A function of real numbers, over NumPy arrays."""

    def run(args: Sequence[Any], rows: int) -> Any:
        sides = [_floats(arg, rows) for arg in args]
        with np.errstate(all="ignore"):
            found = np.asarray(of(*(values for values, _ in sides)), np.float64)
        unknown = np.logical_or.reduce([nulls for _, nulls in sides])
        return pa.array(found, pa.float64(), mask=unknown)

    return run


def _log(args: Sequence[Any], rows: int) -> Any:
    if len(args) == 1:
        return _real(np.log10)(args, rows)
    return _real(lambda base, x: np.log(x) / np.log(base))(args, rows)


def _power(args: Sequence[Any], rows: int) -> Any:
    return _real(np.power)(args, rows)


MOST_DIGITS = 100
"""No whole number and no decimal differs in digits further from its point; kernels count them one by one."""

_FLOAT_DIGITS = {16: 4, 32: 37, 64: 300}
"""Powers of ten that a float of so many bits still has; the kernel multiplies by them."""


def rounded(side: Any, digits: int, mode: str) -> Any:
    """Rounded to digits behind the point, or before it where they are negative."""
    import pyarrow.compute as pc

    most = _FLOAT_DIGITS[side.type.bit_width] if pa.types.is_floating(side.type) else MOST_DIGITS
    if digits < 1 or not pa.types.is_floating(side.type):
        return pc.round(side, ndigits=max(-most - 1, min(most, digits)), round_mode=mode)
    if digits > most:
        return side
    # a float without bits behind that digit stays what it is: multiplied it would be too great
    whole = pc.greater_equal(pc.abs(side), pa.scalar(2.0**53 * 10.0**-digits))
    return pc.if_else(whole, side, pc.round(pc.if_else(whole, 0, side), ndigits=digits, round_mode=mode))


def _trunc(args: Sequence[Any], rows: int) -> Any:
    if pa.types.is_integer(args[0].type):
        return args[0]
    digits = args[1].as_py() if len(args) > 1 else 0
    if digits is None:
        return pa.nulls(rows, args[0].type)
    return rounded(args[0], digits, "towards_zero")


def _signum(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    return pc.sign(args[0]) if pa.types.is_floating(args[0].type) else pc.sign(args[0]).cast(pa.int64())


def _nanvl(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    wide = pa.float32() if all(pa.types.is_float32(arg.type) for arg in args) else pa.float64()
    first, second = (array_of(arg, rows).cast(wide, safe=False) for arg in args)
    return pc.if_else(pc.is_nan(first), second, first)


def _is_zero(args: Sequence[Any], rows: int) -> Any:
    import pyarrow.compute as pc

    return pc.equal(args[0], pa.scalar(0, args[0].type))


def _factorial(number: int) -> int:
    if not 0 <= number <= 20:
        raise ValueError(f"the factorial of {number} is no 64-bit number: 0 to 20 have one")
    return math.factorial(number)


def _whole(of: Callable[..., int]) -> Callable[..., int]:
    def run(*numbers: int) -> int:
        found = of(*numbers)
        if found >= 2**63:
            raise ValueError(f"{found} is no 64-bit number")
        return found

    return run


def _random(args: Sequence[Any], rows: int) -> Any:
    from tiltyard import runtime

    source = runtime.random()
    return pa.array([source.random() for _ in range(rows)], pa.float64())


def _uuid(args: Sequence[Any], rows: int) -> Any:
    """Random identifiers of version 4, as text."""
    from tiltyard import runtime

    source = runtime.random()
    marked = (source.getrandbits(128) & ~_UUID_BITS | _UUID_MARKS for _ in range(rows))
    digits = (f"{number:032x}" for number in marked)
    return pa.array([f"{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:]}" for d in digits], pa.string())


_UUID_BITS, _UUID_MARKS = 0xF000_C000_0000_0000_0000, 0x4000_8000_0000_0000_0000
"""Where version and variant stand, and what stands there."""

_FLOATING: dict[str, Callable[..., np.ndarray]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "cos": np.cos,
    "cosh": np.cosh,
    "cot": lambda x: 1 / np.tan(x),
    "degrees": np.degrees,
    "exp": np.exp,
    "ln": np.log,
    "log10": np.log10,
    "log2": np.log2,
    "radians": np.radians,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}

SIGNATURES: dict[str, Signature] = {
    **{name: one(NUMBER, _real(of)) for name, of in _FLOATING.items()},
    "atan2": Signature((NUMBER,), 2, 2, _real(np.arctan2)),
    "log": Signature((NUMBER,), 1, 2, _log),
    "power": Signature((NUMBER,), 2, 2, _power),
    "trunc": Signature((NUMBER, WHOLE), 1, 2, _trunc, frozenset({1})),
    "signum": one(NUMBER, _signum),
    "iszero": one(NUMBER, _is_zero),
    "nanvl": Signature((NUMBER,), 2, 2, _nanvl),
    "pi": Signature((NUMBER,), 0, 0, lambda args, rows: pa.array([math.pi] * rows, pa.float64())),
    "random": Signature((NUMBER,), 0, 0, _random),
    "uuid": Signature((NUMBER,), 0, 0, _uuid),
    "factorial": one(WHOLE, by_value(_factorial, pa.int64())),
    "gcd": Signature((WHOLE,), 2, 2, by_value(_whole(math.gcd), pa.int64())),
    "lcm": Signature((WHOLE,), 2, 2, by_value(_whole(math.lcm), pa.int64())),
}
"""`random()` and `uuid()` are drawn anew for every row of every evaluation."""

ALIASES = {"pow": "power", "rand": "random"}
