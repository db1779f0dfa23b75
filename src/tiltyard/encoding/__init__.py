"""Leaf codecs, nesting levels and page layouts: from Arrow arrays to page buffers and back."""
