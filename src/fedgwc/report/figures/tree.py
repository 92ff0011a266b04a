"""The tree of clusters over time.

Each cluster is a band from birth to split, as high as it has clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedgwc.core.text import plural
from fedgwc.report.data import Node, Run
from fedgwc.report.figures.axes import rounds_axis
from fedgwc.report.theme import INK, PAPER, WIDE, canvas, colours, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINE = 0.17  # inches that a band must be high for its name


@styled
def draw(run: Run) -> Figure:
    figure, ax = canvas((WIDE[0], WIDE[1] + 0.12 * max(0, len(run.leaves) - 6)))
    n_clients, end = len(run.clusters), run.last["round"]
    colour, low = colours(run), bands(run)
    for node in run.nodes:
        y, height, right = low[node.id], len(node.members), end if node.ended is None else node.ended
        ax.broken_barh([(node.born, right - node.born)], (y, height), facecolor=colour[node.id], alpha=0.32, linewidth=0)
        ax.plot([node.born, right], [y, y], color=PAPER, linewidth=1.5)
        ax.plot([node.born, node.born], [y, y + height], color=colour[node.id], linewidth=2.5, solid_capstyle="butt")
        if height / n_clients * figure.get_figheight() > LINE:
            room = (right - node.born) / end
            text = next((t for t in names(node) if 0.02 + 0.0138 * len(t) < room), "")
            ax.text(node.born + 0.012 * end, y + height / 2, text, va="center", fontsize=8.5, color=INK)
    ax.set(ylim=(n_clients, 0), ylabel="clients, by cluster")
    rounds_axis(ax, end)
    return figure


def bands(run: Run) -> dict[int, float]:
    """Return the position of each cluster's band.

    Children lie side by side inside their parent's.
    """
    low: dict[int, float] = {}
    free: dict[int | None, float] = {None: 0.0}  # where the next child of each goes
    for node in sorted(run.nodes, key=lambda n: n.id):  # parents come before their children
        low[node.id] = free[node.id] = free[node.parent]
        free[node.parent] += len(node.members)
    return low


def order(run: Run) -> list[int]:
    """List leaves from top to bottom."""
    low = bands(run)
    return sorted(run.leaves, key=lambda c: low.get(c, c))


def names(node: Node) -> list[str]:
    """List labels for a band, from the longest to the shortest.

    A number alone is always the cluster's.
    """
    return [f"cluster {node.id}: {plural(len(node.members), 'client')}", f"cluster {node.id}", str(node.id)]


def davies_bouldin(run: Run, node: Node) -> float | None:
    """Return the Davies-Bouldin score of the split that made a cluster.

    The one for as many groups as there are siblings.
    """
    siblings = [n for n in run.nodes if n.parent == node.parent and n.born == node.born]
    return node.scores.get(len(siblings)) if node.parent is not None else None


def describe(run: Run) -> str:
    parts = []
    for node in run.splits[:12]:
        children = run.children(node.id)
        score = davies_bouldin(run, children[0]) if children else None
        sizes = " and ".join(f"cluster {c.id} with {len(c.members)}" for c in children)
        parts.append(
            f"cluster {node.id} of {len(node.members)} clients splits at round {node.ended} into {sizes}"
            + (f" (Davies-Bouldin {score:.2f})" if score is not None else "")
        )
    text = "; ".join(parts) if parts else f"one cluster of {len(run.clusters)} clients from the first round to the last"
    more = f"; and {len(run.splits) - 12} more splits" if len(run.splits) > 12 else ""
    return f"A band per cluster, as high as it has clients, over rounds: {text}{more}."
