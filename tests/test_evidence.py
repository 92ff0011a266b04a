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
