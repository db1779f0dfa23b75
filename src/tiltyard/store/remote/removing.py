"""Removing objects of a bucket, up to 1,000 with one request.

Of a request for many obstore tells that it failed, by the class of the error as if no answer had come, and of
a single object only in its text. So what still stands is looked for, and only that is asked for again.

Invariants, with their tests in tests/store/remote/test_remote_removing.py:
1. An object that a request has not removed is named as failed, with what the store said last; none that is
   known to be gone is.
2. However many objects there are, an unreachable store is asked no longer than for one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tiltyard.errors import ObjectNotFound, StoreError, StoreUnavailable
from tiltyard.store.remote.client import Attempts, passing_failures

if TYPE_CHECKING:
    from tiltyard.store.remote.client import Client

REMOVED_AT_ONCE = 1000
"""Objects of one request; what S3 takes."""

LOOKED_AT_ALONE = 4
"""So few objects of a directory are looked at one by one; for more, the directory is listed."""


def remove(client: Client, keys: Sequence[str]) -> dict[str, StoreError]:
    """Remove objects; why others may still be there, by key. Those that are not there are no failures."""
    failed: dict[str, StoreError] = {}
    for first in range(0, len(keys), REMOVED_AT_ONCE):
        some = keys[first : first + REMOVED_AT_ONCE]
        causes = _removed(client, some)
        failed.update(causes)
        down = next((each for each in causes.values() if isinstance(each, StoreUnavailable)), None)
        if down is not None and len(causes) == len(some):  # nothing is asked of it any more
            failed.update(dict.fromkeys(keys[first + REMOVED_AT_ONCE :], down))
            break
    return failed


def _removed(client: Client, keys: Sequence[str]) -> dict[str, StoreError]:
    import obstore

    client.check_process()
    passing = passing_failures()
    attempts = Attempts(client.options)
    left = list(keys)
    while True:
        try:
            obstore.delete(client.handle, left)
        except FileNotFoundError:  # some services say so, and may have stopped there
            return _each_alone(client, left)
        except passing as error:
            cause: StoreError = client.unavailable("remove", left[0], error, attempts)
            cause.__cause__ = error
        except Exception as error:  # a definite refusal of all, or none of obstore's
            refused = client.refusal("remove", left[0], error)
            if not isinstance(refused, StoreError):
                raise
            refused.__cause__ = error
            return dict.fromkeys(left, refused)
        else:
            return {}
        left = _standing(client, left)
        if not left:
            return {}
        if not attempts.again():
            return dict.fromkeys(left, cause)


def _each_alone(client: Client, keys: Sequence[str]) -> dict[str, StoreError]:
    """The same where a service ends at the first object that is not there."""
    import obstore

    failed: dict[str, StoreError] = {}
    down: StoreError | None = None
    for key in keys:
        if down is not None:
            failed[key] = down
            continue
        try:
            client.call("remove", key, partial(obstore.delete, client.handle, key))
        except ObjectNotFound:
            continue
        except StoreUnavailable as error:
            failed[key] = down = error
        except StoreError as error:
            failed[key] = error
    return failed


def _standing(client: Client, keys: Sequence[str]) -> list[str]:
    """Those that are still there, as far as can be found out."""
    beside: defaultdict[str, list[str]] = defaultdict(list)
    for key in keys:
        beside[key.rpartition("/")[0]].append(key)
    out: list[str] = []
    for directory, some in beside.items():
        try:
            out += (
                _found_alone(client, some)
                if len(some) <= LOOKED_AT_ALONE
                else _listed(client, directory, some)
            )
        except Exception:  # whatever it is, it is not known that they are gone
            return list(keys)
    return out


def _found_alone(client: Client, keys: Sequence[str]) -> list[str]:
    import obstore

    out: list[str] = []
    for key in keys:
        try:
            obstore.head(client.handle, key)
        except FileNotFoundError:
            continue
        out.append(key)
    return out


def _listed(client: Client, directory: str, keys: Sequence[str]) -> list[str]:
    import obstore

    asked, out, last = set(keys), [], max(keys)
    for page in obstore.list(client.handle, directory or None, chunk_size=REMOVED_AT_ONCE):
        out += [each["path"] for each in page if each["path"] in asked]
        if client.lists_in_order and page and page[-1]["path"] >= last:
            break
    return out
