"""The garbage collector is held back while wanted, and comes back as it was."""

from __future__ import annotations

import gc
import os

from tiltyard.runtime.collector import collector_held_back


def test_collections_rest_until_the_last_holder_ends() -> None:
    assert gc.isenabled()
    with collector_held_back():
        with collector_held_back():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with collector_held_back():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_an_error_ends_the_hold() -> None:
    try:
        with collector_held_back():
            raise ValueError
    except ValueError:
        pass
    assert gc.isenabled()


def test_a_child_that_is_forked_meanwhile_collects() -> None:
    with collector_held_back():
        child = os.fork()
        if child == 0:
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert not gc.isenabled()


def test_a_child_leaves_a_collector_off_that_others_turned_off() -> None:
    gc.disable()
    try:
        with collector_held_back():
            child = os.fork()
            if child == 0:
                os._exit(1 if gc.isenabled() else 0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        gc.enable()
