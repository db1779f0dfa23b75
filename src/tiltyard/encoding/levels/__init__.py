"""Repetition and definition levels: how nested structure is folded into each leaf (file-format.md 6)."""
