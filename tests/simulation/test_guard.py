"""What the product does behind its runtime ends a simulated run, with the place; what others do does not."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from tiltyard.testing.simulation.choices import ReplayedChoices
from tiltyard.testing.simulation.explore import Run, run_once
from tiltyard.testing.simulation.guard import NotDeterministic
from tiltyard.testing.simulation.world import Settings, World

CHEATING = "tiltyard.table.cheating"


class Cheater:
    """A scenario whose actor runs code of a module of this name."""

    name = "cheater"
    settings = Settings()

    def __init__(self, code: str, module: str = CHEATING) -> None:
        self.code = compile(code, "cheating.py", "exec")
        self.module = module

    def run(self, world: World) -> list[str]:
        scope = {"__name__": self.module}
        (actor,) = world.do({"a": lambda: exec(self.code, scope)})
        return [repr(actor.error)] if actor.error is not None else []


def run_of(code: str, module: str = CHEATING) -> Run:
    return run_once(Cheater(code, module), ReplayedChoices(()), 0)


CLOCKS_AND_CHANCE = [
    "import time; time.time()",
    "import time; time.sleep(0)",
    "import time; time.process_time_ns()",
    "import time; time.localtime()",
    "from time import monotonic; monotonic()",
    "import datetime; datetime.datetime.now()",
    "from datetime import datetime, UTC; datetime.now(UTC)",
    "from datetime import datetime; getattr(datetime, 'utcnow')()",
    "from datetime import date; date.today()",
    "import random; random.random()",
    "from random import Random; Random()",
    "from random import SystemRandom; SystemRandom()",
    "import secrets; secrets.token_hex()",
    "import uuid; uuid.uuid4()",
    "from uuid import uuid4; uuid4()",
    "import os; os.urandom(8)",
    "import os; os.getpid()",
    "import numpy; numpy.random.default_rng()",
    "try:\n import time; time.time()\nexcept Exception:\n pass",
]

FILES = [
    "open('/dev/null')",
    "import io; io.open('/dev/null')",
    "import os; os.listdir('.')",
    "import os; os.open('/dev/null', os.O_RDONLY)",
    "import os; os.path.exists('/dev/null')",
    "import os; list(os.walk('.'))",
    "import os; os.truncate('/nowhere', 0)",
    "import os; os.chmod('/nowhere', 0)",
    "import pathlib; pathlib.Path('/nowhere/x').write_text('x')",
    "from pathlib import Path; Path('/dev/null').read_bytes()",
    "import tempfile; tempfile.TemporaryFile()",
    "import shutil; shutil.copyfile('/nowhere/a', '/nowhere/b')",
    "import glob; glob.glob('/dev/*')",
    "import mmap; mmap.mmap(-1, 10)",
    "import sqlite3; sqlite3.connect(':memory:')",
]

THREADS_AND_NETWORKS = [
    "import threading; threading.Thread(target=print).start()",
    "import threading\nclass Mine(threading.Thread):\n def run(self): pass\nMine().start()",
    "import threading; threading.Timer(0, print).start()",
    "from concurrent.futures import ThreadPoolExecutor; ThreadPoolExecutor(1).submit(print)",
    "import socket; socket.socketpair()",
    "import socket; socket.socket()",
    "from socket import create_connection; create_connection(('127.0.0.1', 9))",
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9')",
    "import subprocess; subprocess.run(['true'])",
    "import os; os.system('true')",
]


@pytest.mark.parametrize("code", CLOCKS_AND_CHANCE + FILES + THREADS_AND_NETWORKS)
def test_reaching_around_the_runtime_is_told_with_the_place(code: str) -> None:
    line = 1 + code.count("\n", 0, code.index("time.time") if code.startswith("try") else len(code))
    run = run_of(code)
    assert run.wrong
    assert NotDeterministic.__name__ in run.wrong[0]
    assert f"{CHEATING}:{line} calls " in run.wrong[0]


@pytest.mark.parametrize(
    "code",
    [
        *CLOCKS_AND_CHANCE,
        "open('/dev/null')",
        "import threading; threading.Thread(target=id, args=(1,)).start()",
    ],
)
@pytest.mark.parametrize("module", ["pyarrow.compute", "tiltyard.runtime.real", "tiltyard.testing.probe"])
def test_others_and_the_runtime_itself_may_do_it(code: str, module: str) -> None:
    assert run_of(code, module).wrong == ()


@pytest.mark.parametrize(
    "code",
    [
        "import random; assert random.Random(5).randrange(9) >= 0",
        "from datetime import UTC, datetime as d; assert d.fromtimestamp(0, UTC).year == 1970; d(1970, 1, 1)",
        "import time; time.gmtime(0)",
        "import numpy; numpy.random.default_rng(5).random()",
        "import uuid; uuid.UUID(int=5)",
        "import sys; sys.modules.pop('this', None); sys.modules.pop('sndhdr', None); import colorsys",
        "import warnings\nwith warnings.catch_warnings(record=True):\n warnings.warn('x')",
        "import traceback\ntry:\n 1 / 0\nexcept ZeroDivisionError:\n traceback.format_exc()",
        "import os; os.path.join('a', 'b')",
    ],
)
def test_what_is_the_same_every_time_is_no_cheating(code: str) -> None:
    assert run_of(code).wrong == ()


def test_the_package_that_a_scenario_comes_from_is_watched_too() -> None:
    kind = type("Theirs", (Cheater,), {"__module__": "their_package.scenarios"})
    for module, told in (("their_package.stores", True), ("another_package.stores", False)):
        run = run_once(kind("import time; time.time()", module), ReplayedChoices(()), 0)
        assert bool(run.wrong) == told
        assert not told or "their_package.stores:1 calls time.time" in run.wrong[0]


HOLDER = """
import time
from time import monotonic
from uuid import uuid4 as fresh

class Held:
    clock = staticmethod(time.time)
    plain = time.time_ns

def by_default(clock=time.perf_counter, *, other=monotonic):
    return clock() if other is None else other()

def by_name():
    return monotonic()

def by_alias():
    return fresh()

def by_class():
    return Held.clock()

def by_attribute():
    return Held.plain()

def by_first_default():
    return by_default(other=None)
"""


FOUND = "import sys; held = sys.modules['tiltyard.table.holding']"


@pytest.fixture
def holder() -> Iterator[types.ModuleType]:
    """A module of the product that was imported before the run, with doors under names of its own."""
    name = "tiltyard.table.holding"
    made = types.ModuleType(name)
    exec(compile(HOLDER, "holding.py", "exec"), made.__dict__)
    sys.modules[name] = made
    yield made
    del sys.modules[name]


@pytest.mark.parametrize(
    "call", ["by_name", "by_alias", "by_class", "by_attribute", "by_default", "by_first_default"]
)
def test_doors_that_were_imported_before_the_run_are_watched(holder: types.ModuleType, call: str) -> None:
    before = dict(vars(holder))
    run = run_of(f"{FOUND}; held.{call}()")
    assert run.wrong
    assert "tiltyard.table.holding:" in run.wrong[0]
    assert dict(vars(holder)) == before
    assert getattr(holder, call)()  # and only during the run


def test_a_name_bound_while_a_run_was_watched_is_watched_in_the_next_one(holder: types.ModuleType) -> None:
    assert run_of(f"{FOUND}; import time; held.monotonic = time.monotonic").wrong == ()
    assert "tiltyard.table.holding:" in run_of(f"{FOUND}; held.by_name()").wrong[0]


def test_nothing_is_watched_outside_of_a_run(tmp_path: Path) -> None:
    run_of("import time; time.time()")
    code = "import time, datetime; time.time(); datetime.datetime.now(); open(place, 'w').close()"
    exec(code, {"__name__": CHEATING, "place": str(tmp_path / "x")})
