"""The drop-in face: the module tree of the official package, as thin re-exports.

`import tiltyard.lance as lance` runs an ordinary script; `python -m tiltyard.lance script.py` runs one
unchanged.
"""

from __future__ import annotations

from tiltyard import __version__
from tiltyard.dataset import (
    DataStatistics,
    FieldStatistics,
    FragmentMetadata,
    LanceDataset,
    LanceFragment,
    LanceOperation,
    LanceScanner,
    Transaction,
    write_dataset,
)
from tiltyard.lance import commit, fragment, progress, schema
from tiltyard.lance import dataset as _dataset_module
from tiltyard.session import Session

dataset = _dataset_module.dataset  # as in the official package, the function hides the module of this name

__all__ = [
    "DataStatistics",
    "FieldStatistics",
    "FragmentMetadata",
    "LanceDataset",
    "LanceFragment",
    "LanceOperation",
    "LanceScanner",
    "Session",
    "Transaction",
    "__version__",
    "commit",
    "dataset",
    "fragment",
    "progress",
    "schema",
    "write_dataset",
]
