"""How lines, names and matrices are drawn so that they can be told apart."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.lines import Line2D
from matplotlib.text import Annotation

from fedgwc.report.figures import classes, compare, heatmap
from fedgwc.report.figures.labels import beside, spread
from fedgwc.report.load import load
from fedgwc.report.methods import Method
from fedgwc.report.theme import LIGHT, MARKERS, canvas, looks
from tests.report.conftest import Finished


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


def test_only_splits_are_triangles() -> None:
    assert not set("v^<>1234") & set(MARKERS)
    assert len(set(MARKERS)) == len(MARKERS)
