"""The catalogue of data sets that come from files.

`fedgwc data` shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedgwc.core.errors import InputError
from fedgwc.data.pool import Pool
from fedgwc.data.sources import cifar, fedvision, leaf
from fedgwc.data.sources.emnist import BUNDLE, emnist_pool, mnist_pool
from fedgwc.data.sources.roots import Root


@dataclass(frozen=True)
class File:
    """A file to fetch.

    Sizes are for planning, the checksum decides.
    """

    name: str
    urls: tuple[str, ...]
    checksum: str
    size: int  # bytes, about


@dataclass(frozen=True)
class Need:
    any_of: tuple[str, ...]  # paths (patterns; a folder ends with /) of which one is enough
    file: File | None = None  # fetching it meets the need; None: only the user can


@dataclass(frozen=True)
class Source:
    name: str
    title: str
    needs: tuple[Need, ...]
    by_hand: str
    read: Callable[[Root], str]  # reads everything, says what it found, raises InputError where something is wrong
    images: int = 0  # photographs to decode into a cache


def _cifar(kind: cifar.Kind, title: str, size: int) -> Source:
    layout = kind.layouts[0]
    page = "https://www.cs.toronto.edu/~kriz"
    file = File(layout.archive, (f"{page}/{layout.archive}",), layout.checksum, size)
    names = tuple(name for one in kind.layouts for name in (f"{one.folder}/{one.test}", one.test, one.archive))

    def read(root: Root) -> str:
        data = cifar.read(kind, root)
        return f"{data.n_train} train and {len(data.y) - data.n_train} test images, {kind.n_classes} classes"

    hand = f"download {layout.archive} from {page}/cifar.html; it need not be unpacked"
    return Source(kind.name, title, (Need(names, file),), hand, read)


def _mnist() -> Source:
    parts = {
        "train-images-idx3-ubyte": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
        "train-labels-idx1-ubyte": ("d53e105ee54ea40749a09fcbcd1e9432", 28_881),
        "t10k-images-idx3-ubyte": ("9fb629c4189551a2d022fa330f9573f3", 1_648_877),
        "t10k-labels-idx1-ubyte": ("ec29112dd5afa0611ce80d1b7f02629c", 4_542),
    }
    mirrors = ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist")
    needs = tuple(
        Need((name, f"{name}.gz"), File(f"{name}.gz", tuple(f"{m}/{name}.gz" for m in mirrors), f"md5:{md5}", size))
        for name, (md5, size) in parts.items()
    )
    hand = "download the four .gz files of MNIST; they need not be unpacked"
    return Source("mnist", "MNIST: handwritten digits", needs, hand, lambda root: _pool(mnist_pool(root)))


def _emnist() -> Source:
    url = f"https://biometrics.nist.gov/cs_links/EMNIST/{BUNDLE}"
    bundle = File(BUNDLE, (url,), "md5:58c8d27c78d21e728a6bc7b3cc06412e", 561_753_746)
    names = [
        f"emnist-bymerge-{part}-ubyte"
        for part in ("train-images-idx3", "train-labels-idx1", "test-images-idx3", "test-labels-idx1")
    ]
    needs = tuple(Need((n, f"{n}.gz", f"gzip/{n}.gz", f"gzip/{n}", BUNDLE), bundle) for n in names)
    hand = "download the binary format (gzip.zip) from https://www.nist.gov/itl/products-and-services/emnist-dataset"
    return Source("emnist", "EMNIST, 47 merged classes", needs, hand, lambda root: _pool(emnist_pool(root)))


def _pool(pool: Pool) -> str:
    return f"{len(pool.train)} train and {len(pool.test)} test images, {pool.n_classes} classes"


def _leaf() -> Source:
    def read(root: Root) -> str:
        federation = leaf.leaf_femnist(seed=0, root=str(root) if root else None)
        return f"{federation.n_clients} users, {len(federation.y)} images"

    hand = (
        "LEAF offers no finished file: in its repository (github.com/TalwalkarLab/leaf), data/femnist, run preprocess.sh "
        "with -t sample and put data/train and data/test (or data/all_data) into the folder leaf_femnist"
    )
    need = Need(("train/*.json", "*.json", "all_data/*.json", "data/train/*.json", "data/all_data/*.json"))
    return Source("leaf_femnist", "LEAF FEMNIST: 62 classes, by writer", (need,), hand, read)


def _users(users: fedvision.UserSet, title: str, checksum: str, images: int, where: str) -> Source:
    bundle = f"{users.bundle}.zip"
    url = f"https://storage.googleapis.com/gresearch/federated-vision-datasets/{bundle}"
    splits = Need((f"{users.bundle}/{users.train}", users.train, bundle), File(bundle, (url,), checksum, 10_000_000))

    def read(root: Root) -> str:
        split = fedvision.open_split(users, root)
        absent = fedvision.open_cache(users, split, root).absent(range(split.n_train))
        least = fedvision.min_images_for(split.sizes, users.paper_clients)
        found = (
            f"{len(split.users)} users, {split.n_train} train and {len(split.y) - split.n_train} test images, "
            f"{len(np.unique(split.y))} classes; min_images for the paper's {users.paper_clients} clients: {least or 'none'}"
        )
        if absent:
            raise InputError(f"{found}; but {len(absent)} train images are not there, such as {absent[0]}.jpg: add them")
        return found

    hand = f"get the photographs from {where} and put them, as <image_id>.jpg, anywhere below the folder {users.name}/images"
    return Source(users.name, title, (splits, Need(("images/",))), hand, read, images)


SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        _cifar(cifar.CIFAR10, "CIFAR-10", 170_498_071),
        _cifar(cifar.CIFAR100, "CIFAR-100", 169_001_437),
        _mnist(),
        _emnist(),
        _leaf(),
        _users(
            fedvision.LANDMARKS,
            "Google Landmarks, by photographer",
            "md5:53c36bd7d5fc12f927af2820b7e4a57c",
            164_172 + 19_526,
            "the Google Landmarks Dataset v2 (github.com/cvdfoundation/google-landmark, the train archives)",
        ),
        _users(
            fedvision.INATURALIST,
            "iNaturalist 2017, by observer",
            "",
            120_300 + 35_641,
            "iNaturalist 2017 (github.com/visipedia/inat_comp, 2017, all images)",
        ),
    )
}
