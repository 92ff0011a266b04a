"""The look of figures: a style, a palette, and colours for dark mode.

Every colour drawn has a role. Files get the light values; in the page each value becomes a CSS variable of its role.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, cast

from fedgwc.core.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedgwc.report.data import Run

INK, SOFT, GRID, PAPER, NEUTRAL = "#1b2733", "#5a6875", "#dfe5ea", "#fffffe", "#8a97a3"
# After Okabe and Ito. Any two are at least 10 apart (CIELAB) for all kinds of colour vision, on white and in dark mode.
LIGHT = ("#0072b2", "#d55e00", "#009e73", "#b85c96", "#3f9bd1", "#7433d6", "#6b2f00", "#8a3350")
DARK = ("#4fa8e0", "#ff8b45", "#2cc79a", "#e79cc9", "#94d2f7", "#9b78ff", "#f6e34a", "#b06a55")
ROLES = {INK: "ink", SOFT: "soft", GRID: "grid", PAPER: "paper", NEUTRAL: "neutral"} | {c: f"c{i}" for i, c in enumerate(LIGHT)}
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (3, 1, 1, 1, 1, 1)), (0, (8, 3)))
MARKERS = "osDPX*phd8H"  # no triangle: these mark splits
HEAT = "viridis"  # even for the colour-blind and in print, and without greys: these are entries that are not known
WIDE, SQUARE, SMALL = (5.2, 3.0), (3.7, 3.45), (3.7, 2.4)  # inches of 72 points: text of 9 points stays legible on a phone

STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 9.0,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": NEUTRAL,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "text.color": INK,
    "text.parse_math": False,  # names from files are text, whatever is in them
    "xtick.color": NEUTRAL,
    "ytick.color": NEUTRAL,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.major.size": 3.0,
    "ytick.major.size": 0.0,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.hashsalt": "fedgwc",
    "path.simplify": True,
    "path.simplify_threshold": 0.2,
}

_P = ParamSpec("_P")


def needs_extra() -> None:
    """Say what to install where matplotlib or jinja2 is missing."""
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise InputError(f"reports need {error.name}: install fedgwc with its extra `report`") from None


@contextmanager
def house_style(**more: Any) -> Iterator[None]:
    """Apply `STYLE` alone, whatever the user's matplotlib settings are."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(cast(Any, STYLE | more))
        yield


def styled(draw: Callable[_P, Figure]) -> Callable[_P, Figure]:
    """Draw in the house style."""

    @wraps(draw)
    def inner(*args: _P.args, **kwargs: _P.kwargs) -> Figure:
        with house_style():
            return draw(*args, **kwargs)

    return inner


def canvas(size: tuple[float, float] = WIDE) -> tuple[Figure, Axes]:
    """Create a figure without pyplot, so that nothing global is kept."""
    figure, [ax] = panels(1, size)
    return figure, ax


def panels(n: int, size: tuple[float, float], **how: Any) -> tuple[Figure, list[Axes]]:
    """Create a figure with `n` plots above each other over the same x."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=72, layout="constrained")
    return figure, list(figure.subplots(n, 1, sharex=True, squeeze=False, **how)[:, 0])


def colours(run: Run) -> dict[int, str]:
    """Choose the colour of every cluster that ever was.

    The undivided federation stays neutral.

    The largest clusters at the end have colours of their own, and one that was divided has that of its largest child: so
    siblings differ, and few colours do.
    """
    ranked = sorted(run.leaves, key=lambda c: (-(run.clusters == c).sum(), c))
    found = {c: LIGHT[i % len(LIGHT)] for i, c in enumerate(ranked)}
    for node in reversed(run.splits):  # children before their parents
        children = run.children(node.id)
        heir = min(children, key=lambda c: (-len(c.members), c.id), default=None)
        found[node.id] = NEUTRAL if node.parent is None or heir is None else found.get(heir.id, NEUTRAL)
    return found


def looks(line_colours: Iterable[str]) -> list[dict[str, Any]]:
    """Choose dashes for lines of these colours.

    A colour that comes again has another dash, so that no two lines look the same.
    """
    used: Counter[str] = Counter()
    found = []
    for i, colour in enumerate(line_colours):
        dash = DASHES[used[colour] % len(DASHES)]
        found.append({"color": colour, "linestyle": dash, "marker": MARKERS[i % len(MARKERS)]})
        used[colour] += 1
    return found
