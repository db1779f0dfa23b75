"""From the names in a text to the columns of a schema.

A quoted name is exact. An unquoted one is exact first; if there is none, the only column whose name differs
in capitals alone. A dot goes into a struct; a top-level column whose own name has a dot is reached by
quoting it whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tiltyard.errors import FieldNotFound, nearest
from tiltyard.expr.types import Column


def _step(names: Sequence[str], name: str, is_quoted: bool) -> str | None:
    if name in names:
        return name
    if is_quoted:
        return None
    lowered = name.lower()
    similar = [item for item in names if item.lower() == lowered]
    return similar[0] if len(similar) == 1 else None


def find_column(schema: pa.Schema, steps: Sequence[tuple[str, bool]]) -> Column:
    """The column named by steps (name, is quoted); raises `FieldNotFound` with the nearest names."""
    names = schema.names
    path: list[str] = []
    arrow: pa.DataType | None = None
    for name, is_quoted in steps:
        found = _step(names, name, is_quoted)
        if found is None:
            whole, above = ".".join([*path, name]), ".".join(path)
            if path and not names:
                raise FieldNotFound(f"No field named {whole}: column {above!r} is {arrow} and has no fields")
            inside = f" in the struct {above!r}" if path else ""
            near = nearest(name, names)
            may_be_text = not path and (is_quoted or not near.startswith("nearest"))
            hint = f"; a text takes single quotes: '{name}'" if may_be_text else ""
            raise FieldNotFound(f"No field named {whole}{inside}; {near}{hint}")
        if arrow is None:
            if names.count(found) > 1:
                raise FieldNotFound(f"there are {names.count(found)} columns {found!r}: rename all but one")
            arrow = schema.field(found).type
        else:
            arrow = arrow.field(arrow.get_field_index(found)).type
        path.append(found)
        if isinstance(arrow, pa.BaseExtensionType):
            arrow = arrow.storage_type
        names = [arrow.field(i).name for i in range(arrow.num_fields)] if pa.types.is_struct(arrow) else []
    assert arrow is not None
    return Column(tuple(path), arrow)
