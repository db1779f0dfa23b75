"""One of the writers that `tiltyard demo` starts: appends its share of the rows in steps. Not for people."""

from __future__ import annotations

import argparse
import sys


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="Arrow file with one record batch for each append")
    parser.add_argument("uri")
    parser.add_argument("--first", type=int, required=True, help="number of its first batch")
    parser.add_argument("--stride", type=int, required=True, help="every how many batches one is its own")


def run(arguments: argparse.Namespace) -> int:
    import pyarrow as pa

    import tiltyard.lance as lance

    with pa.memory_map(arguments.source) as source:
        reader = pa.ipc.open_file(source)
        print("ready", flush=True)
        sys.stdin.readline()  # all writers start when the demo says so
        for number in range(arguments.first, reader.num_record_batches, arguments.stride):
            lance.write_dataset(pa.table(reader.get_batch(number)), arguments.uri, mode="append")
    return 0
