"""Fetching and checking of data sets that come from files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fedgwc.core.errors import InputError
from fedgwc.data.sources import fedvision
from fedgwc.data.sources.catalogue import SOURCES, File, Need, Source
from fedgwc.data.sources.roots import Root, candidate_folders, data_root
from fedgwc.io.checksum import check
from fedgwc.io.download import download

Progress = Callable[[str, int, int | None], None]  # what, how much is done, of how much


@dataclass(frozen=True)
class Status:
    """One line of `fedgwc data ls`."""

    name: str
    title: str
    missing: tuple[str, ...]
    looked: tuple[Path, ...]
    disk: int  # bytes that fetching and decoding it take
    by_hand: str
    fetchable: bool = False  # `fedgwc data prepare` gets all that is missing


@dataclass(frozen=True)
class Check:
    what: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Prepared:
    folder: Path
    fetched: tuple[Path, ...]
    decoded: int  # images in the cache
    missing: tuple[str, ...]
    by_hand: str  # what is left for the user to do; empty: nothing


def find(name: str) -> Source:
    if name == "digits":
        raise InputError("digits ships with scikit-learn: it is always ready, there is nothing to fetch or check")
    if name not in SOURCES:
        raise InputError(f"unknown data source {name!r}; choose from {', '.join(SOURCES)}")
    return SOURCES[name]


def status(name: str, root: Root = None, size: int = 224) -> Status:
    source = find(name)
    lacking = missing(name, root)
    fetchable = all(need.file for need in source.needs)
    by_hand = source.by_hand if lacking else ""
    return Status(name, source.title, lacking, candidate_folders(name, root), disk_needed(name, size), by_hand, fetchable)


def missing(name: str, root: Root = None) -> tuple[str, ...]:
    """List missing files, each as its alternatives."""
    return tuple(" or ".join(need.any_of) for need in find(name).needs if not _is_there(need, name, root))


def disk_needed(name: str, size: int = 224) -> int:
    """Return the bytes of fetched files and decoded images.

    Images are `size` x `size`, where a cache is made.
    """
    source = find(name)
    files = {need.file for need in source.needs if need.file}
    return sum(file.size for file in files) + source.images * 3 * size * size


def verify(name: str, root: Root = None) -> tuple[Check, ...]:
    """Check published files' checksums, then read the whole content."""
    source = find(name)
    files = {need.file: path for need in source.needs if need.file and (path := _path(need.file.name, name, root))}
    return (
        *(_run_check(file.name, partial(_check_sum, path, file)) for file, path in files.items()),
        _run_check("content", partial(source.read, root)),
    )


def prepare(
    name: str, root: Root = None, *, url: str | None = None, size: int = 224, progress: Progress | None = None
) -> Prepared:
    """Fetch a data set's files, then decode its images.

    From `url` (a file, or the folder of the files) or the known addresses.
    """
    source, folder = find(name), data_root(root) / name
    # One after the other: a file that is fetched may meet later needs too.
    fetched = [_fetch(n.file, folder, url, progress) for n in source.needs if n.file and not _is_there(n, name, root)]
    lacking = missing(name, root)
    decoded = _decode_all(name, root, size, progress) if source.images and not lacking else 0
    return Prepared(folder, tuple(fetched), decoded, lacking, source.by_hand if lacking else "")


def _is_there(need: Need, name: str, root: Root) -> bool:
    """Tell whether a needed file or folder is there.

    A pattern that ends with a slash wants a folder, any other a file.
    """
    found = (
        (path, pattern) for place in candidate_folders(name, root) for pattern in need.any_of for path in place.glob(pattern)
    )
    return any(path.is_dir() if pattern.endswith("/") else path.is_file() for path, pattern in found)


def _path(file: str, name: str, root: Root) -> Path | None:
    return next((place / file for place in candidate_folders(name, root) if (place / file).is_file()), None)


def _check_sum(path: Path, file: File) -> str:
    check(path, file.checksum)
    return "the published checksum" if file.checksum else "no checksum is published"


def _run_check(what: str, run: Callable[[], str]) -> Check:
    try:
        return Check(what, True, run())
    except InputError as error:
        return Check(what, False, str(error))


def _fetch(file: File, folder: Path, url: str | None, progress: Progress | None) -> Path:
    addresses = file.urls
    if url:
        addresses = (url if url.endswith(file.name) else f"{url.rstrip('/')}/{file.name}",)
    report = (lambda done, total: progress(file.name, done, total)) if progress else None
    trouble = []
    for address in addresses:
        try:
            return download(address, folder / file.name, checksum=file.checksum, progress=report)
        except InputError as error:
            trouble.append(str(error))
    raise InputError("; ".join(trouble))


def _decode_all(name: str, root: Root, size: int, progress: Progress | None) -> int:
    """Decode all images of the train csv in the folder.

    The global test images too, where they are there.
    """
    users = fedvision.USER_SETS[name]
    split = fedvision.open_split(users, root)
    cache = fedvision.open_cache(users, split, root, size)
    absent = set(cache.absent(range(len(cache))))
    rows = np.array([row for row, image in enumerate(split.images) if image not in absent], np.int64)
    cache.fill(rows, (lambda done, total: progress("images", done, total)) if progress else None)
    return len(rows)
