"""What a cleanup removes and what it leaves, and why. Pure: a function of what was found and what was asked.

A version goes when everything that was asked for says so and nothing holds it: it is older than the newest
and than the one the cleanup was asked through, no tag names it and no branch starts from it. A file goes when
no version that stays, branch, detached or staged manifest names it, and either a version that goes named it
(then no write can be waiting to commit it), or it has been there for longer than any write takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tiltyard.errors import CleanupRefused, InvalidCleanup, VersionNotFound
from tiltyard.format.names import VERSIONS_DIR, parse_manifest_name, parse_staged_manifest
from tiltyard.table.cleanup.reachable import KIND_BY_FOLDER, Marked, NamedByVersions, key_of, kind_of
from tiltyard.table.wording import NS_PER_SECOND, span_text

DAY_NS = 86_400 * NS_PER_SECOND

DEFAULT_OLDER_THAN_NS = 14 * DAY_NS
"""The age from which versions go when nothing is asked for."""

GRACE_NS = 7 * DAY_NS
"""How long a file that no version names is left to the write that may be about to commit it."""

YOUNG_NS = 3_600 * NS_PER_SECOND
"""Versions younger than this stay unless an age or the versions themselves are asked for: a writer that slept
meanwhile would commit into the hole that they leave (decision D14a).
"""

MAX_TAGS_NAMED = 20


@dataclass(frozen=True, slots=True)
class Policy:
    """What is asked for. A version goes when it is older than `older_than_ns`, not among the newest
    `retain_versions`, and one of `versions`: as far as each is given. Ages in nanoseconds.

    `delete_unverified`: files that no version names go whatever their age. `refuse_tagged`: a tag on a
    version that would go is an error.
    """

    older_than_ns: int | None = None
    retain_versions: int | None = None
    versions: frozenset[int] | None = None
    delete_unverified: bool = False
    refuse_tagged: bool = True

    def __post_init__(self) -> None:
        if self.older_than_ns is not None and self.older_than_ns < 0:
            raise InvalidCleanup("older_than must be a span of time that is not negative")
        if self.retain_versions is not None and self.retain_versions < 1:
            raise InvalidCleanup(f"retain_versions must be greater than 0, got {self.retain_versions}")
        if self.versions is not None and not self.versions:
            raise InvalidCleanup("versions must not be empty when it is given")
        if self.versions is not None and min(self.versions) < 1:
            raise InvalidCleanup(f"versions are numbered from 1, found {min(self.versions)}")


@dataclass(frozen=True, slots=True)
class Version:
    """A version that is there: its manifest. Times in ns by the store's clock: `mtime_ns` of the content,
    `named_ns` of the name, as far as the store tells (`_since`).
    """

    version: int
    path: str
    size: int
    mtime_ns: int
    named_ns: int


@dataclass(frozen=True, slots=True)
class File:
    """A file that is there: bytes, and when its content was last changed (ns, store clock)."""

    path: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Pin:
    """What holds a version: a tag or a branch that starts from it. `counts`: whether a tag is one that people
    made; those of clones are silent.
    """

    text: str
    tag: str | None = None
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found. `files` were listed before `versions` (ascending) were read; `named` says which of
    those name what.

    `held`: keys that branches, detached and staged manifests name, with a word for who does. `gone`: keys
    that versions named which an earlier cleanup removed. `read_version`: the version that the cleanup was
    asked through. `now_ns`: the store's clock.
    """

    now_ns: int
    read_version: int
    versions: tuple[Version, ...]
    named: NamedByVersions
    files: tuple[File, ...] = ()
    pins: Mapping[int, tuple[Pin, ...]] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class VersionFate:
    """Whether a version goes, why, and until when it stays (ns, store clock; None: not by time alone)."""

    version: Version
    goes: bool
    reason: str
    until_ns: int | None = None


@dataclass(frozen=True, slots=True)
class FileFate:
    """Whether a file goes, why, and until when it stays at least (ns, store clock; None: not by time alone).

    `kind`: see `kind_of`; `manifest` and `staged manifest` besides, None for a file that is nobody's.
    `unverified`: it goes although no version ever named it.
    """

    path: str
    kind: str | None
    size: int
    goes: bool
    reason: str
    until_ns: int | None = None
    unverified: bool = False


@dataclass(frozen=True, slots=True)
class Selection:
    """The fate of every version and file, in the order of the survey."""

    versions: tuple[VersionFate, ...]
    files: tuple[FileFate, ...]


def select(survey: Survey, policy: Policy) -> Selection:
    """Decide. Raises `CleanupRefused` for tags on versions that would go, `VersionNotFound` for versions
    asked for that are newer than the newest.
    """
    newest = survey.versions[-1].version if survey.versions else 0
    if policy.versions is not None and max(policy.versions) > newest:
        raise VersionNotFound(
            f"version {max(policy.versions)} cannot be cleaned up: the newest version is {newest}"
        )
    fates = _version_fates(survey, policy)
    _refuse_tagged(survey, policy, fates)
    return Selection(fates, tuple(_file_fates(survey, policy, fates)))


# -- versions ------------------------------------------------------------------------------------


def _version_fates(survey: Survey, policy: Policy) -> tuple[VersionFate, ...]:
    retained = {each.version for each in survey.versions[-(policy.retain_versions or 1) :]}
    newest = survey.versions[-1].version if survey.versions else 0
    since = _since(survey.versions)
    return tuple(_fate(each, since, newest, retained, survey, policy) for each in survey.versions)


def _since(versions: Sequence[Version]) -> dict[int, int]:
    """From when the age of each version counts (ns, store clock): when its name was given, for until then
    nobody could read it, and a writer may have slept between content and name.

    A file system has no time of the name itself: `named_ns` is that of the last change of the inode, which a
    change of owner or a backup by hard links moves. So the version after it bounds it, whose content was
    written when this one could be read.
    """
    since = {}
    bound: int | None = None
    for each in reversed(versions):
        named = each.named_ns if bound is None else min(each.named_ns, bound)
        since[each.version] = max(each.mtime_ns, named)
        bound = each.mtime_ns
    return since


def _fate(
    version: Version,
    since: Mapping[int, int],
    newest: int,
    retained: set[int],
    survey: Survey,
    policy: Policy,
) -> VersionFate:
    number = version.version
    if number == newest:
        return VersionFate(version, False, "it is the newest version")
    kept = _kept(version, since[number], retained, survey, policy)
    pins = survey.pins.get(number, ())
    if kept is None and not pins:
        return VersionFate(version, True, "nothing asks for it to stay")
    held = " and ".join(pin.text for pin in pins)
    if kept is None:
        return VersionFate(version, False, held)
    reason, until = kept
    return VersionFate(version, False, f"{reason}; also {held}" if pins else reason, None if pins else until)


def _kept(
    version: Version, since_ns: int, retained: set[int], survey: Survey, policy: Policy
) -> tuple[str, int | None] | None:
    """Why what was asked for lets a version stay, and until when; None where it asks for it to go."""
    number = version.version
    if number >= survey.read_version:
        return f"the cleanup was asked through version {survey.read_version}, which is not newer", None
    if policy.versions is not None and number not in policy.versions:
        return "it is not one of the versions asked for", None
    if policy.retain_versions is not None and number in retained:
        return f"it is one of the {policy.retain_versions} newest", None
    if policy.older_than_ns is not None:
        until = since_ns + policy.older_than_ns
        if until > survey.now_ns:
            return f"it is not yet {span_text(policy.older_than_ns)} old", until
    elif policy.versions is None:
        until = since_ns + YOUNG_NS
        if until > survey.now_ns:
            return f"it is not yet {span_text(YOUNG_NS)} old, and no age was given", until
    return None


def _refuse_tagged(survey: Survey, policy: Policy, fates: Iterable[VersionFate]) -> None:
    """Raise for tags of people on versions that would go without them."""
    if not policy.refuse_tagged:
        return
    newest = survey.versions[-1].version if survey.versions else 0
    retained = {each.version for each in survey.versions[-(policy.retain_versions or 1) :]}
    since = _since(survey.versions)
    found: list[tuple[str, int]] = []
    for fate in fates:
        number = fate.version.version
        tags = [pin.tag for pin in survey.pins.get(number, ()) if pin.tag is not None and pin.counts]
        if tags and number != newest and _kept(fate.version, since[number], retained, survey, policy) is None:
            found += [(tag, number) for tag in tags]
    if not found:
        return
    shown = ", ".join(f"{tag!r} on version {number}" for tag, number in found[:MAX_TAGS_NAMED])
    more = f" and {len(found) - MAX_TAGS_NAMED} more" if len(found) > MAX_TAGS_NAMED else ""
    raise CleanupRefused(
        f"Cleanup error: {len(found)} tagged version(s) have been marked for cleanup: {shown}{more}. Nothing "
        "was removed. Set error_if_tagged_old_versions=False to leave them and clean up the others, or "
        "delete the tags"
    )


# -- files ---------------------------------------------------------------------------------------


_ALWAYS = {"hint": "it is the version hint", "tag": "tags go when they are deleted"}
"""Files that no cleanup removes, by kind."""


class _Holders:
    """The versions that stay, asked about keys."""

    def __init__(self, survey: Survey, fates: Sequence[VersionFate]) -> None:
        self._named = survey.named
        self._fates = fates
        self._staying = Marked([not fate.goes for fate in fates])

    def text(self, key: str) -> tuple[str, int | None] | None:
        """Who holds the key, and until when the last of them stays; None where no version does."""
        span = self._named.span(key, self._staying)
        if span is None:
            return None
        first, last = (self._fates[at] for at in span)
        low, high = first.version.version, last.version.version
        return (
            f"version {low} names it" if low == high else f"versions {low} to {high} name it",
            last.until_ns,
        )


def _file_fates(survey: Survey, policy: Policy, fates: tuple[VersionFate, ...]) -> list[FileFate]:
    staying = _Holders(survey, fates)
    going = survey.gone | survey.named.own_keys([fate.goes for fate in fates])
    by_path = {fate.version.path: fate for fate in fates}
    youngest = _youngest(survey.files)
    newest = survey.versions[-1].version if survey.versions else 0
    return [
        _manifest_fate(file, by_path[file.path])
        if file.path in by_path
        else _file_fate(file, survey, policy, staying, going, youngest, newest)
        for file in survey.files
    ]


def _youngest(files: Iterable[File]) -> dict[str, int]:
    """Per key the time of its youngest file: a segment is being built as long as its files come."""
    found: dict[str, int] = {}
    for file in files:
        key = key_of(file.path)
        found[key] = max(found.get(key, file.mtime_ns), file.mtime_ns)
    return found


def _manifest_fate(file: File, fate: VersionFate) -> FileFate:
    return FileFate(file.path, "manifest", file.size, fate.goes, fate.reason, fate.until_ns)


def _file_fate(
    file: File,
    survey: Survey,
    policy: Policy,
    staying: _Holders,
    going: frozenset[str],
    youngest: Mapping[str, int],
    newest: int,
) -> FileFate:
    key = key_of(file.path)
    kind = kind_of(file.path)
    since = youngest[key]
    if file.path.startswith(VERSIONS_DIR + "/") and kind is None:
        name = file.path.rpartition("/")[2]
        if parse_manifest_name(name) is not None:
            why = "it is a manifest that stands apart from the versions, and stays"
            return FileFate(file.path, "manifest", file.size, False, why)
        staged = parse_staged_manifest(name)
        if staged is not None and staged > newest:
            why = f"version {staged} may still be published from it"
            return FileFate(file.path, "staged manifest", file.size, False, why)
        if staged is not None:
            kind = "staged manifest"
    if kind == "temporary":
        since = file.mtime_ns
    else:
        holder = (survey.held[key], None) if key in survey.held else staying.text(key)
        if holder is not None:
            return FileFate(file.path, kind or _kind_by_folder(file.path), file.size, False, *holder)
        if key in going:
            known = kind or _kind_by_folder(file.path)
            return FileFate(file.path, known, file.size, True, "only versions that go named it")
    if kind is None or kind in _ALWAYS:
        why = _ALWAYS.get(kind or "", "no writer of tables gives such a name")
        return FileFate(file.path, kind, file.size, False, why)
    until = since + GRACE_NS
    if policy.delete_unverified:
        why = "no version names it, and such files go whatever their age"
        return FileFate(file.path, kind, file.size, True, why, unverified=True)
    if until <= survey.now_ns:
        why = f"no version names it, and it is older than {span_text(GRACE_NS)}"
        return FileFate(file.path, kind, file.size, True, why, unverified=True)
    why = "no version names it, but a write in progress may be about to"
    return FileFate(file.path, kind, file.size, False, why, until)


def _kind_by_folder(path: str) -> str | None:
    return KIND_BY_FOLDER.get(path.partition("/")[0])
