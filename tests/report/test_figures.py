"""Figures can be read: something on every axis, nothing cut off or on top of something else, colours that differ."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from fedgwc.core.types import Floats
from fedgwc.report import build
from fedgwc.report.content import Page
from fedgwc.report.data import Node, Run
from fedgwc.report.figures import mse
from fedgwc.report.figures import weights as weights_figure
from fedgwc.report.figures.accuracy import jumps
from fedgwc.report.figures.axes import log_axis, log_labels, log_ticks
from fedgwc.report.figures.compare import COSTS, PREFERRED, draw, method_colours, unit_of
from fedgwc.report.load import load
from fedgwc.report.methods import Method
from fedgwc.report.theme import DARK, LIGHT, NEUTRAL, canvas, colours
from fedgwc.report.weights import Weights
from tests.report.conftest import Finished

SLACK = 1.5  # points that boxes of letters may reach beyond what is seen


def labels(axis: Axis) -> list[Text]:
    """Those ticks' that are on the plot and say something."""
    low, high = sorted(axis.get_view_interval())
    near = 1e-9 * (high - low)
    texts = axis.get_majorticklabels() or [Text()] * len(axis.get_majorticklocs())  # a panel above others has none
    ticks = zip(axis.get_majorticklocs(), texts, strict=True)
    return [text for at, text in ticks if low - near <= at <= high + near and text.get_text() and text.get_visible()]


def shown(figure: Figure) -> list[Axes]:
    figure.draw_without_rendering()
    return [a for a in figure.findobj(Axes) if isinstance(a, Axes)]  # with the scales inside others


def faults(figure: Figure) -> list[str]:
    """Tick labels that touch, words that are cut off."""
    found: list[str] = []
    hidden: list[Text] = []  # ticks beyond the ends of their axes
    page = Bbox.from_bounds(-SLACK, -SLACK, figure.bbox.width + 2 * SLACK, figure.bbox.height + 2 * SLACK)
    for ax in shown(figure):
        for axis in (ax.xaxis, ax.yaxis):
            hidden += [t for t in axis.get_majorticklabels() if t not in labels(axis)]
            boxes = [(t.get_text(), t.get_window_extent()) for t in labels(axis)]
            found += [f"{a} on {b}" for (a, x), (b, y) in pairwise(boxes) if x.padded(-0.5).overlaps(y)]
    for text in (a for a in figure.findobj(Text) if isinstance(a, Text) and a.get_visible() and a.get_text()):
        box = text.get_window_extent()
        inside = page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1
        found += [f"{text.get_text()} is cut off"] if not inside and text not in hidden else []
    return found


def test_figures_of_every_algorithm_can_be_read(any_page: Page) -> None:
    for picture in any_page.pictures:
        assert not faults(picture.figure), picture.name


def test_figures_of_a_comparison_can_be_read(finished: Finished) -> None:
    runs = [finished(name) for name in ("alone", "fedavg", "ifca", "auto", "fedgwc-release")]
    for picture in build([*runs, finished("auto", seed=1)]).pictures:
        assert not faults(picture.figure), picture.name


@pytest.mark.parametrize("name", ["all", "some"])
def test_accuracies_that_are_no_numbers_are_borne(name: str, finished: Finished) -> None:
    run = load(finished("fedavg"))
    lost = replace(run, metrics=[row | {"balanced_accuracy": math.nan} for row in run.metrics])
    methods = [Method("lost", (lost,)), *([Method("fedavg", (run,))] if name == "some" else [])]
    for over in (None, *COSTS):
        assert len(shown(draw(methods, "balanced_accuracy", "balanced accuracy, %", over=over))) == 1


def test_what_a_split_did_ends_with_the_next_split(finished: Finished) -> None:
    metrics = [{"round": 10 * t, "accuracy": a} for t, a in enumerate((0.3, 0.3, 0.5, 0.6, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9))]
    nodes = tuple(Node(i, None, 0, ended, np.arange(1), {}) for i, ended in enumerate((10, 30)))
    run = replace(load(finished("fedavg")), metrics=[{"round": 1000, "accuracy": 0.9}], nodes=nodes)
    run = replace(run, metrics=[*metrics, *run.metrics])
    assert jumps(run) == (
        "Around the split at round 10 it goes from 30.0 % to 60.0 %; around the split at round 30 it goes from 60.0 % to 90.0 %."
    )


@given(st.floats(-12, 12), st.floats(1e-6, 14), st.integers(3, 8))
def test_a_logarithmic_axis_has_two_labels_and_not_too_many(exponent: float, decades: float, most: int) -> None:
    low, high = 10**exponent, 10 ** (exponent + decades)
    ticks = log_ticks(low, high, most)
    assert 2 <= len(ticks) <= most + 1
    assert ticks == sorted(set(ticks))
    assert low <= ticks[0]
    assert ticks[-1] <= high


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (1e-5, 1.0, ["10⁻⁵", "10⁻⁴", "10⁻³", "10⁻²", "10⁻¹", "10⁰"]),
        (1e-12, 1.0, ["10⁻¹²", "10⁻⁹", "10⁻⁶", "10⁻³", "10⁰"]),
        (0.0021, 0.0052, ["0.003", "0.004", "0.005"]),
        (1.6, 480.0, ["3", "10", "30", "100", "300"]),
        (4.1e-5, 4.4e-5, ["4.1·10⁻⁵", "4.15·10⁻⁵", "4.2·10⁻⁵", "4.25·10⁻⁵", "4.3·10⁻⁵", "4.35·10⁻⁵", "4.4·10⁻⁵"]),
    ],
)
def test_what_a_logarithmic_axis_says(low: float, high: float, said: list[str]) -> None:
    assert log_labels(log_ticks(low, high)) == said


@pytest.mark.parametrize("values", [[1.0, 1.0], [0.0011, 0.007], [1e-5, 0.9], [3e-7, 3.1e-7]], ids=str)
def test_labels_stand_where_lines_are_drawn(values: list[float]) -> None:
    figure, ax = canvas()
    ax.plot([0, 1], values)
    log_axis(ax.yaxis)
    assert ax.get_yscale() == "log"
    figure.draw_without_rendering()
    assert len(labels(ax.yaxis)) >= 2


@pytest.mark.parametrize("n", [1, 8])
@pytest.mark.parametrize("span", [(1e-5, 1.0), (1e-3, 7e-3), (1.0, 1.0)], ids=str)
def test_every_cluster_s_mse_has_a_panel_with_labels(n: int, span: tuple[float, float]) -> None:
    line = (np.linspace(1, 190, 50), np.geomspace(*span, 50))
    figure = mse.draw(dict.fromkeys(range(n), line), {}, eps=span[0])
    assert not faults(figure)
    assert all(len(labels(ax.yaxis)) >= 2 for ax in shown(figure))
    assert len(shown(figure)) == n
    assert figure.axes[0].get_xlim() == (0, 190)  # as far as it is known, not as far as the run went


@pytest.mark.parametrize("sizes", [(98, 2), (3,) * 9, (60, *(1,) * 20), (1,) * 60], ids=len)
def test_clusters_under_the_weights_are_named_without_touching(sizes: tuple[int, ...]) -> None:
    figure = weights_figure.draw([some_weights(c, n) for c, n in enumerate(sizes)], {})
    assert not faults(figure)
    assert len(labels(figure.axes[0].xaxis)) >= min(len(sizes), 9)


def some_weights(cluster: int, n: int) -> Weights:
    gamma = np.linspace(0.5, 0.9, n)
    return Weights(cluster, np.arange(n), gamma, gamma - 0.1, gamma + 0.1, np.full(n, 9))


def test_a_client_seen_once_has_no_bar() -> None:
    w = Weights(0, np.arange(3), np.full(3, 0.5), np.array([0.4, 0, 0.4]), np.array([0.6, 1, 0.6]), np.array([9, 1, 9]))
    [ax] = weights_figure.draw([w], {}).axes
    [bars] = ax.collections
    assert isinstance(bars, LineCollection)
    assert len(bars.get_segments()) == 2
    assert [len(np.asarray(line.get_xdata())) for line in ax.lines] == [2, 1]  # filled, hollow


def test_traffic_is_told_in_units_that_keep_it_short() -> None:
    assert [unit_of(n) for n in (5e12, 2e9, 3e6, 4e3, 0)] == [
        (1e12, "terabytes"),
        (1e9, "gigabytes"),
        (1e6, "megabytes"),
        (1e3, "kilobytes"),
        (1e3, "kilobytes"),
    ]


def test_an_algorithm_has_the_same_colour_in_every_comparison(finished: Finished) -> None:
    methods = {name: Method(name, (load(finished(name)),)) for name in ("fedavg", "ifca", "auto", "fedprox")}
    a, b, c, d = methods.values()
    assert method_colours([c, a]) == [PREFERRED["auto"], PREFERRED["fedavg"]]
    assert method_colours([b, d, c, c])[::2] == [PREFERRED["ifca"], PREFERRED["auto"]]
    assert len(set(method_colours([b, d, c, c]))) == 4
    assert len(method_colours([a] * 20)) == 20


def test_who_was_divided_has_the_colour_of_its_largest_child() -> None:
    ids = np.arange(10)
    rows = [(0, None, 0, 5, 0, 10), (1, 0, 5, 8, 0, 7), (2, 0, 5, None, 7, 10), (3, 1, 8, None, 0, 3), (4, 1, 8, None, 3, 7)]
    nodes = tuple(Node(i, parent, born, ended, ids[a:b], {}) for i, parent, born, ended, a, b in rows)
    clusters = np.array([3] * 3 + [4] * 4 + [2] * 3)
    found = colours(Run(None, {}, [], clusters, None, np.ones(10, int), None, nodes))  # type: ignore[arg-type]
    assert found == {0: NEUTRAL, 1: LIGHT[0], 2: LIGHT[1], 3: LIGHT[2], 4: LIGHT[0]}


# Machado, Oliveira and Fernandes (2009): what is seen without one kind of cones, in linear RGB.
SEEN = {
    "all": np.eye(3),
    "no red": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    "no green": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    "no blue": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> Floats:
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def cielab(rgb: Floats) -> Floats:
    x = TO_XYZ @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089]
    f = np.where(x > 0.008856, np.cbrt(x), 7.787 * x + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("kind", SEEN)
def test_colours_differ_for_all_kinds_of_colour_vision(kind: str, palette: tuple[str, ...]) -> None:
    seen = [cielab(SEEN[kind] @ linear(c)) for c in palette]
    assert min(math.dist(a, b) for a, b in combinations(seen, 2)) > 10


@pytest.mark.parametrize(("palette", "paper"), [(LIGHT, "#ffffff"), (DARK, "#18202a")], ids=["light", "dark"])
def test_colours_stand_out_from_the_page(palette: tuple[str, ...], paper: str) -> None:
    for colour in palette:
        dark, light = sorted(float(TO_XYZ[1] @ linear(c)) for c in (colour, paper))
        assert (light + 0.05) / (dark + 0.05) > 3  # what WCAG 2.1 asks of graphics
