"""Scores do not depend on how they are computed: models together or one by one, in pieces, recorded, in any order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedgwc.core.types import Scores, Split
from fedgwc.core.work import LocalTraining
from fedgwc.data import Federation, Rows
from fedgwc.engines import recorded
from fedgwc.engines.settings import How
from fedgwc.engines.simulator import EngineSettings, Simulator

SIZES, TEST_SIZES = [5, 9, 1, 14, 9], [3, 2, 7, 1, 4]
NETS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 6), nn.ReLU(), nn.Linear(6, 4)),
    "dropout": lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Dropout(0.5), nn.Linear(8, 4)),
    "batch norm": lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)),
    "convolution": lambda: nn.Sequential(nn.Conv2d(1, 3, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4)),
}
# Clients, and the model that each is to be scored with: all models on the same clients, as IFCA asks; on others; as it comes.
QUESTIONS = {
    "shared": (np.repeat([3, 0, 2], 3), np.tile([0, 1, 2], 3)),
    "apart": (np.arange(5), np.array([2, 0, 2, 1, 0])),
    "mixed": (np.array([4, 4, 1, 2, 1, 4, 0]), np.array([0, 2, 0, 1, 2, 2, 2])),
}


def federation() -> Federation:
    """Pixels of 6x6 in four classes, and clients of uneven sizes."""
    rng = np.random.default_rng(0)
    n = sum(SIZES) + sum(TEST_SIZES)
    lists = np.split(rng.permutation(n), np.cumsum(SIZES + TEST_SIZES)[:-1])
    train, test = Rows.of(lists[: len(SIZES)]), Rows.of(lists[len(SIZES) :])
    x = torch.from_numpy(rng.integers(0, 256, (n, 1, 6, 6), dtype=np.uint8))
    return Federation(x, torch.from_numpy(rng.integers(0, 4, n)), train, test, 4, mean=(0.5,), std=(0.25,))


def engine_of(name: str = "mlp", **settings: Any) -> tuple[Simulator, Tensor]:
    """And three different models, with buffers that BatchNorm may have."""
    torch.manual_seed(0)
    engine = Simulator(federation(), NETS[name](), LocalTraining(steps=2, batch=4), EngineSettings(device="cpu", **settings))
    vector = engine.model.vector()
    return engine, vector + 0.3 * torch.rand(3, len(vector), dtype=vector.dtype)


def loop(engine: Simulator, name: str, clients: np.ndarray, models: Tensor, which: np.ndarray, split: Split) -> Scores:
    """What the scores mean: one client, one model and one sample at a time."""
    f, module = engine.federation, NETS[name]().to(models.dtype).eval()
    losses, correct = [], np.zeros((len(clients), 4))
    for i, (client, m) in enumerate(zip(clients, which, strict=True)):
        module.load_state_dict(engine.model.state_dict(models[m]))
        mine = []
        for row in f.rows(split)[client]:
            out = module((f.x[row][None].to(models.dtype) / 255 - 0.5) / 0.25)
            mine.append(F.cross_entropy(out, f.y[row][None]).item())
            correct[i, int(f.y[row])] += int(out.argmax()) == int(f.y[row])
        losses.append(np.mean(mine))
    return Scores(clients, np.array(losses), correct, f.class_counts(split)[clients])


def assert_same(a: Scores, b: Scores, rtol: float = 1e-9) -> None:
    for one, other in ((a.clients, b.clients), (a.correct, b.correct), (a.total, b.total)):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(a.loss, b.loss, rtol=rtol)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("how", ["stacked", "one-by-one", "workers"])
@pytest.mark.parametrize("name", NETS)
def test_scores_are_those_of_a_plain_loop(
    name: str, how: How, question: str, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "AFTER", 1)  # the second call with a shape is a recording
    engine, models = engine_of(name, how=how, dtype="float64", stack_random=True)
    clients, which = QUESTIONS[question]
    expected = loop(engine, name, clients, models, which, split)
    for _ in range(3):
        assert_same(engine.evaluate(clients, models, which, split), expected)


class ThreeSplits(Federation):
    """Whose clients hold their test samples back for validation, in another order."""

    def rows(self, split: Split) -> Rows:
        return Rows.of([self.test[k][::-1] for k in range(self.n_clients)]) if split == "validation" else super().rows(split)


def test_any_split_that_a_federation_has_can_be_scored() -> None:
    engine, models = engine_of(dtype="float64")
    three = Simulator(ThreeSplits(**vars(engine.federation)), NETS["mlp"](), settings=engine.settings)
    for question in QUESTIONS.values():
        held_back = three.evaluate(question[0], models, question[1], "validation")
        assert_same(held_back, three.evaluate(question[0], models, question[1], "test"))


@pytest.mark.parametrize("how", ["stacked", "one-by-one"])
def test_numbers_by_hand(how: How) -> None:
    """x is (1, 0), (0, 1), (1, 0), all of class 0. The logits of model 0 are x, those of model 1 are 0 and 1 whatever x is."""
    x, y = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), torch.zeros(3, dtype=torch.int64)
    rows = Rows.of([np.array([0, 1]), np.array([2])])
    engine = Simulator(Federation(x, y, rows, rows, 2), nn.Linear(2, 2), settings=EngineSettings(how=how, device="cpu"))
    models = torch.tensor([[1.0, 0, 0, 1, 0, 0], [0.0, 0, 0, 0, 0, 1]])  # weights, then biases
    scores = engine.evaluate(np.array([0, 0, 1, 1]), models, np.array([0, 1, 0, 1]))
    near, far = np.log1p(np.exp(-1)), np.log1p(np.exp(1))  # losses where the right logit is 1 above the other, or 1 below it
    np.testing.assert_allclose(scores.loss, [(near + far) / 2, far, near, far], rtol=1e-6)
    np.testing.assert_array_equal(scores.correct, [[1, 0], [0, 0], [1, 0], [0, 0]])
    np.testing.assert_array_equal(scores.total, [[2, 0], [2, 0], [1, 0], [1, 0]])


@pytest.mark.parametrize("width", [0, 4], ids=["any width", "one width"])
@pytest.mark.parametrize(("batch", "chunk"), [(32, 0), (8, 2), (5, 0), (64, 1)])
def test_pieces_change_nothing(batch: int, chunk: int, width: int) -> None:
    """With one width, which is how a GPU runs, pieces are filled up with samples that count once all the same."""
    whole, models = engine_of(dtype="float64")
    parts, _ = engine_of(dtype="float64", chunk=chunk)
    parts._evaluation._batch, parts._evaluation._width = batch, width
    for clients, which in QUESTIONS.values():
        assert_same(parts.evaluate(clients, models, which, "train"), whole.evaluate(clients, models, which, "train"))


def test_a_recording_gives_the_same_bits_and_serves_other_cohorts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients 1 and 4 have equally many samples."""
    monkeypatch.setattr(recorded, "AFTER", 2)
    (recording, models), (fresh, _) = engine_of(), engine_of()
    which = np.array([0, 1, 2])
    for round_, client in enumerate([1, 4, 1, 4, 1]):
        fresh._evaluation._recorded = recorded.Recorded()  # which has not seen anything yet
        a, b = (e.evaluate(np.full(3, client), models * (1 + round_), which, "train") for e in (recording, fresh))
        np.testing.assert_array_equal(a.loss, b.loss)
        np.testing.assert_array_equal(a.correct, b.correct)
    recorder = recording._evaluation._recorded
    assert recorder is not None
    assert len(recorder._recordings) == 1


class LooksAtValues(nn.Module):
    """Which vmap cannot do, and a recording would see only once."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(36, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x.flatten(1))
        return out if out.sum().item() > 0 else 2 * out


def test_what_cannot_be_stacked_is_scored_one_by_one_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorded, "AFTER", 1)
    monkeypatch.setitem(NETS, "looks", LooksAtValues)
    engine, models = engine_of("looks", dtype="float64")
    plain, _ = engine_of("looks", dtype="float64", how="one-by-one")
    clients, which = np.zeros(3, np.int64), np.arange(3)
    with caplog.at_level(logging.WARNING):
        for factor in (1, -1, 1, -1):
            one, other = (e.evaluate(clients, factor * models, which) for e in (engine, plain))
            assert_same(one, other)
    assert caplog.text.count("cannot be stacked") == 1


@pytest.mark.parametrize("name", ["dropout", "batch norm"])
def test_evaluation_leaves_training_as_it_was(name: str) -> None:
    """Dropout still drops and running statistics still move."""
    (watched, models), (other, _) = engine_of(name, how="one-by-one"), engine_of(name, how="one-by-one")
    clients, zeros = np.array([0, 1, 3]), np.zeros(3, np.int64)
    watched.evaluate(clients, models, np.arange(3))
    a, b = (e.train(clients, models, zeros, 1) for e in (watched, other))
    assert torch.equal(a.models, b.models)
    assert watched.model.module.training
