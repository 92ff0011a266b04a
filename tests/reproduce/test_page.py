"""The paper's values, the verdict on each, and the page made of kept results."""

from __future__ import annotations

import copy
import csv
import json
from pathlib import Path
from typing import Any

import pytest

from fedgwc.cli.reproduce import reproduce_command
from fedgwc.cli.results import keep_command
from fedgwc.core.errors import InputError
from fedgwc.report.load import load as load_report
from fedgwc.reproduce.effort import effort_table, reached
from fedgwc.reproduce.keep import LIMIT, keep, size_of, thinned, without_paths
from fedgwc.reproduce.lines import belongs, changes, lines_of
from fedgwc.reproduce.outcome import Outcome, read, read_all
from fedgwc.reproduce.page import needs, page, pictures_of
from fedgwc.reproduce.paper import ACCURACIES, METRICS, OURS, Entry, Row, all_rows, paper, printed
from fedgwc.reproduce.plan import plan, today
from fedgwc.reproduce.provenance import provenance
from fedgwc.reproduce.render import accuracy_table, csv_text, score_table
from fedgwc.reproduce.verdict import Effort, picture_verdict, tolerance, verdict
from fedgwc.runs.experiment import recipes
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.loop import run
from tests.conftest import Small

ROOT = Path(__file__).parents[2]
TABLES = ["clustering", "large-scale", "heterogeneity", "domains", "beta", "k", "aggregators"]
FIGURES = ["mechanism", "accuracy", "tree", "mse", "hom-het", "hom", "classes", "domains"]
FULL = Effort(seeds=3, rounds=100, full_rounds=100)


# The verdict


@pytest.mark.parametrize(
    ("printed_value", "ours", "point", "kind"),
    [
        ("50.0 ± 9.0", [50.5, 50.5, 50.5], 1.0, "reproduced"),  # half a point off
        ("50.0", [51.0, 51.0, 51.0], 1.0, "reproduced"),  # just one point
        ("50.0", [51.1, 51.1, 51.1], 1.0, "not reproduced"),
        ("50.0", [49.0, 52.0, 55.0], 1.0, "reproduced"),  # 2 off, two standard errors are 2 * 3 / sqrt(3) = 3.5
        ("50.0", [52.0, 54.0, 56.0], 1.0, "not reproduced"),  # 4 off, two standard errors are 2.3
        ("4", [4, 4, 5], 0.0, "reproduced"),  # a third of a cluster; the last digit allows a half
        ("4", [12, 12, 12], 0.0, "not reproduced"),
        ("1", [1, 2, 2], 0.0, "not reproduced"),  # most of them split what should stay whole
        ("0.1 ± 0.0", [0.14, 0.14, 0.14], 0.01, "reproduced"),  # 0.14 is printed as 0.1
        ("0.49 ± 0.0", [0.52, 0.52, 0.52], 0.01, "not reproduced"),  # 0.52 is not printed as 0.49
        ("0.49 ± 0.2", [0.52, 0.52, 0.52], 0.01, "reproduced"),  # but the paper's own runs differ by more
        ("47.5 ± 3.5", [44.9, 45.0, 45.1], 1.0, "reproduced"),  # 2.5 off, two standard errors of theirs are 4.0
        ("53.4 ± 0.4", [40.0, 58.0, 62.2], 1.0, "partial"),  # whatever the paper says, runs so far apart are near to it
        ("2.4", [float("inf"), 2.4, 2.4], 0.01, "not reproduced"),
        ("2.4", [None, 2.4, 2.4], 0.01, "not reproduced"),
    ],
)
def test_a_verdict_follows_from_the_numbers(printed_value: str, ours: list[float | None], point: float, kind: str) -> None:
    assert verdict(printed(printed_value), ours, FULL, point).kind == kind


@pytest.mark.parametrize(
    ("effort", "text"),
    [
        (Effort(2, 100, 100), "partial (2 of 3 seeds)"),
        (Effort(3, 2000, 20_000), "partial (2,000 of 20,000 rounds)"),
        (Effort(3, 40_000, 20_000), "partial (40,000 rounds, not 20,000)"),
        (Effort(3, 100, 100, others=("local.lr", "model.name")), "partial (other local.lr, model.name)"),
        (Effort(1, 3, 20_000, made=True), "partial (made data, 3 of 20,000 rounds, 1 of 3 seeds)"),
    ],
)
def test_less_effort_is_partial_however_near_the_value(effort: Effort, text: str) -> None:
    assert str(verdict(printed("50.0"), [50.0] * effort.seeds, effort, 1.0)) == text


def test_the_tolerance_is_the_largest_of_three() -> None:
    assert tolerance(printed("50.0"), [50.0, 50.0, 50.0], 1.0) == 1.0
    assert tolerance(printed("5"), [5.0, 5.0, 5.0], 0.0) == 0.5
    assert tolerance(printed("50.0"), [40.0, 50.0, 60.0, 50.0], 1.0) == pytest.approx((200 / 3) ** 0.5)  # 2 s / sqrt(4)
    assert tolerance(printed("50.0 ± 3.0"), [50.0, 50.0, 50.0], 1.0) == pytest.approx(2 * 3**0.5)  # 2 * 3 / sqrt(3)


def test_a_picture_needs_one_full_run() -> None:
    assert str(picture_verdict(Effort(1, 100, 100))) == "no number"
    assert str(picture_verdict(Effort(1, 10, 100))) == "partial (10 of 100 rounds)"


# What the paper prints


def test_every_table_and_figure_is_there() -> None:
    assert list(paper()) == [*(f"table-{name}" for name in TABLES), *(f"fig-{name}" for name in FIGURES)]
    for name, entry in paper().items():
        assert entry.rows
        assert bool(entry.pictures) == name.startswith("fig-")
        assert ("Table" if name.startswith("table-") else "Figure") in entry.where
        if name.startswith("table-"):
            assert all(row.values for row in entry.rows)
    assert {row.recipe for row in all_rows()} == set(recipes()) - {"digits"}


# Typed from the paper by hand: table, recipe, method, settings, metric, value
PRINTED = [
    ("table-clustering", "cifar100", "ifca", "k=5", "balanced_accuracy", "47.5 ± 3.5"),
    ("table-clustering", "cifar100", "fedgwc", "beta=0.5", "balanced_accuracy", "53.4 ± 0.4"),
    ("table-clustering", "cifar100", "fesem", "k=5", "wadb", "38.4 ± 13.0"),
    ("table-clustering", "femnist", "fedavgm", "", "balanced_accuracy", "83.3 ± 0.3"),
    ("table-clustering", "femnist", "ifca", "k=5", "was", "0.3 ± 0.1"),
    ("table-clustering", "cifar100", "fedgwc", "beta=0.5", "clusters", "4"),
    ("table-large-scale", "landmarks", "fedgwc", "beta=0.5", "accuracy", "57.4 ± 0.3"),
    ("table-large-scale", "inaturalist", "fairavg", "", "accuracy", "45.1 ± 0.2"),
    ("table-heterogeneity", "cifar100-het-10-0-90", "fedgwc", "", "wadb", "0.2 ± 0.2"),
    ("table-heterogeneity", "cifar10-het-40-30-30", "fesem", "k=3", "wadb", "20.6 ± 7.1"),
    ("table-domains", "cifar100-dom-40-30-30", "fedgwc", "", "rand", "0.6 ± 0.0"),
    ("table-domains", "cifar10-dom-40-30-30", "fedgwc", "", "rand", "0.9 ± 0.0"),
    ("table-beta", "cifar100", "fedgwc", "beta=2.0", "balanced_accuracy", "50.9"),
    ("table-beta", "landmarks", "fedgwc", "beta=0.1", "accuracy", "55.0"),
    ("table-k", "cifar100", "ifca", "k=3", "balanced_accuracy", "44.0 ± 1.6"),
    ("table-k", "femnist", "fesem", "k=5", "balanced_accuracy", "74.9 ± 0.1"),
    ("table-aggregators", "cifar100", "fedgwc", "momentum=0.9", "balanced_accuracy", "50.5 ± 0.3"),
    ("table-aggregators", "femnist", "fedgwc", "prox=0.01", "balanced_accuracy", "76.3 ± 0.2"),
    ("fig-hom", "cifar10", "fedgwc", "alpha=100.0", "clusters", "1"),
]


@pytest.mark.parametrize(("name", "recipe", "algorithm", "setting", "metric", "text"), PRINTED)
def test_values_are_the_papers(name: str, recipe: str, algorithm: str, setting: str, metric: str, text: str) -> None:
    rows = [r for r in paper()[name].rows if (r.recipe, r.algorithm) == (recipe, algorithm)]
    found = [r.values[metric].text for r in rows if metric in r.values and (not setting or r.set[-1].endswith(setting))]
    assert found[:1] == [text]


def test_a_printed_value_keeps_its_precision() -> None:
    value = printed("-0.8 ± 0.2")
    assert (value.mean, value.std) == (-0.8, 0.2)
    assert value.resolution == pytest.approx(0.05)
    assert (printed("4").std, printed("4").resolution) == (None, 0.5)
    with pytest.raises(InputError, match=r"written 53.4 ± 0.4 or 4, got 'about 5'"):
        Row("cifar100", "fedavg", accuracy="about 5")


# Runs and rows


def outcome(
    row: Row, seed: int = 0, algorithm: str = "", root: str = "here", change: dict[str, Any] | None = None, **last: float
) -> Outcome:
    """As if the row had been run with today's settings, or others."""
    name = algorithm or row.algorithm
    tables = copy.deepcopy(today(row.recipe, name, row.set)) | {"seed": seed}
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
    assert row[4:7] == ["53.4 ± 0.4 (+0.0)", "60.0 ± 0.0 (+6.6)", "59.4 ± 0.0 (+6.0)"]
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


def test_only_the_papers_settings_can_reproduce_it() -> None:
    """However near the value: a setting that somebody chose is named. Where the partition comes from is no such setting."""
    row = next(r for r in CLUSTERING.rows if (r.recipe, r.algorithm) == ("cifar100", "fedavg"))

    def said(table: str, **change: Any) -> str:
        runs = [outcome(row, seed, balanced_accuracy=0.416) for seed in range(3)]
        for each in runs:
            each.config["experiment"][table] |= change
        [line] = lines_of(Entry("", "", (row,)), runs, needs)
        return str(line.verdict("balanced_accuracy"))

    assert said("data", partition_file="theirs.json") == "reproduced"
    assert said("local", lr=0.5, batch=8) == "partial (other local.batch, local.lr)"
    assert said("data", augment=False) == "partial (other data.augment)"


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


# Keeping results


def test_evaluations_are_thinned_from_the_end() -> None:
    rows = [{"round": i} for i in range(1, 8)]
    assert [r["round"] for r in thinned(rows, 3)] == [1, 4, 7]
    assert thinned(rows, 7) == rows


def test_machine_paths_become_names() -> None:
    given = {"root": "/mnt/data/x", "n": 3, "notes": ["clients of /a/b/part.json.gz; see https://host/page, and/or runs/mine"]}
    assert without_paths(given) == {
        "root": "x",
        "n": 3,
        "notes": ["clients of part.json.gz; see https://host/page, and/or runs/mine"],
    }
    assert without_paths("fedgwc run r --set data.root=/mnt/data --out ~/runs/a") == "fedgwc run r --set data.root=data --out a"


def test_a_kept_run_is_small_and_says_where_it_comes_from(
    small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = run(small("auto", rounds=4, algorithm={"visits": 1, "min_size": 1}), tmp_path / "mine").folder
    keep_command([made], tmp_path / "results", {"command": "fedgwc run x", "hardware": "a box"})
    assert "Kept: " in capsys.readouterr().out
    kept = read(tmp_path / "results" / "small" / "mine")
    assert kept.last == read(made).last
    assert kept.experiment == read(made).experiment
    assert kept.provenance["command"] == "fedgwc run x"
    assert kept.provenance["commit"] == "unknown"
    assert kept.provenance["seconds"] == kept.last["seconds"]
    assert {p.name for p in kept.path.iterdir()}.isdisjoint({"models", "state", "trace"})
    assert load_report(kept.path).matrices  # `fedgwc report` works on it
    with pytest.raises(InputError, match="holds this run already"):
        keep(made, tmp_path / "results")


def test_what_is_no_result_is_not_kept(small: Small, tmp_path: Path) -> None:
    made = run(small(rounds=1), tmp_path / "a").folder
    (made / "per_client.npz").unlink()
    with pytest.raises(InputError, match="not finished"):
        keep(made, tmp_path / "results")
    config = RunFolder(made).config()
    config["experiment"]["recipe"] = "cifar100-smoke"
    (made / "config.json").write_text(json.dumps(config))
    (made / "per_client.npz").touch()
    with pytest.raises(InputError, match="made data"):
        keep(made, tmp_path / "results")
    for name in ("../../x", "..-short"):  # the scale is not part of the name
        config["experiment"]["recipe"] = name
        (made / "config.json").write_text(json.dumps(config))
        with pytest.raises(InputError, match="cannot be the name of a folder"):
            keep(made, tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_provenance_names_command_commit_hardware_versions_and_date() -> None:
    known = provenance("fedgwc reproduce table-k")
    assert list(known) == ["command", "commit", "hardware", "versions", "date"]
    assert "CPU cores" in known["hardware"]
    assert known["versions"]["fedgwc"]


# The committed results and their page


def test_committed_results_are_small_complete_and_name_no_machine() -> None:
    outcomes = read_all(ROOT / "results")
    assert outcomes
    for o in outcomes:
        assert size_of(o.path) <= LIMIT
        assert {"command", "commit", "hardware", "versions", "date", "seconds"} <= o.provenance.keys()
        assert without_paths(o.config) == o.config
        assert without_paths(o.provenance) == o.provenance


def test_the_page_regenerates_byte_for_byte() -> None:
    """If this fails, results, presets or recipes have changed: run `fedgwc results page` and read what it says now."""
    docs = ROOT / "docs"
    assert page(ROOT / "results", docs / "figures").encode() == (docs / "results.md").read_bytes()


def test_figures_are_small() -> None:
    figures = list((ROOT / "docs" / "figures").glob("*"))
    assert figures
    for path in figures:
        assert path.stat().st_size < 100_000


# Mistakes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"names": ["table-1"]},
            r"unknown table or figure 'table-1' .did you mean table-k.*; choose from fig-.*table-large-scale",
        ),
        ({"presets": ["fedgcw"]}, "unknown preset of FedGWC 'fedgcw'.*did you mean fedgwc"),
        ({"sets": ["algorithm.beta=3"]}, "that is what the tables themselves vary"),
        ({"scale": "tiny"}, "unknown scale 'tiny'"),
    ],
)
def test_mistakes(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"names": ["table-k"], "scale": "smoke", "n_seeds": 1, "out": tmp_path / "o", **change}
    with pytest.raises(InputError, match=message):
        reproduce_command(**arguments)
    assert not (tmp_path / "o").exists()


def test_without_a_name_all_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reproduce_command([], "full", None, tmp_path)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(paper())


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
