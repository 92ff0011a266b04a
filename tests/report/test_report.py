"""Reports: every part that a run has data for, nothing else, and always the same bytes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.lines import Line2D
from matplotlib.text import Annotation

from fedgwc.algorithms.auto.algorithm import FedGWC
from fedgwc.cli.report import report_command
from fedgwc.core.errors import InputError
from fedgwc.report import build
from fedgwc.report.content import Page, Section
from fedgwc.report.convergence import mse_by_cluster, trace_of
from fedgwc.report.figures import classes, compare, heatmap
from fedgwc.report.figures.labels import beside, spread
from fedgwc.report.figures.tree import bands
from fedgwc.report.load import load
from fedgwc.report.matrices import at_end, at_splits, fedgwc_of, whole
from fedgwc.report.methods import Method, differing, methods_of
from fedgwc.report.page import html
from fedgwc.report.theme import LIGHT, canvas, looks
from fedgwc.report.weights import weights_of
from fedgwc.runs.progress import Silent
from tests.report.conftest import Finished

ALWAYS = {"accuracy", "classes", "clients", "costs", "configuration"}
FEDGWC = {"tree", "matrices", "embedding", "reward", "weights", "mse"}
HOSTILE = """<img src=FIELD onerror=alert(1)></script><script>alert(2)</script>&"'$\\frac{$"""


class Outline(HTMLParser):
    """Tags with their attributes, and how much stands in each section."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [a for t, a in self.tags if t == tag]


def sections(paths: list[Path]) -> set[str]:
    return {s.id for s in build(paths).sections}


def edit_config(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["experiment"] |= changes
    (folder / "config.json").write_text(json.dumps(config))


def copied(run: Path, to: Path) -> Path:
    shutil.copytree(run, to)
    return to


@pytest.fixture(scope="module")
def page(finished: Finished) -> Page:
    return build([finished("auto")])


@pytest.fixture(scope="module")
def text(page: Page) -> str:
    return html(page)


def test_a_run_of_fedgwc_has_every_section(page: Page, finished: Finished) -> None:
    assert {s.id for s in page.sections} == ALWAYS | FEDGWC | {"pairs"}
    names = {p.name for p in page.pictures}
    run = load(finished("auto"))
    for split in run.splits[:8]:
        assert {f"P-{split.id}", f"W-{split.id}"} <= names
    assert {"P-end", "W-end", "accuracy", "tree", "mse", "reward", "weights", "clients"} <= names
    assert {f"classes-{c}" for c in run.leaves[:12]} <= names


def test_clients_known_by_themselves_have_no_matrices(finished: Finished) -> None:
    eager = {"when": "windows", "rate": 1.0, "visits": 1, "contrast": -1.0, "agreement": -1.0, "gain": -1e9, "pairs_up_to": 0}
    folder = finished("auto", rounds=25, algorithm=eager)
    page = build([folder])
    assert load(folder).splits
    assert {s.id for s in page.sections} == ALWAYS | FEDGWC - {"matrices"} | {"pairs", "why"}
    assert any(p.name.startswith("embedding-0") for p in page.pictures)
    assert "along the line that is cut" in html(page)


WINDOWS = {"when": "windows", "visits": 3, "rate": 1.0, "min_size": 5}


def why(folder: Path) -> Section:
    [section] = [s for s in build([folder]).sections if s.id == "why"]
    return section


def test_it_says_why_nothing_was_divided(finished: Finished) -> None:
    """Everybody is there in every round, so windows last 10 of the 35."""
    section = why(finished("auto", rounds=35, algorithm=WINDOWS | {"contrast": 1e6, "drift": 1e6}))
    assert section.lead.startswith("3 windows of rounds came to an end. Left whole: ")
    assert "no cut before (1)" in section.lead
    assert "At the last, in round 30, " in section.lead
    assert "at least 2" not in section.lead
    [table] = section.tables
    assert table.sortable
    assert [row[0].text for row in table.rows] == ["10", "20", "30"]
    assert all(row[3].text.startswith("whole: ") for row in table.rows)
    assert [p.name for p in section.pictures] == ["verdicts"]
    assert "cluster 0, 3 windows, whole after the last" in section.pictures[0].alt
    assert section.lead.endswith("Clusters of fewer than 10 clients are not tried.")


def test_it_says_why_a_cluster_was_divided(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = finished("auto", rounds=65, algorithm=WINDOWS | {"contrast": -1.0, "agreement": -1.0, "gain": -1e9})
    run = load(folder)
    divided = [j for j in run.verdicts if j.verdict.divides]
    assert [(j.round, j.verdict.cluster) for j in divided] == [(n.ended, n.id) for n in run.splits]
    assert "Divided: there are groups (" in why(folder).lead
    monkeypatch.setattr("fedgwc.report.verdicts.MOST_ROWS", len(divided))
    few = why(folder)
    assert [row[0].value for row in few.tables[0].rows] == [j.round for j in divided]
    assert f"verdicts.jsonl has {len(run.verdicts) - len(divided)} more" in few.note


def test_it_says_who_moved_to_the_other_side_of_a_division(finished: Finished, tmp_path: Path) -> None:
    folder = shutil.copytree(finished("auto", rounds=65, algorithm=WINDOWS), tmp_path / "run")
    rows = [json.loads(line) for line in (folder / "verdicts.jsonl").read_text().splitlines()]
    windows = why(folder)
    moved = rows[0] | {"round": 63, "cluster": 7, "reason": "moved", "sizes": [9, 3], "to": 8, "agreement": None, "rounds": 0}
    (folder / "verdicts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, moved]))
    section = why(folder)
    assert "Moved later to the other side of a division: 3 clients." in section.lead
    assert section.lead.startswith(f"{len(rows)} windows of rounds came to an end.")
    assert [cell.text for cell in section.tables[0].rows[-1][:4]] == [
        "63",
        "7",
        "9 + 3",
        "moved: served better on the other side",
    ]
    assert [p.alt for p in section.pictures] == [p.alt for p in windows.pictures]


@pytest.mark.parametrize(
    ("reason", "cut", "lead", "cell"),
    [
        ("confirmed", [12], "Confirmed later: 1 division.", "confirmed: each side has the model that serves it"),
        ("rejoined", [9, 3], "Undone later: 1 division.", "undone: no side was served better by its own model"),
    ],
)
def test_it_says_what_came_of_a_trial(
    reason: str, cut: list[int], lead: str, cell: str, finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(finished("auto", rounds=65, algorithm=WINDOWS), tmp_path / "run")
    rows = [json.loads(line) for line in (folder / "verdicts.jsonl").read_text().splitlines()]
    windows = why(folder)
    told = {"round": 50, "cluster": 7, "clients": 12, "reason": reason, "sizes": cut, "clear": 2.5, "why": "so"}
    (folder / "verdicts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [told, *rows]))
    section = why(folder)
    assert lead in section.lead
    assert section.lead.startswith(f"{len(rows)} windows of rounds came to an end.")
    row = [c.text for c in section.tables[0].rows[0]]
    assert row == ["50", "7", " + ".join(map(str, cut)), cell, *["–"] * 8, "2.5"]
    assert len(row) == len(section.tables[0].head)
    assert [p.alt for p in section.pictures] == [p.alt for p in windows.pictures]
    monkeypatch.setattr("fedgwc.report.verdicts.MOST_ROWS", 1 + sum(row["divides"] for row in rows))
    assert cell in [row[3].text for row in why(folder).tables[0].rows]  # whatever else is left out


def test_it_says_what_is_asked_for_where_few_or_nobody_can_try(finished: Finished, tmp_path: Path) -> None:
    folder = shutil.copytree(finished("auto", rounds=65, algorithm=WINDOWS), tmp_path / "run")
    doubt = f"{FedGWC().doubt:g} more where few or nobody could try the division and for each that was undone"
    assert f"(gain at least 4, and {doubt})" in why(folder).lead
    assert "differently by fewer than 2 deviations in the end, or by even less before (clear). " in why(folder).lead
    config = json.loads((folder / "config.json").read_text())
    config["experiment"]["algorithm"] |= {"doubt": 0.0, "second_look": False}
    (folder / "config.json").write_text(json.dumps(config))
    assert "(gain at least 4); and" in why(folder).lead
    assert "(clear)" not in why(folder).lead


@pytest.mark.parametrize("gain", [-1e12, float("-inf")])
def test_whatever_gain_was_asked_for_is_read(gain: float, finished: Finished) -> None:
    folder = finished("auto", rounds=41, algorithm=WINDOWS | {"contrast": -1.0, "agreement": -1.0, "gain": gain})
    assert load(folder).splits
    assert f"(gain at least {gain:g}, and {FedGWC().doubt:g} more" in why(folder).lead


def test_a_division_that_was_undone_is_only_told_of(finished: Finished) -> None:
    """40 clients of one kind, divided in round 20 whatever they say; asked a third time, in round 50, they are served alike."""
    forced = {"when": "windows", "rate": 1.0, "min_size": 15, "contrast": -1.0, "agreement": -1.0, "gain": -1e9, "drift": 1e9}
    folder = finished("auto", rounds=55, data={"groups": [{"clients": 40}]}, algorithm=forced, evaluate={"every": 20})
    run, page = load(folder), build([folder])
    assert [(j.round, j.verdict.reason) for j in run.verdicts] == [(10, "first cut"), (20, "groups"), (50, "rejoined")]
    clear = run.verdicts[-1].verdict.clear
    assert clear is not None
    assert clear < 2 * 2 / 3  # the fourth time 2 deviations are asked for, and the first 0
    assert [m.round for m in run.matrices] == [20, None]
    assert (run.splits, run.leaves, at_splits(run)) == ([], [0], [])
    names = [p.name for p in page.pictures]
    assert len(names) == len(set(names))
    assert not {"P-0", "W-0"} & set(names)
    lead = why(folder).lead
    assert "Undone later: 1 division. At the last, in round 50, a model of its own served neither side better (" in lead


def test_it_says_that_the_first_window_is_not_over(finished: Finished) -> None:
    section = why(finished("auto", algorithm=WINDOWS | {"visits": 50}))
    assert "half of the pairs have met 50 times, and the median pair has met 10 times" in section.lead
    assert not section.tables
    section = why(finished("auto", algorithm=WINDOWS | {"visits": 50, "pairs_up_to": 0}))
    assert "half of the clients have been seen 500 times, and the median client has been seen 10 times" in section.lead


def test_a_run_without_verdicts_has_no_such_section(finished: Finished, tmp_path: Path) -> None:
    run = copied(finished("auto", rounds=25, algorithm=WINDOWS), tmp_path / "r")
    assert "why" in sections([run])
    (run / "verdicts.jsonl").unlink()  # as an older version left it
    assert "why" not in sections([run])


@pytest.mark.parametrize(
    "change",
    [{"reason": "mood"}, {"clients": "many"}, {"score": float("nan")}, {"drift": float("inf")}, {"why": None, "rounds": 10**400}],
    ids=str,
)
def test_a_damaged_verdict_is_named(change: dict[str, Any], finished: Finished, tmp_path: Path) -> None:
    run = copied(finished("auto", rounds=25, algorithm=WINDOWS), tmp_path / "r")
    rows = [json.loads(line) for line in (run / "verdicts.jsonl").read_text().splitlines()]
    (run / "verdicts.jsonl").write_text(json.dumps(rows[0] | change) + "\n")
    with pytest.raises(InputError, match=r"verdicts\.jsonl cannot be read"):
        build([run])


def test_of_many_clients_some_are_drawn(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedgwc.report.interaction.MOST_POINTS", 10)
    [section] = [s for s in build([finished("auto")]).sections if s.id == "embedding"]
    assert "Of more than 10 clients that many are drawn." in section.note


def test_every_algorithm_has_a_sound_page(any_run: Path, any_page: Page) -> None:
    page, run = any_page, load(any_run)
    ids = {s.id for s in page.sections}
    assert ids >= ALWAYS
    assert bool(ids & FEDGWC - {"tree"}) == (fedgwc_of(run) is not None)
    assert ("pairs" in ids) == (len(run.leaves) > 1)
    for s in page.sections:
        assert s.pictures or s.tables or s.parts or s.lead, f"{s.id} is empty"
        assert all(t.rows for t in (*s.tables, *s.parts))
    text = html(page)
    assert not re.search(r">[^<]*\bnan\b", text)
    assert text.count("<figure") == len(page.pictures) == text.count("<svg")


def test_a_page_needs_nothing_but_itself(text: str) -> None:
    outline = Outline(text)
    links = [a[k] or "" for _, a in outline.tags for k in ("href", "src") if k in a]
    assert all(link.startswith(("#", "data:")) for link in links)
    assert not re.search(r"https?://(?!www\.w3\.org/)", text)
    assert "@import" not in text
    ids = [a["id"] for _, a in outline.tags if "id" in a]
    assert len(ids) == len(set(ids))
    assert all(i[1:] in ids for i in links if i.startswith("#"))


def test_those_who_do_not_see_it_are_told(text: str) -> None:
    outline = Outline(text)
    for svg in outline.all("svg"):
        assert svg["role"] == "img"
        assert re.search(r"\d", svg["aria-label"] or ""), svg["aria-label"]
    assert outline.all("html")[0]["lang"] == "en"
    tables = len(outline.all("table"))
    assert len(outline.all("caption")) == tables > 2
    assert all(th.get("scope") in ("col", "row") for th in outline.all("th"))


def test_the_same_runs_give_the_same_bytes(text: str, finished: Finished, tmp_path: Path) -> None:
    assert html(build([finished("auto")])) == text
    for name in ("one", "two"):
        report_command([finished("fedavg")], tmp_path / f"{name}.html", tmp_path / name)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
    files = sorted(p.name for p in (tmp_path / "one").iterdir())
    assert {p.rsplit(".", 1)[1] for p in files} == {"svg", "png"}
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_page_of_100_clients_is_small(finished: Finished) -> None:
    groups = [{"clients": 50}, {"clients": 50, "relabel": 1}]
    big = finished("auto", rounds=16, data={"groups": groups}, algorithm={"min_size": 5})
    assert len(load(big).splits) > 0
    assert len(html(build([big])).encode()) < 3e6


@pytest.mark.parametrize("fields", [("recipe", "about", "data"), ("algorithm",)], ids=" ".join)
def test_hostile_names_are_only_text(fields: tuple[str, ...], finished: Finished, tmp_path: Path) -> None:
    """An algorithm's name decides what a page has; the others do not hide each other."""
    run = copied(finished("auto"), tmp_path / """<i onclick=alert(3)>&"'""")
    other = finished("fedavg")
    evil = {field: HOSTILE.replace("FIELD", field) for field in fields}
    edit_config(run, **{f: {"name": t, t: t} if f in ("algorithm", "data") else t for f, t in evil.items()})
    for paths in ([run], [run, other]):
        text = html(build(paths))
        outline = Outline(text)
        assert not outline.all("img")
        assert not outline.all("i")
        assert len(outline.all("script")) == 1
        assert not any(k.startswith("on") for _, a in outline.tags for k in a)
        assert [field for field in fields if f"&lt;img src={field}" not in text] == []


HUGE_NUMBER = json.dumps(
    [{"id": 2**63, "parent": None, "born": 0, "ended": None, "members": list(range(20)), "scores": {}}]  # no int64 holds it
)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("labels.csv", None, "not finished; finish it with: fedgwc run --resume"),
        ("metrics.jsonl", "", "not finished"),
        ("metrics.jsonl", "[1, 2]\n", "metrics.jsonl cannot be read"),
        ("config.json", None, "holds no run"),
        ("config.json", "[]", "not the configuration of a run"),
        ("clients.npz", "no zip", "clients.npz cannot be read"),
        ("clients.npz", None, "clients.npz cannot be read"),
        ("labels.csv", "client,cluster\n0,0\n", "labels.csv cannot be read"),
        ("labels.csv", "a,b\n0,0\n", "labels.csv cannot be read"),
        ("labels.csv", "client,cluster\n" + "0,0\n" * 20, "each of the 20 clients needs one line"),
        ("labels.csv", "client,cluster\n" + "".join(f"{k},0\n" for k in range(20)), "its clusters are not those of splits/tree"),
        ("metrics.jsonl", f'{{"round": 1{"0" * 30}}}\n', "metrics.jsonl cannot be read, line 1"),
        ("splits/tree.json", "{", "tree.json cannot be read"),
        ("splits/tree.json", '[{"id": 0}]', "tree.json cannot be read"),
        ("splits/tree.json", "[]", "tree.json cannot be read"),
        ("splits/tree.json", HUGE_NUMBER, "tree.json cannot be read"),
        ("trace/00000001-00000010.npz", "PK", "trace cannot be read"),
        ("splits/end-99.npz", "PK", "end-99.npz cannot be read"),
        ("per_client.npz", "PK", "per_client.npz cannot be read"),
    ],
)
def test_a_damaged_folder_is_named(file: str, content: str | None, message: str, finished: Finished, tmp_path: Path) -> None:
    run = copied(finished("auto"), tmp_path / "r")
    (run / file).unlink(missing_ok=True)
    if content is not None:
        (run / file).write_text(content)
    with pytest.raises(InputError, match=message):
        build([run])


def test_clients_have_their_clusters_in_whatever_order_they_stand(finished: Finished, tmp_path: Path) -> None:
    run = copied(finished("auto"), tmp_path / "r")
    head, *rows = (run / "labels.csv").read_text().splitlines()
    (run / "labels.csv").write_text("\n".join([head, *reversed(rows), ""]))
    np.testing.assert_array_equal(load(run).clusters, load(finished("auto")).clusters)


def test_clusters_may_be_nested_deeply(finished: Finished, tmp_path: Path) -> None:
    """By a tree that is no chain of divisions of 20 clients, but a sound one to read."""
    run = copied(finished("fedavg"), tmp_path / "r")
    members, deep = list(range(20)), 3000
    nodes: list[dict[str, Any]] = [
        {"id": i, "parent": i - 1 if i else None, "born": 0, "ended": 1, "members": members, "scores": {}} for i in range(deep)
    ]
    (run / "splits" / "tree.json").write_text(json.dumps([*nodes[:-1], nodes[-1] | {"ended": None}]))
    (run / "labels.csv").write_text("client,cluster\n" + "".join(f"{k},{deep - 1}\n" for k in members))
    assert set(bands(load(run)).values()) == {0.0}


def test_distances_that_are_no_numbers_are_named(finished: Finished, tmp_path: Path) -> None:
    run = copied(finished("auto"), tmp_path / "r")
    path = next((run / "splits").glob("end-*.npz"))
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **arrays | {"distances": np.full(arrays["P"].shape, np.nan)})
    with pytest.raises(InputError, match=f"{path.name} cannot be read"):
        build([run])


def test_mistakes_in_the_command(finished: Finished, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no run"):
        report_command([tmp_path / "nowhere"], tmp_path / "r.html", None)
    with pytest.raises(InputError, match="is a folder"):
        report_command([finished("fedavg")], tmp_path, None)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="wants a folder"):
        report_command([finished("fedavg")], tmp_path / "r.html", tmp_path / "file")
    assert not (tmp_path / "r.html").exists()
    run = copied(finished("fedavg"), tmp_path / "run")
    for name in ("config.json", "lock"):
        before = (run / name).read_bytes()
        with pytest.raises(InputError, match="is there and no report; name another file"):
            report_command([run], run / name, None)
        assert (run / name).read_bytes() == before


def test_without_the_extra_it_says_what_to_install(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(InputError, match=r"its extra `report`"):
        build([finished("fedavg")])


def test_the_command(finished: Finished, tmp_path: Path) -> None:
    args = [sys.executable, "-m", "fedgwc", "report", str(finished("fedavg")), "-o", str(tmp_path / "r.html")]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Written: {tmp_path / 'r.html'}")
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


def test_it_tells_how_far_it_is(finished: Finished) -> None:
    watcher = Heard()
    html(build([finished("auto")], watcher), watcher)
    told = dict(watcher.told)  # the last of each
    assert told["runs read"] == 1
    assert told["rounds replayed"] == 10
    assert told["figures drawn"] > 5


class Heard(Silent):
    def __init__(self) -> None:
        self.title = ""
        self.told: list[tuple[str, int]] = []

    def start(self, title: str, n_rounds: int, done: int, folder: Path | None = None) -> None:
        self.title = title

    def step(self, number: int) -> None:
        self.told.append((self.title, number))


def test_the_mse_is_what_the_run_measured(finished: Finished) -> None:
    folder = finished("fedgwc", algorithm={"eps": 1e-12})  # no split: the run's mean over clusters is the root's
    run = load(folder)
    algorithm, trace = fedgwc_of(run), trace_of(run)
    assert isinstance(algorithm, FedGWC)
    assert trace is not None
    x, y = mse_by_cluster(trace, algorithm, 0)[0]
    measured = {row["round"]: row["mse"] for row in run.metrics}
    assert [y[list(x).index(t)] for t in measured] == pytest.approx(list(measured.values()))


def test_accuracies_of_clients_average_to_the_run_s(finished: Finished) -> None:
    run = load(finished("ifca"))
    assert run.per_client is not None
    for mine, theirs in (("accuracy", "accuracy"), ("balanced", "balanced_accuracy"), ("weighted", "weighted_accuracy")):
        assert np.nanmean(run.per_client[mine]) == pytest.approx(run.last[theirs])


def test_the_whole_matrix_holds_every_cluster_s_own(finished: Finished) -> None:
    run = load(finished("auto"))
    algorithm = fedgwc_of(run)
    assert algorithm is not None
    P, W = whole(run, algorithm)
    for m in at_end(run):
        np.testing.assert_array_equal(P[np.ix_(m.members, m.members)], m.P)
    np.testing.assert_allclose(W, W.T)
    for w in weights_of(run, algorithm):
        assert (w.low <= w.gamma + 1e-12).all()
        assert (w.gamma <= w.high + 1e-12).all()


def test_several_runs_are_compared_by_method(finished: Finished) -> None:
    runs = [finished("auto"), finished("auto", seed=1), finished("fedavg"), finished("auto", algorithm={"beta": 2.0})]
    methods = methods_of([load(r) for r in runs])
    assert [(m.name, len(m.runs)) for m in methods] == [("fedgwc beta=0.5", 2), ("fedavg", 1), ("fedgwc beta=2.0", 1)]
    page = build(runs)
    assert [s.id for s in page.sections] == ["comparison", "curves", "more-curves", "runs", "configuration"]
    assert len(page.sections[0].tables[0].rows) == 3
    assert page.sections[0].tables[0].sortable
    assert "splits at rounds" in page.pictures[0].alt


def test_methods_are_told_apart_by_one_setting_or_by_what_is_not_as_usual() -> None:
    usual, patient, early = {"when": "windows", "visits": 3}, {"when": "windows", "visits": 6}, {"when": "visits", "visits": 10}
    assert differing(usual, [usual, patient], usual) == ["visits=3"]
    assert differing(patient, [usual, patient], usual) == ["visits=6"]
    three = [usual, patient, early]
    assert [differing(own, three, usual) for own in three] == [[], ["visits=6"], ["when=visits", "visits=10"]]
    assert differing(usual, three, {}) == ["when=windows", "visits=3"]  # nobody knows what is usual


def test_where_the_data_lie_makes_no_other_method(finished: Finished, tmp_path: Path) -> None:
    moved = copied(finished("fedavg", seed=1), tmp_path / "moved")
    config = json.loads((moved / "config.json").read_text())
    config["experiment"]["data"]["root"] = "elsewhere"
    (moved / "config.json").write_text(json.dumps(config))
    assert [m.name for m in methods_of([load(finished("fedavg")), load(moved)])] == ["fedavg"]


def test_a_folder_of_runs_stands_for_its_runs(finished: Finished, tmp_path: Path) -> None:
    for name in ("fedavg", "ifca"):
        copied(finished(name), tmp_path / "all" / name)
    assert sections([tmp_path / "all"]) == sections([finished("fedavg"), finished("ifca")])


def test_large_matrices_are_averaged_in_blocks() -> None:
    fine = np.arange(400.0)[:, None] * np.ones(400)
    coarse = heatmap.shrink(fine)
    assert coarse.shape == (200, 200)
    assert coarse[0, 0] == 0.5  # rows 0 and 1
    fine[:2, :2] = np.nan
    assert np.isnan(heatmap.shrink(fine)[0, 0])


def test_pairs_are_capped_from_least_to_most_overlap() -> None:
    share = {c: np.eye(5)[c] * 0.9 + 0.1 / 5 for c in range(5)} | {5: np.eye(5)[0]}
    shown = classes.pairs(share, most=6)
    assert len(shown) == 6
    overlaps = [classes.overlap(share[a], share[b]) for a, b in shown]
    assert overlaps == sorted(overlaps)
    assert shown[-1] == (0, 5)
    assert len(classes.pairs({0: share[0], 1: share[1]})) == 1


def test_names_beside_lines_do_not_touch() -> None:
    places = spread({"a": 10.0, "b": 10.0, "c": 10.5, "d": 80.0}, 11)
    gaps = np.diff(sorted(places.values()))
    assert (gaps >= 11 - 1e-3).all()
    assert places["d"] == 80.0


def test_of_many_lines_no_two_look_the_same(finished: Finished) -> None:
    run = load(finished("fedavg"))
    [ax] = compare.draw([Method(f"method {i}", (run,)) for i in range(16)], "accuracy", "accuracy, %").axes
    lines = [line for line in ax.lines if len(np.asarray(line.get_xdata())) > 1]
    drawn = [(line.get_color(), line._unscaled_dash_pattern) for line in lines]  # type: ignore[attr-defined]
    assert len(drawn) == len(set(drawn)) == 16


def test_few_colours_are_told_apart_by_dashes() -> None:
    assert [look["linestyle"] for look in looks(LIGHT)] == ["-"] * len(LIGHT)
    found = looks(LIGHT[:2] * 6)
    assert [look["color"] for look in found] == [*LIGHT[:2] * 6]
    assert len({(look["color"], look["linestyle"]) for look in found}) == 12


@pytest.mark.parametrize(("end", "markers"), [(10.0, 0), (5.0, 3)])
def test_names_stand_outside_and_those_of_lines_that_end_early_have_markers(end: float, markers: int) -> None:
    _, ax = canvas()
    ax.set_xlim(0, 10)
    beside(ax, {f"line {i}": (end, i / 2, look) for i, look in enumerate(looks(LIGHT[:3]))}, 10)
    assert all(isinstance(text, Annotation) and text.xy[0] == 10 for text in ax.texts)
    assert sum(isinstance(artist, Line2D) for artist in ax.get_children()) == markers


def test_long_names_are_shortened_to_what_tells_them_apart() -> None:
    both = "fedgwc echo=False min_size=5 agreement=0.9"
    found = compare.short_names(["fedavg", both, f"{both} margin=0.5", f"{both} margin=0.0", both, both, both])
    assert found[0] == "fedavg"
    assert found[1] == "fedgwc echo=False …"
    assert found[2:4] == ["fedgwc … margin=0.5", "fedgwc … margin=0.0"]
    assert found[4:] == ["fedgwc echo=False min_siz…", "fedgwc echo=False min_siz… 2", "fedgwc echo=False min_siz… 3"]
    assert compare.short_names(["x" * 300, "x" * 400]) == ["x" * 25 + " …", "x" * 25 + "…"]


def test_only_splits_are_triangles() -> None:
    from fedgwc.report.theme import MARKERS

    assert not set("v^<>1234") & set(MARKERS)
    assert len(set(MARKERS)) == len(MARKERS)
