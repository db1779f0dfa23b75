"""Who may do what: secrets by their hashes, roles by namespace.

A file of keys is TOML, a table for each:

    [[keys]]
    name = "etl"                     # in the access log
    sha256 = "9f86d081884c7d65..."   # of the secret; `tiltyard serve --new-key etl` makes both
    role = "read"                    # of the whole catalog: read, write or admin; none if it is not there

    [keys.namespaces]                # and more in some namespaces, with all below them
    "ops" = "write"
    "ops$staging" = "admin"          # parts of an id are joined by $

The secret is sent as `Authorization: Bearer SECRET` or as `x-api-key: SECRET`. Secrets are random and long,
so that a plain hash of them is as good as a slow one.
"""

from __future__ import annotations

import hashlib
import hmac
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lance_namespace import ErrorCode

from tiltyard.catalog.names import Id
from tiltyard.catalog.rest.routes import DELIMITER, Role
from tiltyard.dataset.arguments import shown
from tiltyard.errors import InvalidInput
from tiltyard.server.failures import STATUS, Failure

ENVIRONMENT = "TILTYARD_SERVE_KEYS"
"""The variable that holds what else the file would."""

HASH_DIGITS = 64
KNOWN = ("name", "sha256", "role", "namespaces")
ROLES = {role.name.lower(): role for role in Role}
BEARER = "bearer "


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who asks. `roles` by namespace; () is the whole catalog."""

    name: str
    roles: Mapping[Id, Role]

    def role_in(self, id: Id) -> Role | None:
        """The greatest role that the caller has in one of the namespaces of an id, or all above it."""
        found = [role for depth in range(len(id) + 1) if (role := self.roles.get(id[:depth])) is not None]
        return max(found, key=lambda role: role.value, default=None)

    def check(self, role: Role, id: Id, operation: str) -> None:
        """Raise the failure of a caller who may not."""
        has = self.role_in(id)
        if has is None or has.value < role.value:
            where = f"in {DELIMITER.join(id)!r}" if id else "of the whole catalog"
            raise Failure(
                STATUS[ErrorCode.PERMISSION_DENIED],
                int(ErrorCode.PERMISSION_DENIED),
                f"{operation} needs the role {role.name.lower()} {where}; the key {self.name!r} has "
                f"{'none there' if has is None else has.name.lower()}",
            )


ANYBODY = Caller("anonymous", {(): Role.ADMIN})


class Access:
    """The keys of a server; without any, everybody may do everything."""

    def __init__(self, keys: Iterable[tuple[bytes, Caller]] | None = None) -> None:
        self._keys = None if keys is None else tuple(keys)

    @property
    def is_open(self) -> bool:
        """Whether nobody needs a key."""
        return self._keys is None

    def caller(self, authorization: str | None, api_key: str | None) -> Caller:
        """Who sends these headers. Raises the failure of somebody unknown."""
        if self._keys is None:
            return ANYBODY
        secret = _secret(authorization) or api_key
        if not secret:
            raise _unknown("a key is needed, as `Authorization: Bearer SECRET` or `x-api-key: SECRET`")
        presented = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
        found = None
        for hashed, caller in self._keys:  # all of them: the time that it takes tells nothing
            if hmac.compare_digest(hashed, presented):
                found = caller
        if found is None:
            raise _unknown("the key is not known here")
        return found


def _secret(authorization: str | None) -> str | None:
    if authorization is None or not authorization.lower().startswith(BEARER):
        return None
    return authorization[len(BEARER) :].strip()


def _unknown(message: str) -> Failure:
    code = ErrorCode.UNAUTHENTICATED
    return Failure(STATUS[code], int(code), message, (("www-authenticate", "Bearer"),))


# -- the file --------------------------------------------------------------------------------------


def parsed(text: str, place: str) -> Access:
    """The keys that a file, or the variable, holds; `place` names it in errors. Raises `InvalidInput`."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{place} is no TOML: {error}") from error
    keys = found.pop("keys", None)
    if found or not isinstance(keys, list) or not keys:
        raise InvalidInput(
            f"{place} holds one [[keys]] table or more and nothing else, found {sorted(found) or 'none'}"
        )
    read = [_key(each, f"{place}: keys[{at}]") for at, each in enumerate(keys)]
    for what, values in (("name", [each.name for _, each in read]), ("sha256", [each for each, _ in read])):
        if len(set(values)) < len(values):
            raise InvalidInput(f"{place}: two keys have the same {what}")
    return Access(read)


def _key(entry: Any, place: str) -> tuple[bytes, Caller]:
    if not isinstance(entry, dict):
        raise InvalidInput(f"{place} must be a table, found {shown(entry)}")
    if unknown := sorted(set(entry) - set(KNOWN)):
        raise InvalidInput(f"{place} has {', '.join(KNOWN)}; found {', '.join(unknown)}")
    name = entry.get("name")
    if not isinstance(name, str) or not name or not name.isprintable():
        raise InvalidInput(f"{place} needs a 'name' of printable characters, found {shown(name)}")
    hashed = entry.get("sha256")
    try:
        digest = bytes.fromhex(hashed) if isinstance(hashed, str) and len(hashed) == HASH_DIGITS else b""
    except ValueError:
        digest = b""
    if not digest:
        raise InvalidInput(
            f"{place} ({name!r}) needs 'sha256', {HASH_DIGITS} hexadecimal digits, of its secret"
        )
    roles: dict[Id, Role] = {}
    if "role" in entry:
        roles[()] = _role(entry["role"], place)
    namespaces = entry.get("namespaces", {})
    if not isinstance(namespaces, dict):
        raise InvalidInput(f"{place}: 'namespaces' must be a table of roles, found {shown(namespaces)}")
    for joined, word in namespaces.items():
        id = tuple(joined.split(DELIMITER))
        if not all(id):
            raise InvalidInput(f"{place}: {shown(joined)} is no id of a namespace")
        roles[id] = _role(word, place)
    if not roles:
        raise InvalidInput(f"{place} ({name!r}) may do nothing: give it a 'role', or 'namespaces'")
    return digest, Caller(name, roles)


def _role(word: Any, place: str) -> Role:
    role = ROLES.get(word) if isinstance(word, str) else None
    if role is None:
        raise InvalidInput(f"{place}: a role is one of {', '.join(ROLES)}, found {shown(word)}")
    return role


def hash_of(secret: str) -> str:
    """What stands in the file for a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()
