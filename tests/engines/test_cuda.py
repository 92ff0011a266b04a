"""On a CUDA card: every fast path agrees with the plain one, and a run resumes bit for bit. Skipped where there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedgwc.algorithms import ALGORITHMS
from fedgwc.algorithms.aggregate import Aggregator, Server
from fedgwc.core.types import Rng, Updates
from fedgwc.core.work import LocalTraining, Work
from fedgwc.data import Federation, Rows
from fedgwc.engines import evaluate
from fedgwc.engines.settings import EngineSettings, running
from fedgwc.engines.simulator import Simulator
from fedgwc.models import cnn, lenet5
from fedgwc.runs.loop import run
from fedgwc.runs.together import run_together
from fedgwc.training.optimisers import OPTIMISERS
from tests.conftest import Small

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def photographs(sizes: list[int], augment: bool = True) -> Federation:
    """Random colour images of 20x20 for clients of the given sizes."""
    rng = np.random.default_rng(0)
    n = sum(sizes)
    rows = Rows.of(np.split(np.arange(n), np.cumsum(sizes)[:-1]))
    x = torch.from_numpy(rng.integers(0, 256, (n, 3, 20, 20), dtype=np.uint8))
    return Federation(x, torch.from_numpy(rng.integers(0, 5, n)), rows, rows, 5, None, (0.5,) * 3, (0.25,) * 3, augment)


NETS: dict[str, Callable[[], nn.Module]] = {
    "cnn": lambda: cnn((3, 20, 20), 5),
    "relu first": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 20, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(1280, 5),
    ),
    "strides and groups": lambda: nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2, groups=3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(96, 5)
    ),
    "lenet5": lambda: lenet5((3, 20, 20), 5),
    "batch norm": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(2592, 5)),
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(1200, 16), nn.ReLU(), nn.Linear(16, 5)),
}


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize(
    ("sizes", "batch"), [([40] * 5, 16), ([40, 7, 25, 16, 3], 16), ([40] * 5, 10)], ids=["even", "uneven", "odd batch"]
)
@pytest.mark.parametrize("name", NETS)
def test_cuda_equals_the_plain_loop(name: str, sizes: list[int], batch: int, graphs: bool) -> None:
    torch.manual_seed(0)
    federation, module = photographs(sizes), NETS[name]()
    local = LocalTraining(epochs=1, batch=batch, lr=0.05, weight_decay=1e-3, momentum=0.5, prox=0.1)
    plain = Simulator(federation, module, local, EngineSettings(device="cpu", how="one-by-one"))
    fast = Simulator(federation, module, local, EngineSettings(device="cuda", precision="float32", graphs=graphs))
    start, clients = plain.model.vector()[None], np.arange(5)
    for seed in (1, 2):  # the second call replays what the first recorded
        a, b = (e.train(clients, start, np.zeros(5, np.int64), seed) for e in (plain, fast))
        np.testing.assert_array_equal(a.clients, b.clients)
        torch.testing.assert_close(a.models, b.models.cpu(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(a.losses, b.losses, rtol=1e-4, atol=1e-5, equal_nan=True)
    assert fast.how == "stacked"


@pytest.mark.parametrize("settings", [{}, {"graphs": False}, {"how": "one-by-one"}], ids=["graphs", "eager", "one by one"])
@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("name", ["cnn", "batch norm"])
def test_a_rounds_rate_anchor_and_mask_are_followed_anew(name: str, optimiser: str, settings: dict[str, object]) -> None:
    """A graph is recorded in the first round; the others bring other values of everything."""
    torch.manual_seed(0)
    federation, module = photographs([40, 7, 25, 16, 40]), NETS[name]()
    local = LocalTraining(
        epochs=1, batch=16, lr=0.02, optimiser=optimiser, eps=1e-2, weight_decay=1e-3, prox=0.1,
        clip=0.0 if optimiser == "sgd" else 1.0, schedule="cosine", horizon=4,
    )  # fmt: skip
    plain = Simulator(federation, module, local, EngineSettings(device="cpu", how="one-by-one"))
    fast = Simulator(federation, module, local, EngineSettings(device="cuda", precision="float32", **settings))  # type: ignore[arg-type]
    start, clients, which = plain.model.vector(), np.arange(5), np.array([0, 1, 0, 1, 1])
    models = torch.stack([start, start + 0.01])
    for number in (1, 3, 4):
        moves = torch.arange(len(start)) % 4 != number % 4
        work = Work(number, models + 0.1 * number, moves)
        a, b = (e.train(clients, models, which, number, work) for e in (plain, fast))
        torch.testing.assert_close(a.models, b.models.cpu(), rtol=1e-3, atol=1e-4)
        assert torch.equal(b.models.cpu()[:, ~moves], models[which][:, ~moves])
    assert fast.how == settings.get("how", "stacked")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("settings", [{}, {"graphs": False}, {"dtype": "float64"}], ids=["graphs", "eager", "float64"])
def test_the_second_card_computes_what_the_first_does(settings: dict[str, object]) -> None:
    """While the first is the current one, and after the first has recorded."""
    torch.manual_seed(0)
    federation, module = photographs([40] * 3), NETS["cnn"]()
    local = LocalTraining(epochs=1, batch=16, lr=0.05)
    found = []
    for device in ("cuda:0", "cuda:1"):
        engine = Simulator(federation, module, local, EngineSettings(device=device, precision="float32", **settings))  # type: ignore[arg-type]
        start = engine.model.vector()[None]
        for seed in (1, 2):
            updates = engine.train(np.arange(3), start, np.zeros(3, np.int64), seed)
        scores = engine.evaluate(np.arange(3), start, np.zeros(3, np.int64))
        assert str(updates.models.device) == device
        assert engine.how == "stacked"
        found.append((updates.models.cpu(), scores.loss))
    torch.testing.assert_close(found[0][0], found[1][0])
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-5)


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("how", ["stacked", "one-by-one"])
@pytest.mark.parametrize("name", NETS)
def test_scores_equal_those_of_the_plain_loop(name: str, how: str, graphs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that share their clients, as IFCA asks, and models that do not; in several pieces, and several models at a time."""
    monkeypatch.setattr(evaluate, "WIDTH", 16)
    torch.manual_seed(0)
    federation, module = photographs([40, 7, 25, 16, 3]), NETS[name]()
    plain, fast, chunked = (
        Simulator(federation, module, settings=EngineSettings(precision="float32", **settings))
        for settings in (
            {"device": "cpu", "how": "one-by-one"},
            {"device": "cuda", "how": how, "graphs": graphs},
            {"device": "cuda", "how": how, "graphs": graphs, "chunk": 2},
        )
    )
    start = plain.model.vector()
    models = start + 0.1 * torch.rand(3, len(start))
    shared, apart = (np.repeat([0, 1, 4], 3), np.tile([0, 1, 2], 3)), (np.arange(5), np.array([0, 2, 0, 1, 2]))
    for clients, which in (shared, apart, shared):  # the second time is a replay
        a = plain.evaluate(clients, models, which, "train")
        for engine in (fast, chunked):
            b = engine.evaluate(clients, models, which, "train")
            np.testing.assert_allclose(a.loss, b.loss, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(a.total, b.total)
            assert np.abs(a.correct - b.correct).sum() <= 1  # two logits may be as good as equal
            assert engine._evaluation._stacks  # nothing had to fall back


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_scores_in_lower_precision_stay_close_and_come_again(precision: str) -> None:
    torch.manual_seed(0)
    federation, module = photographs([600] * 2), NETS["cnn"]()
    exact, rough, again = (
        Simulator(federation, module, settings=EngineSettings(device="cuda", precision=p, deterministic=True))  # type: ignore[arg-type]
        for p in ("float32", precision, precision)
    )
    start = exact.model.vector()
    models = start + 0.02 * torch.randn(3, len(start), device="cuda")
    question = (np.repeat([0, 1], 3), models, np.tile([0, 1, 2], 2))
    a, b, c = (engine.evaluate(*question) for engine in (exact, rough, again))
    np.testing.assert_allclose(a.loss, b.loss, rtol=1e-2)
    np.testing.assert_array_equal(b.loss, c.loss)
    np.testing.assert_array_equal(b.loss, rough.evaluate(*question).loss)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_lower_precision_stays_close(precision: str) -> None:
    """Measured for one step on an H200: TF32 2.2 % of the step (PyTorch's own TF32: 1.8 %), bf16 8.2 %."""
    torch.manual_seed(0)
    federation, module = photographs([64] * 4), NETS["cnn"]()
    local = LocalTraining(steps=1, batch=64, lr=0.05)
    exact, rough = (
        Simulator(federation, module, local, EngineSettings(device="cuda", precision=p))  # type: ignore[arg-type]
        for p in ("float32", precision)
    )
    start, zeros = exact.model.vector()[None], np.zeros(4, np.int64)
    a, b = (e.train(np.arange(4), start, zeros, 1).models for e in (exact, rough))
    moved = (a - start.to(a)).norm()
    assert ((a - b).norm() / moved).item() < (0.05 if precision == "tf32" else 0.2)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_same_round_gives_the_same_bits(name: str, small: Small) -> None:
    job = small(name, engine={"device": "cuda", "deterministic": True})
    federation = job.federation()
    ends = []
    for _ in range(2):
        engine = job.simulator(federation)
        state = job.algorithm.init(job.initial(federation, engine), 20, engine.layout)
        for number in range(1, 6):
            state = job.algorithm.round(state, engine, Rng(0, number))
        ends.append(job.algorithm.clustering(state).models.cpu())
    assert torch.equal(ends[0], ends[1])


def test_runs_in_step_end_as_alone(small: Small, tmp_path: Path) -> None:
    engine = {"device": "cuda", "dtype": "float64"}
    jobs = [small(name, engine=engine, seed=seed) for name, seed in (("fedavg", 0), ("ifca", 1), ("auto", 2))]
    together = run_together([(job, tmp_path / f"together{i}") for i, job in enumerate(jobs)])
    for i, (job, result) in enumerate(zip(jobs, together, strict=True)):
        alone = run(job, tmp_path / f"alone{i}")
        torch.testing.assert_close(result.clustering.models, alone.clustering.models, rtol=1e-9, atol=1e-12)


def test_one_run_may_record_while_others_use_the_card(small: Small, tmp_path: Path) -> None:
    """Runs in step train together but evaluate alone, and a run's first evaluations are recorded as graphs."""
    engine = {"device": "cuda", "precision": "float32"}
    jobs = [small("ifca" if seed % 2 else "fedavg", engine=engine, seed=seed, evaluate={"every": 1}) for seed in range(4)]
    results = run_together([(job, tmp_path / str(i)) for i, job in enumerate(jobs)])
    assert all(torch.isfinite(result.clustering.models).all() for result in results)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_host_does_not_wait_for_an_aggregation(momentum: float) -> None:
    """Of all clients, of neighbours and of some here and there."""
    updates = Updates(np.arange(6), torch.rand(6, 9, device="cuda"), torch.rand(6, 2), torch.arange(1, 7))
    aggregator, server = Aggregator(momentum=momentum), Server(torch.zeros(9, device="cuda"))
    torch.cuda.set_sync_debug_mode("error")
    try:
        for members in ([0, 1, 2, 3, 4, 5], [2, 3, 4], [0, 3, 5]):
            server = aggregator.step(server, updates.of(np.array(members)))
        servers = [server, server, server]
        for own in ([0, 0, 1, 1, 2, 2], [0, 2, 0, 2, 2, 2]):
            servers = aggregator.steps(servers, updates, np.array(own))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(s.theta.isfinite().all() for s in (server, *servers))


def test_means_of_several_cohorts_are_of_full_precision_while_products_are_not() -> None:
    """Another thread's engine may have set TF32, which keeps 10 bits."""
    models = torch.rand(64, 1000, dtype=torch.float64)
    own, sizes = np.arange(64) % 5, torch.arange(1, 65)
    with running(1, "tf32", torch.device("cuda")):
        exact, fast = (
            Aggregator().steps([Server(like.new_zeros(1000))] * 5, Updates(np.arange(64), like, torch.zeros(64, 1), sizes), own)
            for like in (models, models.float().cuda())
        )
    for one, other in zip(exact, fast, strict=True):
        torch.testing.assert_close(other.theta.cpu().double(), one.theta, rtol=0, atol=1e-6)
