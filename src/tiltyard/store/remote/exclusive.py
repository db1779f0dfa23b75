"""Creation of an object only where nothing is, on a store that answers over a network (D10, D11).

Each creation carries a random name of its own as metadata of the object. An answer that says "taken", or none
at all, is settled by reading that name back: ours means won, another one means that somebody else won.
Invariants, with their tests in tests/store/remote:

1. After an attempt whose fate is not known, nothing but the identical request is sent.
2. NOT_DONE is answered only if every attempt was definitely refused.
3. An object without a name is somebody else's only if no attempt is in doubt, or its bytes are not ours.
4. A store that ignores or refuses the condition is found out before the first creation, unless it belongs
   to a service that is known to keep it; nothing but a temporary object is written to it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tiltyard import runtime
from tiltyard.errors import ConditionsNotKept, ObjectNotFound, StoreError
from tiltyard.store.protocol import Created
from tiltyard.store.remote.client import Attempts, passing_failures, told
from tiltyard.store.remote.options import Conditions, Service

if TYPE_CHECKING:
    from tiltyard.store.remote.client import Client

NONCE = "tiltyardnonce"
"""The metadata under which an object carries the random name of the request that made it: a plain word, for
Azure takes nothing else, and some proxies drop names with other signs.
"""

KNOWN_TO_KEEP = (Service.GCS, Service.AZURE)
"""Services whose conditions are not tried; so is S3 itself, which is recognised by having no endpoint."""

REMEDY = (
    "use a server that keeps them (If-None-Match: * on PUT), or set the storage option "
    "tiltyard_conditions='none' if no two writers ever work on a table at once"
)


def create(client: Client, path: str, data: bytes) -> tuple[Created, Exception | None]:
    """Put an object where nothing is; the answer, and its cause where it is NOT_DONE or UNKNOWN."""
    try:
        settle_conditions(client, path)
        if client.options.conditions is Conditions.NONE and _stands(client, path):
            return Created.EXISTS, None
    except StoreError as error:  # before anything was sent
        return Created.NOT_DONE, error
    return _create(client, path, data)


def _stands(client: Client, path: str) -> bool:
    import obstore

    try:
        client.call("find", path, lambda: obstore.head(client.handle, path))
    except ObjectNotFound:
        return False
    return True


def _create(client: Client, path: str, data: bytes) -> tuple[Created, Exception | None]:
    from obstore.exceptions import AlreadyExistsError

    client.check_process()
    passing = passing_failures()
    attempts = Attempts(client.options)
    nonce = runtime.uuid4().hex
    unsure = False  # whether an attempt may have been carried out, or still may be
    cause: Exception
    while True:
        try:
            _put(client, path, data, nonce, client.options.conditions is not Conditions.NONE)
            return Created.WON, None
        except AlreadyExistsError as error:
            # 412: something is there; or 409: another request is at work, and nothing may be there yet.
            cause = StoreError(
                f"cannot create {client.named(path)}: the store says that it exists, and that there is no "
                f"such object: {told(error)}"
            )
            cause.__cause__ = error
        except passing as error:
            unsure = True
            cause = client.unavailable("create", path, error, attempts)
            cause.__cause__ = error
        except Exception as error:  # a definite refusal of this attempt, or none of obstore's
            cause = client.refusal("write", path, error)
            if cause is error:
                raise
            cause.__cause__ = error
            return (Created.UNKNOWN if unsure else Created.NOT_DONE), cause
        there = _nonce_there(client, path)
        if there == nonce:
            return Created.WON, None
        if there == "" and unsure and _may_be_ours(client, path, data):
            return Created.UNKNOWN, cause
        if there is not None and there is not UNREAD:
            return Created.EXISTS, None
        if not attempts.again():
            return (Created.UNKNOWN if unsure or there is UNREAD else Created.NOT_DONE), cause


def _put(client: Client, path: str, data: bytes, nonce: str, if_absent: bool = True) -> None:
    import obstore

    attributes: Any = {NONCE: nonce}
    mode: Any = "create" if if_absent else "overwrite"
    obstore.put(client.handle, path, data, mode=mode, use_multipart=False, attributes=attributes)


UNREAD = "\0"
"""Stands for the name of an object that could not be asked for."""


def _nonce_there(client: Client, path: str) -> str | None:
    """The random name that the object carries: '' for one without, None where there is none, `UNREAD`."""
    import obstore

    try:
        found = obstore.get(client.handle, path, options={"head": True})
    except FileNotFoundError:
        return None
    except Exception:  # whatever it is, what stands there is not known
        return UNREAD
    return str(found.attributes.get(NONCE, ""))


def _may_be_ours(client: Client, path: str, data: bytes) -> bool:
    """Whether an object without a name may be our own, by its bytes: a store may keep no metadata."""
    import obstore

    try:
        return bytes(obstore.get(client.handle, path).bytes()) == data
    except Exception:  # whatever it is, what stands there is not known
        return True


# -- whether a store keeps conditions ------------------------------------------------------------


def settle_conditions(client: Client, path: str) -> None:
    """Find out once whether the store keeps conditions, with a temporary object beside `path`.

    Raises ConditionsNotKept where it does not, StoreError where it cannot be told.
    """
    if client.checked or client.options.conditions is not Conditions.CHECK:
        return
    if client.service in KNOWN_TO_KEEP or client.options.get("endpoint") is None:
        return
    with client.lock:
        if not client.checked:
            try_conditions(client, path.rpartition("/")[0])
            client.checked = True


def try_conditions(client: Client, directory: str) -> None:
    """Create one object twice and see whether the second creation is refused; it is removed again."""
    import obstore

    path = f"{directory}/.tmp-check-{runtime.uuid4().hex}".lstrip("/")
    try:
        _twice(client, path)
    finally:
        with suppress(StoreError):  # what was found out is told; a temporary object is collected by its age
            client.call("remove", path, lambda: obstore.delete(client.handle, path))


def _twice(client: Client, path: str) -> None:
    from obstore.exceptions import AlreadyExistsError

    client.check_process()
    passing = passing_failures()
    attempts = Attempts(client.options)
    made = 0
    while made < 2:
        try:
            _put(client, path, str(made).encode(), runtime.uuid4().hex)
            made += 1
        except AlreadyExistsError:
            return
        except passing as error:
            if attempts.again():
                continue
            raise _not_offered(client, path, error, attempts) from error
        except Exception as error:  # a definite refusal, or none of obstore's
            raise client.refusal("write", path, error) from error
    raise ConditionsNotKept(
        f"{client.place} ignores conditions: an object that was to be created only if nothing was there was "
        f"created twice, so that two writers could both make one version of a table; {REMEDY}"
    )


def _not_offered(client: Client, path: str, error: Exception, attempts: Attempts) -> StoreError:
    """The error where no creation is answered: that of a store without them if it takes plain writes."""
    import obstore

    try:
        obstore.put(client.handle, path, b"", use_multipart=False)
    except Exception:  # whatever it is: the store does not take anything
        return client.unavailable("write", path, error, attempts)
    return ConditionsNotKept(
        f"{client.place} takes objects, but not on the condition that nothing is there, so that two writers "
        f"could both make one version of a table; {REMEDY}. It said: {told(error)}"
    )
