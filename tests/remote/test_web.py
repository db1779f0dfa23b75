"""Tables behind a plain web server: read with the version named, never written."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tiltyard.lance as lance
from tiltyard.errors import StoreError, UnsupportedFeature, VersionNotFound

TABLE = pa.table({"a": range(50_000), "s": [f"text {i}" for i in range(50_000)]})


class _Ranges(SimpleHTTPRequestHandler):
    """A server of files that gives parts of them."""

    def log_message(self, *args: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        data, span = path.read_bytes(), re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        start, end = 0, len(data)
        if span is not None:
            start = int(span[1]) if span[1] else max(0, end - int(span[2]))
            end = min(end, int(span[2]) + 1) if span[1] and span[2] else end
        self.send_response(206 if span else 200)
        self.send_header("Content-Length", str(end - start))
        self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
        if span is not None:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        self.end_headers()
        self.wfile.write(data[start:end])


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    lance.write_dataset(TABLE, tmp_path / "t.lance")
    lance.write_dataset(TABLE, tmp_path / "t.lance", mode="append")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Ranges, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/t.lance"
    server.shutdown()
    server.server_close()


def test_a_version_is_read(web: str) -> None:
    table = lance.dataset(web, version=2)
    assert table.count_rows() == 100_000
    assert lance.dataset(web, version=1).to_table().equals(TABLE)
    assert table.take([3, 70_000])["a"].to_pylist() == [3, 20_000]
    assert table.to_table(columns=["s"], filter="a = 49999")["s"].to_pylist() == ["text 49999"] * 2


def test_what_a_web_server_cannot_do_is_said(web: str) -> None:
    with pytest.raises(UnsupportedFeature, match="name the version"):
        lance.dataset(web)
    with pytest.raises((UnsupportedFeature, VersionNotFound)):
        lance.dataset(web, version=9)
    with pytest.raises((UnsupportedFeature, StoreError)):
        lance.dataset(web, version=1).delete("a = 1")
    with pytest.raises((UnsupportedFeature, StoreError)):
        lance.write_dataset(TABLE, web, mode="append")
