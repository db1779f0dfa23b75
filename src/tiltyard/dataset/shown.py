"""Facts of a version as text for people: fragments, schema, manifest, transactions. The form may change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from tiltyard.dataset import arguments
from tiltyard.dataset.lance_dataset import LanceDataset
from tiltyard.dataset.metadata import FragmentMetadata

MAX_TRANSACTIONS = 10
SHOWN_BYTES = 16
"""Longer bytes are told by their length."""
INDENT = "  "


def format_fragment(fragment: FragmentMetadata, dataset: LanceDataset) -> str:
    """A fragment: its files with their versions, columns and the names of their fields, its deletions."""
    arguments.instance("fragment", fragment, FragmentMetadata)
    schema = arguments.instance("dataset", dataset, LanceDataset)._held.schema
    files = [
        {
            "path": str(file.path),
            "major_version": file.file_major_version,
            "minor_version": file.file_minor_version,
            "size": file.file_size_bytes,
            "base_id": file.base_id,
            "columns": [
                {"index": index, "field": id, "name": _path(schema, id)}
                for id, index in zip(file.fields, file.column_indices or file.fields, strict=False)
            ],
        }
        for file in fragment.files
    ]
    facts = {
        "id": fragment.id,
        "physical_rows": fragment.physical_rows,
        "files": files,
        "deletion_file": fragment.deletion_file,
        "row_ids": fragment.row_id_meta,
    }
    return _block("Fragment", facts)


def format_schema(dataset: LanceDataset) -> str:
    """The schema with ids, parents, logical types and metadata, a field a line."""
    schema = arguments.instance("dataset", dataset, LanceDataset)._held.schema
    lines = ["Schema {"]
    for field in schema.walk():
        depth = len(schema.ancestors(field.id)) + 1
        null = "" if field.nullable else ", not null"
        key = ", primary key" if field.primary_key else ""
        more = f", metadata {dict(field.metadata)}" if field.metadata else ""
        lines.append(f"{INDENT * depth}{field.id} {field.name}: {field.logical_type}{null}{key}{more}")
    return "\n".join([*lines, "}"])


def format_manifest(dataset: LanceDataset) -> str:
    """All facts of the manifest of the version that the dataset shows."""
    held = arguments.instance("dataset", dataset, LanceDataset)._held
    return _block("Manifest", {**_facts(held.manifest), "fragments": list(held.fragments)})


def list_transactions(dataset: LanceDataset, max_transactions: int = MAX_TRANSACTIONS) -> list[str | None]:
    """What made this version and those before it, newest first; None where it was not recorded."""
    found = arguments.instance("dataset", dataset, LanceDataset).get_transactions(
        arguments.whole("max_transactions", max_transactions)
    )
    return [None if each is None else _text(each, 0) for each in found]


def manifest_needs_migration(dataset: LanceDataset) -> bool:
    """Whether the version was written by something so old that its fragments do not say how many rows they
    have; the next commit of ours says it.
    """
    held = arguments.instance("dataset", dataset, LanceDataset)._held
    return any(each.files and not each.physical_rows for each in held.fragments)


def _path(schema: Any, id: int) -> str:
    """The dotted path of a field id, or what to say of an id that the schema does not have."""
    if not schema.has_id(id):
        return "(no field of this version)"
    return ".".join(each.name for each in (*schema.ancestors(id), schema.by_id(id)))


def _facts(value: Any) -> dict[str, Any]:
    return {
        each.name: getattr(value, each.name)
        for each in fields(value)
        if each.repr and not each.name.startswith("_")
    }


def _block(name: str, facts: Mapping[str, Any], depth: int = 0) -> str:
    if not facts:
        return f"{name} {{}}"
    inner = INDENT * (depth + 1)
    lines = [f"{inner}{key}: {_text(value, depth + 1)}" for key, value in facts.items()]
    return "\n".join([f"{name} {{".lstrip(), *lines, f"{INDENT * depth}}}"])


def _text(value: Any, depth: int) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return repr(bytes(value)) if len(value) <= SHOWN_BYTES else f"{len(value)} bytes"
    if isinstance(value, Enum) or value is None or isinstance(value, (bool, int, float, str)):
        return str(value) if not isinstance(value, str) else repr(str(value))
    if is_dataclass(value) and not isinstance(value, type):
        return _block(type(value).__name__, _facts(value), depth)
    if isinstance(value, Mapping):
        return _block("", {str(key): each for key, each in value.items()}, depth)
    if isinstance(value, Iterable):
        items = [_text(each, depth + 1) for each in value]
        if not any("\n" in each for each in items):
            return f"[{', '.join(items)}]"
        inner = INDENT * (depth + 1)
        return "\n".join(["[", *(f"{inner}{each}" for each in items), f"{INDENT * depth}]"])
    return repr(value)
