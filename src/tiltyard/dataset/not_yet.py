"""What the official package has and this one does not have yet, by name: one table instead of a hundred
stubs.

Asking for such a name raises `UnsupportedName`, which says the feature; it is an `AttributeError` too, so
that `hasattr` and `getattr` with a default work as for any name that is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tiltyard.errors import UnsupportedName, nearest

_INDICES = "uncommitted parts of indices, and vector indices"
_SEARCH = "full-text search and searches by vector indices"
_COLUMNS = "changes of columns (merge, schema evolution)"
_FILES = "lists of a table's files, their migration, and differences between versions"
_BRANCHES = "making branches and clones"
_BLOBS = "the writing of blobs"
_STORES = "a dataset's view of its storage options and of the requests to its store"
_TORCH = "datasets of Torch's own (tiltyard.Loader feeds its DataLoader)"
_QUERIES = "what only the engine of the official package reads"

_DATASET = {
    _INDICES: """centroids commit_existing_index_segments create_index_uncommitted get_ivf_model
        merge_existing_index_segments merge_index_metadata""",
    _COLUMNS: "add_columns alter_columns drop_columns merge from_pydantic_model",
    _FILES: "all_files tracked_files migrate_manifest_paths_v2 delta",
    _BRANCHES: "create_branch deep_clone shallow_clone",
    _STORES: """initial_storage_options io_stats_incremental io_stats_snapshot latest_storage_options
        storage_options_accessor""",
}
_BUILDER = {
    _SEARCH: """full_text_search minhash_search fast_search row_addr_prefilter scan_stats_callback
        with_index_segments""",
    _QUERIES: "substrait_aggregate",
}
_FILE_SESSION = {_BLOBS: "open_packed_blob_writer open_dedicated_blob_writer"}
_BRANCH_LIST = {_BRANCHES: "replace_metadata"}
_MODULE = {
    _INDICES: "Index IndexFile indices",
    _SEARCH: "FtsToken query tokenize",
    _TORCH: "torch",
    _COLUMNS: "batch_udf udf",
    _BLOBS: """Blob BlobArray BlobDescriptor BlobDescriptorArrayBuilder DedicatedBlobWriter
        PackedBlobWriter blob_array blob_field""",
    _STORES: "io",
    _QUERIES: "ExecutionPlan FFILanceTableProvider ScanStatistics",
    "logging and tracing": "log set_logger tracing otel simd_info",
}

Features = Mapping[str, str]


def _by_name(features: Features) -> dict[str, str]:
    return {name: feature for feature, names in features.items() for name in names.split()}


NOT_YET: Mapping[str, Mapping[str, str]] = {
    "LanceDataset": _by_name(_DATASET),
    "LanceFragment": {},
    "LanceScanner": {},
    "ScannerBuilder": _by_name(_BUILDER),
    "LanceFileSession": _by_name(_FILE_SESSION),
    "Tags": {},
    "Branches": _by_name(_BRANCH_LIST),
    "tiltyard.lance": _by_name(_MODULE),
    "tiltyard.lance.namespace": {},
}
"""Owner and name of what is not there, to the feature that it belongs to."""


def missing(owner: str, name: str, known: list[str]) -> AttributeError:
    """The error for a name that `owner` does not have."""
    feature = NOT_YET[owner].get(name)
    if feature is not None:
        return UnsupportedName(
            f"{owner}.{name} is not supported by this version of tiltyard, which does not have {feature} "
            "yet; docs/support.md says what it has"
        )
    public = [each for each in known if not each.startswith("_")]
    hint = "" if name.startswith("_") else f"; {nearest(name, public)}"
    return AttributeError(f"{owner} has no attribute {name!r}{hint}")


class Named:
    """A class whose missing names are explained."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        owner = next(each.__name__ for each in type(self).__mro__ if each.__name__ in NOT_YET)
        raise missing(owner, name, dir(type(self)))
