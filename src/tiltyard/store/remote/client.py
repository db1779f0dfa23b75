"""Requests to one bucket: which failures are sent again, for how long, and what they are called.

What went wrong is told by the class of obstore's error only; its text is for people. Of its classes, some are
the store's definite answer (no such object, refused credentials, the name is taken), and the rest (timeouts,
broken connections, failures of the server) is sent again, within bounds. obstore's own retries are off: they
would hide that an answer was lost, which decides who made a version.

Connections belong to threads that a forked child does not have: there every request is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from tiltyard import runtime
from tiltyard.errors import (
    BucketNotFound,
    ForkedRemoteStore,
    InvalidInput,
    ObjectNotFound,
    StoreAccessDenied,
    StoreError,
    StoreUnavailable,
    TiltyardError,
)
from tiltyard.store.remote.options import RemoteOptions, Service

if TYPE_CHECKING:
    from tiltyard.runtime import Lock

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 5.0
"""Pauses between two requests double, and are drawn at random up to these."""

CLOCK_SECONDS = 300.0
"""How long the difference between the store's clock and ours is believed (boot clock)."""

MAX_CLIENTS = 64
"""Buckets that a process keeps connections to."""

UPLOAD_RETRIES = 4
"""Times that a part of an upload is sent again: only whole objects are answered for, parts are nobody's."""

EXPRESS = "--x-s3"
"""How names of directory buckets end."""

NO_OBJECT = ".tmp-no-such-object"
"""Asked for to learn whether a store answers at all."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_used_in: set[int] = set()
"""The process in which a request was sent; another number in it means that this one is a forked child."""


class Client:
    """One bucket, container or server, shared by all stores below it in this process."""

    def __init__(self, service: Service, bucket: str, options: RemoteOptions) -> None:
        self.service = service
        self.bucket = bucket
        self.options = options
        self.place = f"{service.value} bucket {bucket!r}" if service is not Service.HTTP else bucket
        self._handles: dict[int, Any] = {}
        self._clock: tuple[float, int] | None = None
        self._renew()
        self.checked = False  # whether the store was found to keep conditions
        runtime.after_fork(self._renew)

    def _renew(self) -> None:
        self.lock: Lock = runtime.lock()

    @property
    def lists_in_order(self) -> bool:
        """Whether listings come in the order of names: not from directory buckets, nor from web servers."""
        if self.service is Service.HTTP:
            return False
        return not (self.bucket.endswith(EXPRESS) or self.options.get("s3_express"))

    # -- obstore ---------------------------------------------------------------------------------

    @property
    def handle(self) -> Any:
        """obstore's store for all but uploads."""
        return self._handle(0)

    @property
    def uploads(self) -> Any:
        """obstore's store for uploads in parts, which may send a part again."""
        return self._handle(UPLOAD_RETRIES)

    def _handle(self, retries: int) -> Any:
        found = self._handles.get(retries)
        if found is None:
            found = self._handles[retries] = self._made(retries)
        return found

    def _made(self, retries: int) -> Any:
        import obstore.store as stores
        from obstore.exceptions import BaseError

        retry: Any = {
            "max_retries": retries,
            "retry_timeout": timedelta(seconds=self.options.retry_seconds),
        }
        client: Any = dict(self.options.client)
        config: Any = dict(self.options.config)
        try:
            if self.service is Service.HTTP:
                return stores.HTTPStore(self.bucket, client_options=client, retry_config=retry)
            made: Any = {
                Service.S3: stores.S3Store,
                Service.GCS: stores.GCSStore,
                Service.AZURE: stores.AzureStore,
            }[self.service]
            return made(self.bucket, config=config, client_options=client, retry_config=retry)
        except (BaseError, ValueError, TypeError) as error:
            raise InvalidInput(f"cannot open {self.place} with these options: {told(error)}") from error

    # -- requests --------------------------------------------------------------------------------

    def check_process(self) -> None:
        """Raise `ForkedRemoteStore` in a child of the process that first used an object store."""
        me = runtime.process_id()
        if me not in _used_in:
            if _used_in:
                raise ForkedRemoteStore(
                    f"{self.place} cannot be used in process {me}: it was forked from one that had used an "
                    "object store, whose connections it does not have. Start processes with the method "
                    "'spawn' or 'forkserver', or open no object store before the fork"
                )
            _used_in.add(me)

    def call(self, verb: str, path: str, run: Callable[[], T]) -> T:
        """What `run` gives; a request that is not answered is sent again, within bounds.

        Raises ObjectNotFound, StoreAccessDenied, StoreUnavailable, StoreError.
        """
        self.check_process()
        passing: tuple[type[Exception], ...] = (*passing_failures(), StoreUnavailable)
        attempts = Attempts(self.options)
        while True:
            try:
                return run()
            except passing as error:
                if verb == "list" and attempts.sent == 1:
                    self._check_access(path)
                if not attempts.again():
                    raise self.unavailable(verb, path, error, attempts) from error
            except TiltyardError:
                raise
            except Exception as error:  # whatever obstore raises; `refusal` passes on what is not its own
                raise self.refusal(verb, path, error) from error

    def refusal(self, verb: str, path: str, error: Exception) -> Exception:
        """The error for a definite answer; errors of other kinds are given back as they are."""
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        what = f"cannot {verb} {self.named(path)}"
        if isinstance(error, FileNotFoundError):
            if verb == "write":
                return BucketNotFound(f"{what}: there is no {self.place}; make it first, or correct its name")
            return ObjectNotFound(f"{what}: there is no such object")
        if isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
            return StoreAccessDenied(
                f"{what}: the store refused it; check the credentials, what they may do, and this machine's "
                f"clock. It said: {told(error)}"
            )
        if isinstance(error, (BaseError, ValueError)):
            return StoreError(f"{what}: {told(error)}")
        return error

    def unavailable(self, verb: str, path: str, error: Exception, attempts: Attempts) -> StoreError:
        """The error for a request that was sent as often as may be."""
        if verb == "list" and self._answers():
            return BucketNotFound(
                f"cannot list {self.named(path)}: the store answers, but cannot list: there is no "
                f"{self.place}, or its endpoint is another one. It said: {told(error)}"
            )
        return StoreUnavailable(
            f"cannot {verb} {self.named(path)}: no usable answer to {attempts.sent} requests within "
            f"{attempts.seconds:.1f} s; check the endpoint, the region, the network, and that there are "
            f"credentials. The last: {told(error)}"
        )

    def _check_access(self, path: str) -> None:
        """Raise StoreAccessDenied if that is why a listing failed, which obstore does not tell apart."""
        import obstore
        from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

        try:
            obstore.head(self.handle, NO_OBJECT)
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise self.refusal("list", path, error) from error
        except Exception:  # whatever it is, the listing is sent again
            return

    def _answers(self) -> bool:
        """Whether the store says of an object that it is not there."""
        import obstore

        try:
            obstore.head(self.handle, NO_OBJECT)
        except FileNotFoundError:
            return True
        except Exception:  # whatever it is, it is not that answer
            return False
        return True

    def named(self, path: str) -> str:
        """An object for messages."""
        if self.service is Service.HTTP:
            return f"{self.bucket}/{path}" if path else self.bucket
        scheme = {Service.S3: "s3", Service.GCS: "gs", Service.AZURE: "az"}[self.service]
        return f"{scheme}://{self.bucket}/{path}"

    # -- the store's clock -----------------------------------------------------------------------

    def now_ns(self, directory: str) -> int:
        """The store's clock: what it stamps on an object made now, which is never ahead of it.

        Found out with an object in `directory` that is removed again; where none may be made, this machine's.
        """
        known = self._clock
        now = runtime.monotonic()
        if known is None or now - known[0] > CLOCK_SECONDS:
            known = self._clock = now, self._difference(directory)
        return runtime.now_ns() + known[1]

    def _difference(self, directory: str) -> int:
        import obstore

        path = f"{directory}/.tmp-clock-{runtime.uuid4().hex}".lstrip("/")
        try:
            self.call("write", path, lambda: obstore.put(self.handle, path, b"", use_multipart=False))
            after = runtime.now_ns()
            try:
                made = self.call("find", path, lambda: obstore.head(self.handle, path))
            finally:
                self.call("remove", path, lambda: obstore.delete(self.handle, path))
        except StoreError:
            return 0
        return stamp_ns(made) - after


class Attempts:
    """How often, and since when, a request was sent."""

    def __init__(self, options: RemoteOptions) -> None:
        self._options = options
        self._began = runtime.monotonic()
        self._pause = FIRST_PAUSE_SECONDS
        self.sent = 1

    @property
    def seconds(self) -> float:
        return runtime.monotonic() - self._began

    def again(self) -> bool:
        """Wait a little, and whether to send once more."""
        if self.sent > self._options.retries or self.seconds >= self._options.retry_seconds:
            return False
        self.sent += 1
        runtime.sleep(self._pause * (0.5 + runtime.random().random() / 2))
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return True


def passing_failures() -> tuple[type[Exception], ...]:
    """The classes of obstore's errors that a repetition can heal, and that do not tell what was done."""
    from obstore.exceptions import GenericError, JoinError

    return GenericError, JoinError


def told(error: BaseException) -> str:
    """The first line of what obstore says, for people."""
    return str(error).partition("\n\nDebug source:")[0].strip() or type(error).__name__


def stamp_ns(facts: Any) -> int:
    """When an object was made by the store's clock, nanoseconds; stores tell it to the second."""
    modified: datetime = facts["last_modified"]
    return (modified - _EPOCH) // _MICROSECOND * 1_000


_CLIENTS: dict[tuple[Service, str, tuple[tuple[str, str], ...]], Client] = {}


def client_of(service: Service, bucket: str, options: RemoteOptions) -> Client:
    """The process's client of a bucket with these options, made on first use."""
    key = service, bucket, options.given
    found = _CLIENTS.get(key)
    if found is None:
        while len(_CLIENTS) >= MAX_CLIENTS:
            _CLIENTS.pop(next(iter(_CLIENTS)), None)
        found = _CLIENTS.setdefault(key, Client(service, bucket, options))
    return found
