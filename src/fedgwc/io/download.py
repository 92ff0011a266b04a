"""Downloads that resume after a broken connection.

An incomplete file never gets the final name.
"""

from __future__ import annotations

import http.client
import os
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request as web
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from fedgwc.core.errors import InputError
from fedgwc.io.checksum import check

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all where the server says
SCHEMES = ("http", "https", "file")
PIECE = 2**18
DROPPED = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError)


def download(
    url: str,
    to: Path,
    *,
    checksum: str = "",
    progress: Progress | None = None,
    tries: int = 5,
    wait: float = 1.0,
    timeout: float = 30.0,
) -> Path:
    """Download `url` to `to`, and check its checksum.

    A later call resumes where this one stopped.

    `tries` attempts without a single new byte are the end; the pause before each doubles, from `wait` seconds on.
    """
    if urllib.parse.urlsplit(url).scheme not in SCHEMES:
        raise InputError(f"cannot download {url!r}; give an address that starts with http://, https:// or file://")
    to.parent.mkdir(parents=True, exist_ok=True)
    part = _Part(to)
    failed, most = 0, part.size
    while True:
        try:
            _fetch(url, part, progress, timeout)
            break
        except DROPPED as error:
            _give_up_if_final(url, part, error)
            failed, most = (1, part.size) if part.size > most else (failed + 1, most)
            if failed >= tries:
                raise InputError(f"cannot download {url} ({error}); {part.size} bytes are kept, so run it again later") from error
            time.sleep(wait * 2 ** (failed - 1))
    try:
        check(part.path, checksum)
    except InputError as error:
        part.forget()
        raise InputError(f"what came from {url} is not the file: {error}") from error
    part.finish(to)
    return to


class _Part:
    """An unfinished file and the tag of its version.

    The server compares the tag with its own version.
    """

    def __init__(self, to: Path) -> None:
        self.path, self._tag = to.with_name(f"{to.name}.part"), to.with_name(f"{to.name}.part.tag")

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def tag(self) -> str:
        return self._tag.read_text() if self._tag.exists() else ""

    def start(self, tag: str) -> None:
        self.path.write_bytes(b"")
        self._tag.write_text(tag)

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)
        self._tag.unlink(missing_ok=True)

    def finish(self, to: Path) -> None:
        with self.path.open("rb+") as stream:
            os.fsync(stream.fileno())
        os.replace(self.path, to)
        self._tag.unlink(missing_ok=True)


def _fetch(url: str, part: _Part, progress: Progress | None, timeout: float) -> None:
    """Try once to fetch the file or its missing part.

    The missing part is enough if the server still has the same version.
    """
    request = web.Request(url)  # noqa: S310  the scheme is checked above
    start = part.size if part.tag else 0
    if start:
        request.add_header("Range", f"bytes={start}-")
        request.add_header("If-Range", part.tag)
    with _opener().open(request, timeout=timeout) as answer:
        resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        if not resumed:
            if answer.status == 206:
                raise http.client.HTTPException("the server sent another range than asked for")
            start = 0
            part.start(_tag(answer.headers))
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length else None
        with part.path.open("rb+") as out:
            out.seek(start)
            done = _copy(answer, out, start, total, progress)
    if total is not None and done != total:
        raise ConnectionError(f"the connection ended after {done} of {total} bytes")


def _copy(source: BinaryIO, out: BinaryIO, done: int, total: int | None, progress: Progress | None) -> int:
    while piece := source.read(PIECE):
        out.write(piece)
        done += len(piece)
        if progress:
            progress(done, total)
    return done


def _tag(headers: http.client.HTTPMessage) -> str:
    """Return the If-Range header: a strong ETag, else the date.

    A weak ETag does not promise the same bytes.
    """
    etag = headers.get("ETag", "")
    return etag if etag.startswith('"') else headers.get("Last-Modified", "")


def _give_up_if_final(url: str, part: _Part, error: Exception) -> None:
    """Raise for errors that another attempt cannot cure."""
    if isinstance(error, urllib.error.HTTPError):
        with error:
            if error.code == 416:  # what we have is longer than what there is
                part.forget()
            elif error.code < 500 and error.code not in (408, 429):
                raise InputError(f"{url} answers {error.code} {error.reason}; check the address or fetch it by hand") from error
    if isinstance(getattr(error, "reason", None), FileNotFoundError | IsADirectoryError | PermissionError):
        raise InputError(f"cannot read {url} ({error}); check the path") from error


def _opener() -> web.OpenerDirector:
    """Return a URL opener for the allowed schemes only.

    So no redirection leads elsewhere.
    """
    opener = web.OpenerDirector()
    for handler in (
        web.ProxyHandler,
        web.UnknownHandler,
        web.HTTPHandler,
        web.HTTPSHandler,
        web.FileHandler,
        web.HTTPDefaultErrorHandler,
        web.HTTPRedirectHandler,
        web.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    return opener
