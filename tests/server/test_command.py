"""`tiltyard serve` as a process: started, asked by many, raced, ended."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tiltyard.cli
from serving import ROWS, ipc
from tiltyard.errors import TiltyardError
from tiltyard.lance.namespace import RestNamespace


@contextmanager
def command(*words: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server's process, and where it listens."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tiltyard", "serve", *words, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout is not None
        told = process.stdout.readline()
        found = re.search(r"https?://\S+", told)
        assert found, told
        yield process, found[0]
    finally:
        process.kill()
        process.wait()


def metrics(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def answers(port: int) -> bool:
    """Whether connections are still taken."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionError:
        return False
    return True


def test_requests_at_work_are_finished_when_it_ends(tmp_path: Path) -> None:
    with command(str(tmp_path)) as (process, uri):
        port = int(uri.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as slow:
            body = ipc(ROWS)
            head = (
                "POST /v1/table/t/create?mode=create HTTP/1.1\r\nhost: x\r\n"
                f"content-type: application/vnd.apache.arrow.stream\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            slow.sendall(head.encode() + body[:100])
            while "tiltyard_requests_running 2" not in metrics(port):  # that one, and the one that asks
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            while answers(port):
                time.sleep(0.02)
            slow.sendall(body[100:])
            heard = slow.recv(65536)
            assert heard.startswith(b"HTTP/1.1 200")
        assert process.wait(20) == -signal.SIGTERM
    assert (tmp_path / "t.lance").is_dir()


def test_several_servers_and_clients_race_for_one_name(tmp_path: Path) -> None:
    with command(str(tmp_path)) as (_, one), command(str(tmp_path)) as (_, two):
        RestNamespace(uri=one).create_namespace({"id": ["n"]})
        for attempt in range(3):
            outcomes: Counter[str] = Counter()
            gate = threading.Barrier(8)

            def race(uri: str, name: str, gate: threading.Barrier, outcomes: Counter[str]) -> None:
                client = RestNamespace(uri=uri)
                gate.wait()
                try:
                    client.create_table({"id": ["n", name]}, ipc(ROWS))
                    outcomes["made"] += 1
                except TiltyardError as error:
                    outcomes[type(error).__name__] += 1

            threads = [
                threading.Thread(target=race, args=((one, two)[at % 2], f"t{attempt}", gate, outcomes))
                for at in range(8)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert outcomes == {"made": 1, "TableAlreadyExists": 7}
        for uri in (one, two):
            assert list(RestNamespace(uri=uri).list_tables({"id": ["n"]})) == ["t0", "t1", "t2"]


def test_workers_share_a_socket_and_are_replaced(tmp_path: Path) -> None:
    with command(str(tmp_path), "--workers", "2") as (process, uri):
        port = int(uri.rpartition(":")[2])

        def workers() -> set[str]:
            found = set()
            for _ in range(40):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
                connection.request("GET", "/healthz")
                found.add(connection.getresponse().headers["tiltyard-server"])
                connection.close()
            return found

        before = workers()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 2
        client = RestNamespace(uri=uri)
        client.create_namespace({"id": ["n"]})
        time.sleep(2)  # younger ones would not be replaced
        os.kill(int(children[0]), signal.SIGKILL)
        deadline = time.monotonic() + 30
        while not (workers() - before) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert workers() - before
        assert list(client.list_namespaces({"id": []})) == ["n"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert not answers(port)


def test_a_thousand_connections_at_once_are_served(tmp_path: Path) -> None:
    with command(str(tmp_path)) as (_, uri):
        port = int(uri.rpartition(":")[2])
        connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for _ in range(1000)]
        try:
            for connection in connections:
                connection.request("GET", "/v1/namespace/%24/list")
            answers = Counter(connection.getresponse().status for connection in connections)
        finally:
            for connection in connections:
                connection.close()
        assert answers == {200: 1000}


def test_tls_and_keys(tmp_path: Path) -> None:
    made = subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-keyout",
            "key.pem",
            "-out",
            "cert.pem",
        ],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("no openssl program to make a certificate with")
    new = subprocess.run(
        [sys.executable, "-m", "tiltyard", "serve", "--new-key", "etl", "--role", "write"],
        capture_output=True,
        text=True,
        check=True,
    )
    secret = new.stderr.rpartition(": ")[2].strip()
    assert secret not in new.stdout
    (tmp_path / "keys.toml").write_text(new.stdout)
    certificate = str(tmp_path / "cert.pem")
    words = [str(tmp_path / "lake"), "--auth", str(tmp_path / "keys.toml")]
    words += ["--tls-cert", certificate, "--tls-key", str(tmp_path / "key.pem")]
    with command(*words) as (_, uri):
        assert uri.startswith("https://")
        key = {"header.authorization": f"Bearer {secret}"}
        client = RestNamespace(uri=uri, **{"tls.ssl_ca_cert": certificate}, **key)
        client.create_namespace({"id": ["n"]})
        assert list(client.list_namespaces({"id": []})) == ["n"]
        with pytest.raises(TiltyardError, match="CERTIFICATE_VERIFY_FAILED"):
            RestNamespace(uri=uri, **key).list_namespaces({"id": []})


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "needs ROOT"),
        (["{root}", "--host", "0.0.0.0"], "--anonymous"),
        (["{root}", "--auth", "{root}/none.toml"], "cannot be read"),
        (["{root}", "--tls-cert", "x"], "given together"),
        (["{root}", "--tls-cert", "x", "--tls-key", "y"], "cannot be used"),
        (["{root}", "--property", "x"], "NAME=VALUE"),
        (["{root}", "--property", "manifest_enable=false"], "manifest_enabled"),
        (["{root}", "--host", "203.0.113.7", "--anonymous"], "cannot listen"),
        (["ftp://x/y"], "ftp"),
        ([__file__], "is a file"),
        (["{root}", "--role", "admin"], "--role is of --new-key"),
        (["--new-key", ""], "needs a 'name'"),
    ],
)
def test_what_cannot_be_served_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    given = [word.replace("{root}", str(tmp_path)) for word in words]
    assert tiltyard.cli.main(["serve", *given, "--quiet"]) == 1
    error = capsys.readouterr().err
    assert told in error
    assert "Traceback" not in error


def test_a_port_that_is_taken_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert tiltyard.cli.main(["serve", str(tmp_path), "--port", port, "--quiet"]) == 1
    assert "cannot listen" in capsys.readouterr().err


def test_workers_get_every_option_of_the_command(tmp_path: Path) -> None:
    from argparse import ArgumentParser

    from tiltyard.cli import serve

    parser = ArgumentParser()
    serve.configure(parser)
    words = [str(tmp_path), "--quiet", "--anonymous"]
    for action in parser._actions:
        option = action.option_strings[-1] if action.option_strings else ""
        if action.dest not in ("help", "uri", "quiet", "anonymous", "new_key", "role"):
            words += [option, "a=b" if action.dest == "property" else "7"]
    given = parser.parse_args(words)
    again = parser.parse_args(serve._words_of(given))
    of_the_first = {"port": again.port, "workers": again.workers, "inherited": again.inherited}
    assert vars(again) == {**vars(given), **of_the_first}
