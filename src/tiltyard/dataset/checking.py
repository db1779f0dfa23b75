"""The checking face of a dataset: whether what its versions name is there and is what they say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tiltyard.dataset import arguments
from tiltyard.dataset.handle import Handle, open_root
from tiltyard.errors import CorruptFile
from tiltyard.format.names import branch_path

if TYPE_CHECKING:
    from tiltyard.table.snapshot import Snapshot
    from tiltyard.table.verify import Finding, Report

FINDINGS_SHOWN = 10


class CheckFace(Handle):
    """Checks; they change nothing."""

    def validate(self, *, checksums: bool = False) -> None:
        """Raise `CorruptFile`, telling all that is wrong, unless the version shown is whole: every data,
        deletion and index file there and of its size, row counts and ids consistent. `checksums` also reads
        every data file and compares the sums that ours carry.
        """
        from tiltyard.table.verify import verify_snapshot

        snapshot = self._snapshot
        raise_findings(verify_snapshot(snapshot, checksums=arguments.flag("checksums", checksums)), snapshot)

    def verify(self, *, checksums: bool = False) -> Report:
        """What is wrong with any of the versions of this branch, detached ones too: `report.findings`, each
        with its file, the versions affected and what to do.
        """
        from tiltyard.table.verify import every_version, verify

        return verify(
            self._store, every_version(self._store), checksums=arguments.flag("checksums", checksums)
        )


def verify_places(uri: Any, version: int | str | None = None, *, checksums: bool = False) -> Report:
    """What is wrong with one version of a table (a number or tag), or with all of them, also where the newest
    cannot be opened. Raises `TableNotFound`, `VersionNotFound`, `TagNotFound`.
    """
    from tiltyard.dataset.places import table_not_found
    from tiltyard.table.refs import read_tag
    from tiltyard.table.verify import every_version, verify
    from tiltyard.table.versions import locate

    store = open_root(uri, None)
    if isinstance(version, str):
        tag = read_tag(store, version)
        store = store if tag.branch is None else store.at(branch_path(tag.branch))
        version = tag.version
    locations = every_version(store) if version is None else [locate(store, version)]
    if not locations:
        raise table_not_found(store)
    return verify(store, locations, checksums=checksums)


def raise_findings(findings: Sequence[Finding], snapshot: Snapshot) -> None:
    """Raise `CorruptFile` if there are any."""
    if not findings:
        return
    told = "; ".join(str(each) for each in findings[:FINDINGS_SHOWN])
    more = f"; and {len(findings) - FINDINGS_SHOWN} more" if len(findings) > FINDINGS_SHOWN else ""
    raise CorruptFile(f"version {snapshot.version} of {snapshot.store.uri} is damaged: {told}{more}")
