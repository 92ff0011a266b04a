"""Recipes that no real federation can run are refused before anything is written; data that are elsewhere are no reason to."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedgwc.cli.app import main
from fedgwc.core.errors import InputError
from fedgwc.flower import Options
from fedgwc.flower.deploy.check import check
from fedgwc.flower.deploy.write import Plan, init
from fedgwc.flower.identity import DataDescription
from fedgwc.flower.preflight import server_simulator
from fedgwc.flower.server import serve
from fedgwc.runs.experiment import experiment, recipes
from fedgwc.runs.folder import RunFolder
from tests.conftest import Small

from .grids import LocalGrid
from .real import toml
from .worlds import QUICK, nodes_for

pytestmark = pytest.mark.usefixtures("nobody_listens")

TWENTY = {"name": "digits", "groups": [{"clients": 20}]}
OWN = {"name": "arrays", "n_classes": 3}
MLP = {"name": "mlp", "hidden": [4]}


def recipe(place: Path, **tables: Any) -> str:
    """Twenty clients of digits, or what `tables` say."""
    text = toml({"format": 2, "rounds": 2, "data": TWENTY, "model": MLP, **tables})
    (place / "recipe.toml").write_text(text.replace('{"clients":', "{clients ="))
    return str(place / "recipe.toml")


def wrong(folder: Path) -> dict[str, str]:
    return {f.what: f.detail for f in check(folder) if not f.ok}


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDGWC_DATA", str(tmp_path / "nowhere"))


IMPOSSIBLE = [
    ({"algorithm": {"name": "alone"}}, {}, "alone trains a model per client"),
    ({"algorithm": {"name": "cfl"}}, {"private_losses": True}, "does not go with CFL"),
    ({"algorithm": {"name": "fesem", "k": 4, "rate": 0.1}}, {}, "give cohorts of 3; lower k"),
    ({"algorithm": {"name": "fedgwc", "pairs_up_to": 19}}, {}, "20 clients are more than pairs_up_to=19"),
    ({"data": {"name": "digits", "groups": [{"clients": 2}]}}, {"nodes": 2}, "has 2 clients, and the server waits for"),
    ({}, {"nodes": 21}, "too few for 21 nodes"),
    ({"data": {"name": "digits", "groups": [{"clients": 999}]}}, {}, "999 clients of 12 samples need 11988"),
    ({"data": {"name": "cifar10", "grops": []}}, {}, r"no setting 'grops' \(did you mean groups\?\)"),
    ({"data": {"name": "nosuch"}}, {}, "unknown data set 'nosuch'"),
    ({"model": {"name": "nosuch"}}, {}, "unknown model 'nosuch'"),
    ({"model": {"name": "cnn"}}, {}, r"cnn needs images of at least 16x16, got \(1, 8, 8\)"),
    ({"data": {"name": "cifar10"}, "model": {"name": "mlp", "hiden": [3]}}, {}, r"no setting 'hiden'"),
    ({}, {"own_data": True}, "nodes cannot read data of their own .* no setting 'groups'"),
    ({"data": {**OWN, "test_share": 1.5}}, {"own_data": True}, r"test_share must be in \(0, 1\)"),
    ({"data": {**OWN, "shape": [4]}, "model": {"name": "lenet5"}}, {"own_data": True}, r"lenet5 takes images .* got \(4,\)"),
    ({"data": {**OWN, "shape": [0]}}, {"own_data": True}, r"no samples have the shape \(0,\)"),
    ({"data": {**OWN, "shape": [4], "n_classes": 1}}, {"own_data": True}, "and 1 classes"),
    ({"data": {**OWN, "shape": [3, 8, 8], "mean": [0.5], "std": [1.0]}}, {"own_data": True}, "must be 3 finite numbers"),
]


@pytest.mark.parametrize(("tables", "plan", "said"), IMPOSSIBLE, ids=lambda x: x if isinstance(x, str) else "")
def test_what_cannot_run_is_refused_before_anything_is_written(
    tables: dict[str, Any], plan: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said):
        init(tmp_path / "d", Plan(recipe(tmp_path, **tables), **plan))
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("tables", "said"),
    [(tables, said) for tables, plan, said in IMPOSSIBLE if not plan and "nosuch" not in said],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_the_check_of_a_folder_finds_the_same(tables: dict[str, Any], said: str, tmp_path: Path) -> None:
    init(tmp_path / "d", Plan(recipe(tmp_path)))
    recipe(tmp_path / "d" / "app" / "fedgwc_app", **tables)
    assert re.search(said, wrong(tmp_path / "d")["recipe"])


@pytest.mark.parametrize("name", sorted(recipes()))
def test_every_recipe_that_ships_can_be_set_up_without_its_data(name: str, tmp_path: Path) -> None:
    configs = init(tmp_path / "d", Plan(name, nodes=4))
    if name in ("landmarks", "inaturalist"):  # only the users of the split say how many there are
        assert all('clients="FIRST-LAST"' in config for config in configs)
    else:
        last = {"femnist": 99, "made": 14, "silos": 2}.get(name, 24)
        assert configs[0].startswith(f'clients="0-{last}"')


def test_who_knows_the_clients_says_whom_a_node_serves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = recipe(tmp_path, data={"name": "arrays", "path": "/not/here"})
    with pytest.raises(SystemExit) as end:
        main(["deploy", "init", str(tmp_path / "d"), "--recipe", text])
    assert not end.value.code
    assert "write whom each node serves into its node-config, in place of FIRST-LAST" in capsys.readouterr().err

    def clients() -> tuple[bool, str]:
        return next((f.ok, f.detail) for f in check(tmp_path / "d") if f.what == "clients")

    assert clients() == (False, clients()[1])
    assert "in place of FIRST-LAST" in clients()[1]
    for i, served in ((1, "0-3"), (2, "4-7"), (3, "7-9")):
        path = tmp_path / "d" / "nodes" / f"node-{i}" / "node-config"
        path.write_text(path.read_text().replace("FIRST-LAST", served))
    assert clients() == (False, "served twice: [7]")
    path.write_text(path.read_text().replace("7-9", "8-9"))
    assert clients() == (True, "10 clients on 3 nodes")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("min-clients = 20", "min-clients = 21", "has 20 clients, and the server waits for min-clients = 21"),
        ("min-replies = 3", "min-replies = 4", "a round asks 3 of 20 clients, .* min-replies = 4"),
    ],
)
def test_the_check_sees_what_an_operator_has_changed(old: str, new: str, said: str, tmp_path: Path) -> None:
    init(tmp_path / "d", Plan(recipe(tmp_path)))
    app = tmp_path / "d" / "app" / "pyproject.toml"
    app.write_text(app.read_text().replace(old, new))
    assert re.search(said, wrong(tmp_path / "d")["recipe"])


def test_alone_is_let_pass_where_single_answers_count(tmp_path: Path) -> None:
    init(tmp_path / "d", Plan(recipe(tmp_path)))
    recipe(tmp_path / "d" / "app" / "fedgwc_app", algorithm={"name": "alone"})
    app = tmp_path / "d" / "app" / "pyproject.toml"
    app.write_text(app.read_text().replace("min-replies = 3", "min-replies = 1"))
    assert wrong(tmp_path / "d") == {}


def test_the_server_refuses_the_same_before_it_waits_for_anybody(tmp_path: Path, small: Small) -> None:
    forever = Options(**{**QUICK, "wait": 1e9})
    with pytest.raises(InputError, match="alone trains a model per client"):
        serve(small("alone"), LocalGrid(), tmp_path / "r", forever)
    with pytest.raises(InputError, match="cnn needs images of at least 16x16"):
        serve(replace(small(), tables={**small().tables, "model": {"name": "cnn"}}), LocalGrid(), tmp_path / "r", forever)
    assert not (tmp_path / "r").exists()


def test_a_server_needs_no_gpu_and_no_processes_of_its_own() -> None:
    job = experiment({"data": TWENTY, "model": MLP, "engine": {"device": "cuda", "how": "workers", "dtype": "float64"}})
    simulator = server_simulator(job, DataDescription((1, 8, 8), 10))
    assert (simulator.how, simulator.workers, str(simulator.model.dtype)) == ("one-by-one", 0, "torch.float64")


def test_weights_that_are_elsewhere_are_no_reason_either(tmp_path: Path) -> None:
    weights = {"name": "mobilenet_v2", "weights": "w.pth"}
    init(tmp_path / "d", Plan(recipe(tmp_path, data={"name": "cifar10"}, model=weights)))
    init(tmp_path / "e", Plan(recipe(tmp_path, data={**OWN, "shape": [3, 32, 32]}, model=weights), own_data=True))
    told = {f.what: f for f in check(tmp_path / "d")}["paths"]
    assert told.verdict == "WARNING"
    assert "model.weights = 'w.pth' is relative" in told.detail
    assert wrong(tmp_path / "d") == {}


def test_a_recipe_that_servers_would_refuse_for_its_age_is_refused_here(tmp_path: Path) -> None:
    init(tmp_path / "d", Plan(recipe(tmp_path)))
    for place in (tmp_path, tmp_path / "d" / "app" / "fedgwc_app"):
        recipe(place, format=1, algorithm={"name": "fedgwc"})
    with pytest.raises(InputError, match="fedgwc has meant two things"):
        init(tmp_path / "e", Plan(str(tmp_path / "recipe.toml")))
    assert "fedgwc has meant two things" in wrong(tmp_path / "d")["a file"]


def test_a_recipe_of_bytes(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is not a TOML recipe"):
        init(tmp_path / "d", Plan(str(tmp_path / "recipe.toml")))


def test_a_run_ends_with_its_budget_of_client_updates(small: Small, tmp_path: Path) -> None:
    """Six of twenty clients per round: twelve have trained after two of eight rounds."""
    job, grid = small(evaluate={"budget": {"updates": 12}}), LocalGrid()
    nodes_for(grid, job)
    for _ in ("at once", "resumed"):
        serve(job, grid, tmp_path / "r", Options(min_clients=20, **QUICK))
        assert [row["client_updates"] for row in RunFolder(tmp_path / "r").metrics()] == [6, 12]
