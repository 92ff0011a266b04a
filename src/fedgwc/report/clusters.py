"""The section on the clusters' classes."""

from __future__ import annotations

from itertools import combinations

from fedgwc.core.types import Floats
from fedgwc.report.content import Section
from fedgwc.report.data import Run
from fedgwc.report.figures import classes
from fedgwc.report.render import Picture
from fedgwc.report.theme import colours

MOST_CLUSTERS = 12
UNKNOWN = "Not known: no clusters can be compared by class, since not every client told how many samples of each class it has."


def cluster_sections(run: Run) -> list[Section | None]:
    if run.counts is None:
        return [Section("classes", "Class distributions", UNKNOWN)]
    if not run.counts.sum():
        return []
    share, federation_share = classes.shares(run.counts, run.clusters), run.counts.sum(0) / run.counts.sum()
    return [_classes(run, share, federation_share), _pairs(run, share) if len(share) > 1 else None]


def _classes(run: Run, share: dict[int, Floats], federation_share: Floats) -> Section:
    colour = colours(run)
    shown = sorted(sorted(share, key=lambda c: (-(run.clusters == c).sum(), c))[:MOST_CLUSTERS])
    top = max(float(max(share[c].max() for c in shown)), float(federation_share.max()))
    pictures = tuple(
        Picture(
            f"classes-{c}",
            f"Cluster {c}: {(run.clusters == c).sum()} clients",
            classes.describe_one(share[c]),
            "",
            classes.draw_one(share[c], federation_share, colour[c], top),
        )
        for c in shown
    )
    note = f"The {len(shown)} largest of {len(share)} clusters are shown." if len(share) > len(shown) else ""
    lead = "Training samples per class in each cluster; the dashed line is the whole federation."
    return Section("classes", "Class distributions", lead, pictures, note=note)


def _pairs(run: Run, share: dict[int, Floats]) -> Section:
    colour = colours(run)
    shown, total = classes.pairs(share), len(list(combinations(share, 2)))
    top = max(float(share[c].max()) for pair in shown for c in pair)
    pictures = tuple(
        Picture(
            f"classes-{a}-{b}",
            f"Clusters {a} and {b}: overlap {classes.overlap(share[a], share[b]):.2f}",
            classes.describe_pair(a, share[a], b, share[b]),
            "",
            classes.draw_pair((a, share[a], colour[a]), (b, share[b], colour[b]), top),
        )
        for a, b in shown
    )
    note = f"Of {total} pairs the {len(shown)} that overlap least and most are shown." if total > len(shown) else ""
    lead = "Two clusters face to face. Overlap is what their class distributions share: 0 nothing, 1 everything."
    return Section("pairs", "Pairs of clusters", lead, pictures, note=note)
