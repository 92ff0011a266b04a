from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedgwc.core.errors import InputError
from fedgwc.io.download import download

CONTENT = bytes(range(256)) * 4096  # 1 MiB
SHA = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


class Flaky(ThreadingHTTPServer):
    """Serves `content`, and breaks off the first answers after `drops` bytes each."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.etag, self.drops = CONTENT, '"one"', list[int]()
        self.ranges, self.status = True, 200
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/data.bin"


class Handler(BaseHTTPRequestHandler):
    server: Flaky

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        self.server.asked.append(wanted)
        start = 0
        if self.server.ranges and wanted and self.headers.get("If-Range") == self.server.etag:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
        if start >= len(self.server.content) or self.server.status != 200:
            self.send_error(416 if start else self.server.status)
            return
        body = self.server.content[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(self.server.content) - 1}/{len(self.server.content)}")
        self.send_header("ETag", self.server.etag)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.drops.pop(0)] if self.server.drops else body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Flaky]:
    with Flaky() as flaky:
        thread = threading.Thread(target=flaky.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield flaky
        flaky.shutdown()
        thread.join()


def fetch(server: Flaky, to: Path, checksum: str = SHA, tries: int = 3) -> Path:
    return download(server.url, to, checksum=checksum, tries=tries, wait=0.001, timeout=5)


def test_a_dropped_connection_is_resumed(server: Flaky, tmp_path: Path) -> None:
    server.drops = [300_000, 100_000]
    assert fetch(server, tmp_path / "new" / "a").read_bytes() == CONTENT
    assert server.asked == ["", "bytes=300000-", "bytes=400000-"]
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a"]


def test_a_later_call_goes_on(server: Flaky, tmp_path: Path) -> None:
    server.drops = [300_000, 0]
    with pytest.raises(InputError, match="300000 bytes are kept"):
        fetch(server, tmp_path / "a", tries=2)
    assert not (tmp_path / "a").exists()
    assert fetch(server, tmp_path / "a").read_bytes() == CONTENT
    assert server.asked[-1] == "bytes=300000-"


def test_without_ranges_it_starts_again(server: Flaky, tmp_path: Path) -> None:
    server.ranges, server.drops = False, [300_000, 200_000]
    assert fetch(server, tmp_path / "a").read_bytes() == CONTENT


def test_a_changed_file_is_not_stitched_together(server: Flaky, tmp_path: Path) -> None:
    server.drops = [300_000]
    with pytest.raises(InputError):
        fetch(server, tmp_path / "a", tries=1)
    server.content, server.etag = CONTENT[::-1], '"two"'
    assert fetch(server, tmp_path / "a", checksum="").read_bytes() == CONTENT[::-1]


def test_a_part_longer_than_the_file_is_thrown_away(server: Flaky, tmp_path: Path) -> None:
    (tmp_path / "a.part").write_bytes(CONTENT + b"more")
    (tmp_path / "a.part.tag").write_text('"one"')
    assert fetch(server, tmp_path / "a").read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(server: Flaky, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not the file"):
        fetch(server, tmp_path / "a", checksum="md5:" + "0" * 32)
    assert list(tmp_path.iterdir()) == []


def test_an_older_file_stays_until_the_new_one_is_whole(server: Flaky, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    server.drops = [10]
    with pytest.raises(InputError):
        fetch(server, tmp_path / "a", tries=1)
    assert (tmp_path / "a").read_text() == "old"


@pytest.mark.parametrize(("status", "asked"), [(404, 1), (503, 3)])
def test_only_passing_trouble_is_tried_again(server: Flaky, tmp_path: Path, status: int, asked: int) -> None:
    server.status = status
    with pytest.raises(InputError, match=str(status)):
        fetch(server, tmp_path / "a")
    assert len(server.asked) == asked
    assert not (tmp_path / "a").exists()


def test_progress_and_file_addresses(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(CONTENT)
    seen: list[tuple[int, int | None]] = []
    download((tmp_path / "source").as_uri(), tmp_path / "a", checksum=SHA, progress=lambda *p: seen.append(p))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    with pytest.raises(InputError, match="cannot read file://"):
        download((tmp_path / "nothing").as_uri(), tmp_path / "b")


@pytest.mark.parametrize("url", ["ftp://host/a", "data:,a", "plain/path", "javascript:1", ""])
def test_other_schemes_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(InputError, match="cannot download"):
        download(url, tmp_path / "a")
