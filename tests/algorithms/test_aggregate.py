"""Numbers one can do in the head."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedgwc.algorithms.aggregate import Aggregator, Server
from fedgwc.core.errors import InputError
from fedgwc.core.tensors import stack_rows
from fedgwc.core.types import Updates


def updates(models: list[list[float]], sizes: list[int], n_params: int | None = None) -> Updates:
    n = len(models)
    return Updates(np.arange(n), torch.tensor(models), torch.zeros(n, 1), torch.tensor(sizes), n_params)


ZERO = Server(torch.zeros(1))


def test_mean_is_weighted_by_samples() -> None:  # (3*0 + 1*4) / 4 = 1
    assert Aggregator().step(ZERO, updates([[0.0], [4.0]], [3, 1])).theta.tolist() == [1.0]


def test_fairavg_weighs_clients_equally() -> None:  # (0 + 4) / 2 = 2
    assert Aggregator(weights="equal").step(ZERO, updates([[0.0], [4.0]], [3, 1])).theta.tolist() == [2.0]


def test_momentum_keeps_going() -> None:  # 0 -> 1, then the clients stand still at 1: the velocity 1 is halved, so 1.5
    fedavgm = Aggregator(momentum=0.5)
    one = fedavgm.step(ZERO, updates([[1.0]], [1]))
    two = fedavgm.step(one, updates([[1.0]], [1]))
    assert (one.theta.item(), two.theta.item()) == (1.0, 1.5)


def test_server_learning_rate_goes_part_of_the_way() -> None:
    assert Aggregator(lr=0.25).step(ZERO, updates([[4.0]], [1])).theta.tolist() == [1.0]


def test_buffers_are_only_averaged() -> None:
    """Momentum would move the second entry, a buffer, past its clients' mean."""
    fedavgm, server = Aggregator(momentum=0.5), Server(torch.zeros(2))
    for _ in range(2):
        server = fedavgm.step(server, updates([[1.0, 1.0]], [1], n_params=1))
    assert server.theta.tolist() == [1.5, 1.0]


def test_no_answer_changes_nothing() -> None:
    empty = Updates(np.empty(0, np.int64), torch.empty(0, 1), torch.empty(0, 1), torch.empty(0))
    assert Aggregator(momentum=0.9).step(ZERO, empty) is ZERO


@pytest.mark.parametrize("bad", [{"momentum": 1.0}, {"momentum": -0.1}, {"lr": 0.0}, {"trim": 0.5}, {"clip": -1.0}])
def test_impossible_settings(bad: dict[str, float]) -> None:
    with pytest.raises(InputError, match="must be"):
        Aggregator(**bad)  # type: ignore[arg-type]


def combined(models: list[list[float]], sizes: list[int] | None = None, **chosen: object) -> list[float]:
    aggregator = Aggregator(**chosen)  # type: ignore[arg-type]
    server = Server(torch.zeros(len(models[0])))
    return aggregator.step(server, updates(models, sizes or [1] * len(models))).theta.tolist()


def test_median_by_hand() -> None:
    assert combined([[1.0], [1e30], [3.0]], combine="median") == [3.0]
    assert combined([[1.0], [2.0], [4.0], [-1e30]], combine="median") == [1.5]  # of an even number: the middle of the two
    assert combined([[1.0], [5.0], [3.0]], sizes=[1, 10**9, 1], combine="median") == [3.0]  # a count is only a claim


def test_trimmed_mean_by_hand() -> None:
    five = [[-1e30], [1.0], [2.0], [6.0], [1e30]]
    assert combined(five, combine="trimmed-mean", trim=0.2) == [3.0]
    assert combined(five[1:4], combine="trimmed-mean", trim=0.0) == [3.0]
    assert combined(five[1:4], combine="trimmed-mean", trim=0.1) == [2.0]  # rounded up: one at each end


def test_clipped_mean_by_hand() -> None:
    assert combined([[3.0, 4.0], [0.0, 0.0]], combine="clipped-mean", clip=1.0) == pytest.approx([0.3, 0.4])
    # lengths 1, 2 and 100: the last is cut to the median length
    assert combined([[1.0], [2.0], [100.0]], combine="clipped-mean") == pytest.approx([5 / 3])
    assert combined([[1.0], [2.0], [6.0]], sizes=[2, 1, 1], combine="clipped-mean", clip=9.0) == [2.5]


def test_clipping_is_about_steps_and_leaves_buffers_to_the_median() -> None:
    server = Server(torch.tensor([10.0, 1.0]))
    cohort = updates([[11.0, 2.0], [11.0, 3.0], [210.0, 1e20]], [1, 1, 1], n_params=1)
    assert Aggregator(combine="clipped-mean", clip=1.0).step(server, cohort).theta.tolist() == [11.0, 3.0]


def test_momentum_follows_the_robust_step() -> None:
    fedavgm = Aggregator(momentum=0.5, combine="median")
    cohort = updates([[1.0], [1.0], [1e30]], [1, 1, 1])
    assert fedavgm.step(fedavgm.step(ZERO, cohort), cohort).theta.tolist() == [1.5]


finite = st.floats(-1e3, 1e3, width=32)
arbitrary = st.floats(-(2.0**100), 2.0**100, width=32)


@given(st.integers(1, 5), st.data())
@settings(deadline=None, max_examples=60)
@pytest.mark.parametrize("combine", ["median", "trimmed-mean"])
def test_a_minority_cannot_leave_the_honest_range(combine: str, liars: int, data: st.DataObject) -> None:
    """Trimmed at 0.45: as many go at each end as there are liars among 2 liars + 1."""
    honest = data.draw(arrays(np.float32, (liars + 1, 3), elements=finite))
    lies = data.draw(arrays(np.float32, (liars, 3), elements=arbitrary))
    mixed = data.draw(st.permutations([*honest.tolist(), *lies.tolist()]))
    got = np.array(combined(mixed, combine=combine, trim=0.45), np.float32)
    assert (got >= honest.min(0)).all()
    assert (got <= honest.max(0)).all()


@given(arrays(np.float32, (5, 4), elements=arbitrary), st.floats(0.1, 10))
@settings(deadline=None, max_examples=60)
def test_nobody_steps_further_than_the_clip(models: np.ndarray, clip: float) -> None:
    moved = np.array(combined(models.tolist(), sizes=[1, 10**6, 1, 1, 1], combine="clipped-mean", clip=clip))
    assert np.linalg.norm(moved) <= clip * (1 + 1e-5)


@pytest.mark.parametrize("combine", ["mean", "median", "trimmed-mean", "clipped-mean"])
def test_overflow_is_a_step_not_taken(combine: str) -> None:
    far = updates([[3e38, 3e38]] * 4, [1] * 4)
    server = Server(torch.tensor([-3e38, 0.0]))
    after = Aggregator(momentum=0.9, combine=combine, clip=1e38).step(server, far)  # type: ignore[arg-type]
    assert torch.isfinite(after.theta).all()


def test_a_step_not_taken_leaves_model_and_momentum_as_they_were() -> None:
    fedavgm, overflowing = Aggregator(momentum=0.5), updates([[float("inf")]], [1])
    one = fedavgm.step(fedavgm.step(ZERO, overflowing), updates([[1.0]], [1]))
    two = fedavgm.step(fedavgm.step(one, overflowing), updates([[1.0]], [1]))
    assert (one.theta.item(), two.theta.item()) == (1.0, 1.5)  # as in test_momentum_keeps_going


@pytest.mark.parametrize("combine", ["median", "trimmed-mean", "clipped-mean"])
def test_equal_clients_are_their_own_aggregate(combine: str) -> None:
    assert combined([[1.0, -2.0]] * 4, combine=combine) == [1.0, -2.0]


# Several servers at once

AGGREGATORS = [
    Aggregator(),
    Aggregator(weights="equal"),
    Aggregator(momentum=0.9),
    Aggregator(momentum=0.5, lr=0.3),
    Aggregator(combine="median", lr=0.5),
]


@settings(deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(AGGREGATORS), st.integers(1, 7), st.sampled_from([None, 3]))
def test_servers_step_together_as_each_would(seed: int, aggregator: Aggregator, n_servers: int, n_params: int | None) -> None:
    """Whatever the order of the answers; some servers get none, and some have no velocity yet."""
    rng = np.random.default_rng(seed)
    alone = [Server(torch.from_numpy(rng.normal(size=5))) for _ in range(n_servers)]
    together = list(alone)
    for _ in range(3):
        n = int(rng.integers(0, 12))
        models = torch.from_numpy(rng.normal(size=(n, 5)))
        answers = Updates(np.arange(n), models, torch.zeros(n, 1), torch.from_numpy(rng.integers(1, 9, n)), n_params)
        own = rng.integers(0, n_servers, n)
        alone = [aggregator.step(s, answers.rows(np.flatnonzero(own == i))) for i, s in enumerate(alone)]
        together = aggregator.steps(together, answers, own)
        for one, other in zip(alone, together, strict=True):
            torch.testing.assert_close((other.theta, other.velocity), (one.theta, one.velocity), rtol=0, atol=1e-12)


@pytest.mark.parametrize("bad", [[float("nan")] * 2, [3.4e38, 3.4e38]], ids=["not a number", "overflows"])
def test_what_is_not_finite_stays_in_its_own_cohort(bad: list[float]) -> None:
    before = [Server(torch.zeros(2)), Server(torch.full((2,), 7.0))]
    answers = updates([[1.0, 1.0], bad, [3.0, 3.0], bad], [1, 1, 1, 1])
    after = Aggregator().steps(before, answers, np.array([0, 1, 0, 1]))
    assert [s.theta.tolist() for s in after] == [[2.0, 2.0], [7.0, 7.0]]


def test_models_that_stand_together_are_not_copied() -> None:
    answers = updates([[1.0], [2.0], [3.0]], [1, 1, 1])
    servers = Aggregator().steps([ZERO, ZERO, ZERO], answers, np.array([2, 0, 1]))
    thetas = [s.theta for s in servers]
    assert stack_rows(thetas).data_ptr() == thetas[0].data_ptr()
    for others in ([thetas[1], thetas[0], thetas[2]], thetas[:2], [thetas[0]] * 3, [thetas[0].clone(), *thetas[1:]]):
        assert torch.equal(stack_rows(others), torch.stack(others))
