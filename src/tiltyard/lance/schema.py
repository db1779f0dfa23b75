"""The schema with field ids, and schemas as JSON."""

from __future__ import annotations

from tiltyard.dataset import LanceSchema, json_to_schema, schema_to_json

__all__ = ["LanceSchema", "json_to_schema", "schema_to_json"]
