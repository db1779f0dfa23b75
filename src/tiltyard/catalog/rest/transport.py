"""HTTP for the client: one pool of connections, answers whole, what goes wrong told by how far it got."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationParseError,
    LocationValueError,
    NewConnectionError,
    SSLError,
)

from tiltyard import __version__
from tiltyard.errors import InvalidInput, ServerError

CONNECTIONS = 32
CONNECT_SECONDS = 10.0
READ_SECONDS = 330.0
"""A little more than a server gives one request."""


class Sent(Enum):
    """How far a request that has no answer got."""

    NOT = "nothing of it left this machine"
    MAYBE = "it may have arrived"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer, and why."""

    sent: Sent
    why: str


@dataclass(frozen=True, slots=True)
class Tls:
    """What a client trusts and shows: PEM files."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    checks_host: bool = True


class Transport:
    """The pool. Safe to share among threads; a forked child opens connections of its own."""

    def __init__(self, tls: Tls) -> None:
        options: dict[str, Any] = {}
        if tls.ca is not None:
            options["ca_certs"] = tls.ca
        if tls.certificate is not None:
            options |= {"cert_file": tls.certificate, "key_file": tls.key}
        if not tls.checks_host:
            options["assert_hostname"] = False
        self._pool = urllib3.PoolManager(
            maxsize=CONNECTIONS,
            retries=False,
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
            **options,
        )

    def ask(self, method: str, uri: str, headers: Mapping[str, str], body: Any = None) -> Reply | Silence:
        """One request, once. Raises `InvalidInput` for a URI that is none, or a certificate that is not
        there, `ServerError` for a server whose certificate is not trusted.
        """
        whole = {"user-agent": f"tiltyard/{__version__}", "accept-encoding": "identity", **headers}
        try:
            reply = self._pool.request(
                method, uri, body=body, headers=whole, redirect=False, preload_content=True
            )
        except (LocationParseError, LocationValueError) as error:
            raise InvalidInput(f"{uri} is no place of a REST catalog: {error}") from error
        except SSLError as error:
            raise ServerError(f"no TLS connection to {uri} can be made: {error}") from error
        except (NewConnectionError, ConnectTimeoutError) as error:
            return Silence(Sent.NOT, str(error))
        except HTTPError as error:
            return Silence(Sent.MAYBE, str(error))
        except OSError as error:  # of the files of certificates
            raise InvalidInput(f"a file of certificates cannot be read: {error}") from error
        found = {name.lower(): value for name, value in reply.headers.items()}
        return Reply(reply.status, found, reply.data)
