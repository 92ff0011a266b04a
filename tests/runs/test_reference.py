"""What can be set: as the code says it, as `fedgwc list NAME` shows it, and as docs/reference.md has it."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

from fedgwc.algorithms import ALGORITHMS
from fedgwc.cli.app import main
from fedgwc.core.assignments import flatten
from fedgwc.data import DATASETS, PARTITIONS, Group
from fedgwc.models import MODELS
from fedgwc.runs.experiment import TABLES as RECIPE_TABLES
from fedgwc.runs.experiment import experiment, load, recipes
from fedgwc.runs.loop import run
from fedgwc.runs.reference import (
    FROM_DATA,
    TABLES,
    Setting,
    data_settings,
    group_settings,
    partition_settings,
    settings_of,
    type_text,
    value_text,
    with_tables,
)
from fedgwc.runs.tables import COLUMNS

EVERY: dict[str, list[Setting]] = {
    **{name: settings_of(algorithm) for name, algorithm in ALGORITHMS.items()},
    **{f"data {name}": data_settings(build) for name, build in DATASETS.items()},
    **{f"model {name}": settings_of(build, FROM_DATA) for name, build in MODELS.items()},
    **{name: settings_of(table) for name, table in TABLES.items()},
    "group": group_settings(),
    **{f"partition {name}": partition_settings(partition) for name, partition in PARTITIONS.items()},
}


@dataclass(frozen=True)
class Inner:
    a: Annotated[int, "of the inner one"] = 1


@dataclass(frozen=True)
class Outer:
    wanted: Annotated[str, "no default"]
    inner: Inner = Inner()
    plain: float = 1e-5


def test_settings_by_hand() -> None:
    assert settings_of(Outer) == [
        Setting("wanted", "text", "required", "no default"),
        Setting("inner.a", "whole number", "1", "of the inner one"),
        Setting("plain", "number", "1e-5", ""),
    ]
    assert settings_of(Outer("x", Inner(3)), ["plain"])[1:] == [Setting("inner.a", "whole number", "3", "of the inner one")]


def test_types_and_values_by_hand() -> None:
    assert type_text(tuple[Group, ...] | None) == "list of tables"
    assert type_text(tuple[int, ...]) == "list of whole numbers"
    assert value_text((Group(85), Group(15, relabel=1))) == "[{clients=85}, {clients=15, relabel=1}]"
    assert [value_text(v) for v in (True, None, "a", 0.1, 20000.0, ())] == ["true", "–", "a", "0.1", "20000", "[]"]


@pytest.mark.parametrize("name", EVERY)
def test_every_setting_has_a_type_and_a_meaning(name: str) -> None:
    assert [s.name for s in EVERY[name] if not s.type or not s.meaning] == []


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_settings_are_those_that_a_run_records(name: str) -> None:
    recorded = flatten(load("digits", [f"algorithm.name={name}"]).to_json()["algorithm"])
    assert {s.name for s in EVERY[name]} == recorded.keys() - {"name"}
    for s in EVERY[name]:
        assert s.default == value_text(recorded[s.name])


@pytest.fixture
def listed(capsys: pytest.CaptureFixture[str]) -> Callable[[str], tuple[int, str, str]]:
    def show(name: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(["list", name])
        return int(end.value.code or 0), *capsys.readouterr()

    return show


@pytest.mark.parametrize("name", [*ALGORITHMS, *DATASETS, *PARTITIONS, *MODELS, *TABLES])
def test_list_shows_every_setting(name: str, listed: Any) -> None:
    code, out, _ = listed(name)
    assert code == 0
    settings = EVERY.get(name) or EVERY.get(f"data {name}") or EVERY.get(f"partition {name}") or EVERY.get(f"model {name}", [])
    for s in settings:
        line = rf"^{re.escape(s.name)} +{re.escape(s.type)} +{re.escape(s.default)} +{re.escape(s.meaning)} *$"
        assert re.search(line, out, re.M), s


@pytest.mark.parametrize("name", recipes())
def test_list_shows_a_recipe_as_it_stands(name: str, listed: Any) -> None:
    assert recipes()[name].read_text(encoding="utf-8") in listed(name)[1]


def test_list_says_what_else_there_is(listed: Any) -> None:
    assert "Recipe digits" in listed("digits")[1]
    assert "Data set digits" in listed("digits")[1]
    assert "data.groups.0.KEY=VALUE" in listed("mnist")[1]
    assert "local.prox=0.01" in listed("fedprox")[1]
    assert "It has no settings." in listed("cnn")[1]
    assert "model.name is one of mlp, cnn" in listed("model")[1]
    assert listed("fedgcw") == (2, "", "fedgwc: nothing is called 'fedgcw' (did you mean fedgwc?); `fedgwc list` has the names\n")


def test_an_algorithm_without_words_of_its_own(listed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS, "outer", Outer("x"))
    assert listed("outer")[1].startswith("Algorithm outer\n--set outer.KEY=VALUE")


def test_settings_that_are_shown_can_be_set() -> None:
    job = load("digits", ["ifca.server.momentum=0.5", "algorithm.name=ifca", "data.groups.0.relabel=2", "data.seed=3"])
    assert job.algorithm.server.momentum == 0.5  # type: ignore[attr-defined]


def test_one_assignment_may_be_given_as_it_is() -> None:
    assert load("digits", "rounds=3").rounds == 3


# docs/reference.md

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference.md").read_text(encoding="utf-8")
SPLITS: dict[str, Any] = {  # in round 30, into clusters 1 and 2
    "rounds": 40,
    "data": {"name": "digits", "train_size": 40, "test_size": 10, "groups": [{"clients": 22}, {"clients": 9, "relabel": 1}]},
    "model": {"name": "mlp", "hidden": [16]},
    "local": {"steps": 4, "batch": 20, "lr": 0.2},
    "algorithm": {"name": "auto", "rate": 1.0},
    "evaluate": {"every": 20},
}


@pytest.fixture(scope="module")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(experiment(SPLITS, "reference"), tmp_path_factory.mktemp("runs") / "r").folder


def section(title: str) -> str:
    """What stands below a heading, down to the next one."""
    return re.split(r"^#+ ", PAGE.split(f"# {title}\n")[1], maxsplit=1, flags=re.M)[0]


def first_cells(text: str) -> set[str]:
    """The names in the first column of its tables."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| ")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_the_page_is_what_the_code_says() -> None:
    assert with_tables(PAGE) == PAGE


def test_the_page_has_every_key_of_a_recipe() -> None:
    known = first_cells(section("A recipe"))
    assert known == {"format", "rounds", "seed", "about", "recipe", "[ifca]", *(f"[{name}]" for name in RECIPE_TABLES)}


def test_the_page_has_every_column() -> None:
    rows = [line.split("|")[1:3] for line in section("Columns of tables").splitlines() if line.startswith("| ")]
    titles = {title.strip() for head, _ in rows for title in re.sub(r"\(.*?\)", "", head).split(",")}
    assert titles == {"column", "automatic", *(column.title for column in COLUMNS)}
    assert {column.key for column in COLUMNS} == {key for _, cell in rows[1:] for key in re.findall(r"`(\w+)`", cell)}


def test_the_page_has_every_key_and_file(a_run: Path) -> None:
    own = {"mse", "contrast", "drift", "attempts"}
    row = json.loads((a_run / "metrics.jsonl").read_text().splitlines()[-1])
    keys = {re.sub(r"^(validation|newcomers)_.*", r"\1_...", key) for key in row.keys() - own}
    assert keys == first_cells(section("metrics.jsonl"))
    its_page = (DOCS / "algorithms" / "auto.md").read_text(encoding="utf-8").split("## What a run records")[1]
    assert all(f"`{key}`" in its_page for key in own)
    folder = section("The folder of a run")
    assert {path.name + "/" * path.is_dir() for path in a_run.iterdir()} <= {*first_cells(folder), "trace/", "state/", "models/"}
    for name in ("per_client", "clients", "trace/*"):
        for path in a_run.glob(f"{name}.npz"):
            assert all(f"`{key}`" in folder for key in np.load(path))


def test_the_code_on_the_page_runs(a_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a reader would run it: every block by itself, then what it promises."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "digits-auto-1").symlink_to(a_run)
    np.savez(tmp_path / "new_client.npz", x=np.zeros((3, 1, 8, 8), np.float32), y=np.zeros(3, int))
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 6
    for block in blocks:
        names: dict[str, Any] = {}
        exec(compile(textwrap.dedent(block), "reference.md", "exec"), names)  # noqa: S102
        found |= names
    assert found["metrics"][-1]["round"] == 40
    assert found["cluster_of"].keys() == set(range(28))
    assert len(found["worst"]) == 10
    assert len(found["trained"]) == 40 * 28
    assert found["predicted"].shape == found["sure"].shape == (3,)
    assert found["weights"].keys() == found["model"].network.state_dict().keys()


PAGES = [*DOCS.rglob("*.md"), DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md"]


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(DOCS.parent).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
        assert not anchor or anchor in anchors((page.parent / target) if target else page), f"{target}#{anchor}"


def test_the_index_has_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        assert page.name == "README.md" or f"]({page.relative_to(DOCS).as_posix()})" in index
