"""Leaf codecs of files of version 2.0 (file format 5; compression 7): from a page's buffers to NumPy arrays.

Every function takes a page, a selection of its entries, and the number of entries that the page holds, which
its buffers must be large enough for. All raise `CorruptFile` on damage.
"""
