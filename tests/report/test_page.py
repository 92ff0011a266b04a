"""Reports: every part that a run has data for, nothing else, and always the same bytes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedgwc.cli.report import report_command
from fedgwc.core.errors import InputError
from fedgwc.report import build
from fedgwc.report.content import Page
from fedgwc.report.load import load
from fedgwc.report.matrices import algorithm_of, by_losses
from fedgwc.report.page import html
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
    return build([finished("fedgwc")])


@pytest.fixture(scope="module")
def text(page: Page) -> str:
    return html(page)


def test_a_run_of_fedgwc_has_every_section(page: Page, finished: Finished) -> None:
    assert {s.id for s in page.sections} == ALWAYS | FEDGWC | {"pairs"}
    names = {p.name for p in page.pictures}
    run = load(finished("fedgwc"))
    for split in run.splits[:8]:
        assert {f"P-{split.id}", f"W-{split.id}"} <= names
    assert {"P-end", "W-end", "accuracy", "tree", "mse", "reward", "weights", "clients"} <= names
    assert {f"classes-{c}" for c in run.leaves[:12]} <= names


def test_every_algorithm_has_a_sound_page(any_run: Path, any_page: Page) -> None:
    page, run = any_page, load(any_run)
    ids = {s.id for s in page.sections}
    assert ids >= ALWAYS
    assert bool(ids & FEDGWC - {"tree"}) == (by_losses(algorithm_of(run)) is not None)
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
    assert html(build([finished("fedgwc")])) == text
    for name in ("one", "two"):
        report_command([finished("fedavg")], tmp_path / f"{name}.html", tmp_path / name)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
    files = sorted(p.name for p in (tmp_path / "one").iterdir())
    assert {p.rsplit(".", 1)[1] for p in files} == {"svg", "png"}
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_page_of_100_clients_is_small(finished: Finished) -> None:
    groups = [{"clients": 50}, {"clients": 50, "relabel": 1}]
    big = finished("auto", rounds=22, data={"groups": groups}, algorithm={"min_size": 5, "second_look": False})
    assert len(load(big).splits) > 0
    assert len(html(build([big])).encode()) < 3e6


@pytest.mark.parametrize("fields", [("recipe", "about", "data"), ("algorithm",)], ids=" ".join)
def test_hostile_names_are_only_text(fields: tuple[str, ...], finished: Finished, tmp_path: Path) -> None:
    """An algorithm's name decides what a page has; the others do not hide each other."""
    run = copied(finished("fedgwc"), tmp_path / """<i onclick=alert(3)>&"'""")
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
    html(build([finished("fedgwc")], watcher), watcher)
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
