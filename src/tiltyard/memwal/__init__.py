"""Streaming writes: rows reach a durable log first, then small tables beside the big one, then the big one.

`layout` names the files of a shard, `manifest` reads and replaces its manifest, `claim` makes a process its
owner, `wal` is the log, `sharding` says which shard a row belongs to.
"""
