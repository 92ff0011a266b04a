"""Runs and the rows that they belong to."""

from __future__ import annotations

import copy
import csv
import json
from pathlib import Path
from typing import Any

import pytest

from fedgwc.reproduce.effort import effort_table, reached
from fedgwc.reproduce.lines import belongs, changes, lines_of
from fedgwc.reproduce.outcome import Outcome
from fedgwc.reproduce.page import first_shown, needs, number_of, numbers, pictures_of
from fedgwc.reproduce.paper import ACCURACIES, METRICS, OURS, Entry, Row, all_rows, paper
from fedgwc.reproduce.plan import plan, settings_today
from fedgwc.reproduce.published import differences, published
from fedgwc.reproduce.render import accuracy_table, csv_text, score_table

TABLES = ["clustering", "large-scale", "heterogeneity", "domains", "beta", "k", "aggregators"]


def outcome(
    row: Row, seed: int = 0, algorithm: str = "", root: str = "here", change: dict[str, Any] | None = None, **last: float
) -> Outcome:
    """As if the row had been run with today's settings, or others."""
    name = algorithm or row.algorithm
    tables = copy.deepcopy(settings_today(row.recipe, name, row.set)) | {"seed": seed}
    tables["algorithm"] |= change or {}
    tables["data"]["root"] = root
    return Outcome(Path(f"{name}-{seed}"), {"experiment": tables}, {"round": tables["rounds"], **last}, [])


def test_equal_rows_share_a_run_and_others_do_not() -> None:
    runs = plan(all_rows(), ["fedgwc"], 1, "full")
    assert len({r.name for r in runs}) == len(runs)
    settings = [json.dumps(r.job.to_json(), sort_keys=True, default=list) for r in runs]
    assert len(set(settings)) == len(runs)
    names = {r.name for r in runs}
    assert {"cifar100-fedgwc-seed0", "cifar100-ifca-k=2-seed0", "cifar100-fedgwc-momentum=0.9-seed0"} <= names
    assert "cifar100-fedgwc-beta=0.5-seed0" not in names  # the recipe's own beta


@pytest.mark.parametrize("name", [*(f"table-{name}" for name in TABLES), "fig-accuracy"])
def test_a_run_belongs_to_its_row_alone(name: str) -> None:
    rows = paper()[name].rows
    for row in rows:
        own = outcome(row, algorithm=row.presets[0])
        assert [r for r in rows if belongs(own, r, r.presets[0])] == [row]


def test_our_own_rule_has_no_beta() -> None:
    """Its runs stand beside the row of the recipe's own beta only, and no beta is run for it."""
    rows = paper()["table-beta"].rows
    cifar = [r for r in rows if r.recipe == "cifar100"]
    assert [r.set for r in cifar if belongs(outcome(r, algorithm=OURS), r, OURS)] == [("algorithm.beta=0.5",)]
    assert [r.name for r in plan(cifar, [OURS], 1, "full")] == ["cifar100-auto-seed0"]
    assert len(plan(cifar, ["fedgwc"], 1, "full")) == 5


CLUSTERING = paper()["table-clustering"]
FEDGWC = next(r for r in CLUSTERING.rows if (r.recipe, r.algorithm) == ("cifar100", "fedgwc"))
ONLY = Entry("", "", (FEDGWC,))


def test_the_verdict_goes_by_the_metric_the_paper_names_and_the_other_is_shown() -> None:
    """53.0, 53.4, 53.8 have the paper's mean; weighted they are 6 points off."""
    runs = [
        outcome(FEDGWC, seed, name, balanced_accuracy=x, accuracy=0.6, weighted_accuracy=0.594, clusters=4, was=0.1, wadb=2.4)
        for seed, x in enumerate([0.530, 0.534, 0.538])
        for name in ("fedgwc", "auto")
    ]
    *lines, own = lines_of(ONLY, runs, needs)
    assert {str(own.verdict(metric)) for metric in own.row.values} == {"our own rule"}  # however near its values are
    [row] = accuracy_table(lines).rows
    assert row[4:7] == ["53.4 [52.4, 54.4] (+0.0)", "60.0 [60.0, 60.0] (+6.6)", "59.4 [59.4, 59.4] (+6.0)"]
    assert row[7:] == ["reproduced", "not reproduced"]
    assert [r[-1] for r in score_table(lines).rows] == ["reproduced"] * 3
    rows = list(csv.DictReader(csv_text("t", lines).splitlines()))
    assert {r["metric"]: r["verdict"] for r in rows} == {
        "clusters": "reproduced",
        "balanced_accuracy": "reproduced",
        "accuracy": "not reproduced",
        "weighted_accuracy": "not reproduced",
        "was": "reproduced",
        "wadb": "reproduced",
    }
    assert float(rows[1]["difference"]) == pytest.approx(0.0, abs=1e-9)


def test_runs_with_other_settings_are_never_mixed_and_said() -> None:
    now = outcome(FEDGWC, 0, OURS).experiment["algorithm"]["visits"]
    runs = [
        outcome(FEDGWC, 0, OURS, change={"visits": now + 1, "gone": True}),
        outcome(FEDGWC, 0, OURS),
        outcome(FEDGWC, 1, OURS, root="there"),
    ]
    lines = lines_of(ONLY, [*runs, outcome(FEDGWC, 0)], needs)
    assert [(line.algorithm, len(line.runs)) for line in lines] == [("fedgwc", 1), ("auto", 2), ("auto", 1)]
    assert [line.method for line in lines] == [
        "fedgwc beta=0.5",
        "auto",
        f"auto (visits={now + 1}, gone=true)",
    ]
    assert [changes(line) for line in lines] == [
        [],
        [],
        [f"algorithm.visits={now + 1} (today {now})", "algorithm.gone=true (today not set)"],
    ]


FEDAVG = next(r for r in CLUSTERING.rows if (r.recipe, r.algorithm) == ("cifar100", "fedavg"))


def test_only_the_papers_settings_can_reproduce_it() -> None:
    """However near the value: a stated setting that somebody changed is named. What the paper does not state is no difference."""

    def said(table: str, **change: Any) -> str:
        runs = [outcome(FEDAVG, seed, balanced_accuracy=0.416) for seed in range(3)]
        for each in runs:
            each.config["experiment"][table] |= change
        [line] = lines_of(Entry("", "", (FEDAVG,)), runs, needs)
        return str(line.verdict("balanced_accuracy"))

    assert said("data", partition_file="theirs.json") == said("data", augment=False) == "reproduced"
    assert said("local", lr=0.5, batch=8) == "partial (local.batch 8 instead of 64, local.lr 0.5 instead of 0.01)"
    assert said("data", validation=0.2, newcomers=0.1) == (
        "partial (data.validation 0.2 instead of 0.0, data.newcomers 0.1 instead of 0.0)"
    )
    fewer = [{"clients": 90, "alpha": 0.5}]
    assert said("data", groups=fewer) == "partial (data.groups [[90, 0.5]] instead of [[100, 0.5]])"


@pytest.mark.parametrize("recipe", sorted({row.recipe for row in all_rows()}))
def test_recipes_have_the_published_settings(recipe: str) -> None:
    """But for the sizes of clients in mixes, which CIFAR's images do not suffice for."""
    rows = [row for row in all_rows() if row.recipe == recipe]
    short = "-het-" in recipe or "-dom-" in recipe
    for row in rows:
        for preset in row.presets[:2]:
            found = differences(settings_today(recipe, preset, row.set), row, preset)
            assert all(short and text.startswith(("data.train_size", "data.test_size")) for text in found), found
            assert published(recipe, preset)["rounds"] == settings_today(recipe, preset, row.set)["rounds"]


def test_a_number_that_two_tables_print_is_one() -> None:
    """FedAvg's 41.6 stands in tables 1 and 9; CFL's 41.6 is another number, and so is Femnist's."""
    found = {name: lines_of(entry, [outcome(FEDAVG, balanced_accuracy=0.4)], needs) for name, entry in paper().items()}
    listed = numbers(found)
    ran = {number: tables for number, (line, tables) in listed.items() if line.runs}
    assert list(ran.values()) == [["table-clustering", "table-aggregators"]]
    left, repeats = first_shown(found)
    shown = [
        number_of(line.row, m) for lines in left.values() for line in lines if line.algorithm != OURS for m in line.row.values
    ]
    assert len(shown) == len(set(shown)) == len(listed)
    assert repeats["table-aggregators"][0] == "cifar100 fedavg balanced % ([table-clustering](#table-clustering))"


def test_a_setting_that_came_later_is_said() -> None:
    older = outcome(FEDGWC, 0, OURS)
    del older.experiment["algorithm"]["gain"]
    [line] = lines_of(ONLY, [older], needs)
    assert changes(line) == ["algorithm.gain=not set (today 4.0)"]


def test_a_figure_has_its_own_pictures(tmp_path: Path) -> None:
    for name in ("fig-hom-tree.png", "fig-hom-het-tree.png"):
        (tmp_path / name).touch()
    assert [p.name for p in pictures_of("fig-hom", tmp_path)] == ["fig-hom-tree.png"]
    assert [p.name for p in pictures_of("fig-hom-het", tmp_path)] == ["fig-hom-het-tree.png"]


def test_a_row_without_runs_says_what_it_needs() -> None:
    [line] = lines_of(ONLY, [], needs)
    assert str(line.verdict("balanced_accuracy")) == "not run (needs 3 runs of 20,000 rounds on cifar100)"
    assert accuracy_table([line]).rows[0][4:7] == ["–", "–", "–"]


def test_every_metric_of_the_paper_is_one_that_runs_report() -> None:
    assert {m for row in all_rows() for m in row.values} < set(METRICS)


def test_equal_effort_is_where_the_cheapest_run_ended() -> None:
    def ran(name: str, course: list[tuple[int, int, float]]) -> Outcome:
        rows = [{"client_updates": n, "round": t, "clusters": 1, **dict.fromkeys(ACCURACIES, a)} for n, t, a in course]
        config = {"experiment": {"recipe": "cifar100", "seed": 0, "algorithm": {"name": name}}}
        return Outcome(Path("results") / name, config, rows[-1], rows)

    cheap = ran("fedavg", [(10, 1, 0.1), (20, 2, 0.2)])
    costly = ran("auto", [(15, 1, 0.3), (21, 2, 0.4), (60, 3, 0.5)])
    table = effort_table(Path("results"), [costly, cheap])
    assert [row[1:4] + row[5:6] for row in table.rows] == [["auto", "15", "1", "30.0"], ["fedavg", "20", "2", "20.0"]]
    assert effort_table(Path("results"), [cheap]).rows == []  # nothing to compare with
    assert reached(costly, 5) is None
