"""Tags and branches: their JSON files (table format, section 5). Paths and file names are in `names.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tiltyard.errors import CorruptFile


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for a version of a branch (`None`: main). Times are RFC 3339 text, as written."""

    name: str
    version: int
    branch: str | None = None
    manifest_size: int | None = None
    created_at: str | None = None
    updated_at: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of versions of its own. `created_at` in seconds since the epoch.

    `identifier` leads from main to the branch: pairs of the version forked from and a UUID (32 hex digits);
    empty in files of old writers, which had none.
    """

    name: str
    parent_version: int
    parent_branch: str | None = None
    identifier: tuple[tuple[int, str], ...] = ()
    created_at: int = 0
    manifest_size: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


def decode_tag(data: Any, name: str, path: str) -> Tag:
    """A tag from its file. Raises `CorruptFile` naming `path`."""
    value = _object(data, path, "a tag")
    return Tag(
        name,
        _number(value, "version", path),
        _text(value, "branch", path),
        _number(value, "manifestSize", path) if value.get("manifestSize") is not None else None,
        _text(value, "createdAt", path),
        _text(value, "updatedAt", path),
        _metadata(value, path),
    )


def encode_tag(tag: Tag) -> bytes:
    """The file of a tag."""
    import json

    value = {
        "branch": tag.branch,
        "version": tag.version,
        "createdAt": tag.created_at,
        "updatedAt": tag.updated_at,
        "manifestSize": tag.manifest_size or 0,
        "metadata": dict(tag.metadata),
    }
    return json.dumps(value, indent=2, ensure_ascii=False).encode()


def decode_branch(data: Any, name: str, path: str) -> Branch:
    """A branch from its file. Raises `CorruptFile` naming `path`."""
    value = _object(data, path, "a branch")
    return Branch(
        name,
        _number(value, "parentVersion", path),
        _text(value, "parentBranch", path),
        _identifier(value.get("identifier"), path),
        _number(value, "createAt", path) if value.get("createAt") is not None else 0,
        _number(value, "manifestSize", path) if value.get("manifestSize") is not None else None,
        _metadata(value, path),
    )


def _object(data: Any, path: str, what: str) -> dict[str, Any]:
    import json  # tables without refs never need it

    try:
        value = json.loads(bytes(memoryview(data)))
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{what} must be a JSON object ({error})", path) from error
    if not isinstance(value, dict):
        raise CorruptFile(f"{what} must be a JSON object, found {type(value).__name__}", path)
    return value


def _number(value: dict[str, Any], key: str, path: str) -> int:
    number = value.get(key)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise CorruptFile(f"{key!r} must be a whole number, found {number!r}", path)
    return number


def _text(value: dict[str, Any], key: str, path: str) -> str | None:
    text = value.get(key)
    if text is not None and not isinstance(text, str):
        raise CorruptFile(f"{key!r} must be text or null, found {text!r}", path)
    return text


def _metadata(value: dict[str, Any], path: str) -> dict[str, str]:
    metadata = value.get("metadata") or {}
    if not isinstance(metadata, dict) or not all(isinstance(each, str) for each in metadata.values()):
        raise CorruptFile("'metadata' must be an object of strings", path)
    return metadata


def _identifier(value: Any, path: str) -> tuple[tuple[int, str], ...]:
    if value is None:
        return ()
    try:
        return tuple((int(version), str(uuid)) for version, uuid in value["version_mapping"])
    except (TypeError, KeyError, ValueError) as error:
        raise CorruptFile("'identifier' must hold a 'version_mapping' of pairs", path) from error
