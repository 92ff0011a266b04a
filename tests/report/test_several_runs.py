"""Several runs: compared by method, under the shortest names that tell them apart."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from fedgwc.report import build
from fedgwc.report.differences import conditions_of
from fedgwc.report.figures import compare
from fedgwc.report.load import load
from fedgwc.report.methods import differing, methods_of
from tests.report.conftest import Finished


def sections(paths: list[Path]) -> set[str]:
    return {s.id for s in build(paths).sections}


def test_several_runs_are_compared_by_method(finished: Finished) -> None:
    runs = [finished("fedgwc"), finished("fedgwc", seed=1), finished("fedavg"), finished("fedgwc", algorithm={"beta": 2.0})]
    methods = methods_of([load(r) for r in runs])
    assert [(m.name, len(m.runs)) for m in methods] == [("fedgwc beta=0.5", 2), ("fedavg", 1), ("fedgwc beta=2.0", 1)]
    page = build(runs)
    assert [s.id for s in page.sections] == ["comparison", "curves", "more-curves", "runs", "configuration"]
    assert len(page.sections[0].tables[0].rows) == 3
    assert page.sections[0].tables[0].sortable
    assert "splits at rounds" in page.pictures[0].alt


def test_the_page_shows_differences_and_who_gains_over_training_alone(finished: Finished) -> None:
    runs = [finished(name, seed=seed) for name in ("alone", "fedavg") for seed in (0, 1)]
    page = build(runs)
    assert [s.id for s in page.sections][:2] == ["comparison", "gains"]
    comparison, gains = page.sections[:2]
    assert [t.caption for t in comparison.tables] == ["Differences", "Clients", "Clusters and costs, at the end of the runs"]
    assert "minus fedavg [95 %]" in comparison.tables[0].head
    assert "over 2 seeds" in comparison.note
    assert [p.title for p in gains.pictures] == ["fedavg"]
    assert "40 clients" in gains.pictures[0].alt  # 20 of each seed
    assert {"compare-client-updates", "compare-traffic"} <= {p.name for p in page.pictures}


def test_recipes_are_conditions_and_ranked_over(finished: Finished) -> None:
    names = ("fedavg", "ifca", "cfl")
    runs = [finished(name, recipe=recipe, model={"hidden": [h]}) for recipe, h in (("a", 8), ("b", 9)) for name in names]
    loaded = [load(run) for run in runs]
    assert [(c.name, len(c.methods)) for c in conditions_of(loaded)] == [("a", 3), ("b", 3)]
    page = build(runs)
    ids = ["comparison", "ranks", "curves", "more-curves", "curves-2", "more-curves-2", "runs", "configuration"]
    assert [s.id for s in page.sections] == ids
    assert [t.caption for t in page.sections[0].tables][::3] == ["a: Differences", "b: Differences"]
    assert len({p.name for p in page.pictures}) == len(page.pictures)
    assert "The critical difference is 2.34" in page.pictures[0].alt


def test_of_several_settings_none_is_called_the_best(finished: Finished) -> None:
    page = build([finished("fedavg"), finished("fedgwc"), finished("fedgwc", algorithm={"beta": 2.0})])
    assert not [h for h in page.headlines if h.label.startswith("best")]
    assert "Of fedgwc several settings are shown" in page.sections[0].note


def test_methods_are_told_apart_by_one_setting_or_by_what_is_not_as_usual() -> None:
    usual, patient, early = {"when": "windows", "visits": 3}, {"when": "windows", "visits": 6}, {"when": "visits", "visits": 10}
    assert differing(usual, [usual, patient], usual) == ["visits=3"]
    assert differing(patient, [usual, patient], usual) == ["visits=6"]
    three = [usual, patient, early]
    assert [differing(own, three, usual) for own in three] == [[], ["visits=6"], ["when=visits", "visits=10"]]
    assert differing(usual, three, {}) == ["when=windows", "visits=3"]  # nobody knows what is usual


def test_where_the_data_lie_makes_no_other_method(finished: Finished, tmp_path: Path) -> None:
    moved = shutil.copytree(finished("fedavg", seed=1), tmp_path / "moved")
    config = json.loads((moved / "config.json").read_text())
    config["experiment"]["data"]["root"] = "elsewhere"
    (moved / "config.json").write_text(json.dumps(config))
    assert [m.name for m in methods_of([load(finished("fedavg")), load(moved)])] == ["fedavg"]


def test_a_folder_of_runs_stands_for_its_runs(finished: Finished, tmp_path: Path) -> None:
    for name in ("fedavg", "ifca"):
        shutil.copytree(finished(name), tmp_path / "all" / name)
    assert sections([tmp_path / "all"]) == sections([finished("fedavg"), finished("ifca")])


def test_long_names_are_shortened_to_what_tells_them_apart() -> None:
    both = "fedgwc echo=False min_size=5 agreement=0.9"
    found = compare.short_names(["fedavg", both, f"{both} margin=0.5", f"{both} margin=0.0", both, both, both])
    assert found[0] == "fedavg"
    assert found[1] == "fedgwc echo=False …"
    assert found[2:4] == ["fedgwc … margin=0.5", "fedgwc … margin=0.0"]
    assert found[4:] == ["fedgwc echo=False min_siz…", "fedgwc echo=False min_siz… 2", "fedgwc echo=False min_siz… 3"]
    assert compare.short_names(["x" * 300, "x" * 400]) == ["x" * 25 + " …", "x" * 25 + "…"]
