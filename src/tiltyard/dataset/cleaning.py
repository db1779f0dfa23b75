"""The cleaning face of a dataset: old versions, the files that only they need, and branches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from tiltyard import runtime
from tiltyard.dataset import arguments
from tiltyard.dataset.handle import Handle
from tiltyard.dataset.tags import Branches
from tiltyard.errors import InvalidCleanup, InvalidInput
from tiltyard.table.wording import NS_PER_SECOND

if TYPE_CHECKING:
    from tiltyard.table.cleanup.explain import CleanupExplanation, CleanupStats
    from tiltyard.table.cleanup.select import Policy
    from tiltyard.table.cleanup.survey import Place
    from tiltyard.table.snapshot import Snapshot

MAX_FILES = 1000
"""As `table.cleanup.explain.MAX_FILES`, which is loaded when it is called."""
MAX_RATE = 1_000_000_000
MAX_CONCURRENCY = 2**61 - 1
MAX_INTERVAL = 2**31 - 1
MAX_SECONDS = 100 * 366 * 86_400


class AutoCleanupConfig(TypedDict, total=False):
    """Clean up after every `interval` versions what is older than `older_than_seconds`."""

    interval: int
    older_than_seconds: int


class CleanFace(Handle):
    """Removing old versions."""

    def cleanup_old_versions(
        self,
        older_than: timedelta | str | None = None,
        retain_versions: int | None = None,
        *,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        delete_rate_limit: int | None = None,
        versions: Iterable[int] | None = None,
        delete_concurrency: int | None = None,
    ) -> CleanupStats:
        """Remove versions that nothing holds any more, and the files that only they need; gives totals.

        A version goes when it is older than `older_than`, is not among the newest `retain_versions`, and is
        one of `versions`, as far as each is given; with none of the three, when it is older than two weeks.
        Without an age or `versions` one younger than an hour stays. The newest version stays always, and so
        do the one that this handle shows and those after it, versions that a tag names (which is an error by
        default) and those that branches start from. Files that no version names go when they are older than
        seven days, or at once with `delete_unverified`: only where no writer is at work. Names that no writer
        of tables gives stay for ever. Ages are those of the files by the store's clock; a version's counts
        from when its name was given.

        `older_than` is a `timedelta` or text such as `"7d"`. `delete_rate_limit`: files each second at most.
        `delete_concurrency` has no effect. Raises `CleanupRefused` (tags), `CorruptFile`,
        `UnsupportedFeature` (a version that may need files which we do not know about), `InvalidInput`:
        before anything is removed; `StoreError`.
        """
        from tiltyard.table.cleanup.explain import stats_of
        from tiltyard.table.cleanup.run import clean

        policy = _policy(
            older_than, retain_versions, delete_unverified, error_if_tagged_old_versions, versions
        )
        rate = _maybe_positive("delete_rate_limit", delete_rate_limit, MAX_RATE)
        _maybe_positive("delete_concurrency", delete_concurrency, MAX_CONCURRENCY)
        snapshot = self._snapshot
        return stats_of(clean(self._place(snapshot), snapshot.version, policy, rate))

    def explain_cleanup_old_versions(
        self,
        older_than: timedelta | str | None = None,
        retain_versions: int | None = None,
        *,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        delete_rate_limit: int | None = None,
        versions: Iterable[int] | None = None,
        include_files: bool = False,
        max_files: int = MAX_FILES,
    ) -> CleanupExplanation:
        """What `cleanup_old_versions` would remove just now; changes nothing.

        `candidate_files` lists what goes, up to `max_files`, where `include_files` asks for it; `versions`
        and `files` say of everything that is there whether it goes, why, and until when it stays. Raises what
        the cleanup raises before it removes anything.
        """
        from tiltyard.table.cleanup.explain import explain

        policy = _policy(
            older_than, retain_versions, delete_unverified, error_if_tagged_old_versions, versions
        )
        _maybe_positive("delete_rate_limit", delete_rate_limit, MAX_RATE)
        snapshot = self._snapshot
        return explain(
            self._place(snapshot),
            snapshot.version,
            policy,
            include_files=arguments.flag("include_files", include_files),
            max_files=arguments.whole("max_files", max_files, 1),
        )

    @property
    def branches(self) -> Branches:
        """The table's branches."""
        return Branches(self)

    def _place(self, snapshot: Snapshot) -> Place:
        from tiltyard.table.cleanup.survey import place_of

        return place_of(snapshot, self._root)


class AutoCleanupSwitch:
    """Turning cleanup after commits on and off, for the object that `optimize` gives."""

    _handle: Any

    def enable_auto_cleanup(self, auto_cleanup_config: Mapping[str, Any], **kwargs: Any) -> None:
        """Clean up after every `interval` versions what is older than `older_than_seconds`: a mapping of the
        two. Commits the setting, whatever version the handle shows.
        """
        _refuse_options(kwargs)
        self._set(config_of("auto_cleanup_config", auto_cleanup_config))

    def disable_auto_cleanup(self, **kwargs: Any) -> None:
        """Clean up only when asked to. Commits the setting, whatever version the handle shows."""
        from tiltyard.table.cleanup.auto import KEYS

        _refuse_options(kwargs)
        self._set(dict.fromkeys(KEYS))

    def _set(self, values: Mapping[str, str | None]) -> None:
        from tiltyard.format import transaction as facts
        from tiltyard.table.commit import commit
        from tiltyard.table.snapshot import open_latest

        handle: Any = self._handle
        base = open_latest(handle._store, handle._session)  # versions before it may have been cleaned up
        operation = facts.UpdateConfig(config_updates=facts.UpdateMap(tuple(values.items()), False))
        transaction = facts.Transaction(base.version, str(runtime.uuid4()), operation)
        handle._move(commit(base.store, transaction, session=base.session, base=base))


def config_of(name: str, given: Any) -> dict[str, str]:
    """The config entries for options of automatic cleanup. Raises `InvalidInput` for what is none."""
    from tiltyard.table.cleanup import auto

    options = arguments.mapping(name, given)
    known = set(AutoCleanupConfig.__annotations__)
    unknown = sorted(set(map(str, options)) - known)
    if unknown:
        raise InvalidInput(f"{name} has no option {unknown[0]!r}; there are {', '.join(sorted(known))}")
    interval = arguments.maybe_whole(f"{name}['interval']", options.get("interval"), 0, MAX_INTERVAL)
    seconds = arguments.maybe_whole(
        f"{name}['older_than_seconds']", options.get("older_than_seconds"), 0, MAX_SECONDS
    )
    return auto.config_of(interval, seconds)


def _refuse_options(options: Mapping[str, Any]) -> None:
    if options:
        raise InvalidInput(f"there is no option {next(iter(options))!r}")


def _policy(
    older_than: Any, retain_versions: Any, delete_unverified: Any, refuse_tagged: Any, versions: Any
) -> Policy:
    from tiltyard.table.cleanup.select import DEFAULT_OLDER_THAN_NS, Policy

    age = None if older_than is None else age_ns("older_than", older_than)
    chosen = None if versions is None else frozenset(arguments.wholes("versions", versions, 1))
    retain = arguments.maybe_whole("retain_versions", retain_versions)
    if age is None and retain is None and chosen is None:
        age = DEFAULT_OLDER_THAN_NS
    return Policy(
        age,
        retain,
        chosen,
        delete_unverified=arguments.flag("delete_unverified", delete_unverified),
        refuse_tagged=arguments.flag("error_if_tagged_old_versions", refuse_tagged),
    )


def age_ns(name: str, value: Any) -> int:
    """Nanoseconds of an age, a `timedelta` or text such as `"7d"`. A plain number is refused: of what removes
    history nobody should have to know whether 7 are days or seconds.
    """
    if isinstance(value, str):
        from tiltyard.table.cleanup.auto import parse_span

        return parse_span(value)
    if not isinstance(value, timedelta):
        advice = ""
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= MAX_SECONDS:
            advice = f": {value:g} days are '{value:g}d', {value:g} seconds are '{value:g}s'"
        raise arguments.wrong(name, f"a timedelta or text such as '7d'{advice}", value)
    return round(arguments.seconds(name, value) * NS_PER_SECOND)


def _maybe_positive(name: str, value: Any, high: int) -> int | None:
    number = arguments.maybe_whole(name, value, 0, high)
    if number == 0:
        raise InvalidCleanup(f"{name} must be greater than 0")
    return number
