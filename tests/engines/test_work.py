"""What a round orders beside its models: every engine follows it alike, and a recording follows it anew each time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedgwc.core.errors import InputError
from fedgwc.core.protocols import DescribesItself, DescribesModel
from fedgwc.core.types import Updates
from fedgwc.core.work import LocalTraining, Work
from fedgwc.data import Federation, Rows
from fedgwc.engines import ENGINES, recorded
from fedgwc.engines.pool import SharedEngine
from fedgwc.engines.round_inputs import round_inputs
from fedgwc.engines.settings import EngineSettings, device_of
from fedgwc.engines.simulator import Simulator
from fedgwc.training.optimisers import OPTIMISERS, Optimiser
from tests.conftest import Small

WAYS = ("stacked", "one-by-one", "workers")
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-12}
SIGN = Optimiser(lambda gradient, memory, parameters, local: (gradient.sign(), ()))
NETS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(9, 5), nn.ReLU(), nn.Linear(5, 3)),
    # No bias before it: its gradient is 0, and of rounding errors Adam makes whole steps.
    "batch norm": lambda: nn.Sequential(nn.Flatten(), nn.Linear(9, 5, bias=False), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)),
}


def federation(sizes: tuple[int, ...] = (12, 9, 12, 6)) -> Federation:
    rng = np.random.default_rng(0)
    rows = Rows.of(np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]))
    x = torch.from_numpy(rng.normal(size=(sum(sizes), 3, 3)).astype(np.float32))
    return Federation(x, torch.from_numpy(rng.integers(0, 3, sum(sizes))), rows, rows, 3)


def engine_of(how: str, local: LocalTraining, net: str = "mlp", dtype: str = "float64") -> Simulator:
    torch.manual_seed(0)
    settings = EngineSettings(device="cpu", how=how, dtype=dtype, workers=2)  # type: ignore[arg-type]
    return Simulator(federation(), NETS[net](), local, settings)


def trained(engine: Simulator, work: Work | None = None, seed: int = 3) -> Updates:
    """All four clients, from two models."""
    return engine.train(np.arange(4), models_of(engine), np.array([0, 1, 1, 0]), seed, work)


def models_of(engine: Simulator) -> Tensor:
    start = engine.model.vector()
    return torch.stack([start, start + 0.1])


def mask_of(engine: Simulator) -> Tensor:
    """Every third entry, so parts of every tensor, running statistics included."""
    return torch.arange(engine.model.size) % 3 > 0


@pytest.fixture(params=["mlp", "batch norm"])
def net(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("ordered", [False, True], ids=["settings only", "with work"])
@pytest.mark.parametrize("name", [*OPTIMISERS, "sign"])
def test_every_optimiser_is_the_same_on_every_engine(name: str, ordered: bool, net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "AFTER", 1)  # the second round of a shape on is a recording
    monkeypatch.setitem(OPTIMISERS, "sign", SIGN)
    schedule = {"schedule": "cosine", "horizon": 5} if ordered else {}
    local = LocalTraining(
        epochs=2, batch=5, lr=0.05, optimiser=name, weight_decay=0.01, prox=0.3, clip=0.5, eps=1e-3,
        momentum=0.5 if name == "sgd" else 0.0, **schedule,  # type: ignore[arg-type]
    )  # fmt: skip
    engines = [engine_of(how, local, net) for how in WAYS]
    for number in (1, 2, 4):
        work = None
        if ordered:
            anchor = models_of(engines[0]) + number
            work = Work(number, anchor, mask_of(engines[0]))
        first, *others = (trained(engine, work, number) for engine in engines)
        assert len(first) == 4
        for other in others:
            np.testing.assert_array_equal(first.clients, other.clients)
            torch.testing.assert_close(first.models, other.models, **EXACT)
            torch.testing.assert_close(first.losses, other.losses, equal_nan=True, **EXACT)
    assert [e.how for e in engines] == list(WAYS)


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("how", WAYS)
def test_entries_that_do_not_move_stay_as_they_were_sent(how: str, name: str, net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "AFTER", 1)
    momentum = 0.5 if name == "sgd" else 0.0
    local = LocalTraining(steps=3, batch=5, lr=0.3, optimiser=name, weight_decay=0.1, prox=0.5, momentum=momentum)
    engine = engine_of(how, local, net, "float32")
    sent = models_of(engine)[[0, 1, 1, 0]]
    for rest in (0, 1, 2):  # another mask each time, the last ones in a recording
        moves = torch.arange(engine.model.size) % 3 == rest
        models = trained(engine, Work(moves=moves, anchor=models_of(engine) + 1)).models
        assert torch.equal(models[:, ~moves], sent[:, ~moves])
        assert (models != sent)[:, moves].float().mean() > 0.9  # a unit may be dead


@pytest.mark.parametrize("how", WAYS)
def test_a_mask_of_all_entries_is_none(how: str) -> None:
    engine = engine_of(how, LocalTraining(steps=3, batch=5, lr=0.3, momentum=0.5), "batch norm")
    everything = Work(moves=torch.ones(engine.model.size, dtype=torch.bool))
    assert torch.equal(trained(engine).models, trained(engine, everything).models)


@pytest.mark.parametrize("how", WAYS)
def test_the_pull_goes_to_the_anchor(how: str) -> None:
    """With lr 1 and prox 1 one step goes from the start to the anchor, less the loss gradient, which `prox=0` shows."""
    local = {"steps": 1, "batch": 5, "lr": 1.0}
    plain, pulled = engine_of(how, LocalTraining(**local)), engine_of(how, LocalTraining(**local, prox=1.0))  # type: ignore[arg-type]
    start = models_of(plain)
    gradient = start[[0, 1, 1, 0]] - trained(plain).models
    for anchor in (start * 0 + 7, start * 0 - 2):
        models = trained(pulled, Work(anchor=anchor)).models
        torch.testing.assert_close(models, anchor[[0, 1, 1, 0]] - gradient)
    torch.testing.assert_close(trained(pulled).models, start[[0, 1, 1, 0]] - gradient)  # there is no pull where it stands


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("after", [1, 100])
def test_a_recording_does_not_replay_the_first_rate(how: str, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After one step of SGD models have moved in proportion to the rate: 1, 1/2, 1/4, ..."""
    monkeypatch.setattr(recorded, "AFTER", after)
    engine = engine_of(how, LocalTraining(steps=1, batch=5, lr=0.5, schedule="step", horizon=1, lr_end=0.5))
    start = models_of(engine)[[0, 1, 1, 0]]
    moved = [trained(engine, Work(number)).models - start for number in (1, 2, 3, 4, 5)]
    for number, step in enumerate(moved):
        torch.testing.assert_close(step * 2**number, moved[0])
    assert (moved[0] != 0).any()


def test_a_schedule_without_the_round_is_refused() -> None:
    engine = engine_of("stacked", LocalTraining(steps=1, batch=5, schedule="linear", horizon=4))
    with pytest.raises(InputError, match=r"work=Work\(round=\.\.\.\)"):
        trained(engine)


def test_work_that_does_not_fit_the_model_is_refused() -> None:
    engine = engine_of("stacked", LocalTraining(steps=1, batch=5, prox=0.1))
    size = engine.model.size
    with pytest.raises(InputError, match=rf"a point for each model, \[2, {size}\]; got \[{size}\]"):
        trained(engine, Work(anchor=engine.model.vector()))
    with pytest.raises(InputError, match=rf"marks the {size} entries .* got \[{size}\] of torch.float64"):
        trained(engine, Work(moves=engine.model.vector()))


def test_a_client_without_company_follows_it_too() -> None:
    local = LocalTraining(steps=2, batch=5, lr=0.3, prox=0.5, schedule="linear", horizon=4)
    engine = engine_of("one-by-one", local)
    start, moves = engine.model.vector(), mask_of(engine)
    work = Work(3, start[None] + 1, moves)
    alone, losses = engine.train_one(2, 11, start, work)
    inputs = round_inputs(work, local, start[None])
    begun = engine.begin(np.array([2]), start[None], np.array([0]), torch.tensor([11]), inputs)()
    assert torch.equal(alone, begun.models[0])
    assert torch.equal(losses, begun.losses[0])


def test_runs_that_share_an_engine_have_each_their_own_round_anchor_and_mask() -> None:
    local = LocalTraining(steps=2, batch=5, lr=0.3, prox=0.5, schedule="linear", horizon=9)
    alone = engine_of("stacked", local)
    start, moves = models_of(alone), mask_of(alone)
    orders = [Work(1), Work(5, start + 1), Work(9, moves=moves), Work(2, start - 1, ~moves)]
    torch.manual_seed(0)
    pool = SharedEngine([federation()] * 4, lambda f: Simulator(f, NETS["mlp"](), local, alone.settings))

    def train(i: int) -> Updates:
        return pool.members[i].train(np.arange(4), start, np.array([0, 1, 1, 0]), 3, orders[i])

    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(train, range(4)))
    for work, updates in zip(orders, together, strict=True):
        torch.testing.assert_close(updates.models, trained(alone, work).models, **EXACT)
    assert torch.equal(together[2].models[:, ~moves], start[[0, 1, 1, 0]][:, ~moves])


@pytest.mark.parametrize("how", WAYS)
def test_an_engine_tells_what_it_is(how: str) -> None:
    engine = engine_of(how, LocalTraining(steps=1))
    member = SharedEngine([federation()], lambda f: engine).members[0]
    for each in (engine, member):
        assert isinstance(each, DescribesItself)
        assert isinstance(each, DescribesModel)
        assert each.layout.names == ("1.weight", "1.bias", "3.weight", "3.bias")
        assert each.layout.size == len(engine.model.vector())
        assert each.facts.device == torch.device("cpu")
        assert each.facts.at_once == {"stacked": engine.chunk, "workers": 2, "one-by-one": 1}[how]
    chosen = EngineSettings(**engine.facts.settings)  # type: ignore[arg-type]
    again = Simulator(federation(), NETS["mlp"](), LocalTraining(steps=1), chosen)
    assert again.facts.settings == engine.facts.settings


def test_an_engine_of_ones_own_is_one_line(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(Simulator):
        pass

    monkeypatch.setitem(ENGINES, "mine", Mine)
    job = small(engine={"name": "mine"})
    assert isinstance(job.simulator(job.federation()), Mine)
    with pytest.raises(InputError, match=r"unknown engine 'min' \(did you mean mine\?\)"):
        small(engine={"name": "min"}).simulator(job.federation())


@pytest.mark.parametrize(
    ("count", "device", "found"), [(0, "auto", "cpu"), (2, "auto", "cuda"), (2, "cuda:1", "cuda:1"), (2, "cpu", "cpu")]
)
def test_devices(count: int, device: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert device_of(EngineSettings(device=device)) == torch.device(found)


@pytest.mark.parametrize(
    ("count", "device", "message"),
    [
        (0, "cuda", "sees no CUDA device here"),
        (1, "cuda:1", "sees cuda:0 only here"),
        (4, "cuda:999", "sees 4 of them, cuda:0 to cuda:3, here"),
    ],
)
def test_cards_that_are_not_there(count: int, device: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    with pytest.raises(InputError, match=f"{message}; use another: --set engine.device=cpu"):
        device_of(EngineSettings(device=device))


@pytest.mark.parametrize("device", ["mps", "mps:0"])
def test_devices_that_nobody_tried_are_refused(device: str) -> None:
    with pytest.raises(InputError, match="is refused: no engine has been tried on Apple's GPUs"):
        EngineSettings(device=device)


@pytest.mark.parametrize("device", ["cuda:", "cuda:-1", "cuda:01", "gpu", "cuda 0"])
def test_devices_that_do_not_exist(device: str) -> None:
    with pytest.raises(InputError, match=r"must be auto, cpu, cuda or cuda:N \(cuda:1 is the second card\)"):
        EngineSettings(device=device)
