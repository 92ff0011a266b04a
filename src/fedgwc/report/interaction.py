"""Sections on FedGWC's rewards, weights and matrices.

Interaction and affinity matrices, and their convergence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.algorithms.fedgwc.algorithm import FedGWC
from fedgwc.algorithms.fedgwc.splits import PaperSplit
from fedgwc.core.protocols import Algorithm
from fedgwc.core.text import plural
from fedgwc.core.types import Floats, Ids
from fedgwc.report.cohort import LOOK_BACK, clearest
from fedgwc.report.content import Section
from fedgwc.report.convergence import mse_by_cluster, trace_of
from fedgwc.report.data import Matrix, Run
from fedgwc.report.figures import embedding, heatmap, mse, reward, tree, weights
from fedgwc.report.matrices import (
    ByLosses,
    affinity_of,
    algorithm_of,
    at_end,
    at_splits,
    by_losses,
    children_of,
    has_plane,
    plane,
    whole_federation,
)
from fedgwc.report.render import Picture
from fedgwc.report.theme import colours
from fedgwc.report.weights import Weights, weights_of
from fedgwc.runs.progress import Watcher
from fedgwc.runs.replay import Trace

MOST_SPLITS = 8  # whose matrices are shown
MOST_LINES = 8  # clusters in the figure of the MSE
MOST_PLANES = 12  # embeddings shown
MOST_POINTS = 2000  # clients in one of them


def interaction_sections(run: Run, progress: Watcher) -> list[Section | None]:
    algorithm = algorithm_of(run)
    rule = by_losses(algorithm)
    if algorithm is None or rule is None or not run.matrices:
        return []
    trace = trace_of(run)
    return [
        _matrices(run, rule) if all(m.P is not None for m in run.matrices) else None,
        _embeddings(run, rule),
        _reward(run, trace) if trace is not None else None,
        _weights(run, algorithm),
        _mse(run, algorithm, trace, progress) if trace is not None else None,
    ]


def _matrices(run: Run, rule: ByLosses) -> Section:
    shown = at_splits(run)[:MOST_SPLITS]
    pictures: list[Picture] = []
    for m in shown:
        into = children_of(run, m)
        order = [c.id for c in run.children(m.cluster)]
        when = f"cluster {m.cluster} at its split, round {m.round}"
        if m.P is not None:
            pictures += _pair(f"{m.cluster}", when, m.P, affinity_of(rule, m.P, m.distances), into, order)
    P, W = whole_federation(run, rule)
    pictures += _pair("end", "all clients at the end", P, W, run.clusters, tree.order(run))
    hidden = len(at_splits(run)) - len(shown)
    lead = "Rows and columns are clients, ordered by cluster: clients that get along form bright blocks in W. "
    lead += "Each matrix has its own scale of colours. "
    lead += "At the end, pairs in different clusters keep the values they had when they were parted. " if run.splits else ""
    if isinstance(rule, Auto):
        lead += "P is the mean over a window of rounds; W comes from all windows so far."
    note = f"The first {len(shown)} of {len(shown) + hidden} splits are shown. " if hidden else ""
    big = len(run.clusters) > heatmap.PIXELS
    note += f"Sides of more than {heatmap.PIXELS} clients are averaged in blocks. " if big else ""
    if (P == 0).any():
        note += "Grey entries of P are pairs that were not sampled together"
        note += ", in matrices at the end since the last window began. " if isinstance(rule, Auto) else ". "
    return Section("matrices", "Interaction and affinity", lead, tuple(pictures), note=note.strip(), layout="pairs")


def _pair(name: str, when: str, P: Floats, W: Floats, groups: Ids, order: list[int]) -> list[Picture]:
    made = []
    for letter, matrix, what in (("P", P, "interaction matrix P"), ("W", W, "affinity matrix W")):
        alt = heatmap.describe(matrix, groups, f"the {what} of {when}")
        caption = alt.split(". ", 1)[1] if ". " in alt else ""
        figure = heatmap.draw(matrix, groups, letter, order)
        made.append(Picture(f"{letter}-{name}", f"{letter} of {when}", alt, caption, figure))
    return made


def _embeddings(run: Run, rule: ByLosses) -> Section | None:
    depth = levels(run)
    planes = [m for m in [*at_splits(run), *at_end(run)] if has_plane(m)]
    planes.sort(key=lambda m: (depth.get(m.cluster, 0), m.round is None, m.cluster))
    shown = [_plane(run, m, rule, depth.get(m.cluster, 0)) for m in planes[:MOST_PLANES]]
    if not shown:
        return None
    marks = "; the shape of a marker is the client's true group" if run.truth is not None else ""
    lead = "Clients by what decides splits, level by level of the tree. "
    lead += f"Colour is the cluster a client goes to{marks}."
    note = f"The first {len(shown)} of {len(planes)} clusters are shown. " if len(planes) > len(shown) else ""
    big = any(len(m.members) > MOST_POINTS for m in planes)
    note += f"Of more than {MOST_POINTS:,} clients that many are drawn." if big else ""
    return Section("embedding", "Spectral embedding", lead, tuple(shown), note=note.strip())


def _plane(run: Run, m: Matrix, rule: ByLosses, level: int) -> Picture:
    groups = children_of(run, m)
    truth = None if run.truth is None else run.truth[m.members]
    fate = "at the end" if m.round is None else f"splits at round {m.round}"
    points, axes = plane(m, rule)
    some = np.linspace(0, len(points) - 1, min(len(points), MOST_POINTS)).astype(np.int64)
    figure = embedding.draw(points[some], groups[some], colours(run), None if truth is None else truth[some], axes)
    title = f"Level {level}: cluster {m.cluster} {fate}"
    return Picture(f"embedding-{m.cluster}", title, f"{title}. {embedding.describe(groups, truth)}", "", figure)


def levels(run: Run) -> dict[int, int]:
    """Count the splits between the federation and each cluster."""
    depth: dict[int, int] = {}
    for node in sorted(run.nodes, key=lambda n: (n.born, n.id)):
        depth[node.id] = 0 if node.parent is None else depth.get(node.parent, 0) + 1
    return depth


def _reward(run: Run, trace: Trace) -> Section | None:
    cohort = clearest(run, trace)
    if cohort is None:
        return None
    among = f"the last {LOOK_BACK} rounds before the first split" if run.splits else f"the last {LOOK_BACK} rounds"
    caption = f"Round {cohort.round}, the clearest contrast among {among}. Two clients, in the colours of their clusters."
    of_client = {k: colours(run)[int(run.clusters[k])] for k in cohort.clients.tolist()}
    picture = Picture(
        "reward", "Losses and rewards of one cohort", reward.describe(cohort), caption, reward.draw(cohort, of_client)
    )
    lead = "A client whose losses stay near the cohort's mean gets a high Gaussian reward; one that strays gets a low one."
    return Section("reward", "Gaussian rewards", lead, (picture,), layout="wide")


def _weights(run: Run, algorithm: Algorithm[Any]) -> Section | None:
    found = [w for w in weights_of(run, algorithm) if len(w.clients)]
    if not found:
        return None
    since = "since the last window of rounds began" if isinstance(algorithm, Auto) else "since the run began"
    picture = Picture(
        "weights",
        "Gaussian weights and their 95 % intervals",
        weights.describe(found),
        f"A weight is the running mean of a client's rewards in its cluster, {since}.{_seen(run, found)}",
        weights.draw(found, colours(run)),
    )
    wide = float(np.median(np.concatenate([w.high - w.low for w in found])))
    lead = f"How much each client agrees with its cluster. The median interval is {wide:.2f} wide."
    return Section("weights", "Gaussian weights", lead, (picture,), layout="wide")


def _seen(run: Run, found: list[Weights]) -> str:
    """Say how many clients have no weight, or no interval."""
    weighted, once = sum(len(w.clients) for w in found), sum(int(w.once.sum()) for w in found)
    few = f" Hollow: {plural(once, 'client')} seen once since then, without an interval." if once else ""
    rest = len(run.clusters) - weighted
    return few + (f" Not shown: {plural(rest, 'client')} not seen since then." if rest else "")


def _mse(run: Run, algorithm: Algorithm[Any], trace: Trace, progress: Watcher) -> Section | None:
    lines = mse_by_cluster(trace, algorithm, int(run.experiment.get("seed", 0)), progress)
    if not lines:
        return None
    rule = by_losses(algorithm)
    eps = rule.split.eps if isinstance(rule, FedGWC) and isinstance(rule.split, PaperSplit) else None
    sizes = {n.id: len(n.members) for n in run.nodes}
    shown = sorted(sorted(lines, key=lambda c: (-sizes.get(c, 0), c))[:MOST_LINES])
    note = f"The {len(shown)} largest of {len(lines)} clusters are shown." if len(lines) > len(shown) else ""
    lines = {c: lines[c] for c in shown}
    figure = mse.draw(lines, colours(run), eps)
    caption = "Recomputed from the recorded losses; geometric means over neighbouring rounds."
    if isinstance(rule, Auto) and rule.second_look and any(j.verdict.reason == "groups" for j in run.verdicts):
        caption += " It ends with the first division into groups: what clients said after it is not recorded."
    picture = Picture("mse", "MSE of consecutive interaction matrices", mse.describe(lines), caption, figure)
    anew = "The matrix is the mean over a window of rounds and starts anew with each."
    lead = anew if isinstance(rule, Auto) else "A cluster may split once its interaction matrix has settled."
    return Section("mse", "Convergence of P", lead, (picture,), note=note, layout="wide")
