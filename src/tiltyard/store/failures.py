"""The system's refusals in the words of the store: which object, what failed, what to do next."""

from __future__ import annotations

import errno
import stat as modes

from tiltyard.errors import ObjectExists, ObjectNotFound, StoreError

MAX_KEPT = 64
"""Creations whose cause is remembered."""

_NEXT_STEP = {
    errno.ENOSPC: "free some space on the file system, then try again",
    errno.EDQUOT: "the disk quota is used up: free some space, then try again",
    errno.EACCES: "check the permissions of the file and of the directories above it",
    errno.EPERM: "check the permissions of the file and of the directories above it",
    errno.EROFS: "the file system is mounted read-only",
    errno.EMFILE: "too many open files: raise the limit (ulimit -n) or close other tables",
    errno.ENFILE: "the machine has too many open files",
    errno.EIO: "the device reported an error: check the system's log",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.ESPIPE: "it is no file but a pipe: look at it, and move it away",
    errno.ENXIO: "it is no file but a pipe, socket or device: look at it, and move it away",
    errno.EISDIR: "it is no file but a directory: look at it, and move it away",
    errno.ELOOP: "links lead to each other there: look at them, and move them away",
    errno.ESTALE: "the network file system lost the file: open the table again",
}


_KINDS = (
    (modes.S_ISDIR, "a directory"),
    (modes.S_ISFIFO, "a pipe"),
    (modes.S_ISSOCK, "a socket"),
    (modes.S_ISCHR, "a device"),
    (modes.S_ISBLK, "a device"),
)


def no_file(mode: int, root: str, path: str) -> StoreError:
    """A StoreError for something at root/path that is no file; `mode` as stat gives it."""
    kind = next((kind for test, kind in _KINDS if test(mode)), "something else")
    return StoreError(f"cannot read {root}/{path}: it is no file but {kind}: look at it, and move it away")


def translated(error: OSError, verb: str, root: str, path: str) -> StoreError:
    """A StoreError for a failed operation on root/path; raise it `from error`."""
    place = f"{root}/{path}" if path else root
    if verb in ("write", "create") and isinstance(error, (FileNotFoundError, NotADirectoryError)):
        cause = (
            "a file stands where a directory is needed"
            if isinstance(error, NotADirectoryError)
            else ("its directory cannot be made, or was removed")
        )
        result: StoreError = StoreError(f"cannot {verb} {place}: {cause}")
    elif isinstance(error, (FileNotFoundError, NotADirectoryError)):
        result = ObjectNotFound(f"cannot {verb} {place}: there is no such object")
    elif isinstance(error, FileExistsError):
        result = ObjectExists(f"cannot {verb} {place}: something stands there already")
    else:
        step = _NEXT_STEP.get(error.errno or 0)
        result = StoreError(
            f"cannot {verb} {place}: {error.strerror or error}" + (f"; {step}" if step else "")
        )
    result.errno = error.errno
    return result


class Failures:
    """Why creations were answered NOT_DONE or UNKNOWN, by path: the latest ones."""

    def __init__(self) -> None:
        self._causes: dict[str, BaseException] = {}

    def note(self, path: str, cause: BaseException | None) -> None:
        """What the latest creation at the path failed for; None where it did not."""
        self._causes.pop(path, None)
        if cause is not None:
            self._causes[path] = cause
            if len(self._causes) > MAX_KEPT:
                self._causes.pop(next(iter(self._causes)), None)

    def get(self, path: str) -> BaseException | None:
        """The cause, if it is remembered."""
        return self._causes.get(path)
