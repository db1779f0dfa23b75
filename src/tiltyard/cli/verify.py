"""`tiltyard verify URI`: whether all files of a table are there and are what its versions say of them.

Exit status 1 when something is wrong.
"""

from __future__ import annotations

import argparse
import sys

from tiltyard.cli import FAILED
from tiltyard.cli.arguments import TABLE_HELP, version_of
from tiltyard.cli.text_table import escaped
from tiltyard.table.wording import counted


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uri", help=TABLE_HELP)
    parser.add_argument(
        "--at", metavar="VERSION", help="a version number or a tag; all versions if not given"
    )
    parser.add_argument(
        "--checksums", action="store_true", help="read every data file and compare its checksums"
    )


def run(arguments: argparse.Namespace) -> int:
    from tiltyard.dataset.checking import verify_places

    report = verify_places(arguments.uri, version_of(arguments), checksums=arguments.checksums)
    for finding in report.findings:
        print(escaped(str(finding)))
    looked = f"{counted(report.versions, 'version')}, {counted(report.files, 'file')}"
    if arguments.checksums:
        looked += f"; checksums of {counted(report.checksummed, 'data file')} compared"
        if report.unsummed:
            looked += f", {counted(report.unsummed, 'data file')} without any"
    wrong = counted(len(report.findings), "finding") if report.findings else "nothing is wrong"
    print(f"{looked}: {wrong}", file=sys.stderr if report.findings else sys.stdout)
    return FAILED if report.findings else 0
