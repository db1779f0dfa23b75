"""Loops over values: compiled kernels and their NumPy reference under one name each (D41).

`kernels.decode` serves the reader, `kernels.encode` the writer. Each takes its functions from the compiled
module; with TILTYARD_PURE=1, or where the module was not built, from `kernels.reference`, which is also what
the tests hold the compiled form equal to.
"""
