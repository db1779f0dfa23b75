"""The system's refusals in the words of the store: which object, what failed, what to do next."""

from __future__ import annotations

import errno

from tiltyard.errors import ObjectExists, ObjectNotFound, StoreError

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
    errno.ESTALE: "the network file system lost the file: open the table again",
}


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
