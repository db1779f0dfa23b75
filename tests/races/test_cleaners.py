"""Real processes on one table while two of them clean up without mercy: every version and every tag reads,
and nobody meets an error that does not say what happened.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from workers import Crew

WRITE = """
import random
from tiltyard.errors import CommitConflict, FilesRemoved, VersionNotFound
chance = random.Random(me)
result = 0
for step in range(rounds):
    try:
        kind = chance.randrange(10)
        if kind < 6:
            lance.write_dataset(pa.table({"a": [step] * 5}), path, mode="append")
        elif kind < 7:
            lance.dataset(path).delete(f"a < {step // 2}")
        elif kind < 8:
            lance.write_dataset(pa.table({"a": list(range(50))}), path, mode="overwrite")
        elif kind < 9:
            lance.dataset(path).update({"a": "a + 1"}, where=f"a = {step}")
        else:
            ds = lance.dataset(path)
            ds.checkout_version(chance.choice(ds.version_refs())["version"]).restore()
        result += 1
    except (CommitConflict, FilesRemoved, VersionNotFound):
        continue
"""

TAG = """
import random
from tiltyard.errors import VersionNotFound
chance = random.Random(me)
result = 0
for step in range(rounds):
    ds = lance.dataset(path)
    try:
        name = f"t{me}-{step}"
        ds.tags.create(name, chance.choice(ds.version_refs()[-3:])["version"])
        ds.checkout_version(name).to_table()
        result += 1
        if result > 4:
            ds.tags.delete(sorted(t for t in ds.tags.list() if t.startswith(f"t{me}-"))[0])
    except VersionNotFound:
        continue
"""

CLEAN = """
import datetime
from tiltyard.errors import VersionNotFound
result = 0
for step in range(rounds):
    now = datetime.timedelta(0)
    done = lance.dataset(path).cleanup_old_versions(now, error_if_tagged_old_versions=False)
    assert not done.failed_deletes
    result += done.old_versions
"""

PEER = """
result = 0
for step in range(rounds):
    try:
        lance.write_dataset(pa.table({"a": [7777]}), path, mode="append")
        result += 1
    except OSError:
        continue
"""


@pytest.mark.parametrize("rounds", [12, pytest.param(150, marks=pytest.mark.soak)])
def test_cleanups_beside_writers_and_taggers_of_both_implementations(
    rounds: int, tmp_path: Path, crew: Crew
) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"a": list(range(100))}), path)
    ours, theirs = crew.ours(5), crew.peers(1)
    blocks = [WRITE, WRITE, TAG, CLEAN, CLEAN]
    for me, (worker, block) in enumerate(zip(ours, blocks, strict=True)):
        worker.begin(block, path=path, me=me, rounds=rounds)
    theirs[0].begin(PEER, path=path, rounds=rounds)
    done = [worker.answer() for worker in (*ours, *theirs)]
    assert all(done[:3]), done
    assert done[3] + done[4], done
    ds = lance.dataset(path, session=lance.Session())
    for each in ds.version_refs():
        ds.checkout_version(each["version"]).validate()
    for tag in ds.tags.list():
        ds.checkout_version(tag).validate()
