"""Replays: recorded losses through the rule that ran repeat the run, and nothing is copied that nobody keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.settings import override
from fedgwc.io.state_file import pack
from fedgwc.runs.loop import run
from fedgwc.runs.replay import Trace, can_replay, clusters_of, read_trace, replay
from tests.conftest import Small

AT_ALL_COSTS = {"gain": -1e9, "agreement": -1.0, "contrast": -1.0, "doubt": 0.0, "second_look": False}
CASES: dict[str, tuple[int, dict[str, Any]]] = {  # rounds and settings within which 20 clients are divided
    "fedgwc": (30, {"eps": 0.3}),
    "fedgwc-release": (30, {"eps": 0.1, "beta": 4.0}),
    "auto": (44, {"rate": 0.5, **AT_ALL_COSTS}),
}
REPLAYABLE = [name for name, algorithm in ALGORITHMS.items() if can_replay(algorithm)]


def test_what_follows_from_losses_can_be_replayed() -> None:
    assert set(REPLAYABLE) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_replaying_a_run_under_its_own_settings_repeats_it(name: str, small: Small, tmp_path: Path) -> None:
    n_rounds, settings = CASES[name]
    # One by one: cohorts of ever new shapes are not worth recording a stacked step for.
    how = {"how": "one-by-one", "threads": 1}
    job = small(name, rounds=n_rounds, seed=2, engine=how, algorithm=settings, evaluate={"every": n_rounds})
    run(job, tmp_path / "r")
    algorithm: Any = job.algorithm
    state = replay(read_trace(tmp_path / "r"), algorithm, seed=job.seed)
    tree = json.loads((tmp_path / "r" / "splits" / "tree.json").read_text())
    assert json.loads(json.dumps(algorithm.tree(state))) == tree
    assert len(tree) > 1
    for cluster in clusters_of(state):
        with np.load(tmp_path / "r" / "splits" / f"end-{cluster.id}.npz") as end:
            for key in ("P", "visits", "gamma"):
                np.testing.assert_array_equal(getattr(cluster, key), end[key])


@pytest.mark.parametrize("name", CASES)
def test_a_replay_that_nobody_keeps_states_of_copies_nothing(name: str) -> None:
    rng = np.random.default_rng(0)
    ids = np.array([np.sort(rng.choice(12, 6, replace=False)) for _ in range(30)])
    trace = Trace(ids, rng.random((30, 6, 4)), 12)
    algorithm = override(ALGORITHMS[name], {"rate": 0.5}, name)
    kept: list[Any] = []
    seen: list[Any] = []
    ends = [
        replay(trace, algorithm, watch=lambda _, state: kept.append(state)),
        replay(trace, algorithm, watch=lambda _, state: seen.append(clusters_of(state)[0].P), reuse=True),
        replay(trace, algorithm),
    ]
    assert pack(ends[0]) == pack(ends[1]) == pack(ends[2])
    assert len({id(clusters_of(state)[0].P) for state in kept}) == 30
    assert len({id(P) for P in seen}) < 10  # anew where a window ends or a cluster is divided
