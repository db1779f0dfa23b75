"""Random damage to files of both writers: right data or a typed error, never a crash or a hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from corrupt.damage import KINDS, damaged
from corrupt.victims import DATA_FILES, Victim, make_all
from peer import Peer

DAMAGES = 50
METADATA_FILES = 7
GROUP = 7  # victims to a process: few enough for several pytest workers, many enough to pay for the start


@pytest.fixture(scope="session")
def victims(tmp_path_factory: pytest.TempPathFactory, peer: Peer) -> list[Victim]:
    return make_all(tmp_path_factory.mktemp("victims"), peer)


@pytest.mark.parametrize("group", range(-(-(len(DATA_FILES) + 1 + METADATA_FILES) // GROUP)))
def test_damage_gives_right_data_or_a_typed_error(group: int, victims: list[Victim]) -> None:
    chosen = [str(v.directory) for v in victims[group * GROUP : (group + 1) * GROUP]]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    done = subprocess.run(
        [sys.executable, "-m", "corrupt.prober", str(DAMAGES), *chosen],
        capture_output=True,
        text=True,
        env=env,
        timeout=400,
    )
    lines = done.stdout.strip().split("\n")
    assert lines[-1].startswith("{"), f"died with {done.returncode} at: {lines[-1]}\n{done.stderr[-3000:]}"
    report = json.loads(lines[-1])
    assert not report["failures"], "\n".join(report["failures"])
    assert len(report["outcomes"]) == len(chosen)


def test_every_victim_is_probed(victims: list[Victim]) -> None:
    assert len(victims) == len(DATA_FILES) + 1 + METADATA_FILES


def test_damage_changes_bytes_and_is_repeatable() -> None:
    data = bytes(range(256)) * 20
    changed = 0
    for seed in range(len(KINDS) * 10):
        broken, what = damaged(data, seed)
        assert broken == damaged(data, seed)[0]
        assert what
        changed += broken != data
    assert changed > 90  # zeroing a zero and swapping equal ranges change nothing


def test_a_small_file_can_be_damaged_too(tmp_path: Path) -> None:
    for size in (0, 1, 7):
        for seed in range(40):
            damaged(b"x" * size, seed)
