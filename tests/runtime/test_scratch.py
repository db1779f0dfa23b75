"""Scratch files: written, mapped, and gone."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tiltyard.errors import StoreError
from tiltyard.runtime.port import Port
from tiltyard.runtime.scratch import ALIGNMENT, Scratch
from tiltyard.testing.faults import FaultyPort, port_installed, refusing


@pytest.mark.parametrize("named", [False, True])
def test_pieces_come_back_as_written_and_leave_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if named:  # a file system without files that have no name
        plain = os.open

        def refusing(path: Any, flags: int, *more: Any, **named: Any) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "not offered")
            return plain(path, flags, *more, **named)

        monkeypatch.setattr("os.open", refusing)
    scratch = Scratch()
    places = [scratch.append([b"abc", b"d" * n]) for n in range(3)]
    assert [size for _, size in places] == [3, 4, 5]
    assert all(begin % ALIGNMENT == 0 for begin, _ in places)
    mapped = scratch.map()
    begin, size = places[2]
    scratch.close()
    assert mapped.slice(begin, size).to_pybytes() == b"abcdd"
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_system_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(OSError, match="missing"):
        Port().open_scratch()


@pytest.mark.parametrize("call", ["open_scratch", "write", "map"])
def test_a_full_disk_is_an_error_of_ours_that_says_what_to_do(call: str) -> None:
    def spill() -> None:
        scratch = Scratch()
        scratch.append([b"abc"])
        scratch.map()

    with port_installed(FaultyPort(refusing(**{call: errno.ENOSPC}))), pytest.raises(StoreError) as told:
        spill()
    assert told.value.errno == errno.ENOSPC
    assert "TMPDIR" in str(told.value)
