"""The package's own rule, as its users meet it: groups are found, others left whole, divisions that do not pay undone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.algorithms.auto.settings import ALLOWED
from fedgwc.algorithms.auto.state import AutoState
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import HoldsBack
from fedgwc.core.types import Rng
from fedgwc.io.state_file import nbytes, pack, unpack
from fedgwc.runs.experiment import load
from fedgwc.runs.loop import run

from ..clients import Clients, begin, counts, play, vector

by_pairs_and_by_client = pytest.mark.parametrize("settings", [{}, {"pairs_up_to": 2}], ids=["by pairs", "by client"])
KIND = np.repeat([0, 1], [30, 30])
FORCED = {"gain": -1000.0, "doubt": 12.0, "contrast": -1.0, "agreement": -1.0, "min_size": 15}  # wherever 15 are cut off
TRIALS = "groups", "moved", "confirmed", "rejoined"


def two_kinds(**more: Any) -> Clients:
    """30 clients at 0 who lose 1, and 30 at 1 who lose 2."""
    settings: dict[str, Any] = {"levels": 1.0 + KIND, "noise": 0.02, "steps": 4, **more}
    return Clients(KIND, **settings)


def one_kind(**more: Any) -> Clients:
    """60 clients who differ no more than their batches do."""
    return Clients(np.zeros(60), **{"noise": 0.03, "steps": 4, **more})


def history(engine: Clients, n_rounds: int, **settings: Any) -> tuple[Auto, list[AutoState]]:
    """Play with everybody in every round, so that a window lasts for 10 rounds."""
    algorithm = Auto(**{"rate": 1.0, "min_size": 8} | settings)
    return algorithm, play(algorithm, engine, begin(algorithm, vector(0), len(engine.at)), n_rounds)


def verdicts(states: Sequence[AutoState], *reasons: str) -> list[tuple[int, int, str]]:
    """(round, cluster, reason) of all verdicts, or of some."""
    every = [(t, v.cluster, v.reason) for t, s in enumerate(states) for v in s.verdicts]
    return [row for row in every if not reasons or row[2] in reasons]


# Groups


@by_pairs_and_by_client
def test_groups_are_found_and_confirmed(settings: dict[str, Any]) -> None:
    """Two windows of 10 rounds divide; those who sat out say after another that it was right."""
    algorithm, states = history(two_kinds(), 65, **settings)
    assert verdicts(states, *TRIALS) == [(20, 0, "groups"), (30, 1, "confirmed")]
    assert algorithm.clustering(states[-1]).labels.tolist() == KIND.tolist()


def test_groups_are_found_from_small_cohorts() -> None:
    """3 of 60 clients a round: a pair meets once in 600 rounds, a client trains in 30 of them."""
    engine = Clients(np.repeat([0, 1], [40, 20]), levels=np.repeat([1, 3], [40, 20]), noise=0.1, steps=5)
    algorithm, states = history(engine, 900, rate=0.05, pairs_up_to=0, second_look=False)
    assert counts(algorithm.clustering(states[-1]).labels) == [40, 20]


@by_pairs_and_by_client
@pytest.mark.parametrize("seed", range(3))
def test_a_homogeneous_federation_is_left_whole(seed: int, settings: dict[str, Any]) -> None:
    algorithm = Auto(rate=0.5, **settings)
    state = begin(algorithm, vector(0), 30)
    for number in range(1, 301):
        state = algorithm.advance(state, Clients(np.zeros(30), noise=0.1, steps=5), Rng(seed, number))
    assert len(state.clusters) == 1
    assert state.clusters[0].attempts > 3


@by_pairs_and_by_client
@pytest.mark.parametrize("seed", range(3))
def test_clients_that_differ_without_groups_stay_together(seed: int, settings: dict[str, Any]) -> None:
    """Everybody has a level of their own, far more than batches differ: a continuum without groups."""
    levels = 10 + np.random.default_rng(seed).standard_normal(30)
    _, states = history(Clients(np.zeros(30), levels=levels, noise=0.1, steps=5), 120, min_size=3, **settings)
    assert states[-1].splits == ()


@by_pairs_and_by_client
def test_clients_that_were_never_there_are_no_group(settings: dict[str, Any]) -> None:
    _, states = history(two_kinds(silent=range(6)), 60, second_look=False, **settings)
    assert states[-1].splits
    assert not any(set(np.flatnonzero(s.labels == y)) <= set(range(6)) for s in states[-1].splits for y in (0, 1))


@by_pairs_and_by_client
def test_private_losses_show_groups_as_well(settings: dict[str, Any]) -> None:
    """Of unequal size, since rewards of equally large kinds are equal; nobody sits out who could not say what is better."""
    kind = np.repeat([0, 1], [40, 20])
    engine = Clients(kind, levels=1.0 + kind, noise=0.02, steps=4, private=True)
    algorithm, states = history(engine, 60, **settings)
    assert algorithm.clustering(states[-1]).labels.tolist() == kind.tolist()
    assert all(not len(algorithm.held_back(s)) for s in states)


# Trials


@by_pairs_and_by_client
def test_a_client_on_the_wrong_side_finds_its_own(settings: dict[str, Any]) -> None:
    """Client 29 loses more like the other kind. It is near the cut, so it sits out, and is asked which model serves it."""
    levels = 1.0 + KIND
    levels[26:33] = [1.4, 1.4, 1.4, 1.6, 1.6, 1.6, 1.6]
    algorithm, states = history(two_kinds(levels=levels), 65, n_max=2, **settings)
    assert isinstance(algorithm, HoldsBack)
    assert states[20].splits[0].labels.tolist() == np.where(np.arange(60) == 29, 1, KIND).tolist()
    assert 29 in algorithm.held_back(states[20])
    trained = Clients(KIND)
    algorithm.round(states[20], trained, Rng(0, 21))
    assert not np.isin(algorithm.held_back(states[20]), trained.trained[0][0]).any()
    assert verdicts(states, *TRIALS) == [(20, 0, "groups"), (30, 2, "moved")]
    assert algorithm.clustering(states[-1]).labels.tolist() == KIND.tolist()


@by_pairs_and_by_client
def test_a_division_that_serves_nobody_is_undone(settings: dict[str, Any]) -> None:
    """They are asked twice in 20 rounds. What was divided is one cluster again, as if nothing had been."""
    algorithm, states = history(one_kind(), 45, **settings, **FORCED)
    assert verdicts(states) == [(10, 0, "first cut"), (20, 0, "groups"), (40, 0, "rejoined")]
    assert [[c.id for c in states[t].clusters] for t in (19, 20, 39, 40)] == [[0], [1, 2], [1, 2], [0]]
    [root] = algorithm.tree(states[40])
    assert root == {"id": 0, "parent": None, "born": 0, "ended": None, "members": list(range(60)), "scores": {}}
    assert algorithm.clustering(states[40]).labels.tolist() == [0] * 60
    assert algorithm.held_back(states[40]).tolist() == []


def test_without_a_second_look_nobody_sits_out_and_nothing_is_undone() -> None:
    algorithm, states = history(one_kind(), 60, **FORCED, second_look=False)
    assert not any(len(algorithm.held_back(s)) for s in states)
    assert len(states[-1].clusters) > 1
    assert "rejoined" not in {reason for _, _, reason in verdicts(states)}


@by_pairs_and_by_client
def test_whoever_saves_and_resumes_changes_nothing(settings: dict[str, Any]) -> None:
    """Before a window ends, before those who sit out are asked, when they have been, and when all is undone."""
    algorithm, states = history(one_kind(), 90, **settings, **FORCED)
    for done in (5, 20, 25, 30, 39, 40, 41, 75):
        again = unpack(pack(states[done]), AutoState)
        assert pack(again) == pack(states[done])
        assert pack(play(algorithm, one_kind(), again, 90, done)[-1]) == pack(states[-1])


@by_pairs_and_by_client
def test_who_joins_during_a_trial_is_there_when_it_ends(settings: dict[str, Any]) -> None:
    algorithm, states = history(one_kind(), 25, **settings, **FORCED)
    wider = algorithm.grow(states[-1], np.array([0, 1]))
    last = play(algorithm, Clients(np.zeros(62), noise=0.03, steps=4), wider, 40, 25)[-1]
    assert [c.members.tolist() for c in last.clusters] == [list(range(62))]


# What it says


def test_verdicts_say_why_in_words() -> None:
    algorithm, states = history(two_kinds(), 30)
    rows = [row for state in states for row in algorithm.observe(state).decisions]
    assert [(row["cluster"], row["divides"]) for row in rows[:2]] == [(0, False), (0, True)]
    assert all(isinstance(row["why"], str) and len(row["why"].split()) > 3 for row in rows)


def test_size_is_warned_of() -> None:
    assert Auto().warnings(4096) == []
    assert "by client" in Auto().warnings(4097)[0]
    assert Auto(min_size=3).warnings(5) == [
        "5 clients are never divided, it takes at least 6 (with algorithm.min_size=3)",
    ]


def test_nothing_grows_with_the_square_of_many_clients() -> None:
    state = begin(Auto(), torch.zeros(1), 200_000)
    after = Auto(rate=1e-4).advance(state, Clients(np.zeros(200_000)), Rng(0, 1))
    assert nbytes(after) < 100 * 200_000


@pytest.mark.parametrize("name", ALLOWED)
def test_impossible_settings_are_refused(name: str) -> None:
    value: Any = float("nan") if name == "gain" else 2.0 if name == "agreement" else -7
    with pytest.raises(InputError, match=f"{name} must be {ALLOWED[name][0].split(' ')[0]}"):
        replace(Auto(), **{name: value})


# The default job


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_the_shifted_clients_are_found_and_served(seed: int, tmp_path: Path) -> None:
    """85 clients with the usual labels and 15 with shifted ones."""
    results = {
        name: run(load("digits", [f"algorithm.name={name}", f"seed={seed}", "data.newcomers=0"]), tmp_path / name)
        for name in ("fedavg", "auto")
    }
    labels = results["auto"].clustering.labels
    truth = np.repeat([0, 1], [85, 15])
    assert labels.max() >= 1
    minorities = [np.bincount(truth[labels == y], minlength=2).min() for y in range(labels.max() + 1)]
    assert sum(minorities) <= 5
    assert results["auto"].last["accuracy"] >= results["fedavg"].last["accuracy"] + 0.08
