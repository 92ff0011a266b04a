"""What every algorithm computes on every engine, written down so that two versions of the package can be compared.

    python tests/golden/freeze.py OUT.json         with whatever version is on the path
    python tests/golden/freeze.py --compare A B    bit for bit; exit code 1 where anything differs
    python tests/golden/freeze.py --keep           writes golden.json anew: only with a commit that says why results change

Only what the package promises to users is used here: recipes, `fedgwc.run`, `fedgwc.rounds`, the files of a run's folder and
the two Flower apps. `make golden BASE=commit` runs this file over two versions; `test_golden.py` compares one version with
`golden.json`, within a tolerance that another processor or another PyTorch needs.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import safetensors.torch
import torch

import fedgwc

KEPT = Path(__file__).with_name("golden.json")
Tables = dict[str, Any]
Case = dict[str, Any]

RENAMED = "auto" in fedgwc.ALGORITHMS  # until 0.1.0 `fedgwc` was the package's own rule, and `fedgwc-paper` the paper's text
OLD_NAMES = {"auto": "fedgwc", "fedgwc": "fedgwc-paper"}


def name_of(algorithm: str) -> str:
    """The name that this version has for an algorithm."""
    return algorithm if RENAMED else OLD_NAMES.get(algorithm, algorithm)


RESTARTS = hasattr(getattr(fedgwc.ALGORITHMS["ifca"], "who", None), "starts")  # before, IFCA had one, and CFL only lengths
LATER = () if RESTARTS else ("starts", "lengths")


def renamed_settings(settings: Tables) -> Tables:
    """Settings under the names that this version has for them; 0.1.0 is how they are written below."""
    return {"server" if RENAMED and key == "aggregator" else key: value for key, value in settings.items() if key not in LATER}


DIGITS: Tables = {
    "rounds": 24,
    "data": {"name": "digits", "train_size": 14, "test_size": 5, "groups": [{"clients": 14}, {"clients": 6, "relabel": 1}]},
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"steps": 3, "batch": 6, "lr": 0.1},
    "evaluate": {"every": 6},
}
UNEVEN: Tables = {
    "data": {
        "name": "digits",
        "groups": [
            {"clients": 6, "train_size": 9, "partition": "dirichlet", "alpha": 0.3},
            {"clients": 6, "train_size": 16, "rotate": 90},
            {"clients": 5, "train_size": 12, "noise": 0.2, "partition": "shards"},
        ],
    },
    "local": {"epochs": 2, "batch": 6, "lr": 0.1, "momentum": 0.5, "weight_decay": 1e-3},
}
IMAGES: Tables = {"rounds": 4, "local": {"steps": 2, "batch": 6, "lr": 0.05}, "evaluate": {"every": 2}}
SPLITTING: dict[str, Tables] = {  # settings with which twenty clients are divided within some rounds
    "cfl": {"eps1": 100.0, "eps2": 0.01, "lengths": "absolute", "min_size": 3, "seen": 0.8},
    "fedgwc": {"eps": 0.5, "rate": 0.5},
    "fedgwc-release": {"eps": 1e-2, "rate": 0.5},
    "auto": {"rate": 0.6, "gain": -1e6, "agreement": -1.0, "contrast": -1.0, "doubt": 0.0},
    "ifca": {"k": 3, "starts": 1},
    "fesem": {"k": 3, "rate": 0.5},
}
NAMES = ("alone", "fedavg", "fedavgm", "fedprox", "fairavg", "ifca", "fesem", "cfl", "auto", "fedgwc", "fedgwc-release")


EVERYTHING_TRAINS = {"validation": 0.0, "newcomers": 0.0} if hasattr(fedgwc.data, "Splits") else {}  # as before there were splits
LATER = ("hits", "newcomers")  # arrays per client that came later
REPLACED = ("data", "local", "model")  # their settings belong together


def merged(*tables: Tables) -> Tables:
    whole: Tables = {}
    for table in tables:
        for key, value in table.items():
            whole[key] = {**whole.get(key, {}), **value} if isinstance(value, dict) and key not in REPLACED else value
    return whole


def recipe(algorithm: str, *changes: Tables, **settings: Any) -> Tables:
    mine = {"rate": 0.3, **SPLITTING.get(algorithm, {}), **settings}
    tables = merged(DIGITS, *changes, {"algorithm": {"name": name_of(algorithm), **renamed_settings(mine)}})
    return {**tables, "data": {**tables["data"], **EVERYTHING_TRAINS}}


def digest(arrays: Iterable[np.ndarray]) -> str:
    found = hashlib.sha256()
    for a in arrays:
        found.update(f"{a.dtype}{a.shape}".encode() + np.ascontiguousarray(a).tobytes())
    return found.hexdigest()[:24]


def of_folder(path: Path) -> Case:
    """All that a run's folder says of its course, apart from what time it took."""
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    pieces = [dict(np.load(p)) for p in sorted((path / "trace").glob("*.npz"))]
    losses = [row for piece in pieces for row in piece["L"]]
    models = [safetensors.torch.load_file(p) for p in sorted((path / "models").glob("*.safetensors"))]
    labels = [line.split(",")[:2] for line in (path / "labels.csv").read_text().splitlines()[1:]]
    scores = dict(np.load(path / "per_client.npz"))
    kept = (
        "accuracy",
        "loss",
        "balanced",
        "bytes_down",
        "bytes_up",
        "client_updates",
        "gradient_steps",
        "evaluations",
        "clusters",
    )
    return {
        "losses": [float(np.nanmean(x)) if np.isfinite(x).any() else None for x in losses],
        "labels": [int(cluster) for _, cluster in labels],
        "metrics": [{k: row[k] for k in (*kept, "clusters") if k in row} for row in rows],
        "bits": {
            "trace": digest([piece[k] for piece in pieces for k in ("ids", "cluster", "L")]),
            "models": digest([t.numpy() for m in models for _, t in sorted(m.items())]),
            "per_client": digest([scores[name] for name in sorted(scores) if not name.startswith(LATER)]),
        },
    }


def run(tables: Tables, folder: Path) -> Case:
    fedgwc.run(tables, folder)
    return of_folder(folder)


def runs() -> Iterator[tuple[str, Callable[[Path], Case]]]:
    """(name, case): every algorithm stacked, then what else decides the course of a run."""

    def one(tables: Tables) -> Callable[[Path], Case]:
        return lambda folder: run(tables, folder)

    for name in NAMES:
        yield f"{name} stacked", one(recipe(name, {"rounds": 90} if name == "auto" else {}))
        yield f"{name} one-by-one", one(recipe(name, UNEVEN, {"rounds": 8, "engine": {"how": "one-by-one"}}))
    for name in ("fedavg", "ifca", "fedgwc", "auto"):
        for how in ("workers", "one-by-one", "stacked"):
            yield f"{name} {how} lenet5", images(name, how)
        yield f"{name} stacked uneven float64", one(recipe(name, UNEVEN, {"rounds": 10, "engine": {"dtype": "float64"}}))
    for combine in ("median", "trimmed-mean", "clipped-mean"):
        yield f"fesem {combine}", one(recipe("fesem", {"rounds": 6}, aggregator={"combine": combine, "momentum": 0.5}))
    yield "cfl momentum", one(recipe("cfl", {"rounds": 18}, aggregator={"momentum": 0.9, "lr": 0.5}))
    yield "cfl sketches", one(recipe("cfl", {"rounds": 18}, memory_mb=0, sketch=128))
    yield "fesem independent", one(recipe("fesem", {"rounds": 8}, start="independent"))
    yield "fedgwc many", one(recipe("fedgwc", {"rounds": 6, "data": {"name": "digits", "train_size": 6, "test_size": 2}}))
    yield "auto by client", one(recipe("auto", pairs_up_to=4))


def images(algorithm: str, how: str) -> Callable[[Path], Case]:
    """A convolutional network on made images of 12 x 12 pixels."""

    def case(folder: Path) -> Case:
        rng, path = np.random.default_rng(0), folder.with_suffix(".npz")
        client, y = np.repeat(np.arange(12), 16), np.tile(np.arange(4), 48)
        x = (rng.random((192, 1, 12, 12)) / 2 + np.eye(12)[3 * y][:, None, None] / 2).astype(np.float32)
        np.savez(path, x=x, y=(y + (client < 4)) % 4, client=client)
        data = {"data": {"name": "arrays", "path": str(path)}, "model": {"name": "lenet5"}, "engine": {"how": how, "workers": 2}}
        return run(recipe(algorithm, IMAGES, data), folder)

    return case


def together(folder: Path) -> Case:
    jobs = [(fedgwc.load(recipe(name, {"seed": seed})), folder / f"{name}{seed}") for name in ("auto", "ifca") for seed in (0, 1)]
    fedgwc.run_together(jobs)
    found = [of_folder(path) for _, path in jobs]
    return {key: [case[key] for case in found] for key in ("losses", "labels", "metrics", "bits")}


class Recorded:
    """An engine whose clients always say what they said in a made recording: two kinds of clients, one of which loses more."""

    def __init__(self, n_clients: int, rounds: int, cohort: int, steps: int = 4, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.kind = np.arange(n_clients) % 3 == 0
        self.ids = np.stack([np.sort(rng.choice(n_clients, cohort, replace=False)) for _ in range(rounds)])
        base = np.exp(-np.arange(rounds) / 60)[:, None, None] + 0.3
        own = 1 + 1.5 * self.kind[self.ids][:, :, None] + 0.05 * rng.standard_normal((rounds, cohort, steps))
        self.losses = (base * own).astype(np.float32)
        self.row = 0

    def train(self, clients: Any, models: Any, which: Any, seed: int, *_: Any) -> Any:
        ids, losses = self.ids[self.row], self.losses[self.row]
        self.row += 1
        moved = models[0] + torch.from_numpy(self.kind[ids].astype(np.float32))[:, None] * 0.01
        return fedgwc.Updates(ids, moved, torch.from_numpy(losses), torch.full((len(ids),), 10))

    def evaluate(self, clients: Any, models: Any, which: Any, split: str = "test") -> Any:
        own = self.kind[np.asarray(clients)]
        losses = np.where(np.asarray(which) == own, 0.5, 0.9) + 0.01 * np.asarray(clients) / len(self.kind)
        ones = np.ones((len(own), 1))
        return fedgwc.Scores(np.asarray(clients), losses, ones, ones)


def replayed(algorithm: str, **settings: Any) -> Callable[[Path], Case]:
    """Recorded losses through an algorithm; whom it would have asked does not matter."""

    def case(folder: Path) -> Case:
        tables = {"algorithm": {"name": name_of(algorithm), **renamed_settings(settings)}}
        a, engine, labels = fedgwc.load(tables).algorithm, Recorded(36, 160, 9), []
        for _number, state in fedgwc.rounds(a, engine, torch.zeros(3), 36, 160, seed=5):
            clustering = a.clustering(state)
            labels.append(clustering.numbers[clustering.labels])
        return {"labels": labels[-1].tolist(), "bits": {"labels": digest(labels), "models": digest([clustering.models.numpy()])}}

    return case


def flower(folder: Path, **options: Any) -> Case:
    """The two ready-made Flower apps over a grid in this process."""
    from flwr.app import Context, Error, Message, RecordDict
    from flwr.serverapp import Grid
    from flwr.supercore.task_identity import TaskIdentity

    from fedgwc.flower import client_app, server_app

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

    class Here(Grid):
        nodes: dict[int, tuple[Any, Context]]
        mail: dict[str, Message]
        count = itertools.count(1)
        run = property(lambda self: None)

        def set_run(self, run: Any) -> None: ...
        def create_message(self, *args: Any, **kwargs: Any) -> Message:
            raise NotImplementedError

        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Message]:
            raise NotImplementedError

        def get_node_ids(self) -> list[int]:
            return list(self.nodes)

        def push_messages(self, messages: Iterable[Message]) -> list[str]:
            return [self._push(m) for m in messages]

        def _push(self, message: Message) -> str:
            key = f"m{next(self.count)}"
            message.metadata.__dict__["_message_id"] = key
            app, context = self.nodes[message.metadata.dst_node_id]
            try:
                self.mail[key] = app(message, context)
            except Exception as error:
                self.mail[key] = Message(Error(2, repr(error)), reply_to=message)
            return key

        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            return [self.mail.pop(i) for i in list(message_ids) if i in self.mail]

    algorithm = options.pop("algorithm", "fedgwc")
    tables = recipe(algorithm, {"rounds": 15 if algorithm == "cfl" else 8})
    grid = Here()
    grid.nodes, grid.mail = {}, {}
    app = client_app(tables)
    for node, first in enumerate(range(0, 20, 5)):
        config: dict[str, Any] = {"clients": f"{first}-{first + 4}"}
        grid.nodes[100 + node] = app, Context(1, 100 + node, config, RecordDict(), {})
    settings = {"out": str(folder), "poll": 0.005, "min-clients": 20, "min-replies": 1, "wait": 20.0, "pause": 0.01, **options}
    server_app(tables)(grid, Context(1, 1, {}, RecordDict(), settings))
    return of_folder(folder)


def cases() -> Iterator[tuple[str, Callable[[Path], Case]]]:
    yield from runs()
    yield "together", together
    for name in ("auto", "fedgwc", "fedgwc-release"):
        yield f"{name} replayed", replayed(name)
        yield f"{name} replayed, easily divided", replayed(name, **({"doubt": 0.0} if name == "auto" else {"eps": 1e-2}))
    try:
        import flwr  # noqa: F401
    except ImportError:
        return
    for name in ("fedavg", "ifca", "cfl", "fedgwc", "auto"):
        yield f"{name} flower", lambda folder, name=name: flower(folder, algorithm=name)  # type: ignore[misc]
    yield "fedgwc flower private", lambda folder: flower(folder, algorithm="fedgwc", **{"private-losses": True})


def rounded(value: Any) -> Any:
    """Without bits, and with six digits: what is kept for other machines."""
    if isinstance(value, dict):
        return {key: rounded(v) for key, v in value.items() if key != "bits"}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def freeze(wanted: Callable[[str], bool] = lambda _: True) -> dict[str, Case]:
    found = {}
    with tempfile.TemporaryDirectory() as place:
        for i, (name, case) in enumerate(cases()):
            if wanted(name):
                found[name] = case(Path(place) / str(i))
                print(f"{name}", file=sys.stderr, flush=True)
    return found


def differences(a: dict[str, Case], b: dict[str, Case]) -> list[str]:
    """Cases that are not equal bit for bit, and what of them differs."""
    rows = []
    for name in sorted(a.keys() | b.keys()):
        one, other = a.get(name), b.get(name)
        if one != other:
            keys = ["missing"] if one is None or other is None else [k for k in one if one[k] != other.get(k)]
            rows.append(f"{name}: {', '.join(keys)}")
    return rows


def main() -> None:
    if sys.argv[1:2] == ["--compare"]:
        a, b = (json.loads(Path(p).read_text()) for p in sys.argv[2:4])
        rows = differences(a, b)
        print("\n".join(rows) or f"{len(a)} cases are equal bit for bit")
        sys.exit(bool(rows))
    if sys.argv[1:2] == ["--keep"]:
        KEPT.write_text(json.dumps({name: rounded(case) for name, case in freeze().items()}) + "\n")
        return
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    found = freeze(lambda name: only in name)
    Path(sys.argv[1]).write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
