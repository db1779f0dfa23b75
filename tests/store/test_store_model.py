"""Every store against a dictionary, by the kit that is shipped for other stores' authors."""

from __future__ import annotations

import errno
import tempfile

from hypothesis import HealthCheck, settings

from tiltyard.store import open_store
from tiltyard.store.below import Below
from tiltyard.store.local import LocalStore
from tiltyard.store.memory import MemoryStore, memory_space
from tiltyard.testing.faults import FaultyPort, FaultyStore, Plan, port_installed, refusing
from tiltyard.testing.store_model import store_machine

_SETTINGS = settings(
    max_examples=20, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
_KEPT: list[tempfile.TemporaryDirectory] = []


def _directory() -> str:
    _KEPT.append(tempfile.TemporaryDirectory())
    return _KEPT[-1].name


def _local() -> LocalStore:
    return LocalStore(_directory() + "/not/yet there", durable=False)


def _on(plan: Plan) -> LocalStore:
    with port_installed(FaultyPort(plan)):
        return _local()


def teardown_module() -> None:
    for directory in _KEPT:
        directory.cleanup()


class TestLocal(store_machine(_local).TestCase):
    settings = _SETTINGS


class TestLocalBelowAnotherRoot(store_machine(lambda: _local().at("t.lance")).TestCase):
    settings = _SETTINGS


class TestBelow(store_machine(lambda: Below(_local(), "t.lance/deep")).TestCase):
    settings = _SETTINGS


class TestBelowMemory(
    store_machine(lambda: Below(MemoryStore(memory_space(_directory())), "t.lance")).TestCase
):
    settings = _SETTINGS


class TestLocalWithoutLinks(
    store_machine(
        lambda: _on(
            refusing(
                open_tmp=errno.EOPNOTSUPP, link=errno.EPERM, rename_noreplace=errno.EINVAL, map=errno.ENODEV
            )
        )
    ).TestCase
):
    settings = _SETTINGS


class TestMemory(store_machine(lambda: MemoryStore(memory_space(""))).TestCase):
    settings = _SETTINGS


class TestMemoryDirectory(store_machine(lambda: open_store("memory://").at("t.lance")).TestCase):
    settings = _SETTINGS


class TestFaultyWithoutRules(store_machine(lambda: FaultyStore(_local(), Plan())).TestCase):
    settings = _SETTINGS
