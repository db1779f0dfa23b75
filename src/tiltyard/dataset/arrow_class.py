"""Datasets, fragments and scanners as those of `pyarrow.dataset`, which engines look for.

`pyarrow.dataset` takes as long to load as all of this package, and opening, scanning and taking do without it
(D44). So a class of ours says what it stands for (`arrow_base`), and the subclass of it and of that class of
Arrow is made when it is first needed; docs/design/013-engines.md has the reasons. In that class our methods
come first; a name that only Arrow has raises what a missing name raises here.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from tiltyard.dataset.not_yet import Named
from tiltyard.errors import UnsupportedFeature, UnsupportedName

if TYPE_CHECKING:
    from typing import Self

ENGINES = ("pyarrow.dataset", "duckdb")
"""Modules that, once loaded, may look at the class of a dataset. (Polars asks for methods only.)"""

CANNOT_READ = (
    "pyarrow cannot read a table of tiltyard by itself; call the dataset's own scanner(), to_table() or "
    "to_batches(), and give their result (such as scanner().to_reader()) to pyarrow"
)

_made: dict[tuple[type, str], type] = {}


class ArrowLike(Named):
    """What stands for a class of `pyarrow.dataset`: `isinstance` says so wherever that module is loaded."""

    arrow_base: ClassVar[str]
    """The name of the class in `pyarrow.dataset`."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        ours = type(self)
        return arrow_class(ours) if _is_loaded("pyarrow.dataset") else ours


class DatasetLike(ArrowLike):
    """A dataset, which is made as one of Arrow where an engine is there: some look at the class itself."""

    arrow_base = "UnionDataset"  # the one kind that may be made of parts of any kind: see `_refusing`

    def __new__(cls, *_given: Any, **_options: Any) -> Self:
        if not any(map(_is_loaded, ENGINES)):
            return super().__new__(cls)
        kind = arrow_class(cls)
        made: Self = super(DatasetLike, kind).__new__(kind)
        base, schema, parts = _refusing()
        base.__init__(made, schema, parts)
        return made


def _is_loaded(module: str) -> bool:
    return sys.modules.get(module) is not None


def arrow_class(ours: Any) -> Any:
    """`ours` and the class of Arrow that it stands for, as one class; loads `pyarrow.dataset`."""
    import pyarrow.dataset

    base = getattr(pyarrow.dataset, ours.arrow_base)
    if issubclass(ours, base):
        return ours
    found = _made.get((ours, ours.arrow_base))
    if found is None:
        known = dir(ours)
        guards = {name: _GUARD for name in dir(base) if name not in known}
        body = {"__module__": ours.__module__, "__doc__": ours.__doc__, "__getattr__": _refused, **guards}
        found = _made.setdefault((ours, ours.arrow_base), type(ours.__name__, (ours, base), body))
    return found


def _missing(self: Any) -> NoReturn:
    raise AttributeError  # Python asks `__getattr__` then


_GUARD = property(_missing)
"""In the place of what only Arrow has: called on ours it would read what is not there."""


def _refused(self: Any, name: str) -> Any:
    if getattr(type(self), name, None) is _GUARD:
        raise UnsupportedName(f"{type(self).__name__}.{name} is of pyarrow alone: {CANNOT_READ}")
    return Named.__getattr__(self, name)


@cache
def _refusing() -> tuple[Any, Any, list[Any]]:
    """What to make the C++ side of a dataset of: (its class, a schema, parts that raise when they are read).

    Functions of Arrow that work on that side, past all methods, raise then; without it they would end the
    process.
    """
    import pyarrow as pa
    import pyarrow.dataset
    import pyarrow.fs

    def refuse(self: Any, *_given: Any) -> NoReturn:
        raise UnsupportedFeature(CANNOT_READ)

    handler = pyarrow.fs.FileSystemHandler
    body: dict[str, Any] = dict.fromkeys(getattr(handler, "__abstractmethods__", ()), refuse)
    body |= {"get_type_name": lambda self: "tiltyard", "normalize_path": lambda self, path: path}
    body |= {"__eq__": lambda self, other: self is other, "__ne__": lambda self, other: self is not other}
    files = pyarrow.fs.PyFileSystem(type("Refusing", (handler,), body)())
    form, schema = pyarrow.dataset.IpcFileFormat(), pa.schema([])
    part = pyarrow.dataset.FileSystemDataset([form.make_fragment("table", files)], schema, form, files)
    return pyarrow.dataset.UnionDataset, schema, [part]
