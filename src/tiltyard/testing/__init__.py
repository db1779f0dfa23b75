"""What a test needs to be hard on the library: failing stores, failing file systems, model tests. Shipped.

Only tests and the command line's `probe` import this package.
"""
