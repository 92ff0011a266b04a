"""What holds for the groups of every preset, in every round, on clients of two kinds."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.protocols import Grows, NumbersClusters, Observable, SaysWhatItNeeds, UpdatesInPlace, Warns, state_type
from fedgwc.core.settings import override
from fedgwc.core.types import Clustering, Rng
from fedgwc.io.state_file import pack, unpack

from .clients import Clients, begin, column, play, vector

SPLITTING: dict[str, dict[str, Any]] = {  # settings with which 24 clients are divided within 40 rounds
    "cfl": {"eps1": 1.0, "eps2": 1.0, "lengths": "absolute", "seen": 1.0},
    "fedgwc": {"eps": 0.1},
    "fedgwc-release": {"eps": 0.1, "beta": 4.0, "rate": 0.4},
    "auto": {"min_size": 5},
}
KIND = np.repeat([0, 1], [16, 8])  # of equal kinds, rewards would be equal too
ROUNDS = 40
History = tuple[Any, list[Any]]  # an algorithm, and its states


@pytest.fixture(scope="module")
def history() -> Callable[[str], History]:
    """Return the function that plays a preset, once each."""
    made: dict[str, History] = {}

    def of(name: str) -> History:
        if name not in made:
            algorithm = override(ALGORITHMS[name], {"rate": 0.6, **SPLITTING.get(name, {})}, name)
            n_models = getattr(algorithm, "n_models", None)
            start = vector(3) if n_models is None else column(*range(n_models))
            made[name] = algorithm, play(algorithm, clients(), begin(algorithm, start, 24), ROUNDS)
        return made[name]

    return of


def clients(n: int = 24) -> Clients:
    """Two kinds that differ in where they are and in what they lose."""
    kind = np.resize(KIND, n)
    return Clients(6.0 * kind + 0.1 * np.arange(n), reach=0.5, levels=1.0 + 2 * kind, noise=0.1, steps=3)


def members(clustering: Clustering) -> dict[int, list[int]]:
    """Members of each cluster, by its number."""
    return {int(number): np.flatnonzero(clustering.labels == i).tolist() for i, number in enumerate(clustering.numbers)}


every = pytest.mark.parametrize("name", ALGORITHMS)


@every
def test_everybody_is_served_in_every_round(name: str, history: Callable[[str], History]) -> None:
    algorithm, states = history(name)
    for state in states:
        found = algorithm.clustering(state)
        assert found.labels.shape == (24,)
        assert 0 <= found.labels.min() <= found.labels.max() < len(found.models)
        assert len(set(found.numbers.tolist())) == len(found.models)
        if isinstance(algorithm, NumbersClusters):
            numbers = algorithm.cluster_numbers(state)
            assert algorithm.n_clusters(state) == len(found.models)
            assert (found.numbers if numbers is None else numbers).tolist() == found.numbers.tolist()


@pytest.mark.parametrize("name", ["cfl", "fedgwc", "auto"])
def test_groups_are_found(name: str, history: Callable[[str], History]) -> None:
    algorithm, states = history(name)
    found = algorithm.clustering(states[-1])
    assert len(found.models) > 1
    assert all(len(set(KIND[their].tolist())) == 1 for their in members(found).values())


@pytest.mark.parametrize("name", ["cfl", "fedgwc", "fedgwc-release"])
def test_a_number_stays_with_its_clients(name: str, history: Callable[[str], History]) -> None:
    """And is not given again once its cluster has been divided."""
    algorithm, states = history(name)
    known: dict[int, list[int]] = {}
    over: set[int] = set()
    for state in states:
        now = members(algorithm.clustering(state))
        assert not over & now.keys()
        assert all(known.get(number, their) == their for number, their in now.items())
        known |= now
        over |= known.keys() - now.keys()


@every
def test_a_round_leaves_its_state_alone_and_advance_equals_it(name: str, history: Callable[[str], History]) -> None:
    algorithm, states = history(name)
    engine = clients()
    for number, state in enumerate(states[:-1], 1):
        before = pack(state)
        algorithm.round(state, clients(), Rng(7, number))
        assert pack(state) == before
    kind = state_type(algorithm)
    if isinstance(algorithm, UpdatesInPlace):
        reused = unpack(pack(states[0]), kind)
        for number in range(1, ROUNDS + 1):
            reused = algorithm.advance(reused, engine, Rng(7, number))
            assert pack(reused) == pack(states[number])


@every
def test_a_state_is_read_back_by_its_type_and_goes_on_the_same(name: str, history: Callable[[str], History]) -> None:
    algorithm, states = history(name)
    for done in (0, 1, 20, 39):
        again = unpack(pack(states[done]), state_type(algorithm))
        assert pack(again) == pack(states[done])
        assert pack(play(algorithm, clients(), again, done + 1, done)[-1]) == pack(states[done + 1])


def growing(algorithm: Any) -> Grows:
    assert isinstance(algorithm, Grows)
    return algorithm


@every
@pytest.mark.parametrize("done", [0, 1, ROUNDS])
def test_who_joins_is_served_by_the_model_of_its_row(name: str, done: int, history: Callable[[str], History]) -> None:
    algorithm, states = history(name)
    grow, room = growing(algorithm).grow, growing(algorithm).room(states[done])
    assert room is None or room > 1000
    before = algorithm.clustering(states[done])
    rows = np.array([0, len(before.models) - 1, 0])
    grown = grow(states[done], rows)
    after = algorithm.clustering(grown)
    assert after.labels.shape == (27,)
    served, were = after.models[after.labels], before.models[np.r_[before.labels, rows]]
    # Where nobody has chosen yet, all are served by one model, whatever the row.
    chosen = name not in ("ifca", "fesem") or done == ROUNDS
    assert served.tolist() == were.tolist() if chosen else len(served) == 27
    assert len(algorithm.clustering(algorithm.round(grown, clients(27), Rng(7, done + 1))).labels) == 27


@every
def test_what_is_explained_can_be_written_to_files(name: str, history: Callable[[str], History]) -> None:
    algorithm, states = history(name)
    assert isinstance(algorithm, Observable)
    for state in states:
        seen = algorithm.observe(state)
        json.dumps([seen.numbers, list(seen.decisions), algorithm.tree(state)], allow_nan=False)
        for arrays in [*seen.splits.values(), *algorithm.matrices(state).values()]:
            np.savez(io.BytesIO(), **arrays)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SPLITTING)
def test_the_tree_holds_every_cluster_that_ever_was(name: str, history: Callable[[str], History]) -> None:
    algorithm, states = history(name)
    tree = {node["id"]: node for node in algorithm.tree(states[-1])}
    assert sorted(tree) == list(range(len(tree)))
    assert (tree[0]["parent"], tree[0]["born"], tree[0]["members"]) == (None, 0, list(range(24)))
    for node in tree.values():
        children = [n for n in tree.values() if n["parent"] == node["id"]]
        assert bool(children) == (node["ended"] is not None)
        if children:
            assert sorted(k for c in children for k in c["members"]) == node["members"]
            assert {c["born"] for c in children} == {node["ended"]}
    leaves = {n["id"]: n["members"] for n in tree.values() if n["ended"] is None}
    assert leaves == members(algorithm.clustering(states[-1]))


@pytest.mark.parametrize("name", SPLITTING)
def test_a_division_is_news_for_one_round(name: str, history: Callable[[str], History]) -> None:
    algorithm, states = history(name)
    born = [{n["id"] for n in algorithm.tree(state)} for state in states]
    for number in range(1, ROUNDS + 1):
        divided = {node["id"] for node in algorithm.tree(states[number]) if node["ended"] == number}
        assert bool(divided) == (born[number] > born[number - 1])
        if name != "cfl":  # which keeps no evidence
            assert {int(k) for k in algorithm.observe(states[number]).splits} == divided


@every
def test_what_an_algorithm_needs_is_declared(name: str, history: Callable[[str], History]) -> None:
    algorithm, _ = history(name)
    assert isinstance(algorithm, SaysWhatItNeeds)
    wanted = {
        "cfl": "updates",
        "evidence": "updates",
        "fesem": "updates",
        "auto": "rewards",
        "fedgwc": "rewards",
        "fedgwc-release": "rewards",
    }
    assert algorithm.learns_from == wanted.get(name, "sums")
    assert isinstance(algorithm, Warns)
    assert bool(algorithm.warnings(24)) == (name == "given")  # which has no labels
