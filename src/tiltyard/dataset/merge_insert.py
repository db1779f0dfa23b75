"""`merge_insert` and its builder: rows matched by key, updated, inserted and deleted in one version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tiltyard.dataset import arguments
from tiltyard.dataset.handle import Handle
from tiltyard.errors import InvalidInput, UnsupportedFeature
from tiltyard.format.operations import CompactedSsTable
from tiltyard.format.version import FileVersion

if TYPE_CHECKING:
    from typing import Self

    from tiltyard.dataset.transaction import Transaction
    from tiltyard.table.merge import MergeJob, Settings
    from tiltyard.table.snapshot import Snapshot


class MergeFace(Handle):
    """Merges, as one sees them. After one the handle shows the version that it made."""

    def merge_insert(self, on: str | Iterable[str] | None = None) -> MergeInsertBuilder:
        """Say what shall happen to rows of this table and of a source that have one key, then `execute`.

        `on`: the column or columns that are the key, in any case; dotted paths lead into structs. Without it
        the table's primary key, else its unique key (config `tiltyard.unique`). A key with a null in it
        matches nothing. Raises `InvalidInput` where there is neither and `FieldNotFound`.
        """
        return MergeInsertBuilder(self, on)

    def duplicate_keys(self, on: str | Iterable[str] | None = None) -> dict[str, Any]:
        """Whether rows of the version shown share a key: `{"num_keys": n, "num_rows": n, "example": text}`,
        where `num_rows` counts all rows of the `num_keys` keys that stand more than once.

        `on`: the columns of the key; without it those of config `tiltyard.unique`, else the primary key.
        """
        from tiltyard.table.dedupe import duplicates, key_of

        snapshot = self._snapshot
        found = duplicates(snapshot, key_of(snapshot, _names(on)))
        return {"num_keys": found.keys, "num_rows": len(found.addresses), "example": found.example}

    def dedupe(self, on: str | Iterable[str] | None = None, *, keep: str = "last") -> dict[str, int]:
        """Delete all rows of the newest version but one of each key, the last in table order, or with
        `keep='first'` the first. Rows with a null in the key stay.

        `on` as for `duplicate_keys`. Gives `{"num_deleted_rows": n, "num_keys": n}`; commits nothing where no
        key stands twice. Mends a table whose `tiltyard.unique` key another writer did not keep.
        """
        from tiltyard.table.dedupe import dedupe

        keep = arguments.one_of("keep", keep, "last", "first")
        done = dedupe(self._store, self._session, _names(on), keep=keep)
        self._move(done.snapshot)
        return {"num_deleted_rows": done.rows, "num_keys": done.keys}


def _names(on: str | Iterable[str] | None) -> list[str] | None:
    return None if on is None else arguments.texts("on", [on] if isinstance(on, str) else on)


class MergeInsertBuilder:
    """A merge being described; every method but the last gives the builder itself.

    *Matched* are rows whose key both sides have, *not matched* rows of the source alone, *not matched by
    source* rows of the table alone. What no method names is left as it is. Updated rows move to the end of
    the table. The merge is decided on the newest version, whatever the dataset shows.
    """

    def __init__(self, dataset: Any, on: str | Iterable[str] | None = None) -> None:
        from tiltyard.table.merge import Settings
        from tiltyard.table.merge.keys import resolve_key
        from tiltyard.table.unique import unique_key

        names = _names(on)
        self._dataset: Handle = dataset
        snapshot = self._dataset._snapshot
        if not names and not snapshot.schema.primary_key:
            declared = unique_key(snapshot.schema, snapshot.manifest.config)
            names = None if declared is None else list(declared.names)
        self._settings = Settings(on=tuple(names) if names else None)
        resolve_key(snapshot.schema, self._settings.on)

    def _with(self, **changes: Any) -> Self:
        self._settings = replace(self._settings, **changes)
        return self

    # -- what happens --------------------------------------------------------------------------------

    def when_matched_update_all(self, condition: str | None = None) -> Self:
        """Matched rows take the values of the source, in the columns (and fields of structs) that it brings.

        `condition`: SQL over `source.column` and `target.column`; where it is not true the row stays as it
        is, and does not become one that is not matched.
        """
        from tiltyard.table.merge import Matched

        condition = arguments.maybe_text("condition", condition)
        return self._with(matched=Matched.UPDATE, condition=condition, updates={})

    def when_matched_update(self, updates: Mapping[str, str], condition: str | None = None) -> Self:
        """Set columns of matched rows: column or dotted path -> SQL over `source.` and `target.` columns, as
        in `{"stock": "target.stock + source.delta"}`. The source may bring columns that the table has not.
        See `LanceDataset.update` for how values are cast; `condition` as for `when_matched_update_all`.
        """
        from tiltyard.table.merge import Matched

        named = arguments.expressions("updates", updates)
        if not named:
            raise InvalidInput("updates names no column: say which to set, as in {'price': 'source.price'}")
        condition = arguments.maybe_text("condition", condition)
        return self._with(matched=Matched.UPDATE, condition=condition, updates=named)

    def when_matched_fail(self) -> Self:
        """Raise `MatchedRow`, and change nothing, when any row matches."""
        from tiltyard.table.merge import Matched

        return self._with(matched=Matched.FAIL, condition=None, updates={})

    def when_matched_delete(self) -> Self:
        """Delete matched rows; the source needs only the key."""
        from tiltyard.table.merge import Matched

        return self._with(matched=Matched.DELETE, condition=None, updates={})

    def when_not_matched_insert_all(self) -> Self:
        """Add the rows of the source that match nothing; columns that it lacks become null."""
        return self._with(insert=True)

    def when_not_matched_by_source_delete(self, expr: str | None = None) -> Self:
        """Delete rows of the table that no row of the source matches, those for which `expr` (SQL over the
        table's columns) is true where it is given.
        """
        return self._with(by_source=True, by_source_condition=arguments.maybe_text("expr", expr))

    def source_dedupe_behavior(self, behavior: str) -> Self:
        """Which of several source rows with one key counts: `fail` (the default: `AmbiguousMerge`),
        `first_seen` or `last_seen`. Rows with a null in the key are never duplicates.
        """
        from tiltyard.table.merge import Duplicates

        known = [each.value for each in Duplicates]
        return self._with(duplicates=Duplicates(arguments.one_of("behavior", behavior, *known)))

    # -- how ---------------------------------------------------------------------------------------------

    def conflict_retries(self, max_retries: int) -> Self:
        """How often the merge is decided anew after others changed the same rows or inserted the same keys;
        10 if not said.
        """
        return self._with(conflict_retries=arguments.whole("max_retries", max_retries))

    def retry_timeout(self, timeout: timedelta | float) -> Self:
        """Until when it is decided anew: a `timedelta` or seconds, 30 if not said. The first time is never
        cut short.
        """
        return self._with(retry_seconds=arguments.seconds("timeout", timeout))

    def use_index(self, use_index: bool) -> Self:
        """Whether a B-tree index on the key may be used; it is where that is cheaper than reading keys."""
        return self._with(use_index=arguments.flag("use_index", use_index))

    def write_mode(self, mode: str) -> Self:
        """`rewrite_rows` moves updated rows, `rewrite_columns` writes the columns that the source brings anew
        for all rows of the fragments with updated rows, `auto` (the default) chooses by what is written.

        `rewrite_columns` can only update: `execute` refuses it with inserts or deletes, or where the source
        brings every column or only the key.
        """
        from tiltyard.table.merge import WriteMode

        known = [each.value for each in WriteMode]
        if arguments.text("mode", mode) not in known:
            raise InvalidInput(f"Invalid write_mode: {mode}. Expected one of {', '.join(map(repr, known))}")
        return self._with(write_mode=WriteMode(mode))

    def data_storage_version(self, version: str) -> Self:
        """The version of the data files that are written; the table's if not said."""
        return self._with(file_version=FileVersion.parse(arguments.text("version", version)))

    def target_bases(self, bases: Any) -> Self:
        """Not supported: new files go to the table's own place."""
        raise UnsupportedFeature("target_bases is not supported by this version of tiltyard")

    def target_all_bases(self, include_primary: bool = True) -> Self:
        """Not supported: new files go to the table's own place."""
        raise UnsupportedFeature("target_all_bases is not supported by this version of tiltyard")

    def mark_sstables_as_compacted(self, sstables: Iterable[Any]) -> Self:
        """Record, in the version that the merge makes, that these SSTables (objects with `shard_id` and
        `generation`) of the memory WAL, and those of their shards before them, are part of the table.

        `execute` then refuses, before anything is written, a table without MemWAL, a shard or a generation
        that there is not (`InvalidInput`), and a mark that does not advance (`IncompatibleTransaction`).
        """
        marks = []
        for each in arguments.items("sstables", sstables, object):
            shard = getattr(each, "shard_id", None)
            if shard is None or not hasattr(each, "generation"):
                raise arguments.wrong("each of sstables", "a CompactedSsTable", each)
            marks.append(CompactedSsTable(str(shard), arguments.whole("generation", each.generation)))
        return self._with(compacted_sstables=tuple(marks))

    # -- running it ----------------------------------------------------------------------------------------

    def execute(
        self,
        data_obj: Any,
        *,
        schema: Any = None,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
    ) -> dict[str, int]:
        """Merge the data into the newest version; the dataset then shows the version that this makes.

        `data_obj`: whatever `write_dataset` takes; a stream is kept until the merge is through, beyond the
        session's `spill_bytes` in a scratch file. `schema`: brings the data to these columns first. Gives
        `{"num_inserted_rows": n, "num_updated_rows": n, "num_deleted_rows": n}`.

        Raises `InvalidInput` (settings that change nothing), `SchemaMismatch`, `AmbiguousMerge` (source rows
        with one key), `MatchedRow`, `InvalidExpression`, before a file is written; `TooMuchContention`; and
        what a commit raises.
        """
        from tiltyard.dataset.transaction import with_message

        properties = with_message(transaction_properties, commit_message)
        marks = self._settings.compacted_sstables
        if marks:
            from tiltyard.memwal.marks import check_marks

            check_marks(self._dataset._store, self._dataset._session, marks)
        job = self._job(data_obj, schema)
        done = job.run(self._dataset._store, self._dataset._session, properties)
        self._dataset._move(done.snapshot)
        return dict(done.statistics)

    def execute_uncommitted(self, data_obj: Any, *, schema: Any = None) -> tuple[Transaction, dict[str, int]]:
        """Decide the merge on the newest version and write its files, but commit nothing.

        Gives the transaction, for `LanceDataset.commit`, and the counts of `execute`. Files of a transaction
        that is never committed are collected by age.
        """
        from tiltyard import runtime
        from tiltyard.dataset.transaction import Transaction
        from tiltyard.format import transaction as facts
        from tiltyard.table.row_changes import RowChanges

        if self._settings.compacted_sstables:
            raise UnsupportedFeature(
                "mark_sstables_as_compacted needs execute: a mark is committed with the rows"
            )
        job = self._job(data_obj, schema)
        snapshot = self._newest()
        planned = job.planned(snapshot)
        with RowChanges(snapshot) as changes:
            operation = job.write(changes, planned)
            changes.keep()
        fact = facts.Transaction(snapshot.version, str(runtime.uuid4()), operation)
        return Transaction.from_fact(fact), dict(planned.plan.statistics)

    def explain_plan(self, schema: Any = None, verbose: bool = False) -> str:
        """How a merge of data with this `pa.Schema` (the table's if not given) would be done, as text."""
        from tiltyard.table.merge.explain import explain

        arguments.flag("verbose", verbose)
        snapshot = self._newest()
        return explain(snapshot, self._settings, snapshot.schema.arrow if schema is None else _arrow(schema))

    def analyze_plan(self, data_obj: Any, *, schema: Any = None) -> str:
        """How the merge of the data is done and what it takes, as text. It is carried out but not committed,
        and its files are removed.
        """
        from tiltyard.table.merge.explain import analyze

        return analyze(self._job(data_obj, schema), self._newest())

    def _newest(self) -> Snapshot:
        from tiltyard.table.snapshot import open_latest

        return open_latest(self._dataset._store, self._dataset._session)

    def _job(self, data: Any, schema: Any) -> MergeJob:
        return merge_job(self._dataset, self._settings, data, schema)


def merge_job(dataset: Handle, settings: Settings, data: Any, schema: Any = None) -> MergeJob:
    """The merge of data as callers give it; a stream is read to its end here."""
    from tiltyard.dataset.merge_source import is_held, table_guide
    from tiltyard.dataset.source import read_source
    from tiltyard.table.merge import MergeJob, Source

    settings.check()
    guide = None if schema is not None else table_guide(data, dataset._snapshot.schema.arrow)
    arrow, batches = read_source(data, schema, guide)
    spill_bytes = dataset._session.limits.spill_bytes
    return MergeJob(settings, Source.of(arrow, batches, held=is_held(data), spill_bytes=spill_bytes))


def _arrow(schema: Any) -> Any:
    import pyarrow as pa

    if hasattr(schema, "to_pyarrow"):
        schema = schema.to_pyarrow()
    if not isinstance(schema, pa.Schema):
        raise arguments.wrong("schema", "a pyarrow.Schema", schema)
    return schema
