"""Recorded runs in which somebody waits, replayed: nobody can be asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fake_engine import FakeEngine
from trials import by_pairs_and_by_client, heard, members, play, waiting_in

from fedgwc.algorithms.auto.algorithm import FedGWC
from fedgwc.algorithms.auto.state import FedGWCState
from fedgwc.io.state_file import pack
from fedgwc.report.convergence import mse_by_cluster
from fedgwc.runs.loop import rounds
from fedgwc.runs.replay import Trace, replay


def recorded() -> Trace:
    engine = heard()
    everybody, which = np.arange(60), np.zeros(60, np.int64)
    losses = [engine.train(everybody, torch.zeros(1, 1), which, t).losses.numpy() for t in range(40)]
    return Trace(np.tile(everybody, (40, 1)), np.stack(losses), 60)


def test_how_p_converges_is_told_until_somebody_waits() -> None:
    """They are divided in round 20 of 40."""
    for second_look, clusters in ((True, [0]), (False, [0, 1, 2])):
        lines = mse_by_cluster(recorded(), play(0, second_look=second_look)[0], 1)
        assert sorted(lines) == clusters
        assert (lines[0][0] < 20).all()


def test_a_replay_asks_nobody() -> None:
    trace = recorded()

    def seen(second_look: bool) -> list[bytes]:
        states: list[bytes] = []
        algorithm, _ = play(0, second_look=second_look, doubt=0)
        last = replay(trace, algorithm, watch=lambda _, s: states.append(pack(s)))
        assert members(last) == [list(range(29)), list(range(29, 60))]
        return states

    assert seen(True) == seen(False)


@by_pairs_and_by_client
@pytest.mark.parametrize(
    ("few", "gain", "wanted"), [(20, 4.0, 4), (14, 4.0, 16), (8, 4.0, 16), (20, 1e6, 1e6), (14, 1e6, 1e6 + 12)]
)
def test_a_replay_asks_for_as_much_gain_as_the_run(few: int, gain: float, wanted: float, settings: dict[str, Any]) -> None:
    """So many of 60 are on one side, of whom 14 and 8 are too few to try. All is the same up to the first division."""
    kind = np.repeat([0, 1], [few, 60 - few])
    engine = FakeEngine(kind, level=1.0 + kind)
    algorithm = FedGWC(rate=1.0, gain=gain, doubt=12.0, **settings)
    states = [s for _, s in rounds(algorithm, engine, torch.zeros(1, dtype=torch.float64), 60, 40, seed=1)]
    until = next((t for t, s in enumerate(states, 1) if s.splits), 40)
    assert until == (20 if gain == 4 else 40)
    again: list[FedGWCState] = []
    clients, losses = zip(*((sent.clients, sent.losses.numpy()) for sent in engine.sent[:until]), strict=True)
    replay(Trace(np.stack(clients), np.stack(losses), 60), algorithm, seed=1, watch=lambda _, s: again.append(s))
    assert [s.verdicts for s in again] == [s.verdicts for s in states[:until]]
    assert {v.wanted for s in again for v in s.verdicts} == {wanted}
    assert waiting_in(again[-1]) == [None] * len(again[-1].clusters)
