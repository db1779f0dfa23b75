"""A new object that is streamed to an object store: one request if it is small, else an upload in parts.

Nothing is visible before `commit`. Parts are sent while the caller makes the next bytes; an upload that is
given up is aborted, and one that dies with its process leaves parts that only a lifecycle rule of the bucket
removes, as with every program that uploads in parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tiltyard import runtime
from tiltyard.errors import InvalidInput, ObjectExists, ObjectNotFound, StoreError
from tiltyard.store.content import flat
from tiltyard.store.protocol import Created
from tiltyard.store.remote.client import told
from tiltyard.store.remote.exclusive import NONCE

if TYPE_CHECKING:
    from tiltyard.store.protocol import Bytes
    from tiltyard.store.remote.store import RemoteStore

PART_BYTES = 8 << 20
"""Objects up to this size are one request; longer ones come in parts of it: at most 10,000 on S3, 80 GB."""
PARTS_AT_ONCE = 4


class RemoteWriter:
    """A new object; see `ObjectWriter`. It belongs to the process that opened it."""

    def __init__(self, store: RemoteStore, path: str) -> None:
        self.path = path
        self.position = 0
        self._store = store
        self._client = store.client
        self._gathered: bytearray | None = bytearray()
        self._upload: Any = None
        self._nonce = runtime.uuid4().hex

    def _open(self) -> bytearray:
        if self._gathered is None:
            raise InvalidInput(f"the writer of {self.path} is closed")
        self._client.check_process()
        return self._gathered

    def write(self, buffers: Sequence[Bytes]) -> None:
        """Append the buffers, in order; they may be reused when the call returns."""
        gathered = self._open()
        for buffer in buffers:
            view = flat(buffer)
            gathered += view
            self.position += len(view)
        if len(gathered) > PART_BYTES:
            self._send(gathered)

    def _send(self, gathered: bytearray) -> None:
        """Hand what was gathered to the upload, which begins here."""
        import obstore

        if self._upload is None:
            if self._store.exists(self.path):
                self._gathered = None
                raise self._taken()
            attributes: Any = {NONCE: self._nonce}
            self._upload = obstore.open_writer(
                self._client.uploads,
                self._store.full(self.path),
                attributes=attributes,
                buffer_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            )
        try:
            self._upload.write(bytes(gathered))
        except Exception as error:  # whatever obstore raises
            self.abort()
            raise self._failed(error) from error
        self._gathered = bytearray()

    def commit(self) -> int:
        """Make the object visible; its size in bytes."""
        gathered = self._open()
        if self._upload is None:
            self._gathered = None
            answer = self._store.create(self.path, gathered)
            if answer is Created.EXISTS:
                raise self._taken()
            if answer is not Created.WON:
                cause = self._store.failure(self.path)
                assert isinstance(cause, StoreError)
                raise cause
            return self.position
        if gathered:
            self._send(gathered)
        self._gathered = None
        upload, self._upload = self._upload, None
        try:
            upload.close()
        except Exception as error:  # whatever obstore raises; the answer may have been lost
            if not self._landed():
                raise self._failed(error) from error
        return self.position

    def _landed(self) -> bool:
        import obstore

        path = self._store.full(self.path)
        try:
            found = self._client.call(
                "find", path, lambda: obstore.get(self._client.handle, path, options={"head": True})
            )
        except ObjectNotFound:
            return False
        return found.attributes.get(NONCE) == self._nonce and found.meta["size"] == self.position

    def _taken(self) -> ObjectExists:
        return ObjectExists(f"cannot write {self._store.uri}/{self.path}: something stands there already")

    def _failed(self, error: Exception) -> Exception:
        refused = self._client.refusal("write", self._store.full(self.path), error)
        if refused is error:
            return StoreError(f"cannot write {self._store.uri}/{self.path}: {told(error)}")
        return refused

    def abort(self) -> None:
        """Give up what was sent; nothing happens after `commit` or a second time."""
        upload, self._upload, self._gathered = self._upload, None, None
        if upload is None:
            return
        with suppress(Exception):  # nothing names the parts; what stays of them a lifecycle rule removes
            self._client.check_process()
            upload.__exit__(StoreError, StoreError("given up"), None)

    def __enter__(self) -> RemoteWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()
