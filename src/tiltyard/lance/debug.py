"""Facts of a version as text."""

from __future__ import annotations

from tiltyard.dataset.shown import format_fragment, format_manifest, format_schema, list_transactions

__all__ = ["format_fragment", "format_manifest", "format_schema", "list_transactions"]
