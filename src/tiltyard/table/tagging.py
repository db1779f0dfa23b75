"""Making, moving and deleting tags (table format, section 5; decisions D11, D27).

A tag's file is created if nothing is there, and carries a nonce, so that of two creators one wins and a lost
answer is found out. Where it is not, nothing is sent again: another may have seen the tag and deleted it.
Moving a tag replaces its file: of two movers the later one wins; a move that runs beside a deletion may make
the tag again. After a tag is written, the cleanups under way are looked at: where one removes the version,
the tag is taken back (`cleanup.intents`).
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tiltyard import runtime
from tiltyard.errors import (
    CorruptFile,
    InvalidInput,
    ObjectNotFound,
    OutcomeUnknown,
    StoreError,
    TagAlreadyExists,
    VersionNotFound,
)
from tiltyard.format import names
from tiltyard.format.refs import Tag, decode_tag, encode_tag
from tiltyard.store import Created, Store
from tiltyard.table.cleanup import intents
from tiltyard.table.refs import read_tag, unknown_tag
from tiltyard.table.versions import locate, not_found
from tiltyard.table.wording import NS_PER_SECOND

if TYPE_CHECKING:
    from tiltyard.session import Session
    from tiltyard.table.snapshot import Snapshot

NONCE_KEY = "tiltyard.nonce"
"""Metadata that tells who wrote a tag's file."""

MAX_NAME_BYTES = 240
"""Longer names would not fit a file system beside the suffix and a writer's own marks."""

_REFUSALS = frozenset((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT))
"""What a system says that did not even begin."""


def create_tag(root: Store, name: str, target: Snapshot, metadata: Mapping[str, str] | None = None) -> Tag:
    """Make a tag for a version. `root` holds the table's tags, whatever branch the version is of.

    Raises `TagAlreadyExists`, `InvalidInput` (the name), `VersionNotFound` (a cleanup removes the version;
    the tag was taken back), `OutcomeUnknown`, `StoreError`.
    """
    check_name(name)
    now = _now(root)
    tag = Tag(
        name,
        target.version,
        target.manifest.branch,
        _manifest_size(target),
        now,
        now,
        with_nonce(metadata or {}),
    )
    path, data = names.tag_path(name), encode_tag(tag)
    _make_target_safe(target)
    answer = root.create(path, data)
    if answer is Created.NOT_DONE:
        cause = root.failure(path)
        raise StoreError(f"tag {name!r} could not be written to {root.uri} ({cause})") from cause
    if answer is Created.WON or _landed(root, tag):
        _check_target(root, tag, target, None)
        return tag
    if answer is Created.EXISTS:
        raise TagAlreadyExists(
            f"Ref conflict error: tag {name} already exists in {root.uri}; move it (tag with "
            "move=True, tags.update, `tiltyard tag move`), or choose another name"
        )
    # Not sent again: it may have stood until somebody deleted it, and would come back.
    raise _unknown(root, name, "making")


def move_tag(root: Store, name: str, target: Snapshot) -> Tag:
    """Point a tag that exists to another version; its metadata and time of creation stay.

    Raises `TagNotFound`, `VersionNotFound` (a cleanup removes the version; the tag points where it did
    before, or is gone if another cleanup took that version meanwhile), `OutcomeUnknown`, `StoreError`.
    """
    before = read_tag(root, name)
    tag = replace(
        before,
        version=target.version,
        branch=target.manifest.branch,
        manifest_size=_manifest_size(target),
        updated_at=_now(root),
        metadata=with_nonce(before.metadata),
    )
    _make_target_safe(target)
    _replace(root, tag)
    _check_target(root, tag, target, before)
    return tag


def replace_tag_metadata(root: Store, name: str, metadata: Mapping[str, str]) -> Tag:
    """Put this metadata in the place of a tag's; where it points, and its times, stay. Raises `TagNotFound`,
    `OutcomeUnknown`, `StoreError`.
    """
    tag = replace(read_tag(root, name), metadata=with_nonce(metadata))
    _replace(root, tag)
    return tag


def delete_tag(root: Store, name: str) -> None:
    """Remove a tag. Raises `TagNotFound`, `StoreError` (then it may be there or not)."""
    if not names.is_tag_name(name) or not root.delete(names.tag_path(name)):
        raise unknown_tag(root, name)
    root.sync_dir(names.TAGS_DIR)


def check_name(name: str) -> None:
    """Refuse a name that no tag may have. Raises `InvalidInput`, which says what is wrong with it."""
    if not name:
        raise InvalidInput("Ref is invalid: a tag's name cannot be empty")
    if not names.is_tag_name(name):
        raise InvalidInput(
            f"Ref is invalid: {name!r} cannot be the name of a tag: use letters and digits of ASCII, '.', "
            "'-' and '_', no two dots in a row, none at the beginning or end, and no '.lock' at the end"
        )
    if len(name) > MAX_NAME_BYTES:
        raise InvalidInput(
            f"Ref is invalid: a tag's name has at most {MAX_NAME_BYTES} characters, found {len(name)}"
        )


def with_nonce(metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata with a new nonce."""
    return {**metadata, NONCE_KEY: runtime.uuid4().hex}


def _replace(root: Store, tag: Tag) -> None:
    path = names.tag_path(tag.name)
    try:
        root.put(path, encode_tag(tag))
    except StoreError as error:
        try:
            if _is_ours(root, tag):
                root.sync_dir(names.TAGS_DIR)  # that it survives power loss was not yet answered
                return
        except StoreError:
            raise _unknown(root, tag.name, "changing") from error
        if error.errno in _REFUSALS:
            raise  # nothing was written, and nothing is on its way
        raise _unknown(root, tag.name, "changing") from error


def _manifest_size(target: Snapshot) -> int:
    try:
        return target.store.stat(target.location.path).size
    except ObjectNotFound:
        raise not_found(target.store, target.version) from None


def _make_target_safe(target: Snapshot) -> None:
    """Sync the name of a version before a tag names it: its maker may have died, or not be done yet, and the
    tag would outlive it. Raises `VersionNotFound`, `StoreError`; then no tag was written.
    """
    try:
        target.store.sync_dir(names.VERSIONS_DIR)
    except ObjectNotFound:  # the branch, or the table, was removed
        raise not_found(target.store, target.version) from None


def _remove(root: Store, path: str) -> None:
    """Take a tag back so that power loss does not bring it back, naming a version that is gone."""
    try:
        root.delete(path)
        root.sync_dir(names.TAGS_DIR)
    except StoreError as error:
        raise OutcomeUnknown(
            f"the tag at {root.uri}/{path} was to be taken back, for a cleanup removes the version that it "
            f"names, and that failed ({error}): it may be there. Delete it, or read the version through it "
            "to see"
        ) from error


def _check_target(root: Store, tag: Tag, target: Snapshot, before: Tag | None) -> None:
    """Take a tag back if its version goes: whoever removes it has looked at the tags before we wrote ours."""
    store = target.store
    try:
        if store.exists(target.location.path) and not intents.removing(store, target.session, tag.version):
            return
    except (StoreError, CorruptFile) as error:
        raise OutcomeUnknown(
            f"tag {tag.name!r} of {root.uri} names version {tag.version} now, but whether a cleanup removes "
            f"that version could not be looked up ({error}). Read the version through the tag to see"
        ) from error
    path = names.tag_path(tag.name)
    told = "not made" if before is None else f"left on version {before.version}"
    if _is_ours(root, tag):
        if before is None:
            _remove(root, path)
        else:
            root.put(path, encode_tag(before))
            if _goes(root, before, target.session) and _read(root, tag.name) == before:
                _remove(root, path)
                told = f"removed, for another one took version {before.version} while it did not name it"
    raise VersionNotFound(
        f"version {tag.version} of {store.uri} is being removed by a cleanup; tag {tag.name!r} was {told}"
    )


def _goes(root: Store, tag: Tag, session: Session) -> bool:
    """Whether the version that a tag names is gone, or a cleanup removes it."""
    store = root if tag.branch is None else root.at(names.branch_path(tag.branch))
    try:
        return not store.exists(locate(store, tag.version).path) or intents.removing(
            store, session, tag.version
        )
    except VersionNotFound:
        return True


def _is_ours(root: Store, tag: Tag) -> bool:
    found = _read(root, tag.name)
    return found is not None and found.metadata.get(NONCE_KEY) == tag.metadata[NONCE_KEY]


def _read(root: Store, name: str) -> Tag | None:
    path = names.tag_path(name)
    try:
        return decode_tag(root.read(path), name, path)
    except (ObjectNotFound, CorruptFile):
        return None


def _landed(root: Store, tag: Tag) -> bool:
    """Whether a creation that was not seen to win is there all the same, and survives power loss: what got
    no answer may be the sync of its name.
    """
    try:
        if not _is_ours(root, tag):
            return False
        root.sync_dir(names.TAGS_DIR)
        return True
    except StoreError as error:
        raise _unknown(root, tag.name, "making") from error


def _unknown(root: Store, name: str, doing: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the answer to {doing} tag {name!r} of {root.uri} was lost: it may or may not have been done. List "
        "the tags to see"
    )


def _now(root: Store) -> str:
    """The store's time as RFC 3339 text with nanoseconds."""
    seconds, ns = divmod(root.now_ns(), NS_PER_SECOND)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ns:09d}Z"
