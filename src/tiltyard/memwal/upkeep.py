"""What keeps a table's streams going by themselves: compaction and collection, once or again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.memwal.collection import USUAL_GRACE, Collected, Grace, collect_streams
from tiltyard.memwal.compaction import Compaction, compact_streams
from tiltyard.memwal.draining import told_compaction
from tiltyard.memwal.resharding import compacted, tidy
from tiltyard.table.wording import counted, sized

if TYPE_CHECKING:
    from tiltyard.memwal.owner import Streamable
    from tiltyard.table.optimize import Steps

SHARDING, STREAMS, COLLECTION = "sharding", "streams", "collection"
"""The steps, as reports name them."""


def keep_streams(table: Streamable, grace: Grace = USUAL_GRACE) -> tuple[Compaction, Collected]:
    """One pass: what is left of a change of the sharding, compaction, collection. Raises what each raises;
    what is wrong with single shards is in the results.
    """
    store, session = table._store, table._session
    tidy(table, compacted)
    return compact_streams(store, session), collect_streams(store, session, grace=grace)


def stream_upkeep(table: Streamable, done: Steps, grace: Grace = USUAL_GRACE) -> frozenset[str]:
    """The same as steps of a maintainer's pass; the indices that directories wait for."""
    store, session = table._store, table._session
    began = runtime.monotonic()
    try:
        tidied = tidy(table, compacted)
    except Exception as error:  # told in the report; rows of earlier shardings are older, and come first
        done.failed(SHARDING, error, runtime.monotonic() - began)
    else:
        if tidied.shards or tidied.activated is not None:
            done.run(SHARDING, lambda: tidied, lambda each: (True, str(each)))
        done.run(
            STREAMS,
            lambda: compact_streams(store, session),
            lambda each: (bool(each.generations), told_compaction(each)),
        )
    done.run(
        COLLECTION,
        lambda: collect_streams(store, session, grace=grace),
        lambda each: (bool(each), told_collected(each)),
    )
    problems: dict[str, Exception] = {}
    for name in (STREAMS, COLLECTION):
        if name in done.facts:
            problems |= done.facts[name].problems
    for shard_id, problem in sorted(problems.items()):
        done.failed(f"shard {shard_id}", problem, 0.0)
    collected = done.facts.get(COLLECTION)
    return frozenset() if collected is None else frozenset(collected.held)


def told_collected(done: Collected) -> str:
    """What a collection did, in words."""
    parts = [
        counted(done.directories, "SSTable") if done.directories else "",
        f"{done.entries:,} of the log ({sized(done.entry_bytes)})" if done.entries else "",
        counted(done.manifests, "manifest") if done.manifests else "",
        counted(done.temporary, "temporary file") if done.temporary else "",
    ]
    told = ", ".join(filter(None, parts))
    text = f"{told} deleted" if told else "nothing to delete"
    for index, count in sorted(done.held.items()):
        text += f"; {counted(count, 'SSTable')} stay until index {index!r} has caught up"
    return text
