"""`tiltyard probe`: what it prints, and its exit status."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from tiltyard.cli import main
from tiltyard.testing.faults import FaultyPort, port_installed, refusing
from tiltyard.testing.probe import Finding, Grade, Report


def test_a_directory_is_found_to_be_safe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"{tmp_path}: local file system")
    assert any(line.split()[:3] == ["kept", "exclusive", "creation"] for line in said)
    assert said[-1].startswith("tables are safe here (")
    assert list(tmp_path.iterdir()) == []


def test_a_broken_promise_is_shouted_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = (
        Finding("exclusive creation", Grade.BROKEN, "two won", "commits are lost"),
        Finding("turnstile", Grade.SLOWER, "not offered", ""),
    )
    report = Report("memory://x", "memory", findings, (), (), 0.1)
    monkeypatch.setattr("tiltyard.testing.probe.probe", lambda uri: report)
    assert main(["probe", "memory://x"]) == 1
    said = capsys.readouterr().out
    assert "BROKEN   exclusive creation  two won" in said
    assert "(commits are lost)" in said
    assert "slower   turnstile" in said
    assert "1 promise broken: tables are not safe here" in said
    assert main(["probe", "memory://x", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["usable"]
    assert told["findings"][0]["grade"] == "broken"
    assert main(["probe", str(tmp_path), "--deep", "--json"]) == 1  # which is then not worth a deep probe
    assert json.loads(capsys.readouterr().out)["deep"] is None


def test_the_deep_probe_reports_what_was_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", str(tmp_path), "--deep", "--seconds", "1", "--seed", "7"]) == 0
    said = capsys.readouterr().out
    assert "deep probe: 1 s, seed 7" in said
    assert "killed: " in said
    assert "nothing lost, nothing doubled" in said
    assert list(tmp_path.iterdir()) == []


def test_machines_get_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "memory://for-machines", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["usable"]
    assert told["uri"] == "memory://for-machines"
    assert {each["grade"] for each in told["findings"]} <= {"kept", "slower", "untried"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["/no/such/place"], "there is no such directory"),
        (["s3+ddb://bucket/x"], "s3+ddb:// is not served"),
        (["memory://x", "--deep"], "use a local path"),
        (["memory://x", "--seed", "1"], "give --deep as well"),
    ],
)
def test_what_cannot_be_probed_is_said_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", *words]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_full_disk_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with port_installed(FaultyPort(refusing(write=errno.ENOSPC))):
        assert main(["probe", str(tmp_path)]) == 1
    assert "free some space" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
