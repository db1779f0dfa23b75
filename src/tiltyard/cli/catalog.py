"""`tiltyard catalog ACTION ROOT ...`: look at a catalog, check and repair it, drop, rename and bring back."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from tiltyard.cli import FAILED
from tiltyard.cli.text_table import escaped, lines, local_time, terminal_width
from tiltyard.table.wording import NS_PER_SECOND, counted

if TYPE_CHECKING:
    from tiltyard.catalog import Catalog
    from tiltyard.catalog.check import Report
    from tiltyard.catalog.findings import Finding
    from tiltyard.catalog.names import Id
    from tiltyard.catalog.repair import Plan

MODES = {
    "mixed": {},
    "v1": {"manifest_enabled": "false"},
    "migration": {"dir_listing_to_manifest_migration_enabled": "true"},
    "manifest": {"dir_listing_enabled": "false"},
}
"""Properties by the name of a catalog's mode."""

YES = ("y", "yes")


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, told: str) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=told, description=told)
        made.add_argument("root", help="directory or URI of the catalog")
        made.add_argument(
            "--mode",
            choices=tuple(MODES),
            default="mixed",
            help="where root tables are looked for: directories and register (mixed, the default), "
            "directories alone (v1), register first (migration), register alone (manifest)",
        )
        return made

    listing = action("list", "the tables, by their dotted names")
    listing.add_argument("namespace", nargs="?", help="only those in this namespace and below it")
    listing.add_argument("--namespaces", action="store_true", help="the namespaces instead")
    listing.add_argument("--locations", action="store_true", help="with the directory of each table")
    listing.add_argument(
        "--declared", action="store_true", help="also those that are declared and hold nothing yet"
    )

    checking = action("check", "whether the catalog is sound; ends with status 1 when it is damaged")
    checking.add_argument(
        "--grace",
        metavar="SPAN",
        help="directories younger than this may be of somebody at work (default: 1h)",
    )
    checking.add_argument("--json", action="store_true", help="the report as one JSON object")

    repairing = action("repair", "mend what check finds: shows the plan, then asks")
    repairing.add_argument("--grace", metavar="SPAN", help="as for check")
    repairing.add_argument("--yes", action="store_true", help="do it without asking")
    repairing.add_argument(
        "--prune",
        action="store_true",
        help="also remove rows whose directory is missing, and set directories aside that hold no table",
    )
    repairing.add_argument(
        "--register-orphans",
        action="store_true",
        help="also give names to tables that no row names any more",
    )
    repairing.add_argument(
        "--rename",
        action="store_true",
        help="also give another name to a table that has that of a namespace",
    )
    repairing.add_argument("--undo", metavar="FILE", help="take a repair back, by its undo file")

    named = (
        ("drop", "drop a table; it can be brought back for a week"),
        ("undrop", "bring a dropped table back"),
    )
    for name, told in named:
        changing = action(name, told)
        changing.add_argument("table", help="dotted name of the table")
        if name == "undrop":
            changing.add_argument(
                "--id", help="the drop, as `dropped` tells it; the newest of the name if not given"
            )
    renaming = action("rename", "give a table another name; nothing is copied")
    renaming.add_argument("table", help="dotted name of the table")
    renaming.add_argument("new", help="the whole new name, dotted; the namespace may be another one")

    action("dropped", "the dropped tables that can be brought back")
    purging = action("purge", "delete the data of tables that were dropped long enough ago")
    purging.add_argument(
        "--grace", metavar="SPAN", help="how long ago; what was said when they were dropped if not given"
    )
    purging.add_argument(
        "--orphans",
        metavar="SPAN",
        help="also delete directories of tables that no row names and nobody wrote to for so long, such as "
        "7d: left by creators that died, and by whoever deregistered a table",
    )
    action("migrate", "give a row to every table that is found by its directory alone")


def run(arguments: argparse.Namespace) -> int:
    from tiltyard.catalog import open_catalog

    catalog = open_catalog(arguments.root, properties=MODES[arguments.mode])
    _refuse_wrong_places(catalog)
    status: int = _ACTIONS[arguments.action](catalog, arguments)
    return status


def _refuse_wrong_places(catalog: Catalog) -> None:
    """A slip of the pen is no empty catalog."""
    from tiltyard.catalog.found import is_directory
    from tiltyard.dataset.places import is_table
    from tiltyard.errors import InvalidUri

    if not is_directory(catalog.store, ""):
        raise InvalidUri(f"there is no directory {catalog.uri}: a catalog is one")
    if is_table(catalog.store):
        raise InvalidUri(f"{catalog.uri} is itself a table: give the directory that it lies in")


# -- looking -------------------------------------------------------------------------------------


def _list(catalog: Catalog, arguments: argparse.Namespace) -> int:
    from tiltyard.lake.listing import namespaces_of, tables_of

    namespace = () if arguments.namespace is None else _id(arguments.namespace, "a namespace")
    if arguments.namespaces:
        found = namespaces_of(catalog, namespace)
    else:
        found = tables_of(catalog, namespace, declared=arguments.declared)
    names = [escaped(_text(each)) for each in found]
    if arguments.locations and not arguments.namespaces:
        width = max(map(len, names), default=0)
        names = [
            f"{name.ljust(width)}  {escaped(_location(catalog, id))}"
            for name, id in zip(names, found, strict=True)
        ]
    for name in names:
        print(name)
    if not found:
        print("no namespaces" if arguments.namespaces else "no tables", file=sys.stderr)
    return 0


def _location(catalog: Catalog, id: Id) -> str:
    """Where a table's directory is, for commands that take one."""
    from tiltyard.catalog.found import find_table
    from tiltyard.errors import CatalogDamaged, TableNotFound

    try:
        return f"{catalog.uri.rstrip('/')}/{find_table(catalog, id).location}"
    except (CatalogDamaged, TableNotFound) as error:  # TableNotFound: dropped since it was listed
        return f"({error})"


def _check(catalog: Catalog, arguments: argparse.Namespace) -> int:
    report = _checked(catalog, arguments)
    if arguments.json:
        print(json.dumps(_as_json(catalog, report), indent=1))
        return FAILED if report.damaged else 0
    for finding in report.findings:
        print(escaped(str(finding)))
    looked = f"{counted(report.tables, 'table')}, {counted(report.namespaces, 'namespace')} in the register"
    damage = sum(each.damage for each in report.findings)
    notices = len(report.findings) - damage
    told = f"{damage} damaged" if damage else "nothing is damaged"
    told += f", {counted(notices, 'notice')}" if notices else ""
    print(f"{looked}: {told}", file=sys.stderr if damage else sys.stdout)
    return FAILED if damage else 0


def _checked(catalog: Catalog, arguments: argparse.Namespace) -> Report:
    from tiltyard.catalog.check import check

    return check(catalog, grace_seconds=_seconds(arguments.grace))


def _as_json(catalog: Catalog, report: Report) -> dict[str, Any]:
    return {
        "root": catalog.uri,
        "version": report.version,
        "tables": report.tables,
        "namespaces": report.namespaces,
        "damaged": report.damaged,
        "findings": [_finding_as_json(each) for each in report.findings],
    }


def _finding_as_json(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "subject": finding.subject,
        "damage": finding.damage,
        "text": finding.text,
        "advice": finding.advice,
        "repairs": [{"does": each.told, "option": each.option or None} for each in finding.mends],
    }


# -- repairing -----------------------------------------------------------------------------------


def _repair(catalog: Catalog, arguments: argparse.Namespace) -> int:
    from tiltyard.catalog.findings import PRUNE, REGISTER_ORPHANS, RENAME
    from tiltyard.catalog.repair import plan_repair, repair, undo

    if arguments.undo is not None:
        done = undo(catalog, arguments.undo)
        print("\n".join(map(escaped, done)) if done else "nothing was to be taken back")
        return 0
    given = {
        PRUNE: arguments.prune,
        REGISTER_ORPHANS: arguments.register_orphans,
        RENAME: arguments.rename,
    }
    plan = plan_repair(_checked(catalog, arguments), [each for each, is_given in given.items() if is_given])
    _show(plan)
    if plan.is_empty:
        return FAILED if any(each.damage for each in plan.left) else 0
    if not arguments.yes and not _agreed():
        print("nothing was changed; --yes does it", file=sys.stderr)
        return FAILED
    made = repair(catalog, plan)
    for each in made.not_done:
        print(escaped(f"not done: {each}"), file=sys.stderr)
    print(escaped(f"repaired; `tiltyard catalog repair {catalog.uri} --undo {made.undo}` takes it back"))
    left = any(each.damage for each in plan.left)
    return FAILED if left or made.not_done else 0


def _show(plan: Plan) -> None:
    for each in plan.told:
        print(escaped(each))
    for finding in plan.left:
        print(escaped(f"stays: {finding}"))
    if plan.is_empty:
        print("there is nothing to repair" + (" without options" if plan.left else ""))


def _agreed() -> bool:
    """Ask on a terminal; nobody there has not agreed."""
    if not sys.stdin.isatty():
        return False
    print("do this? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in YES


# -- changing ------------------------------------------------------------------------------------


def _drop(catalog: Catalog, arguments: argparse.Namespace) -> int:
    from tiltyard.catalog.trash import drop_table
    from tiltyard.lake.missing import dotted

    id = _id(arguments.table)
    with dotted(catalog, id):
        dropped = drop_table(catalog, id)
    until = local_time(dropped.until_ns)
    print(escaped(f"dropped {_text(dropped.id)}; `tiltyard catalog undrop` brings it back until {until}"))
    return 0


def _undrop(catalog: Catalog, arguments: argparse.Namespace) -> int:
    from tiltyard.catalog.trash import undrop_table
    from tiltyard.lake.missing import dotted

    id = _id(arguments.table)
    with dotted(catalog, id):
        undropped = undrop_table(catalog, id, trash=arguments.id)
    print(escaped(f"{_text(undropped.id)} is there again"))
    return 0


def _rename(catalog: Catalog, arguments: argparse.Namespace) -> int:
    from tiltyard.catalog.renaming import rename_table
    from tiltyard.lake.missing import dotted

    id, new = _id(arguments.table), _id(arguments.new)
    with dotted(catalog, id, into=new):
        rename_table(catalog, id, new)
    print(escaped(f"{_text(id)} is called {_text(new)} now"))
    return 0


def _dropped(catalog: Catalog, arguments: argparse.Namespace) -> int:
    import pyarrow as pa

    from tiltyard.catalog.trash import dropped_tables

    found = [
        {
            "table": _text(each.id),
            "dropped": local_time(each.dropped_ns),
            "until": local_time(each.until_ns),
            "id": each.trash,
        }
        for each in dropped_tables(catalog)
    ]
    if not found:
        print("no dropped tables")
        return 0
    print("\n".join(lines(pa.Table.from_pylist(found), terminal_width(), whole=("table", "id"))))
    return 0


def _purge(catalog: Catalog, arguments: argparse.Namespace) -> int:
    from tiltyard.catalog.purging import purge, purge_orphans
    from tiltyard.catalog.trash import dropped_tables

    orphan_seconds = _seconds(arguments.orphans)  # refused before anything is deleted
    grace = _seconds(arguments.grace)
    done = purge(catalog, grace)
    for each in done.given_up:
        print(escaped(f"{_text(each.id)} cannot be brought back any more"))
    gone = list(done.removed)
    if orphan_seconds is not None:
        gone += purge_orphans(catalog, older_than_seconds=orphan_seconds)
    print(f"removed {_directories(len(gone))}")
    empty = len(done.emptied) + len(done.waiting)
    if empty:
        stay = "stay" if empty > 1 else "stays"
        them = "them" if empty > 1 else "it"
        print(
            f"{_directories(empty)} without a file {stay} for an hour after being emptied, "
            "whatever the grace, in the way of moves that come late; "
            f"the next purge after that removes {them}"
        )
    kept = len(dropped_tables(catalog))
    if kept:
        print(f"{counted(kept, 'dropped table')} can still be brought back: `tiltyard catalog dropped`")
    return 0


def _directories(number: int) -> str:
    return f"{number:,} {'directory' if number == 1 else 'directories'}"


def _migrate(catalog: Catalog, arguments: argparse.Namespace) -> int:
    from tiltyard.catalog.migrating import migrate

    print(f"{counted(migrate(catalog), 'table')} got a row")
    return 0


# -- words ---------------------------------------------------------------------------------------


def _id(name: str, what: str = "a table") -> Id:
    from tiltyard.lake.names import id_of

    return id_of(name, what)


def _text(id: Id) -> str:
    from tiltyard.lake.names import text_of

    return text_of(id)


def _seconds(span: str | None) -> float | None:
    """A span such as `1h` in seconds."""
    if span is None:
        return None
    from tiltyard.table.cleanup.auto import parse_span

    return parse_span(span) / NS_PER_SECOND


_ACTIONS = {
    "list": _list,
    "check": _check,
    "repair": _repair,
    "drop": _drop,
    "undrop": _undrop,
    "rename": _rename,
    "dropped": _dropped,
    "purge": _purge,
    "migrate": _migrate,
}
