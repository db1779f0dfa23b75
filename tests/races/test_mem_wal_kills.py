"""Writers of one shard that are killed (SIGKILL) while they put, flush and publish; ours and the official
package's in turn. Every acknowledged row is there afterwards, once.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from peer import Peer
from stream_kills import kill_in_turn


@pytest.mark.parametrize(("keyed", "kills"), [(True, 8), (False, 4)])
def test_no_row_is_lost_or_doubled_by_kills(tmp_path: Path, peer: Peer, keyed: bool, kills: int) -> None:
    """Cases M04 and M06."""
    kill_in_turn(tmp_path, peer, keyed, kills, Random(kills))


@pytest.mark.soak
@pytest.mark.parametrize(("keyed", "kills"), [(True, 120), (False, 80)])
def test_no_row_is_lost_or_doubled_by_many_kills(tmp_path: Path, peer: Peer, keyed: bool, kills: int) -> None:
    kill_in_turn(tmp_path, peer, keyed, kills, Random(kills))


@pytest.mark.parametrize(("keyed", "kills"), [(True, 4), (False, 3)])
def test_no_row_is_lost_or_doubled_by_kills_under_compaction_and_collection(
    tmp_path: Path, peer: Peer, keyed: bool, kills: int
) -> None:
    """Case M05 too: compactors and collectors run beside the writers, and are killed like them."""
    kill_in_turn(tmp_path, peer, keyed, kills, Random(kills + keyed), kept=True)


@pytest.mark.soak
@pytest.mark.parametrize(("keyed", "kills"), [(True, 120), (False, 80)])
def test_no_row_is_lost_or_doubled_by_many_kills_under_compaction_and_collection(
    tmp_path: Path, peer: Peer, keyed: bool, kills: int
) -> None:
    kill_in_turn(tmp_path, peer, keyed, kills, Random(kills + keyed), kept=True)
