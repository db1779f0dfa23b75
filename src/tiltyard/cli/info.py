"""`tiltyard info URI`: what a table holds."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tiltyard.cli.arguments import add_table, version_of
from tiltyard.cli.text_table import escaped
from tiltyard.table.wording import counted, sized


def configure(parser: argparse.ArgumentParser) -> None:
    add_table(parser)


def run(arguments: argparse.Namespace) -> int:
    import tiltyard.lance as lance

    dataset = lance.dataset(arguments.uri, version=version_of(arguments))
    fragments = dataset.get_fragments()
    files = [file for fragment in fragments for file in fragment.data_files()]
    deleted = sum(fragment.num_deletions for fragment in fragments)
    print(dataset.uri)
    print(f"version    {dataset.version}" + _newest(dataset.version, dataset.latest_version))
    print(f"rows       {dataset.count_rows():,}" + (f" ({deleted:,} more are deleted)" if deleted else ""))
    print(f"fragments  {len(fragments):,} ({counted(len(files), 'data file')}{_bytes(files)})")
    print("columns")
    names = [escaped(field.name) for field in dataset.schema]
    width = max(map(len, names), default=0)
    for name, field in zip(names, dataset.schema, strict=True):
        print(f"  {name.ljust(width)}  {escaped(str(field.type))}" + ("" if field.nullable else "  not null"))
    described = dataset.describe_indices()
    if described:
        print("indices")
    for index in described:
        rest = index.num_rows_unindexed
        columns = ", ".join(map(escaped, index.field_names))
        print(
            f"  {escaped(index.name)}  {index.index_type} on {columns}"
            + (f" ({counted(rest, 'row')} not indexed)" if rest else "")
        )
    return 0


def _newest(version: int, latest: int) -> str:
    return "" if version == latest else f" (the newest is {latest})"


def _bytes(files: Sequence[object]) -> str:
    sizes = [getattr(file, "file_size_bytes", None) for file in files]
    if not sizes or None in sizes:
        return ""
    return f", {sized(sum(size for size in sizes if size is not None))}"
