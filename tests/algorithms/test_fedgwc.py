"""FedGWC as an algorithm: cohorts, triggers, trees and replays, on clients whose losses the test decides."""

from __future__ import annotations

import functools
import json
import math
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch

from fedgwc.algorithms import ALGORITHMS
from fedgwc.algorithms.aggregate import Aggregator, Server
from fedgwc.algorithms.auto.algorithm import FedGWC
from fedgwc.algorithms.auto.learning import learnt
from fedgwc.algorithms.auto.settings import ALLOWED, USED_BY, used
from fedgwc.algorithms.auto.state import Cluster, FedGWCState, recorded_tree
from fedgwc.core.errors import InputError
from fedgwc.core.types import Rng, Updates
from fedgwc.io.state_file import pack
from fedgwc.runs.experiment import experiment, load
from fedgwc.runs.loop import rounds, run
from fedgwc.runs.replay import Trace, read_trace, replay

SMALL: dict[str, Any] = {
    "data": {"name": "digits", "train_size": 14, "test_size": 5, "groups": [{"clients": 16}, {"clients": 4, "relabel": 1}]},
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"steps": 2, "batch": 6, "lr": 0.1},
    "evaluate": {"every": 30},
}
NEVER = 1e-12  # a beta at which all affinities are equal, so that rules that look at them never split
LEVELS = np.repeat([1.0, 2.0, 8.0], [12, 10, 8])  # losses of 30 clients in three groups
GROUP = np.repeat([0, 1, 2], [12, 10, 8])
BELOW_1, ABOVE_1 = float(np.nextafter(1, 0)), float(np.nextafter(1, 2))


class Told:
    """Each client reports its level plus a little noise, and training moves a model half of the way to that level."""

    def __init__(self, levels=LEVELS, noise=0.05, deaf=()):
        self.levels, self.noise, self.deaf = np.asarray(levels, float), noise, deaf
        self.calls = []

    def train(self, clients, models, which, seed):
        self.calls.append((clients, which))
        rng = np.random.default_rng(seed)
        losses = self.levels[clients][:, None] + self.noise * rng.standard_normal((len(clients), 4))
        local = (models[which] + torch.from_numpy(self.levels[clients])[:, None]) / 2
        updates = Updates(clients, local, torch.from_numpy(losses), torch.ones(len(clients)))
        return updates.rows(np.flatnonzero(~np.isin(clients, self.deaf)))


def play(algorithm, engine, n_rounds, state=None, done=0):
    """Every state from the start to round `n_rounds`."""
    state = state or algorithm.init(torch.zeros(2, dtype=torch.float64), len(engine.levels))
    states = [state]
    states += [s for _, s in rounds(algorithm, engine, torch.empty(0), 0, n_rounds, seed=3, state=state, done=done)]
    return states


def leaves(*sizes: int) -> FedGWCState:
    """A federation that has already been split into clusters of these sizes."""
    ends = np.cumsum(sizes)
    clusters = [
        Cluster(i, None, 0, np.arange(end - K, end), Server(torch.zeros(2)), *(np.zeros((K, K), t) for t in (float, int)), *z(K))
        for i, (end, K) in enumerate(zip(ends, sizes, strict=True))
    ]
    return FedGWCState(tuple(clusters), (), np.zeros(ends[-1], np.int64), len(sizes))


def z(K: int):
    return np.zeros(K), np.zeros(K)


# Cohorts


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [6, 3, 3, 2]),
        ({"cohort": "same"}, [9, 9, 4, 2]),
        ({"rate": 1.0}, [60, 25, 4, 2]),
        ({"sampling": "rare-first"}, [6, 3, 3, 2]),
    ],
    ids=["rate", "same", "all", "rare-first"],
)
def test_cohorts_by_cluster(settings, expected):
    """At rate 0.1, 91 clients in clusters of 60, 25, 4 and 2: a tenth of each, at least 3, at most all; or 9 of each."""
    engine = Told(np.ones(91))
    FedGWC(**settings).round(leaves(60, 25, 4, 2), engine, Rng(0, 1))
    [(clients, which)] = engine.calls  # all clusters in one call
    owner = np.repeat([0, 1, 2, 3], [60, 25, 4, 2])
    np.testing.assert_array_equal(which, owner[clients])
    assert np.bincount(which).tolist() == expected
    assert len(np.unique(clients)) == len(clients)


def test_clusters_sample_independently():
    """What one cluster draws does not depend on the others being there."""
    engine = Told(np.ones(80))
    algorithm = FedGWC()
    algorithm.round(leaves(40, 40), engine, Rng(0, 5))
    both = leaves(40, 40)
    algorithm.round(replace(both, clusters=both.clusters[1:]), engine, Rng(0, 5))
    (clients, which), (alone, _) = engine.calls
    np.testing.assert_array_equal(clients[which == 1], alone)


def test_rare_first_sampling_evens_out_participation():
    spread = {}
    for how in ("uniform", "rare-first"):
        counts = play(FedGWC(sampling=how, gain=math.inf), Told(np.ones(50)), 300)[-1].sampled
        assert counts.sum() == 300 * 5
        spread[how] = counts.std()
    assert spread["rare-first"] < 1 < 3 < spread["uniform"]


def test_only_those_who_answered_are_counted():
    states = play(FedGWC(rate=1.0), Told(deaf=(4, 7)), 3)
    assert states[-1].sampled.tolist() == [0 if k in (4, 7) else 3 for k in range(30)]
    assert states[-1].clusters[0].visits[4].sum() == 0


# When to try a split


def attempts_by_round(states):
    """The rounds in which an attempt was made, while there is one cluster."""
    counts = [s.clusters[0].attempts for s in states]
    return [t for t in range(1, len(counts)) if counts[t] > counts[t - 1]]


def test_visits_trigger_at_10_20_40_visits():
    """With everybody in every round all pairs are equally old."""
    assert attempts_by_round(play(FedGWC(rate=1.0, when="visits", visits=10, beta=NEVER), Told(), 90)) == [10, 20, 40, 80]


def test_visits_trigger_when_the_median_pair_is_old_enough():
    states = play(FedGWC(rate=0.3, when="visits", visits=2, beta=NEVER), Told(), 150)
    made = attempts_by_round(states)
    assert len(made) >= 2
    off = ~np.eye(30, dtype=bool)
    for attempt, t in enumerate(made):
        wanted = 2 * 2**attempt
        assert (states[t].clusters[0].visits[off] >= wanted).mean() >= 0.5
        assert (states[t - 1].clusters[0].visits[off] >= wanted).mean() < 0.5


@pytest.mark.parametrize(
    ("settings", "mse"),
    [
        ({}, 0.05207 / 16),  # 3 x 3 entries of 4 x 4: the sum over k of 3 (0.1 r_k)^2 with r = (0.6065, 1, 0.6065)
        ({"mse_over": "touched"}, 0.05207 / 9),
        ({"mse_over": "touched", "mse_average": True}, 0.9 * 1 + 0.1 * 0.05207 / 9),
        ({"mse_over": "touched", "step": "cohort"}, 0.75**2 * 5.207 / 9),  # 3 of 4 clients
    ],
    ids=["matrix", "touched", "average", "cohort"],
)
def test_mse_by_hand(settings, mse):
    losses = torch.tensor([[1.0], [2.0], [3.0]])
    updates = Updates(np.array([0, 1, 3]), torch.zeros(3, 2), losses, torch.ones(3))
    algorithm = FedGWC(**{"step": "constant", "when": "mse"} | settings)
    [taught] = learnt(algorithm, leaves(4).clusters, updates, np.zeros(3, int), Rng(0, 1))
    assert taught.mse == pytest.approx(mse, rel=1e-3)
    assert taught.P[2].tolist() == taught.P[:, 2].tolist() == [0.0] * 4  # client 2 was not there
    assert taught.visits.tolist() == [[1, 1, 0, 1], [1, 1, 0, 1], [0, 0, 0, 0], [1, 1, 0, 1]]


@pytest.mark.parametrize(
    ("score", "strict", "splits"), [(1.0, False, True), (1.0, True, False), (ABOVE_1, False, False), (BELOW_1, True, True)]
)
def test_a_davies_bouldin_of_1_splits_unless_strict(score, strict, splits, monkeypatch):
    """Only above 1 is too much; strictly, 1 is too much as well."""
    monkeypatch.setattr("fedgwc.algorithms.fedgwc.interactions.davies_bouldin", lambda points, labels: score)
    algorithm = FedGWC(rate=1.0, when="visits", visits=5, strict=strict)
    assert (len(play(algorithm, Told(), 5)[-1].clusters) > 1) == splits


def test_mse_trigger_tries_as_soon_as_the_mse_is_below_eps():
    """Without noise everybody's reward is fixed and P nears it as 0.9^t: mse_t = 0.01 * 0.81^(t-1) * mean of r^2."""
    algorithm = FedGWC(rate=1.0, when="mse", step="constant", eps=1e-3, beta=NEVER)
    states = play(algorithm, Told([1.0, 2.0, 3.0] * 10, noise=0.0), 20)
    mse = [s.clusters[0].mse for s in states[1:]]
    # everybody present: 10 losses each of 1, 2, 3 have the mean 2 and the variance 20/29; r = exp(-29/40) twice and 1
    squares = (2 * math.exp(-29 / 20) + 1) / 3
    np.testing.assert_allclose(mse, [0.01 * 0.81**t * squares for t in range(20)], rtol=1e-6)
    first = next(t for t, m in enumerate(mse, 1) if m < 1e-3)
    assert attempts_by_round(states) == list(range(first, 21))  # and then again in every round


def test_patience_waits_for_a_sweep_through_the_cluster():
    """30 clients, 3 a round: ten calm rounds in a row; a failure sends the mse back to 1."""
    patient = FedGWC(when="mse", eps=2.0, patience="sweep", beta=NEVER)
    assert attempts_by_round(play(patient, Told(), 35)) == [10, 20, 30]
    resets = replace(patient, eps=0.9, mse_over="touched", mse_average=True, step="cohort", failure_resets_mse=True)
    states = play(resets, Told(), 40)
    first = attempts_by_round(states)[0]
    assert states[first].clusters[0].mse == 1.0
    below = [t for t, s in enumerate(states) if t and s.clusters[0].mse < 0.9]
    assert first == below[0] + 9


def test_a_split_that_min_size_forbids_is_not_tried():
    states = play(FedGWC(rate=1.0, min_size=16), Told(), 25)
    assert states[-1].clusters[0].attempts == 0
    assert len(states[-1].clusters) == 1


# Trees


def grown(**settings):
    """Three groups, found one after the other."""
    algorithm = FedGWC(**{"rate": 0.5, "when": "visits", "visits": 10, "n_max": 2} | settings)
    return algorithm, play(algorithm, Told(), 120)


@pytest.mark.parametrize("after_split", ["reset", "keep"])
def test_groups_are_found_and_the_tree_tells_how(after_split):
    algorithm, states = grown(after_split=after_split)
    state = states[-1]
    labels = algorithm.clustering(state).labels
    for y in np.unique(labels):  # no leaf mixes groups that are apart in loss
        assert len(np.unique(GROUP[labels == y])) == 1
    tree = {node["id"]: node for node in algorithm.tree(state)}
    assert sorted(tree) == list(range(state.n_born))
    assert (tree[0]["parent"], tree[0]["born"], tree[0]["scores"]) == (None, 0, {})
    for node in tree.values():
        children = [n for n in tree.values() if n["parent"] == node["id"]]
        assert bool(children) == (node["ended"] is not None)
        if children:
            assert sorted(k for c in children for k in c["members"]) == node["members"]
            assert all(len(c["members"]) >= algorithm.min_size for c in children)
            assert {c["born"] for c in children} == {node["ended"]}
            assert all(c["scores"] == children[0]["scores"] and min(c["scores"].values()) <= 1 for c in children)
            assert node["ended"] > node["born"]
    alive = [n for n in tree.values() if n["ended"] is None]
    assert sorted(k for n in alive for k in n["members"]) == list(range(30))
    assert [n["id"] for n in alive] == sorted(algorithm.clustering(state).names.tolist())
    json.dumps(list(tree.values()))


def split_round(states):
    return next(t for t, s in enumerate(states) if s.splits)


def test_children_inherit_the_model_and_its_momentum():
    """At the split they hold what the cluster would have held; after it, each goes on from there."""
    aggregator = Aggregator(momentum=0.5)
    _, states = grown(aggregator=aggregator)
    t = split_round(states)
    whole = play(FedGWC(rate=0.5, when="visits", beta=NEVER, aggregator=aggregator), Told(), t)[-1].clusters[0].server
    assert len(states[t].clusters) > 1
    for child in states[t].clusters:
        assert torch.equal(child.server.theta, whole.theta)
        assert torch.equal(child.server.velocity, whole.velocity)
        assert (whole.velocity != 0).all()


def test_p_after_a_split_is_reset_or_the_submatrix():
    for after_split, start in (("reset", "zero"), ("reset", "1/K^2"), ("keep", "zero")):
        _, states = grown(after_split=after_split, start=start)
        t = split_round(states)
        [split] = states[t].splits
        children = [c for c in states[t].clusters if c.parent == split.id]
        assert len(children) == 2
        before = states[t - 1].clusters[0]
        for child in children:
            at = np.searchsorted(split.members, child.members)
            K = len(at)
            if after_split == "keep":
                np.testing.assert_array_equal(child.P, split.P[np.ix_(at, at)])
                assert (child.visits >= before.visits[np.ix_(at, at)]).all()
                assert (child.gamma > 0).all()
            else:
                np.testing.assert_array_equal(child.P, np.full((K, K), 1 / K**2 if start == "1/K^2" else 0.0))
                assert not child.visits.any()
                assert not child.gamma.any()
            assert (child.mse, child.calm, child.attempts) == (1.0, 0, 0)


def test_a_split_is_news_for_one_round():
    algorithm, states = grown()
    t = split_round(states)
    [(name, arrays)] = algorithm.events(states[t]).items()
    assert name == "0"
    np.testing.assert_array_equal(arrays["members"], np.arange(30))
    assert arrays["P"].shape == (30, 30)
    assert algorithm.events(states[t + 1]) == {}
    ends = algorithm.matrices(states[-1])
    assert set(ends) == {f"end-{c.id}" for c in states[-1].clusters}
    assert sum(len(a["members"]) for a in ends.values()) == 30


def test_tiny_clusters_go_on_training_and_learn_nothing_about_interactions():
    state = replace(leaves(2, 28), sampled=np.zeros(30, np.int64))
    states = play(FedGWC(visits=1, min_size=1), Told(), 40, state=state)
    [tiny] = [c for c in states[-1].clusters if c.id == 0]
    assert tiny.server.theta.tolist() == pytest.approx([1.0, 1.0], rel=1e-6)  # its clients' level
    assert not tiny.P.any()
    assert not tiny.visits.any()
    assert (tiny.mse, tiny.attempts) == (1.0, 0)
    assert states[-1].sampled[:2].tolist() == [40, 40]


def test_two_answers_train_the_model_and_leave_p_alone():
    state = play(FedGWC(rate=1.0), Told(np.ones(5), deaf=(0, 1, 2)), 1)[-1]
    assert state.clusters[0].server.theta.tolist() == [0.5, 0.5]
    assert not state.clusters[0].P.any()


# Weights


def test_gamma_is_the_mean_reward_and_its_square_the_mean_square():
    """With everybody there, losses 1, 2, 3 without noise give the rewards 0.6065, 1, 0.6065 in every round."""
    state = play(FedGWC(rate=1.0), Told([1.0, 2.0, 3.0], noise=0.0), 7)[-1]
    r = np.array([math.exp(-0.5), 1.0, math.exp(-0.5)])
    np.testing.assert_allclose(state.clusters[0].gamma, r, rtol=1e-12)
    np.testing.assert_allclose(state.clusters[0].gamma2, r**2, rtol=1e-12)
    np.testing.assert_allclose(state.clusters[0].P, np.repeat(r[:, None], 3, 1), rtol=1e-12)


def test_loss_sampling_depends_on_seed_and_round_only():
    algorithm = FedGWC(loss_samples=50)
    one, two = (play(algorithm, Told(), 5)[-1].clusters[0].P for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert (one != play(replace(algorithm, loss_samples=0), Told(), 5)[-1].clusters[0].P).any()


@pytest.mark.parametrize(
    "settings",
    [
        {"rate": 0.0},
        {"beta": 0.0},
        {"alpha": 1.5},
        {"eps": 0.0},
        {"n_max": 1},
        {"min_size": 0},
        {"visits": 0},
        {"loss_samples": -1},
    ],
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        FedGWC(**settings)


RULES = {
    "windows": FedGWC(rate=1.0, min_size=2),
    "windows, no sides": FedGWC(rate=1.0, min_size=2, sides=False, contrast=-1.0, agreement=-1.0, gain=-1e9),
    "visits": FedGWC(rate=0.3, when="visits", visits=1, min_size=2),
    "mse": replace(ALGORITHMS["fedgwc"], rate=0.3, eps=1e-2),
    "mse, cohort": replace(ALGORITHMS["fedgwc-release"], rate=0.3, eps=0.9),
}


def another(algorithm, name):
    """An allowed value of a setting that is not its own."""
    value, hint = getattr(algorithm, name), get_type_hints(FedGWC)[name]
    if get_origin(hint) is Literal:
        return next(v for v in get_args(hint) if v != value)
    return not value if isinstance(value, bool) else 0.37 * value if isinstance(value, float) else value + 1


@pytest.mark.parametrize("rule", RULES)
def test_idle_settings_have_no_effect(rule):
    algorithm = RULES[rule]
    others = {name: another(algorithm, name) for name in sorted(algorithm.idle)}
    own, other = (play(a, Told(), 45)[-1] for a in (algorithm, replace(algorithm, **others)))
    assert len(own.clusters) > 1
    assert len(others) > 2
    assert recorded_tree(own) == recorded_tree(other)
    assert all(torch.equal(c.server.theta, d.server.theta) for c, d in zip(own.clusters, other.clusters, strict=True))


def test_every_setting_of_the_table_is_one():
    assert set(USED_BY) | set(ALLOWED) <= {f.name for f in fields(FedGWC)}
    assert set().union(*USED_BY.values()) <= set(get_args(get_type_hints(FedGWC)["when"]))


def test_settings_that_a_rule_ignores_make_no_other_method():
    flat = {"algorithm.when": "windows", "algorithm.gain": 2.0, "algorithm.beta": 0.5, "data.beta": 1}
    assert used(flat) == {k: v for k, v in flat.items() if k != "algorithm.beta"}
    assert used({**flat, "algorithm.when": "mse"}).keys() == flat.keys() - {"algorithm.gain"}
    other = {"algorithm.name": "my-own", "algorithm.beta": 0.5}  # which means something else there
    assert used(other) == other


@pytest.mark.parametrize(
    ("name", "key", "users"),
    [
        ("auto", "beta", "; fedgwc, fedgwc-release would: choose one by algorithm.name"),
        ("auto", "alpha", "; fedgwc would: choose one by algorithm.name"),
        ("fedgwc", "gain", "; fedgwc would: choose one by algorithm.name"),
        ("fedgwc-release", "visits", "; fedgwc would: choose one by algorithm.name"),
    ],
)
def test_who_sets_what_has_no_effect_is_told(name, key, users):
    value = another(ALGORITHMS[name], key)
    for setting in (f"algorithm.{key}={value}", f"{name}.{key}={value}"):
        with pytest.raises(InputError, match=f"^{name} makes no use of {key} beside its other settings{users}$"):
            load("digits", [f"algorithm.name={name}", setting])
    recorded = load("digits", [f"algorithm.name={name}"]).to_json()
    assert experiment(recorded).algorithm == ALGORITHMS[name]  # a run's own record lists them all


def test_the_page_has_a_dash_where_a_setting_has_no_effect():
    """Of the default, these two decide what is recorded as the mse, and nothing else."""
    page = (
        (Path(__file__).parents[2] / "docs" / "algorithms" / "fedgwc.md").read_text().split("## Settings")[1].split("## Where")[0]
    )
    rows = [[cell.strip() for cell in line.split("|")[1:5]] for line in page.splitlines() if line.startswith("| `")]
    assert {row[0].strip("`") for row in rows} == {f.name for f in fields(FedGWC)}
    for column, name in enumerate(("auto", "fedgwc", "fedgwc-release"), 1):
        dashes = {row[0].strip("`") for row in rows if row[column] == "–"}
        assert dashes - ALGORITHMS[name].idle <= {"mse_over", "mse_average"}
        assert ALGORITHMS[name].idle <= dashes


def test_one_setting_may_bring_another_into_use():
    rule = ["algorithm.when=visits", "algorithm.beta=2.0", "algorithm.step=constant", "algorithm.alpha=0.2"]
    assert load("digits", ["algorithm.name=fedgwc", *rule]).algorithm.idle.isdisjoint({"beta", "alpha", "visits"})


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_preset_runs(name, small):
    job = small(name)
    federation = job.federation()
    engine = job.simulator(federation)
    start = job.initial(federation, engine)
    *_, (number, state) = rounds(job.algorithm, engine, start, federation.n_clients, 4)
    clustering = job.algorithm.clustering(state)
    assert number == 4
    assert torch.isfinite(clustering.models).all()
    assert (clustering.models != start.reshape(-1, clustering.models.shape[1])).any()
    assert set(clustering.labels) <= set(range(len(clustering.models)))
    assert clustering.labels.shape == (federation.n_clients,)


# Replays

OWN = {
    "windows": ("auto", {"visits": 1, "min_size": 2, "contrast": -1.0, "agreement": -1.0, "gain": -1e9}),
    "visits": ("auto", {"when": "visits", "visits": 1, "min_size": 2}),
    "keep": ("auto", {"when": "visits", "visits": 1, "min_size": 2, "after_split": "keep"}),
    "loss samples": ("auto", {"when": "visits", "visits": 1, "min_size": 2, "loss_samples": 20}),
    "paper": ("fedgwc", {"eps": 1e-3}),
    "release": ("fedgwc-release", {"eps": 0.9, "beta": 4.0}),
}
UNTIL = {"windows": 110, "paper": 150}  # rounds in which these have split; the others need 24


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Runs of 20 clients that split, each made once, as (job, folder)."""
    folder = tmp_path_factory.mktemp("recorded")

    @functools.cache
    def build(case: str):
        name, settings = OWN[case]
        # One by one: cohorts of ever new shapes are not worth recording a stacked step for.
        tables = {**SMALL, "rounds": UNTIL.get(case, 40), "seed": 2, "engine": {"how": "one-by-one", "threads": 1}}
        job = experiment({**tables, "algorithm": {"name": name, "rate": 0.3, **settings}}, "recorded")
        run(job, folder / case)
        return job, folder / case

    return build


@pytest.mark.parametrize("case", OWN)
def test_replaying_a_run_under_its_own_settings_repeats_it(case, recorded):
    job, folder = recorded(case)
    state = replay(read_trace(folder), job.algorithm, seed=job.seed)
    tree = json.loads((folder / "splits" / "tree.json").read_text())
    assert json.loads(json.dumps(job.algorithm.tree(state))) == tree
    assert len(tree) > 1
    for cluster in state.clusters:
        with np.load(folder / "splits" / f"end-{cluster.id}.npz") as end:
            np.testing.assert_array_equal(cluster.P, end["P"])
            np.testing.assert_array_equal(cluster.visits, end["visits"])
            np.testing.assert_array_equal(cluster.gamma, end["gamma"])


def reward_of(client, cohort, losses, sizes, normalise):
    """Eq. 1, one number at a time."""

    def reward(k):
        total = 0.0
        for s in range(losses.shape[1]):
            column = [float(x) for x in losses[:, s]]
            weights = [1.0] * len(cohort) if sizes is None else [float(sizes[j]) for j in cohort]
            mean = sum(w * x for w, x in zip(weights, column, strict=True)) / sum(weights)
            spread = sum(w * (x - mean) ** 2 for w, x in zip(weights, column, strict=True))
            variance = spread / (len(cohort) - 1) if sizes is None else spread / sum(weights) + 1e-16
            total += math.exp(-((column[k] - mean) ** 2) / (2 * variance))
        return total / losses.shape[1]

    return reward(client) / (sum(reward(k) for k in range(len(cohort))) if normalise else 1.0)


def plain_loop(trace, algorithm: FedGWC, tree):
    """Eq. 1 and 3 over rounds and pairs, within the clusters that `tree` says there were."""
    sizes = None if algorithm.statistics == "plain" else np.ones(trace.n_clients) if trace.sizes is None else trace.sizes
    P, seen = {}, {}
    for t in range(1, len(trace.ids) + 1):
        for node in tree:
            if not node["born"] < t <= (node["ended"] or len(trace.ids)):
                continue
            members = set(node["members"])
            if t == node["born"] + 1 and (algorithm.after_split == "reset" or node["parent"] is None):
                for k in members:
                    for j in members:
                        P[k, j], seen[k, j] = 1 / len(members) ** 2 if algorithm.start == "1/K^2" else 0.0, 0
            rows = [i for i, k in enumerate(trace.ids[t - 1]) if int(k) in members]
            if len(rows) < 3:
                continue
            cohort = [int(trace.ids[t - 1][i]) for i in rows]
            losses = trace.losses[t - 1][rows]
            for i, k in enumerate(cohort):
                omega = reward_of(i, cohort, losses, sizes, algorithm.normalise)
                for j in cohort:
                    seen[k, j] += 1
                    a = {"1/n": 1 / seen[k, j], "constant": algorithm.alpha, "cohort": len(cohort) / len(members)}[algorithm.step]
                    P[k, j] = (1 - a) * P[k, j] + a * omega
    return P


@pytest.mark.parametrize("when", ["windows", "visits"])
def test_a_replay_that_nobody_keeps_states_of_copies_nothing(when) -> None:
    rng = np.random.default_rng(0)
    ids = np.array([np.sort(rng.choice(12, 6, replace=False)) for _ in range(30)])
    trace, algorithm = Trace(ids, rng.random((30, 6, 4)), 12), FedGWC(when=when)
    kept: list[FedGWCState] = []
    seen: list[object] = []
    ends = [
        replay(trace, algorithm, watch=lambda _, state: kept.append(state)),
        replay(trace, algorithm, watch=lambda _, state: seen.append(state.clusters[0].P), reuse=True),
        replay(trace, algorithm),
    ]
    assert pack(ends[0]) == pack(ends[1]) == pack(ends[2])
    assert len({id(s.clusters[0].P) for s in kept}) == 30
    assert len({id(P) for P in seen}) < 10  # anew where a window ends or a cluster is divided


def assert_same_as_the_loop(trace, algorithm: FedGWC) -> FedGWCState:
    state = replay(trace, algorithm)
    P = plain_loop(trace, algorithm, algorithm.tree(state))
    for c in state.clusters:
        expected = np.array([[P[k, j] for j in c.members.tolist()] for k in c.members.tolist()])
        np.testing.assert_allclose(c.P, expected, rtol=0, atol=1e-10)
    return state


@pytest.mark.parametrize("case", [c for c in OWN if c not in ("loss samples", "windows")])
def test_p_is_what_a_plain_loop_over_rounds_and_pairs_gives(case, recorded):
    job, folder = recorded(case)
    assert len(assert_same_as_the_loop(read_trace(folder), job.algorithm).clusters) > 1


TRACES = sorted(Path(os.environ["FEDGWC_TRACES"]).glob("*.npz")) if "FEDGWC_TRACES" in os.environ else []


@pytest.mark.slow
@pytest.mark.skipif(not TRACES, reason="set FEDGWC_TRACES to a folder of npz traces to replay them against a plain loop")
@pytest.mark.parametrize("algorithm", [FedGWC(when="visits"), ALGORITHMS["fedgwc"], ALGORITHMS["fedgwc-release"]])
@pytest.mark.parametrize("path", TRACES, ids=lambda p: p.stem)
def test_p_on_long_recorded_traces(path, algorithm):
    trace = read_trace(path)
    assert_same_as_the_loop(replace(trace, ids=trace.ids[:2500], losses=trace.losses[:2500]), algorithm)


# The default job


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_the_shifted_clients_are_found_and_served(seed, tmp_path):
    """85 clients with the usual labels and 15 with shifted ones."""
    results = {
        name: run(load("digits", [f"algorithm.name={name}", f"seed={seed}"]), tmp_path / name) for name in ("fedavg", "auto")
    }
    labels = results["auto"].clustering.labels
    truth = np.repeat([0, 1], [85, 15])
    assert labels.max() >= 1
    minorities = [np.bincount(truth[labels == y], minlength=2).min() for y in range(labels.max() + 1)]
    assert sum(minorities) <= 5
    assert results["auto"].last["accuracy"] >= results["fedavg"].last["accuracy"] + 0.08
