"""The drop-in face: the module tree of the official package, as thin re-exports.

`import tiltyard.lance as lance` runs an ordinary script that keeps to what is here. What is not here yet
raises an error that names it; `tiltyard.dataset.not_yet` is the list, docs/support.md says what there is.
`python -m tiltyard.lance script.py` runs a script unchanged.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tiltyard import __version__
from tiltyard.dataset import (
    DataStatistics,
    FieldStatistics,
    FragmentMetadata,
    LanceFragment,
    LanceOperation,
    LanceScanner,
    MergeInsertBuilder,
    Transaction,
    json_to_schema,
    schema_to_json,
    write_dataset,
)
from tiltyard.lance import commit, fragment, progress, schema
from tiltyard.lance import dataset as _dataset_module
from tiltyard.lance._arrow import offer_parts as _offer_parts
from tiltyard.lance.progress import IndexProgress
from tiltyard.session import Session
from tiltyard.store.account import bytes_read_counter, iops_counter

if TYPE_CHECKING:
    from typing import Any

    from tiltyard.dataset import LanceDataset

_offer_parts()

dataset = _dataset_module.dataset  # as in the official package, the function hides the module of this name

_LAZY = frozenset(
    ("bitmap", "blob", "debug", "file", "lance", "mem_wal", "namespace", "optimize", "sampler", "vector")
)
"""Modules that are loaded when they are asked for."""

__all__ = [
    "DataStatistics",
    "FieldStatistics",
    "FragmentMetadata",
    "IndexProgress",
    "LanceDataset",
    "LanceFragment",
    "LanceOperation",
    "LanceScanner",
    "MergeInsertBuilder",
    "Session",
    "Transaction",
    "__version__",
    "bytes_read_counter",
    "commit",
    "dataset",
    "fragment",
    "iops_counter",
    "json_to_schema",
    "progress",
    "schema",
    "schema_to_json",
    "write_dataset",
]


_CLEANUP = ("CleanupCandidateFile", "CleanupExplanation", "CleanupReferencedBranch", "CleanupStats")
"""What tells of a cleanup; nobody but who cleans up needs it."""

_STREAMING = ("ShardSnapshot", "ShardWriter", "ShardingField", "ShardingSpec", "evaluate_sharding_spec")
"""What streams; loaded when it is asked for."""

_BLOBS = ("BlobColumn", "BlobFile")

_BASES = ("DatasetBasePath",)


def __getattr__(name: str) -> Any:
    if name == "LanceDataset":
        return getattr(_dataset_module, name)
    if name in _BASES:
        return getattr(importlib.import_module("tiltyard.dataset.bases"), name)
    if name in _BLOBS:
        return getattr(importlib.import_module("tiltyard.dataset.blob_file"), name)
    if name in _CLEANUP:
        return getattr(importlib.import_module("tiltyard.table.cleanup.explain"), name)
    if name in _STREAMING:
        return getattr(importlib.import_module("tiltyard.dataset.mem_wal"), name)
    if name in _LAZY:
        return importlib.import_module(f"tiltyard.lance.{name}")
    from tiltyard.dataset.not_yet import missing

    raise missing("tiltyard.lance", name, __all__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
