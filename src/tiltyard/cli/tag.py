"""`tiltyard tag list|create|move|delete`: names for versions."""

from __future__ import annotations

import argparse
from typing import Any

from tiltyard.cli.arguments import TABLE_HELP, version_of
from tiltyard.cli.text_table import lines, local_time, terminal_width


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="the tags there are")
    listing.add_argument("uri", help=TABLE_HELP)
    for name, told in (("create", "name a version"), ("move", "let a tag name another version")):
        action = actions.add_parser(name, help=told)
        action.add_argument("uri", help=TABLE_HELP)
        action.add_argument("name", help="the tag")
        action.add_argument(
            "--at", metavar="VERSION", help="a version number or another tag; the newest if not given"
        )
    deleting = actions.add_parser("delete", help="remove a tag; its version stays until a cleanup")
    deleting.add_argument("uri", help=TABLE_HELP)
    deleting.add_argument("name", help="the tag")


def run(arguments: argparse.Namespace) -> int:
    import tiltyard.lance as lance

    dataset = lance.dataset(arguments.uri)
    tags = dataset.tags
    if arguments.action == "list":
        _show(tags)
        return 0
    if arguments.action == "delete":
        tags.delete(arguments.name)
        print(f"deleted tag {arguments.name}")
        return 0
    change = tags.create if arguments.action == "create" else tags.update
    change(arguments.name, version_of(arguments))
    print(f"tag {arguments.name} names version {tags.get_version(arguments.name)}")
    return 0


def _show(tags: Any) -> None:
    import pyarrow as pa

    found = [
        {
            "tag": name,
            "version": tag["version"],
            "branch": tag["branch"] or "main",
            "changed": None if tag["updated_at"] is None else local_time(tag["updated_at"]),
        }
        for name, tag in tags.list_ordered("asc")
    ]
    if found:
        print("\n".join(lines(pa.Table.from_pylist(found), terminal_width())))
    else:
        print("no tags")
