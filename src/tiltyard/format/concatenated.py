"""Arrow arrays put together."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def concatenated(arrays: Sequence[pa.Array]) -> pa.Array:
    """Arrays of one type, at least one, as one array.

    As columns of batches, because `pa.concat_arrays` copies with the interpreter lock in its hands: other
    threads of the process would stand still for as long. Raises what it raises.
    """
    if len(arrays) == 1:
        return arrays[0]
    schema = pa.schema([("", arrays[0].type)])
    return pa.concat_batches([pa.RecordBatch.from_arrays([each], schema=schema) for each in arrays]).column(0)
