"""Object stores through obstore, which is loaded when one is first used: S3 and what speaks like it, Google
Cloud Storage, Azure, and plain HTTP for reading.
"""
