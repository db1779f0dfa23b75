"""Tiltyard: the open Lance lakehouse in Python."""

__version__ = "0.1.0"
