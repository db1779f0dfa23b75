"""The kernels in NumPy: the oracle of the compiled ones, and what runs where they are not built."""
