"""The tables of docs/algorithms/fedgwc.md are those of results/evidence.json, and hold what the default promises."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from benchmarks import evidence
from benchmarks.evidence import CANDIDATES, DEFAULT, PAGE, judge, kept, recordings, written

from fedgwc.algorithms.fedgwc import FedGWC


def test_the_page_shows_what_was_kept():
    assert written(PAGE.read_text(), kept()) == PAGE.read_text()


def test_candidates_are_settings_and_the_default_is_the_preset():
    for settings in CANDIDATES.values():
        for place in settings.get("constants", {}):  # beside settings, what is none
            module, constant = place.split(".")
            assert hasattr(import_module(f"fedgwc.algorithms.{module}"), constant)
        if "preset" not in settings:
            FedGWC(**{name: value for name, value in settings.items() if name != "constants"})
    assert CANDIDATES[DEFAULT] == {}


def record(place, known=True):
    """Two groups of 15, far apart: found at the end of the second window of 20 rounds."""
    truth = np.repeat([0, 1], 15)
    losses = 1 + truth[None, :, None] + 0.1 * np.random.default_rng(0).standard_normal((45, 30, 4))
    folder = place / "two groups"
    folder.mkdir()
    more = {"truth": truth, "counts": np.eye(2)[truth] + 1} if known else {}
    np.savez(folder / "a.npz", ids=np.tile(np.arange(30), (45, 1)), L=losses, **more)
    return place


@pytest.mark.parametrize("known", [True, False], ids=["groups known", "groups unknown"])
def test_a_recording_is_judged(known, tmp_path):
    [(federation, path)] = recordings(record(tmp_path, known))
    found = judge(DEFAULT, federation, path)
    assert (found.federation, found.trace, found.rounds, found.first, found.clusters) == ("two groups", "a", 45, 40, 2)
    assert found.labels == "0" * 15 + "1" * 15
    assert (found.ari, found.rand, found.exact) == ((1.0, 1.0, True) if known else (None, None, None))


def told(place, level, truth, n_rounds=45):
    """What becomes of clients with losses of this level, if those who would wait know their groups."""
    noise = 0.1 * np.random.default_rng(0).standard_normal((n_rounds, len(level), 4))
    np.savez(place / "a.npz", ids=np.tile(np.arange(len(level)), (n_rounds, 1)), L=level[:, None] + noise, truth=truth)
    found = judge(DEFAULT, "made up", place / "a.npz")
    return found.first, found.labels


@pytest.mark.parametrize("pairs_up_to", [4096, 0], ids=["by pairs", "by client"])
def test_groups_that_are_none_are_put_together_again(pairs_up_to, tmp_path, monkeypatch):
    """Losses tell two halves at the ends of windows 2 and 6, which have nothing to do with the kinds; or else are these."""
    monkeypatch.setitem(CANDIDATES, DEFAULT, {"pairs_up_to": pairs_up_to})
    halves = np.repeat([0, 1], 20)
    assert told(tmp_path, 1.0 + halves, np.tile([0, 1], 20), 165) == (None, "0" * 40)
    assert told(tmp_path, 1.0 + halves, halves) == (40, "0" * 20 + "1" * 20)


def test_who_would_wait_and_is_on_the_wrong_side_changes_it(tmp_path):
    """The first of the second kind is nearer to the other one, but near the middle."""
    halves = np.repeat([0, 1], 20)
    level = np.where(np.arange(40) == 20, 1.4, 1.0 + halves)
    assert told(tmp_path, level, halves) == (40, "0" * 20 + "1" * 20)
    assert told(tmp_path, level, np.zeros(40)) == (40, "0" * 21 + "1" * 19)  # nobody knows


def test_nothing_is_replayed_twice(tmp_path, monkeypatch, capsys):
    page, results = tmp_path / "page.md", tmp_path / "evidence.json"
    page.write_text("".join(f"<!-- {name} -->\n<!-- /{name} -->\n" for name in ("evidence", "candidates")))
    for name, value in (("PAGE", page), ("KEPT", results), ("CANDIDATES", {DEFAULT: {}})):
        monkeypatch.setattr(evidence, name, value)
    place = tmp_path / "traces"
    place.mkdir()
    evidence.main([record(place)])
    assert capsys.readouterr().out.startswith("1/1 the default, two groups/a: 2 clusters")
    assert "| two groups | 1 | 45 | 40 | 2 | 1.00 | 1.00 |" in page.read_text()
    evidence.main([place])
    assert capsys.readouterr().out == ""
