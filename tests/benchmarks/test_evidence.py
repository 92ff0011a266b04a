"""The tables of results/evidence.md are those of results/evidence.json, and hold what the default promises."""

from __future__ import annotations

import math
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from benchmarks.evidence import CANDIDATES, DEFAULT, PAGE, judge, kept, recordings

from benchmarks import evidence, trials
from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.core.types import Floats, Ids


@pytest.mark.parametrize("table", [evidence, trials], ids=lambda m: m.__name__)
def test_the_page_shows_what_was_kept(table: ModuleType) -> None:
    assert table.written(PAGE.read_text(), kept(table.KEPT)) == PAGE.read_text()


@pytest.mark.parametrize("table", [evidence, trials], ids=lambda m: m.__name__)
def test_candidates_are_settings_and_the_default_is_the_preset(table: ModuleType) -> None:
    for settings in table.CANDIDATES.values():
        if settings == evidence.GONE:
            continue
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
