"""The ready-made server: an ordinary run folder, resumed at any moment, with clients that come and go."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, Message, RecordDict

from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.algorithms.auto.state import Verdict
from fedgwc.algorithms.fedavg import OneGroup, OneGroupState
from fedgwc.algorithms.method import Method, MethodState
from fedgwc.core.errors import InputError
from fedgwc.core.layout import Layout
from fedgwc.core.protocols import Engine, Grows
from fedgwc.core.types import Clustering, Rng
from fedgwc.flower import Options, client_app, server_app
from fedgwc.flower.server import serve
from fedgwc.runs.experiment import Experiment
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.loop import run
from tests.conftest import Small

from . import blobs
from .grids import LocalGrid
from .spoiling import vector
from .worlds import QUICK, BlobJob, MakeWorld, driver, nodes_for

CLOCKS = {"seconds": 0, "server_seconds": 0, "peak_memory_bytes": 0}
STATES = ("fedavgm", "ifca", "fesem", "cfl", "auto")  # one algorithm for every kind of state


class Killed(BaseException):
    """What SIGKILL looks like from inside: nothing gets to run after it."""


def kill_at(grid: LocalGrid, count: int) -> None:
    """The server dies while it waits for the `count`-th training message."""
    push = grid.push_messages
    seen: list[Message] = []

    def pushing(messages: Iterable[Message]) -> list[str]:
        messages = list(messages)
        seen.extend(m for m in messages if m.metadata.message_type == "train")
        if len(seen) >= count:
            raise Killed
        return push(messages)

    grid.push_messages = pushing  # type: ignore[method-assign]


def test_a_run_over_a_grid_equals_the_simulated_one(blob_job: BlobJob, tmp_path: Path) -> None:
    job = blob_job(rounds=6, engine={"dtype": "float64"})
    grid = LocalGrid()
    nodes_for(grid, job, share_class_counts=True)
    config = {"out": str(tmp_path / "real"), "min-clients": 12, **QUICK}
    server_app(job)(grid, Context(1, 1, {}, RecordDict(), config))
    run(job, tmp_path / "simulated")
    labels = [np.loadtxt(tmp_path / f / "labels.csv", delimiter=",", skiprows=1, usecols=1) for f in ("real", "simulated")]
    np.testing.assert_array_equal(labels, [blobs.TRUTH + 1] * 2)  # the two sides of cluster 0
    traces = [RunFolder(tmp_path / f).trace() for f in ("real", "simulated")]
    assert traces[0].keys() == traces[1].keys()
    for key in traces[0]:
        np.testing.assert_allclose(traces[0][key], traces[1][key], rtol=1e-9)
    assert (tmp_path / "real" / "counts.csv").read_text() == (tmp_path / "simulated" / "counts.csv").read_text()
    rows = RunFolder(tmp_path / "real").metrics()
    assert [r["round"] for r in rows] == list(range(1, 7))
    assert [r["answered"] for r in rows] == [12] * 6
    assert rows[-1]["accuracy"] > rows[0]["accuracy"]


@pytest.mark.parametrize("name", STATES)
def test_a_server_killed_in_a_round_resumes_as_if_nothing_had_been(name: str, small: Small, tmp_path: Path) -> None:
    job = small(name, rounds=3, algorithm={"rate": 0.5})
    clusterings = []
    for folder, deaths in (("whole", []), ("parts", [1, 4])):
        grid = LocalGrid()
        nodes_for(grid, job, per_node=10)
        for count in deaths:
            kill_at(grid, count)
            with pytest.raises(Killed):
                serve(job, grid, tmp_path / folder, Options(min_clients=20, min_replies=1, **QUICK))
            del grid.push_messages
        clusterings.append(serve(job, grid, tmp_path / folder, Options(min_clients=20, min_replies=1, **QUICK)))
    whole, parts = clusterings
    assert torch.equal(whole.models, parts.models)
    np.testing.assert_array_equal(whole.labels, parts.labels)
    metrics = [RunFolder(tmp_path / f).metrics() for f in ("whole", "parts")]
    for a, b in zip(*metrics, strict=True):
        assert a | CLOCKS == b | CLOCKS


def test_settings_that_suit_few_clients_only_resume_too(blob_job: BlobJob, tmp_path: Path) -> None:
    for rounds in (1, 2):
        job, grid = blob_job(rounds=rounds, steps=1, pairs_up_to=12), LocalGrid()
        nodes_for(grid, job)
        serve(job, grid, tmp_path / "r", Options(min_clients=12, **QUICK))
    assert [row["round"] for row in RunFolder(tmp_path / "r").metrics()] == [1, 2]


def test_an_algorithm_whose_checkpoints_could_not_be_read_does_not_start(
    blob_job: BlobJob, world: MakeWorld, tmp_path: Path
) -> None:
    here = world(blob_job(steps=1))

    class Mine:
        def init(self, model: Any, n_clients: int) -> MineState: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(InputError, match=r"Mine\.init does not tell .*-> MineState"):
        driver(here, Mine(), folder=RunFolder(tmp_path))


def test_a_folder_of_another_recipe_is_refused(small: Small, tmp_path: Path) -> None:
    job = small(rounds=1)
    grid = LocalGrid()
    nodes_for(grid, job)
    serve(job, grid, tmp_path / "r", Options(**QUICK))
    with pytest.raises(InputError, match="other seed"):
        serve(small(rounds=1, seed=3), grid, tmp_path / "r", Options(**QUICK))
    run(job, tmp_path / "simulated")
    with pytest.raises(InputError, match="no real nodes"):
        serve(job, grid, tmp_path / "simulated", Options(**QUICK))


def test_without_enough_clients_nothing_starts(small: Small, tmp_path: Path) -> None:
    job = small()
    grid = LocalGrid()
    nodes_for(grid, job)
    with pytest.raises(InputError, match=r"20 clients came within 0\.5 s and 30 are needed"):
        serve(job, grid, tmp_path / "r", Options(min_clients=30, **QUICK))
    assert not (tmp_path / "r" / "config.json").exists()


def test_the_app_says_what_it_needs(small: Small) -> None:
    with pytest.raises(InputError, match="out = "):
        server_app(small())(LocalGrid(), Context(1, 1, {}, RecordDict(), {}))


class Joining(LocalGrid):
    """One node appears while the federation is already training."""

    def __init__(self, job: Experiment, late: int, after: int) -> None:
        super().__init__()
        nodes_for(self, job)
        self.late, self.after = (late, self.nodes.pop(late)), after

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        messages = list(messages)
        rounds = {m.metadata.group_id for m in [*self.seen, *messages] if m.metadata.message_type == "train"}
        if len(rounds) > self.after:
            self.nodes.setdefault(*self.late)
        return super().push_messages(messages)


def test_a_late_joiner_gets_the_cluster_that_fits_and_an_empty_row(blob_job: BlobJob, tmp_path: Path) -> None:
    """Clients 8..11 come after the split, and only 9 is of the shifted kind."""
    job = blob_job(rounds=8, min_size=3)
    grid = Joining(job, late=102, after=5)
    found = serve(job, grid, tmp_path / "r", Options(min_clients=8, **QUICK))
    np.testing.assert_array_equal(found.labels, blobs.TRUTH)
    tree = json.loads((tmp_path / "r" / "splits" / "tree.json").read_text())
    assert sorted(len(n["members"]) for n in tree) == [4, 8, 8]  # the root never had the newcomers
    end = next(dict(np.load(p)) for p in Path(tmp_path / "r" / "splits").glob("end-*.npz") if 11 in np.load(p)["members"])
    assert end["visits"].diagonal().tolist() == [8] * 5 + [2] * 3  # only rounds 7 and 8 for those who came late


@pytest.mark.parametrize("name", STATES)
def test_every_state_can_grow(name: str, small: Small) -> None:
    job = small(name)
    federation = job.federation()
    simulator = job.simulator(federation)
    state = job.algorithm.init(job.initial(federation, simulator), 18, simulator.layout)
    state = job.algorithm.round(state, simulator, Rng(0, 1))
    before = job.algorithm.clustering(state)
    row = len(before.models) - 1
    assert isinstance(job.algorithm, Grows)
    grown = job.algorithm.grow(state, np.array([row, 0]))
    after = job.algorithm.clustering(grown)
    np.testing.assert_array_equal(after.labels, [*before.labels, row, 0])
    assert torch.equal(after.models, before.models)
    job.algorithm.round(grown, simulator, Rng(0, 2))


@dataclass(frozen=True)
class Mine:
    """The state of an algorithm that cannot grow."""

    state: MethodState[OneGroupState]


@dataclass(frozen=True)
class Own:
    """An algorithm of a user's own."""

    inner: Method[OneGroupState] = field(default_factory=lambda: Method(OneGroup(), rate=1.0))

    def init(self, model: torch.Tensor, n_clients: int, layout: Layout) -> Mine:
        return Mine(self.inner.init(model, n_clients, layout))

    def round(self, state: Mine, engine: Engine, rng: Rng) -> Mine:
        return Mine(self.inner.round(state.state, engine, rng))

    def clustering(self, state: Mine) -> Clustering:
        return self.inner.clustering(state.state)


def test_what_is_kept_by_pairs_grows_no_further_than_it_could_begin(
    blob_job: BlobJob, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "fedgwc")
    job = blob_job(rounds=3, steps=1, pairs_up_to=10)
    found = serve(job, Joining(job, late=102, after=1), tmp_path / "r", Options(min_clients=8, **QUICK))
    assert len(found.labels) == 10
    assert "clients cannot join: there is room for 2 more; they wait and do not train: 10, 11" in caplog.text


def test_who_cannot_join_an_algorithm_of_ones_own_waits(
    blob_job: BlobJob, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In the run and when it is resumed."""
    caplog.set_level("INFO", "fedgwc")
    job = replace(blob_job(rounds=3, steps=1), algorithm=Own())
    grid = Joining(job, late=102, after=1)
    for rounds in (3, 4):
        found = serve(replace(job, rounds=rounds), grid, tmp_path / "r", Options(min_clients=8, **QUICK))
        assert len(found.labels) == 8
    assert caplog.text.count("clients cannot join: it has no method `grow`") == 2  # once each time
    assert "do not train: 8, 9, 10, 11" in caplog.text


def test_nodes_with_their_own_data(tmp_path: Path, small: Small) -> None:
    """Two of three nodes hold one client each, the third holds two; nobody else sees their data."""
    rng = np.random.default_rng(0)
    for i, n_clients in enumerate((1, 1, 2)):
        client = np.repeat(np.arange(n_clients), 20)
        x, y = rng.random((len(client), 64), np.float32), rng.integers(0, 3, len(client))
        np.savez(tmp_path / f"{i}.npz", x=x, y=y, client=client)
    job = small("fedavg", rounds=2)
    job.tables["data"] = {"name": "arrays", "path": "unused", "n_classes": 3}
    grid, app = LocalGrid(), client_app(job)
    for i, name in enumerate(("a", "b", "c")):
        grid.add(i, app, data=str(tmp_path / f"{i}.npz"), name=name)
    serve(job, grid, tmp_path / "r", Options(min_clients=4, **QUICK))
    lines = (tmp_path / "r" / "labels.csv").read_text().split()
    assert lines == ["client,cluster,group,name", "0,0,,a", "1,0,,b", "2,0,,c/0", "3,0,,c/1"]
    assert np.load(tmp_path / "r" / "clients.npz")["names"].tolist() == ["a", "b", "c/0", "c/1"]


def test_a_node_with_other_data_is_refused_and_the_others_go_on(
    small: Small, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job, other = small(rounds=1), small(rounds=1, model={"hidden": [9]})
    grid = LocalGrid()
    nodes_for(grid, job)
    stranger = client_app(other)
    grid.nodes[104] = stranger, grid.nodes[104][1]  # same data, another model
    serve(job, grid, tmp_path / "r", Options(min_clients=20, **QUICK))
    assert "trains another model" in caplog.text or "the server trains another model" in caplog.text

    def lie(question: Message, reply: Message) -> Message:
        if question.metadata.message_type == "query":
            reply.content.config_records["identity"]["n-classes"] = 10**8
        return reply

    grid.spoil[104] = lie
    serve(job, grid, tmp_path / "r2", Options(min_clients=16, **QUICK))
    assert "node 104 is refused" in caplog.text


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (Verdict(0, 12, "groups", sizes=(6, 6)), "cluster 0 of 12 clients is divided: there are groups"),
        (Verdict(0, 12, "no groups", sizes=(6, 6)), "cluster 0 of 12 clients stays whole: no groups describe"),
        (Verdict(1, 6, "moved", sizes=(5, 1), to=2), "cluster 1 of 6 clients loses some: the model of cluster 2 serves 1 of"),
        (
            Verdict(1, 6, "confirmed", sizes=(6,), to=2, clear=9.0),
            "cluster 1 of 6 clients keeps its own model: its clients and those of cluster 2 are served by different models",
        ),
        (
            Verdict(0, 12, "rejoined", sizes=(6, 6), clear=0.5),
            "cluster 0 of 12 clients is whole again: a model of its own served neither side better (0.5 deviations between",
        ),
    ],
    ids=lambda v: v.reason if isinstance(v, Verdict) else "",
)
def test_the_log_says_what_becomes_of_a_cluster(
    verdict: Verdict, said: str, blob_job: BlobJob, world: MakeWorld, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "fedgwc")
    here, folder = world(blob_job(steps=1)), RunFolder(tmp_path / "run")
    folder.create({"experiment": {}})
    run = driver(here, Auto(), folder=folder)
    state = run.round(Auto().init(vector(here.job), 12, Layout.unnamed(1)), 1)
    run.keep(1, replace(state, verdicts=(verdict,)), None)
    folder.close()
    assert said in caplog.text
    assert [(row["round"], row["reason"]) for row in folder.verdicts()] == [(1, verdict.reason)]
