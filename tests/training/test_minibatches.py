"""Minibatches: every sample in its turn, whoever else trains."""

import numpy as np
import torch

from fedgwc.core import random
from fedgwc.core.work import LocalTraining
from fedgwc.training.minibatches import Minibatches, minibatches


def batches_of(local: LocalTraining, sizes: list[int], seed: int = 0) -> Minibatches:
    ids = np.arange(len(sizes))
    return minibatches(local, torch.tensor(sizes), random.keys(seed, ids))


def test_an_epoch_uses_each_sample_at_most_once_and_drops_the_rest() -> None:
    b = batches_of(LocalTraining(epochs=1, batch=3), [7])
    assert b.steps.tolist() == [2]  # 7 // 3
    used = b.places.flatten().tolist()
    assert len(used) == len(set(used)) == 6
    assert set(used) <= set(range(7))


def test_exhausted_data_is_reshuffled() -> None:
    b = batches_of(LocalTraining(steps=4, batch=3), [6])
    first, second = b.places[0, :2].flatten().tolist(), b.places[0, 2:].flatten().tolist()
    assert sorted(first) == sorted(second) == list(range(6))
    assert first != second


def test_a_small_client_uses_all_it_has_in_every_step() -> None:
    b = batches_of(LocalTraining(steps=2, batch=4), [2, 8])
    assert b.weights[0].tolist() == [[0.5, 0.5, 0.0, 0.0]] * 2
    assert all(sorted(step[:2].tolist()) == [0, 1] for step in b.places[0])
    assert b.weights[1].tolist() == [[0.25] * 4] * 2


def test_fewer_steps_are_marked_by_zero_weights() -> None:
    b = batches_of(LocalTraining(epochs=1, batch=2), [2, 6])
    assert b.steps.tolist() == [1, 3]
    assert b.weights[0].sum(1).tolist() == [1.0, 0.0, 0.0]


def test_minibatches_do_not_depend_on_the_company() -> None:
    local, ids = LocalTraining(steps=3, batch=4), torch.tensor([3, 1, 7])
    sizes = torch.tensor([9, 30, 4])
    together = minibatches(local, sizes, random.keys(5, ids.numpy()))
    for i in range(3):
        alone = minibatches(local, sizes[i : i + 1], random.keys(5, ids[i : i + 1].numpy()))
        width = min(4, int(sizes[i]))
        assert torch.equal(alone.places[0, :, :width], together.places[i, :, :width])


def test_keys_differ_between_clients_and_seeds() -> None:
    keys = torch.stack([random.keys(s, np.arange(1000)) for s in range(5)])
    assert len(keys.unique()) == 5000


def test_numpy_and_torch_draw_the_same() -> None:
    z = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 1000)
    assert torch.equal(torch.from_numpy(random.mix_numpy(z.view(np.uint64)).view(np.int64)), random.mix(torch.from_numpy(z)))


def test_permutations_are_uniform() -> None:
    """Each of 3! orders should come up about 1,000 times in 6,000."""
    orders = random.permutations(random.keys(1, np.arange(6000)), 1, torch.full((6000,), 3), 3)[:, 0]
    _, counts = (orders * torch.tensor([9, 3, 1])).sum(1).unique(return_counts=True)
    assert len(counts) == 6
    assert int(counts.min()) > 850
    assert int(counts.max()) < 1150
