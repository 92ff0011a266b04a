"""What is frozen never moves, on any engine: parameters without gradients, and layers in evaluation mode."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fedgwc.core.errors import InputError
from fedgwc.core.work import LocalTraining
from fedgwc.engines.settings import How
from fedgwc.engines.simulator import EngineSettings, Simulator
from fedgwc.training.flat_model import FlatModel
from tests.conftest import Small

HARD = LocalTraining(steps=4, batch=6, lr=0.5, weight_decay=0.1, momentum=0.5)


def network(frozen_first: bool = True, eval_norm: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))
    with torch.no_grad():
        net.get_buffer("2.running_mean").uniform_(-1, 1)
    if frozen_first:
        net[1].requires_grad_(False)
    if eval_norm:
        net[2].eval()
    return net


WORKERS = pytest.param(
    "workers", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="cannot fork after other tests used the GPU")
)


@pytest.mark.parametrize("how", ["stacked", "one-by-one", WORKERS])
def test_frozen_layers_stay_and_the_others_train(how: How, small: Small) -> None:
    job = small()
    federation, net = job.federation(), network()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    device = "cpu" if how == "workers" else "auto"
    engine = Simulator(federation, net, HARD, EngineSettings(how=how, device=device))
    clients = np.arange(6)
    updates = engine.train(clients, engine.model.vector()[None], np.zeros(6, np.int64), 3)
    assert len(updates) == 6
    for theta in updates.models:
        after = {name: tensor.cpu() for name, tensor in engine.model.state_dict(theta).items()}
        for name in ("1.weight", "1.bias", "2.running_mean", "2.running_var"):
            assert torch.equal(after[name], before[name]), name
        for name in ("2.weight", "2.bias", "4.weight", "4.bias"):  # the affine part of an evaluated BatchNorm has gradients
            assert not torch.equal(after[name], before[name]), name
    assert updates.models.shape[1] == 2 * 8 + 8 * 10 + 10  # what is frozen does not travel


@pytest.mark.parametrize("how", ["stacked", WORKERS])
def test_engines_agree_on_a_model_with_frozen_parts(how: How, small: Small) -> None:
    job, net = small(), network()
    federation = job.federation()
    ways: tuple[How, ...] = ("one-by-one", how)
    settings = [EngineSettings(how=h, dtype="float64", device="cpu") for h in ways]
    clients, zeros = np.arange(5), np.zeros(5, np.int64)
    a, b = ((e := Simulator(federation, net, HARD, s)).train(clients, e.model.vector()[None], zeros, 3) for s in settings)
    torch.testing.assert_close(a.models, b.models, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(a.losses, b.losses, rtol=1e-9, atol=1e-12)


def test_frozen_weights_decide_the_scores(small: Small) -> None:
    """Evaluation, stacked or not, sees them too: one model with other frozen weights gives other losses."""
    job = small()
    federation, one, other = job.federation(), network(), network()
    with torch.no_grad():
        other.get_parameter("1.weight").mul_(-1)
    clients, which = np.arange(4), np.array([0, 1, 0, 1])
    losses = []
    for net in (one, other):
        engine = Simulator(federation, net, HARD)
        theta = engine.model.vector()
        losses.append(engine.evaluate(clients, torch.stack([theta, theta]), which).loss)
    assert (losses[0] != losses[1]).all()


def test_a_model_that_was_evaluated_as_a_whole_trains_as_a_whole() -> None:
    """A pretrained network often comes after `eval()`; no layer of it is meant."""
    net = network(frozen_first=False, eval_norm=False).eval()
    assert FlatModel(net).size == sum(t.numel() for t in net.state_dict().values() if t.is_floating_point())


def test_a_frozen_batch_norm_needs_no_batch(small: Small) -> None:
    """Its statistics are fixed, so a client with a single image can train."""
    job = small(data={"groups": [{"clients": 19}, {"clients": 1, "train_size": 1}]})
    engine = Simulator(job.federation(), network(), LocalTraining(steps=2, batch=6, lr=0.1))
    start, zeros = engine.model.vector()[None], np.zeros(20, np.int64)
    assert len(engine.train(np.arange(20), start, zeros, 1)) == 20


def test_nothing_to_train_is_said() -> None:
    with pytest.raises(InputError, match="all of them are frozen"):
        FlatModel(nn.Linear(2, 2).requires_grad_(False))


def test_nodes_with_other_frozen_weights_have_another_fingerprint() -> None:
    wire = pytest.importorskip("fedgwc.flower.wire")
    one, other = network(), network()
    same = wire.fingerprint(FlatModel(one)) == wire.fingerprint(FlatModel(other))
    with torch.no_grad():
        other.get_parameter("1.weight").mul_(2)
    assert same
    assert wire.fingerprint(FlatModel(one)) != wire.fingerprint(FlatModel(other))
