"""The tables of results/evidence.md are those of results/evidence.json, and hold what the default promises."""

from __future__ import annotations

import math
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from benchmarks import evidence, trials
from benchmarks.evidence import CANDIDATES, DEFAULT, PAGE, Told, judge, kept, recordings

from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.core.layout import Layout
from fedgwc.core.types import Floats, Ids, Rng
from fedgwc.metrics import adjusted_rand_index
from fedgwc.runs.replay import Recorded, Trace, replay


@pytest.mark.parametrize("table", [evidence, trials], ids=lambda m: m.__name__)
def test_the_page_shows_what_was_kept(table: ModuleType) -> None:
    assert table.written(PAGE.read_text(), kept(table.KEPT)) == PAGE.read_text()


@pytest.mark.parametrize("table", [evidence, trials], ids=lambda m: m.__name__)
def test_candidates_are_settings_and_the_default_is_the_preset(table: ModuleType) -> None:
    for settings in table.CANDIDATES.values():
        for place in settings.get("constants", {}):  # beside settings, what is none
            module, constant = place.rsplit(".", 1)
            assert hasattr(import_module(f"fedgwc.{module}"), constant)
        if "preset" not in settings:
            Auto(**{name: value for name, value in settings.items() if name != "constants"})
    assert table.CANDIDATES[DEFAULT] == {}


def test_constants_of_trials_are_halved_and_doubled() -> None:
    """Rounded up where they are whole."""
    for name, settings in trials.CANDIDATES.items():
        for place, value in settings.get("constants", {}).items():
            module, constant = place.rsplit(".", 1)
            now = getattr(import_module(f"fedgwc.{module}"), constant)
            assert value in (now / 2, 2 * now, math.ceil(now / 2)), name


def test_a_trial_is_judged_with_other_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """A division is undone at any rate if sides must differ by more deviations than sides can."""
    monkeypatch.setattr(trials, "ROUNDS", 400)
    never = {"algorithms.auto.second_look.FAINT": 1e6, "algorithms.auto.second_look.CLEAR": 1e6}
    monkeypatch.setitem(trials.CANDIDATES, "never", {"constants": never})
    own, other = (trials.judge(candidate, "15 of 100 shifted", 0) for candidate in (DEFAULT, "never"))
    assert (own.first, own.clusters, own.ari, own.exact) == (191, 2, 1.0, True)
    assert (other.first, other.clusters, other.ari) == (None, 1, 0.0)


def record(place: Path, known: bool = True) -> Path:
    """Two groups of 15, far apart: found at the end of the second window of 10 rounds."""
    truth = np.repeat([0, 1], 15)
    losses = 1 + truth[None, :, None] + 0.1 * np.random.default_rng(0).standard_normal((25, 30, 4))
    folder = place / "two groups"
    folder.mkdir()
    more = {"truth": truth, "counts": np.eye(2)[truth] + 1} if known else {}
    np.savez(folder / "a.npz", ids=np.tile(np.arange(30), (25, 1)), L=losses, **more)
    return place


@pytest.mark.parametrize("known", [True, False], ids=["groups known", "groups unknown"])
def test_a_recording_is_judged(known: bool, tmp_path: Path) -> None:
    [(federation, path)] = recordings(record(tmp_path, known))
    found = judge(DEFAULT, federation, path)
    assert (found.federation, found.trace, found.rounds, found.first, found.clusters) == ("two groups", "a", 25, 20, 2)
    assert found.labels == "0" * 15 + "1" * 15
    assert (found.ari, found.rand, found.exact) == ((1.0, 1.0, True) if known else (None, None, None))


def made(level: Floats, n_rounds: int) -> tuple[Ids, Floats]:
    """Who trained, and losses of this level."""
    noise = 0.1 * np.random.default_rng(0).standard_normal((n_rounds, len(level), 4))
    return np.tile(np.arange(len(level)), (n_rounds, 1)), level[:, None] + noise


def told(place: Path, level: Floats, truth: Ids, n_rounds: int = 25) -> tuple[int | None, str]:
    """What becomes of clients with losses of this level, if those who would wait know their groups."""
    ids, losses = made(level, n_rounds)
    np.savez(place / "a.npz", ids=ids, L=losses, truth=truth)
    found = judge(DEFAULT, "made up", place / "a.npz")
    return found.first, found.labels


@pytest.mark.parametrize("pairs_up_to", [4096, 0], ids=["by pairs", "by client"])
def test_groups_that_are_none_are_put_together_again(pairs_up_to: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses tell two halves at the ends of windows 2 and 7, which have nothing to do with the kinds; or else are these."""
    monkeypatch.setitem(CANDIDATES, DEFAULT, {"pairs_up_to": pairs_up_to})
    halves = np.repeat([0, 1], 20)
    assert told(tmp_path, 1.0 + halves, np.tile([0, 1], 20), 85) == (None, "0" * 40)
    assert told(tmp_path, 1.0 + halves, halves) == (20, "0" * 20 + "1" * 20)


def test_who_would_wait_and_is_on_the_wrong_side_changes_it(tmp_path: Path) -> None:
    """The first of the second kind is nearer to the other one, but near the middle."""
    halves = np.repeat([0, 1], 20)
    level = np.where(np.arange(40) == 20, 1.4, 1.0 + halves)
    assert told(tmp_path, level, halves) == (20, "0" * 20 + "1" * 20)
    assert told(tmp_path, level, np.zeros(40, int)) == (20, "0" * 21 + "1" * 19)  # nobody knows


def who_would_wait(level: Floats) -> Ids:
    """After the division in round 20."""
    trace, algorithm = Trace(*made(level, 20), len(level)), Auto()
    engine, state = Recorded(trace), algorithm.init(torch.zeros(1), len(level), Layout.unnamed(1))
    for engine.row in range(20):
        state = algorithm.round(state, engine, Rng(0, engine.row + 1))
    return algorithm.held_back(state)


@pytest.mark.parametrize(
    ("others", "more", "stands"), [(0, 0, True), (4, 0, True), (5, 0, True), (6, 0, False), (10, 0, False), (6, 20, True)]
)
def test_a_division_stands_if_one_side_has_half_of_a_kind_more_than_of_another(
    others: int, more: int, stands: bool, tmp_path: Path
) -> None:
    """Of 20 of one kind so many are on the side of the other: 5 and 15 are a quarter and three quarters. A third kind may be
    all on one side. Those who wait find their own, and nobody else does.
    """
    kind = np.repeat([0, 1, 2], [20, 20, more])
    level = 1.0 + np.concatenate([np.arange(20) < others, np.arange(20) >= others, np.ones(more)])
    first, labels = told(tmp_path, level, kind)
    waits = np.isin(np.arange(len(kind)), who_would_wait(level))
    assert waits.sum() == (13 if more else 12)
    right = np.where(waits, kind > 0, level > 1.5) if stands else np.zeros(len(kind))
    assert (first, adjusted_rand_index(right, [int(y) for y in labels])) == (20 if stands else None, 1)


@pytest.mark.parametrize(("doubt", "divided"), [(12.0, [20, 70]), (1e6, [20])])
def test_each_division_that_is_undone_is_counted(doubt: float, divided: list[int]) -> None:
    """Windows of 10 rounds; after an undoing three are skipped, and the fourth finds a first cut."""
    level, kind = 1.0 + np.repeat([0, 1], 20), np.tile([0, 1], 20)
    seen = []
    state = replay(Trace(*made(level, 85), 40), Told(truth=kind, doubt=doubt), watch=lambda t, s: seen.append((t, s)))
    asked = {t: v.wanted for t, s in seen for v in s.verdicts}
    assert [t for t, s in seen if any(v.divides for v in s.verdicts)] == divided
    assert {t: asked[t] for t in (10, 20, 60, 70)} == {10: 4, 20: 4, 60: 4 + doubt, 70: 4 + doubt}
    assert [c.undone for c in state.clusters] == [len(divided)]
    assert state.splits == ()


def test_who_is_of_one_kind_is_not_parted() -> None:
    """The two kinds are, and then the two levels of either of them are none; that is asked for no more gain before."""
    kind = np.repeat([0, 1], 40)
    seen = []
    trace = Trace(*made(1.0 + 4 * kind + np.tile([0, 1], 40), 35), 80)
    state = replay(trace, Told(truth=kind, min_size=15), watch=lambda t, s: seen.append((t, s)))
    assert [(t, v.cluster, v.wanted) for t, s in seen for v in s.verdicts if v.divides] == [(20, 0, 4), (30, 1, 4), (30, 2, 4)]
    assert [(c.members.tolist(), c.undone) for c in state.clusters] == [(list(range(40)), 1), (list(range(40, 80)), 1)]


def test_nothing_is_replayed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page, results = tmp_path / "page.md", tmp_path / "evidence.json"
    page.write_text("".join(f"<!-- {name} -->\n<!-- /{name} -->\n" for name in ("evidence", "candidates")))
    for name, value in (("PAGE", page), ("KEPT", results), ("CANDIDATES", {DEFAULT: {}})):
        monkeypatch.setattr(evidence, name, value)
    place = tmp_path / "traces"
    place.mkdir()
    evidence.main([record(place)])
    assert capsys.readouterr().out.startswith("1/1 the default, two groups/a: 2 clusters")
    assert "| two groups | 1 | 25 | 20 | 2 | 1.00 | 1.00 |" in page.read_text()
    evidence.main([place])
    assert capsys.readouterr().out == ""
