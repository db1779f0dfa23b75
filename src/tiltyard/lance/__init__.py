"""The drop-in face: the module tree of the official package, as thin re-exports.

`import tiltyard.lance as lance` runs an ordinary script that keeps to what is here: making, appending,
overwriting, deleting, restoring, scans, takes, fragments, commits and time travel. What is not here yet
(indices and search, merge and update, schema changes, compaction, blobs, tags, branches) raises an error that
names it; `tiltyard.dataset.not_yet` is the list. `python -m tiltyard.lance script.py` runs a script
unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from typing import Any

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


def __getattr__(name: str) -> Any:
    from tiltyard.dataset.not_yet import missing

    raise missing("tiltyard.lance", name, __all__)
