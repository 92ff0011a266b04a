"""What data look like is what most nodes say, unless the recipe, the server's own data or an earlier run say it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

from fedgwc.core.errors import InputError
from fedgwc.core.types import Clustering
from fedgwc.flower import Options, client_app
from fedgwc.flower.identity import DataDescription, read_identity
from fedgwc.flower.mailbox import Mailbox
from fedgwc.flower.node_tracker import NodeTracker
from fedgwc.flower.roster import Roster
from fedgwc.flower.server import serve
from fedgwc.runs.experiment import Experiment, experiment
from fedgwc.runs.folder import RunFolder

from .grids import LocalGrid
from .worlds import QUICK

MakeNode = Callable[..., dict[str, str]]
WIDE, FLAT = (3, 4, 4), (1, 4, 4)


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedgwc")


def job(**data: Any) -> Experiment:
    """FedAvg on what nodes bring; the server has no data."""
    tables: dict[str, Any] = {"data": {"name": "arrays", **data}, "model": {"name": "mlp", "hidden": [4]}}
    return experiment({**tables, "rounds": 1, "local": {"steps": 1}, "algorithm": {"name": "fedavg", "rate": 1.0}}, "own")


@pytest.fixture
def node(tmp_path: Path) -> MakeNode:
    """`node("a", FLAT, clients=2)`: the configuration of a node with such data of its own."""

    def build(name: str, shape: tuple[int, ...], clients: int = 2) -> dict[str, str]:
        rng, client = np.random.default_rng(0), np.repeat(np.arange(clients), 6)
        x = rng.random((len(client), *shape), np.float32)
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.arange(len(client)) % 3, client=client)
        return {"data": str(tmp_path / f"{name}.npz"), "name": name}

    return build


class Arriving(LocalGrid):
    """Each look around finds one more node connected, in their order, once the last one has introduced itself."""

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)[: 1 + len(self.seen)]


def grid_of(nodes: dict[int, dict[str, str]], recipe: Experiment, kind: type[LocalGrid] = LocalGrid) -> LocalGrid:
    grid = kind()
    for number, config in nodes.items():
        grid.add(number, client_app(recipe), **config)
    return grid


def served(grid: LocalGrid, recipe: Experiment, out: Path, **options: Any) -> Clustering:
    return serve(recipe, grid, out, Options(**{"min_clients": 4, **QUICK, **options}))


def looks(out: Path) -> tuple[int, ...]:
    return tuple(RunFolder(out).config()["federation"]["shape"])


@pytest.mark.parametrize("kind", [LocalGrid, Arriving])
def test_the_first_node_does_not_decide_for_all_others(
    kind: Any, node: MakeNode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It names more clients than the run waits for, and all others together have fewer."""
    nodes = {1: node("first", FLAT, clients=9), 2: node("a", WIDE), 3: node("b", WIDE)}
    found = served(grid_of(nodes, job(), kind), job(), tmp_path / "r")
    assert len(found.labels) == 4
    assert looks(tmp_path / "r") == WIDE
    assert "shape (3, 4, 4) in 3 classes: node 2, 3; samples of shape (1, 4, 4) in 3 classes: node 1" in caplog.text
    why = "its data are samples of shape (1, 4, 4) in 3 classes, and this run's are samples of shape (3, 4, 4) in 3 classes"
    assert f"node 1 is refused: {why}" in caplog.text
    assert f"the server leaves this node out of the run: {why}" in caplog.text  # at the node


def test_a_node_alone_is_believed_when_nobody_else_has_come_in_time(node: MakeNode, tmp_path: Path) -> None:
    served(grid_of({1: node("a", FLAT, clients=4)}, job()), job(), tmp_path / "r")
    assert looks(tmp_path / "r") == FLAT


def test_clients_of_nodes_that_are_left_out_do_not_count(node: MakeNode, tmp_path: Path) -> None:
    nodes = {1: node("a", WIDE), 2: node("b", WIDE), 3: node("other", FLAT)}
    with pytest.raises(InputError, match=r"4 clients came within 0\.5 s and 6 are needed"):
        served(grid_of(nodes, job()), job(), tmp_path / "r", min_clients=6)


def test_a_tie_is_an_error_that_says_who_said_what(node: MakeNode, tmp_path: Path) -> None:
    nodes = {1: node("a", FLAT, 4), 2: node("b", WIDE), 3: node("c", FLAT), 4: node("d", WIDE)}
    said = r"shape \(1, 4, 4\) in 3 classes: node 1, 3; samples of shape \(3, 4, 4\) in 3 classes: node 2, 4\..*data\.n_classes"
    with pytest.raises(InputError, match=said):
        served(grid_of(nodes, job()), job(), tmp_path / "r")
    assert not (tmp_path / "r" / "config.json").exists()


def test_who_has_left_again_has_no_vote(node: MakeNode) -> None:
    grid = grid_of({1: node("a", FLAT), 2: node("b", FLAT)}, job())
    tracker = NodeTracker(Mailbox(grid, 0.005), Roster(), read_identity)
    tracker.update()
    grid.nodes.clear()
    for number, name in ((3, "c"), (4, "d")):
        grid.add(number, client_app(job()), **node(name, WIDE))
    tracker.update()
    tracker.agree_on_data(4)
    assert tracker.data == DataDescription(WIDE, 3)


def test_samples_that_are_scaled_otherwise_are_others(node: MakeNode, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = {n: node(str(n), FLAT) for n in (1, 2, 3)}
    grid = grid_of(nodes, job(mean=[0.5], std=[0.25]))
    grid.nodes[1] = client_app(job(mean=[0.0], std=[1.0])), grid.nodes[1][1]
    served(grid, job(mean=[0.5], std=[0.25]), tmp_path / "r")
    assert "node 1 is refused: its data are samples of shape (1, 4, 4) in 3 classes scaled by mean (0.0,)" in caplog.text
    assert RunFolder(tmp_path / "r").config()["federation"]["mean"] == [0.5]


@pytest.mark.parametrize("who", ["the recipe", "the server's data", "the run's start"])
def test_what_is_known_is_put_to_no_vote(who: str, node: MakeNode, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recipe = job()
    if who == "the recipe":
        recipe = job(shape=list(WIDE), n_classes=3)
    elif who == "the server's data":
        recipe = job(path=node("servers", WIDE)["data"])
    else:
        served(grid_of({1: node("a", WIDE, 4)}, recipe), recipe, tmp_path / "r")
    nodes = {0: node("a", WIDE, 4), **{n: node(str(n), FLAT) for n in (1, 2, 3)}}
    grid = grid_of(nodes, job())
    served(grid, recipe, tmp_path / "r", wait=60.0)
    assert looks(tmp_path / "r") == WIDE
    assert all(f"node {n} is refused" in caplog.text for n in (1, 2, 3))


def test_a_lie_about_possible_data_costs_the_liar_only(node: MakeNode, tmp_path: Path) -> None:
    """A recipe's clients, which the server can make itself: however early the lie, nobody waits for a vote."""

    def lie(question: Message, reply: Message) -> Message:
        if question.metadata.message_type == "query":
            reply.content.config_records["identity"]["shape"] = [1, 28, 28]
        return reply

    recipe = job(path=node("servers", WIDE, 12)["data"])
    grid = LocalGrid()
    for n in range(3):
        grid.add(n, client_app(recipe), clients=f"{4 * n}-{4 * n + 3}")
    grid.spoil[0] = lie
    assert len(served(grid, recipe, tmp_path / "r", wait=60.0, min_clients=8).labels) == 8


def test_a_look_is_told_in_a_line_however_much_it_holds() -> None:
    channels = 10_000
    assert len(str(DataDescription((channels, 8, 8), 2, (0.5,) * channels, (1.0,) * channels))) < 200
