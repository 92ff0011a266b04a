"""How much gain is asked for: more if too few clients can try a division, or if one was undone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fake_engine import FakeEngine, alike_until, drifting, private
from trials import FORCED, KIND, TRIALS, by_pairs_and_by_client, heard, play, told, waiting_in

from fedgwc.algorithms.auto.algorithm import FedGWC
from fedgwc.core.errors import InputError
from fedgwc.runs.loop import rounds


def wanted(engine: FakeEngine, n_clients: int = 60, **settings: Any) -> tuple[str, float | None]:
    """The verdict on the second window, and the gain that was asked for; it is 70 of 60 clients."""
    algorithm = FedGWC(**{"rate": 1.0, "n_max": 2, "min_size": 8, "doubt": 12.0} | settings)
    *_, (_, last) = rounds(algorithm, engine, torch.zeros(1, dtype=torch.float64), n_clients, 20, seed=1)
    [verdict] = last.verdicts
    [row] = algorithm.verdicts(last)
    assert f"threshold {verdict.wanted:g}" in row["why"]
    return verdict.reason, verdict.wanted


@by_pairs_and_by_client
@pytest.mark.parametrize(("gain", "alone"), [(-5, "groups"), (50, "groups"), (65, "no groups")])
def test_more_gain_is_asked_for_without_a_second_look(gain: float, alone: str, settings: dict[str, Any]) -> None:
    assert wanted(heard(), gain=gain, **settings) == ("groups", gain)
    assert wanted(heard(), gain=gain, second_look=False, **settings) == (alone, gain + 12)
    assert wanted(heard(), gain=gain, doubt=1, second_look=False, **settings) == ("groups", gain + 1)


@pytest.mark.parametrize(("few", "gain"), [(8, 16), (9, 16), (14, 16), (15, 4)])
def test_more_gain_is_asked_for_where_too_few_are_on_a_side(few: int, gain: float) -> None:
    """Of 8 nobody may wait, of 9 to 14 so few that it is not enough."""
    kind = np.repeat([0, 1], [few, 46])
    assert wanted(FakeEngine(kind, level=1.0 + kind), few + 46) == ("groups", gain)


@pytest.mark.parametrize("few", [8, 9, 14])
def test_where_more_gain_is_asked_for_the_division_is_tried_all_the_same(few: int) -> None:
    """But for 8, as nobody waits then. Models serve two kinds, or do not differ."""
    side = np.repeat([0, 1], [few, 60 - few])
    for kind, end in ((side, (30, 1, "confirmed")), (0 * side, (40, 0, "rejoined"))):
        _, states = play(40, FakeEngine(kind, level=1.0 + side), min_size=8)
        assert told(states, *TRIALS) == [(20, 0, "groups"), *([] if few == 8 else [end])]


def test_more_gain_is_asked_for_where_losses_are_private() -> None:
    """Though enough are on either side, 40 and 20."""
    level = 1.0 + (np.arange(62) >= 40)
    assert wanted(heard(level=level, update=private)) == ("groups", 16)
    assert wanted(heard(level=level)) == ("groups", 4)


@by_pairs_and_by_client
def test_more_gain_is_asked_for_after_each_division_that_was_undone(settings: dict[str, Any]) -> None:
    """12 more, window by window until the next division, in rounds 20, 90 and 160; who is parted then begins without that."""
    _, states = play(160, FakeEngine(np.zeros(60)), **settings, **FORCED)
    asked = [(t, v.reason, v.wanted) for t, s in enumerate(states, 1) for v in s.verdicts if v.reason != "rejoined"]
    assert asked == [
        *((10, "first cut", -1000), (20, "groups", -1000)),
        *((80, "first cut", -988), (90, "groups", -988)),
        *((150, "first cut", -976), (160, "groups", -976)),
    ]
    undone = [[c.undone for c in states[t - 1].clusters] for t in (19, 20, 39, 40, 70, 89, 90, 109, 110, 159, 160)]
    assert undone == [[0], [0, 0], [0, 0], [1], [1], [1], [0, 0], [0, 0], [2], [2], [0, 0]]
    assert [[s.undone for s in states[t - 1].splits] for t in (20, 40, 90, 110, 160)] == [[0], [], [1], [], [2]]


def test_where_there_is_much_doubt_nothing_is_tried_twice() -> None:
    """Models that never differ; of two levels of losses the gain is some 600."""
    _, states = play(120, FakeEngine(KIND, level=1.0 + KIND, answer=alike_until(1000)), doubt=1000.0)
    tried = [(10, 0, "first cut"), (20, 0, "groups"), (40, 0, "rejoined"), (80, 0, "first cut")]
    assert told(states) == [*tried, *((t, 0, "no groups") for t in (90, 100, 110, 120))]
    assert states[-1].verdicts[0].wanted == 1004


def test_children_of_a_cluster_that_was_put_together_are_asked_for_no_more_gain() -> None:
    """Two kinds of 30, either with two levels of losses; in the round of the second verdict a window of theirs is over too."""
    engine = FakeEngine(KIND, level=np.tile([1.0, 1.3], 30) + 4 * KIND[:60], answer=alike_until(2))
    _, states = play(130, engine, min_size=15)
    assert told(states, *TRIALS)[:4] == [(20, 0, "groups"), (40, 0, "rejoined"), (90, 0, "groups"), (100, 3, "confirmed")]
    asked = [(v.cluster, v.wanted) for s in states[99:] for v in s.verdicts if v.wanted is not None]
    assert set(asked) == {(3, 4), (4, 4)}


@pytest.mark.parametrize("doubt", [-1.0, -1e-9, float("-inf"), float("nan"), float("inf")])
def test_doubt_is_finite_and_not_negative(doubt: float) -> None:
    with pytest.raises(InputError, match=rf"^doubt must be finite and at least 0, got {doubt}$"):
        FedGWC(doubt=doubt)
    assert FedGWC(doubt=0.0).doubt == 0


def test_clients_that_drift_are_divided_whatever_the_gain() -> None:
    """In the third window, and nobody tries that."""
    _, states = play(30, heard(update=drifting), gain=1e6)
    assert told(states) == [(10, 0, "first cut"), (20, 0, "no groups"), (30, 0, "drift")]
    assert not any(waiting_in(states[-1]))
