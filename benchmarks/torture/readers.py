"""Every reader of the package, with real files for it to read."""

from __future__ import annotations

import gzip
import hashlib
import json
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.torture.runs import job
from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.algorithms.auto.state import AutoState
from fedgwc.cli.assign import assign
from fedgwc.cli.score import read_counts, read_labels
from fedgwc.data.sources import authors_partition, cifar, fedvision, images, leaf, synthetic
from fedgwc.data.sources.arrays import arrays
from fedgwc.data.sources.emnist import BUNDLE, emnist_pool, mnist_pool
from fedgwc.io.state_file import MAGIC, unpack
from fedgwc.metrics.table import clustering_scores
from fedgwc.models import mobilenet
from fedgwc.report.load import load as load_for_report
from fedgwc.runs.driver import Checkpoint
from fedgwc.runs.experiment import experiment, load, recipes
from fedgwc.runs.folder import RunFolder, Stamped
from fedgwc.runs.loop import run
from fedgwc.runs.replay import read_trace, replay


@dataclass(frozen=True)
class Reader:
    """`read(folder)` reads what `folder` holds; `files` there may be broken."""

    folder: Path
    files: tuple[str, ...]
    read: Callable[[Path], object]
    mend: Callable[[bytes], bytes] = bytes  # makes a broken file look whole, so that readers get past its checksum


CIFAR = replace(cifar.CIFAR10, layouts=(cifar.CIFAR10.layouts[0],))
BINARY = replace(cifar.CIFAR10, layouts=(cifar.CIFAR10.layouts[1],))
COUNTS = (10, 2)


def all_readers(place: Path) -> dict[str, Reader]:
    """Real files below `place`, and who reads them."""
    rng = np.random.default_rng(0)
    finished = _finished_run(place)
    return {
        "recipes": _recipes(place),
        "recipes, built": _small_recipe(place),
        "csv tables of `score`": Reader(finished, ("counts.csv", "labels.csv"), _score),
        "csv user splits": _users(place),
        "LEAF json": _leaf(place, rng),
        "partition json and json.gz": _partition(place),
        "idx, gz and zip": _idx(place),
        "CIFAR python (pickle)": _cifar(place),
        "CIFAR binary": _cifar_binary(place, rng),
        "CIFAR archive (tar.gz)": _cifar_archive(place),
        "npz of one's own data": _npz(place, rng),
        "photographs": _photographs(place),
        "weights (pth, safetensors)": _weights(place),
        "traces (npz)": _trace(place, rng),
        "traces of run folders": Reader(finished, _inside(finished, "trace/*.npz", "clients.npz"), _replay),
        "checkpoints": Reader(finished, _inside(finished, "state/*.ckpt"), _checkpoint),
        "checkpoints, checksum mended": Reader(finished, _inside(finished, "state/*.ckpt"), _checkpoint, _mended),
        "run folders (config, metrics)": Reader(finished, ("config.json", "metrics.jsonl"), _folder),
        "run folders, for a report": Reader(
            finished,
            ("config.json", "labels.csv", *_inside(finished, "*.jsonl", "*.npz", "splits/*")),
            load_for_report,
        ),
        "models of run folders": Reader(finished, ("config.json", "client.npz", *_inside(finished, "models/*")), _assign),
    }


def _inside(folder: Path, *patterns: str) -> tuple[str, ...]:
    return tuple(str(p.relative_to(folder)) for pattern in patterns for p in sorted(folder.glob(pattern)))


def _recipes(place: Path) -> Reader:
    folder = place / "recipes"
    folder.mkdir()
    for name in ("digits", "cifar100-dom-40-30-30", "femnist"):  # the others differ from these in numbers only
        (folder / f"{name}.toml").write_bytes(recipes()[name].read_bytes())
    return Reader(folder, _inside(folder, "*.toml"), lambda f: [load(p) for p in f.glob("*.toml")])


def _small_recipe(place: Path) -> Reader:
    folder = place / "small"
    folder.mkdir()
    (folder / "small.toml").write_text(
        'rounds = 3\nseed = 1\n[data]\nname = "digits"\ntrain_size = 12\ntest_size = 5\n'
        "groups = [{ clients = 8 }, { clients = 4, relabel = 1, noise = 0.1, rotate = 90 }]\n"
        '[model]\nname = "mlp"\nhidden = [32]\n[local]\nsteps = 4\nbatch = 16\nlr = 0.1\n'
        '[algorithm]\nname = "auto"\nrate = 0.3\n[evaluate]\nevery = 10\n'
    )

    def read(f: Path) -> None:
        asked = load(f / "small.toml")
        asked.module(asked.federation())

    return Reader(folder, ("small.toml",), read)


def _finished_run(place: Path) -> Path:
    folder = place / "finished"
    run(job("auto", rounds=10), folder)
    np.savez(folder / "client.npz", x=np.zeros((3, 1, 8, 8), np.float32), y=np.array([1, 2, 3]))
    return folder


def _score(folder: Path) -> None:
    counts = read_counts(folder / "counts.csv")
    labels, _ = read_labels(folder / "labels.csv")
    both = [c for c in counts if c in labels]
    if both:
        numbered = np.unique([labels[c] for c in both], return_inverse=True)[1]
        clustering_scores(numbered, np.array([counts[c] for c in both]), None)


def _users(place: Path) -> Reader:
    folder = synthetic.write_users(fedvision.LANDMARKS, place / "users", n_users=4, images=3, n_classes=3)
    train, test = fedvision.LANDMARKS.train, "test.csv"
    with zipfile.ZipFile(folder / "packed.zip", "w") as archive:
        for name in (train, test):
            archive.write(folder / name, f"landmarks-user-160k/{name}")

    def read(f: Path) -> None:
        split = fedvision.open_split(fedvision.LANDMARKS, f)
        x = torch.zeros(len(split.y), 3, 2, 2, dtype=torch.uint8)
        fedvision.by_users(split, x, fedvision.LANDMARKS, 2, 0.2, 0)
        fedvision.read_split(fedvision._text(f / "packed.zip", train), fedvision._text(f / "packed.zip", test), "packed")

    return Reader(folder, (train, test, "packed.zip"), read)


def _leaf(place: Path, rng: np.random.Generator) -> Reader:
    folder = place / "leaf"
    folder.mkdir()
    users = ["f0001_41", "f0002_10"]
    data = {u: {"x": np.round(rng.random((2, 784)), 2).tolist(), "y": [3, 61]} for u in users}
    (folder / "all_data_0.json").write_text(json.dumps({"users": users, "num_samples": [2, 2], "user_data": data}))
    return Reader(folder, ("all_data_0.json",), lambda f: leaf.leaf_femnist(seed=0, root=str(f)))


def _partition(place: Path) -> Reader:
    folder = place / "partition"
    folder.mkdir()
    names, labels = [f"{i}.png" for i in range(12)], np.arange(12) % 3
    table: dict[str, Any] = {
        str(k): {
            "train": {"x": names[4 * k : 4 * k + 4], "y": labels[4 * k : 4 * k + 4].tolist()},
            "test": {"x": names[8 + k : 9 + k], "y": labels[8 + k : 9 + k].tolist()},
        }
        for k in range(2)
    }
    raw = json.dumps({**table, "server_imgs": {"x": names[10:], "y": labels[10:].tolist()}}).encode()
    (folder / "a.json").write_bytes(raw)
    (folder / "b.json.gz").write_bytes(gzip.compress(raw))
    return Reader(
        folder, ("a.json", "b.json.gz"), lambda f: [authors_partition.read(p, names, labels, 8) for p in sorted(f.iterdir())]
    )


def _idx(place: Path) -> Reader:
    folder = place / "idx"
    (folder / "emnist").mkdir(parents=True)
    rng = np.random.default_rng(0)
    with zipfile.ZipFile(folder / "emnist" / BUNDLE, "w") as archive:
        for part, n in (("train", 6), ("t10k", 3)):
            x, y = rng.integers(0, 256, (n, 28, 28)), np.arange(n) % 10
            synthetic.write_idx(folder / f"{part}-images-idx3-ubyte.gz", x)
            synthetic.write_idx(folder / f"{part}-labels-idx1-ubyte", y)
            name = f"gzip/emnist-bymerge-{part.replace('t10k', 'test')}"
            archive.writestr(f"{name}-images-idx3-ubyte.gz", gzip.compress(synthetic.idx_bytes(x)))
            archive.writestr(f"{name}-labels-idx1-ubyte.gz", gzip.compress(synthetic.idx_bytes(y)))
    files = (*_inside(folder, "*-ubyte*"), f"emnist/{BUNDLE}")
    return Reader(folder, files, lambda f: (mnist_pool(f), emnist_pool(f)))


def _cifar(place: Path) -> Reader:
    folder = synthetic.write_cifar(CIFAR, place / "python", COUNTS, protocol=2)
    batch = pickle.loads((folder / "test_batch").read_bytes())  # noqa: S301 - written one line above
    for name in CIFAR.layouts[0].train:  # small pixels: what is broken should not only be pixels
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    return Reader(folder, (*CIFAR.layouts[0].train, "test_batch"), lambda f: cifar.read(CIFAR, f, COUNTS))


def _cifar_binary(place: Path, rng: np.random.Generator) -> Reader:
    folder = place / "binary"
    folder.mkdir()
    layout = BINARY.layouts[0]
    for name in (*layout.train, layout.test):
        (folder / name).write_bytes(b"".join(bytes([i]) + rng.bytes(cifar.PIXELS) for i in range(2)))
    return Reader(folder, (*layout.train, layout.test), lambda f: cifar.read(BINARY, f, COUNTS))


def _cifar_archive(place: Path) -> Reader:
    import tarfile

    folder = place / "archive"
    folder.mkdir()
    layout = replace(CIFAR.layouts[0], checksum="")  # the real archives' checksums would end every attempt at once
    kind = replace(CIFAR, layouts=(layout,))
    with tarfile.open(folder / layout.archive, "w:gz") as archive:
        archive.add(synthetic.write_cifar(kind, place / "packed" / layout.folder, COUNTS, protocol=2), layout.folder)
    return Reader(folder, (layout.archive,), lambda f: cifar.read(kind, f, COUNTS))


def _npz(place: Path, rng: np.random.Generator) -> Reader:
    folder = place / "npz"
    (folder / "clients").mkdir(parents=True)
    x, y = rng.random((12, 3)).astype(np.float32), np.arange(12) % 3
    client = np.repeat(["a", "b", "c"], 4)
    np.savez(folder / "one.npz", x=x, y=y, client=client, is_test=np.arange(12) % 4 == 0, group=np.repeat([0, 1, 1], 4))
    for k in range(2):
        np.savez_compressed(folder / "clients" / f"c{k}.npz", x=x[:4], y=y[:4], x_test=x[4:6], y_test=y[4:6])

    def read(f: Path) -> None:
        arrays(seed=0, path=str(f / "one.npz"))
        arrays(seed=0, path=str(f / "clients"))

    return Reader(folder, ("one.npz", "clients/c0.npz", "clients/c1.npz"), read)


def _photographs(place: Path) -> Reader:
    from PIL import Image

    folder = place / "photographs"
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (24, 32, 3)).astype(np.uint8)
    for name in ("a.jpg", "b.png"):
        Image.fromarray(pixels).save(folder / name)
    return Reader(folder, ("a.jpg", "b.png"), lambda f: [images.decoded(p, 16) for p in sorted(f.iterdir())])


def _weights(place: Path) -> Reader:
    from safetensors.torch import save_file

    folder = place / "weights"
    folder.mkdir()
    state = {"features.0.0.weight": torch.zeros(4, 3), "classifier.1.bias": torch.ones(5)}
    torch.save(state, folder / "a.pth")
    save_file(state, folder / "b.safetensors")
    return Reader(folder, ("a.pth", "b.safetensors"), lambda f: [mobilenet._read(p) for p in sorted(f.iterdir())])


def _trace(place: Path, rng: np.random.Generator) -> Reader:
    folder = place / "trace"
    folder.mkdir()
    ids = np.stack([rng.choice(6, 4, replace=False) for _ in range(5)])
    losses = rng.random((5, 4, 2)).astype(np.float32)
    np.savez(folder / "trace.npz", ids=ids, L=losses, truth=np.arange(6) % 2, counts=np.ones((6, 3)), sizes=np.full(6, 9))
    return Reader(folder, ("trace.npz",), lambda f: _replay(f / "trace.npz"))


def _replay(path: Path) -> None:
    replay(read_trace(path), Auto(visits=1, min_size=2))


def _checkpoint(folder: Path) -> None:
    kind: Any = Stamped[Checkpoint[AutoState, None]]
    for path in (folder / "state").glob("*.ckpt"):
        unpack(path.read_bytes(), kind)


def _mended(raw: bytes) -> bytes:
    start = len(MAGIC) + hashlib.sha256().digest_size
    return MAGIC + hashlib.sha256(raw[start:]).digest() + raw[start:]


def _folder(folder: Path) -> None:
    experiment(RunFolder(folder).config()["experiment"])
    RunFolder(folder).metrics()


def _assign(folder: Path) -> None:
    assign(folder, folder / "client.npz")
