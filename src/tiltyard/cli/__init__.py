"""The command line: one parser, one module for each command, loaded when the command is chosen.

A command is a module with `configure(parser)`, which declares its arguments, and `run(arguments)`, which does
the work and returns the exit status. Adding one means writing the module and naming it in `COMMANDS`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TextIO

from tiltyard import __version__
from tiltyard.errors import TableNotFound, TiltyardError, without_prefix

NO_TABLES = ("serve", "probe", "demo-writer")
"""Commands whose place is not that of a table."""

FAILED = 1
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: `module` is imported only when it is called. Without a summary it is not listed."""

    name: str
    module: str
    summary: str = ""


COMMANDS = (
    Command("info", "tiltyard.cli.info", "what a table holds: rows, columns, files, version"),
    Command("head", "tiltyard.cli.head", "the first rows, all or those that a predicate keeps"),
    Command("versions", "tiltyard.cli.versions", "the versions of a table, what made them, and their rows"),
    Command("verify", "tiltyard.cli.verify", "whether all files of a table are there and are what it says"),
    Command("tag", "tiltyard.cli.tag", "names for versions: list, create, move, delete"),
    Command("compact", "tiltyard.cli.compact", "few large files instead of many small ones"),
    Command("optimize", "tiltyard.cli.optimize", "compaction, upkeep of indices and cleanup in one"),
    Command("maintain", "tiltyard.cli.maintain", "keep a table within stated limits, from now on"),
    Command(
        "cleanup", "tiltyard.cli.cleanup", "remove old versions, or tell what would go and why the rest stays"
    ),
    Command(
        "dedupe", "tiltyard.cli.dedupe", "delete all rows but one of each key, or say how many there are"
    ),
    Command("catalog", "tiltyard.cli.catalog", "tables by name: list, check, repair, drop, undrop, rename"),
    Command("shards", "tiltyard.cli.shards", "shards of a streamed table: owners, what is published, lag"),
    Command("shard", "tiltyard.cli.shard", "a shard, or all: check, repair, seal, drop, revise, tail"),
    Command("serve", "tiltyard.cli.serve", "a catalog over HTTP, for the official clients and ours"),
    Command("probe", "tiltyard.cli.probe", "whether a place keeps the promises that tables need"),
    Command("demo", "tiltyard.cli.demo", "336,776 real flights: four writers at once, time travel, a filter"),
    Command("demo-writer", "tiltyard.cli.demo_writer"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status. Errors of ours are shown in one line, without a trace."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = _parser(chosen=next((w for w in words if not w.startswith("-")), None))
    arguments = parser.parse_args(words)
    if arguments.command is None:
        parser.print_help()
        return 0
    module = import_module(next(c.module for c in COMMANDS if c.name == arguments.command))
    place = getattr(arguments, "uri", None) or ""
    try:
        if "::" in place and arguments.command not in NO_TABLES:
            from tiltyard.cli.arguments import place_of

            arguments.uri = place_of(place)
        status: int = module.run(arguments)
        sys.stdout.flush()  # here, where what it raises can be told
    except TableNotFound as error:
        return _failed(str(error) + _hint(place))
    except TiltyardError as error:
        return _failed(str(error))
    except BrokenPipeError:  # `tiltyard head ... | head`: the reader has seen enough
        _silence(sys.stdout)
        return FAILED
    except OSError as error:
        _silence(sys.stdout)
        place = "standard output" if error.filename is None else error.filename
        return _failed(f"{place}: {error.strerror or error}")
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _hint(place: str) -> str:
    from tiltyard.cli.arguments import lake_hint

    return lake_hint(place) if place and "::" not in place else ""


def _failed(message: str) -> int:
    """Tell an error; what a name or a value in it could do to the terminal is escaped."""
    from tiltyard.cli.text_table import escaped

    told = without_prefix(message).split("\n")
    print("tiltyard: " + "\n".join(map(escaped, told)), file=sys.stderr)
    return FAILED


def _silence(stream: TextIO) -> None:
    """Drop what is still buffered, so that the interpreter does not complain when it ends."""
    with suppress(OSError):
        stream.close()


class _Parser(argparse.ArgumentParser):
    """Each command tells of its own unknown options, under its own usage. Options have no short forms: what
    begins like one that changes a table is not taken for it.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unknown: {' '.join(unknown)}; {self.prog} --help lists what there is")
        return found, unknown


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    """The parser with every command named, and the arguments of the chosen one."""
    parser = _Parser(prog="tiltyard", description="The open Lance lakehouse in Python.", add_help=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    options = parser.add_argument_group("options")
    options.add_argument("-h", "--help", action="help", help="show this help and exit")
    options.add_argument(
        "--version", action="version", version=f"tiltyard {__version__}", help="show the version and exit"
    )
    for command in COMMANDS:
        if command.summary:
            sub = commands.add_parser(command.name, help=command.summary, description=command.summary)
        elif command.name == chosen:
            sub = commands.add_parser(command.name)
        else:
            continue
        if command.name == chosen:
            import_module(command.module).configure(sub)
    return parser
