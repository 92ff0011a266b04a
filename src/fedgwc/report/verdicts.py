"""The section on why clusters were divided at the ends of windows, or not."""

from __future__ import annotations

from collections import Counter

import numpy as np

from fedgwc.algorithms.auto.algorithm import SETTLED, Auto
from fedgwc.algorithms.auto.cuts import TOO_FEW
from fedgwc.algorithms.auto.second_look import FAINT
from fedgwc.algorithms.auto.verdicts import FORETOLD
from fedgwc.core.text import plural
from fedgwc.report.content import Cell, Section, Table, number
from fedgwc.report.data import Judged, Run
from fedgwc.report.figures import verdicts
from fedgwc.report.matrices import algorithm_of, at_end
from fedgwc.report.render import Picture
from fedgwc.report.theme import colours

MOST_ROWS = 40  # windows in the table
MOST_LINES = 6  # clusters in the figure
HEAD = ["round", "cluster", "cut", "verdict", "agreement", "drift", "adrift", "contrast", "apart"]
HEAD += ["score", "gain", "foretold", "clear"]
REASONS = {
    "drift": "clients drift",
    "groups": "there are groups",
    "no cut": "nothing to cut",
    "too early": "clients drift, too early",
    "first cut": "no cut before",
    "agreement": "windows disagree",
    "contrast": "clients hardly differ",
    "no groups": "no clear groups",
    "chance": "groups may be chance",
    "moved": "served better on the other side",
    "confirmed": "each side has the model that serves it",
    "rejoined": "no side was served better by its own model",
}
TRIALS = {"moved": "moved", "confirmed": "confirmed", "rejoined": "undone"}  # what came of a division, and is told of no window
FATES = {"drift": "divided", "groups": "divided", **TRIALS}


def why_section(run: Run) -> Section | None:
    """Build the section on the reasons for divisions.

    None: another rule than windows decides, or an older version did not write down why.
    """
    algorithm = algorithm_of(run)
    if not isinstance(algorithm, Auto):
        return None
    lead = _lead(run) if run.verdicts else _waiting(run, algorithm)
    if not lead:
        return None
    shown = _shown(run.verdicts)
    title = "Windows of rounds that came to an end, and what came of divisions"
    tables = (Table(title, HEAD, [_row(j) for j in shown], sortable=True),)
    left = len(run.verdicts) - len(shown)
    note = f"The table has divisions, what came of them and the last windows; verdicts.jsonl has {left:,} more." if left else ""
    lead, pictures = f"{lead} {_rule(algorithm)}", _pictures(run, algorithm)
    return Section("why", "Why it divided, or did not", lead, pictures, tables if shown else (), note=note, layout="wide")


def _lead(run: Run) -> str:
    moved = [j.verdict for j in run.verdicts if j.verdict.reason == "moved"]
    counts = Counter((j.verdict.divides, j.verdict.reason) for j in run.verdicts if j.verdict.reason not in TRIALS)
    text = f"{plural(counts.total(), 'window')} of rounds came to an end."
    for divides, fate in ((True, "Divided"), (False, "Left whole")):
        reasons = [f"{REASONS[reason]} ({n})" for (d, reason), n in counts.most_common() if d == divides]
        text += f" {fate}: {', '.join(reasons)}." if reasons else ""
    if moved:
        text += f" Moved later to the other side of a division: {plural(sum(sum(v.sizes[1:]) for v in moved), 'client')}."
    for reason, fate in (("confirmed", "Confirmed later"), ("rejoined", "Undone later")):
        n = sum(j.verdict.reason == reason for j in run.verdicts)
        text += f" {fate}: {plural(n, 'division')}." if n else ""
    last = run.verdicts[-1]
    return text if run.splits else f"{text} At the last, in round {last.round:,}, {last.why}."


def _rule(a: Auto) -> str:
    untried = f", and {a.doubt:g} more where few or nobody could try the division and for each that was undone" if a.doubt else ""
    trial = (
        f"A division into groups that clients could try is undone if the models of its sides serve them differently by fewer "
        f"than {FAINT:g} deviations in the end, or by even less before (clear). "
    )
    drifts = (
        f"A cluster is divided in two cases. One: its clients drift, by at least {a.drift:g} in half of the window's rounds "
        f"(adrift says in how many). That counts from the third window on, in a child from its second. "
    )
    groups = (
        f"Two: it has groups. The window before would have cut it alike (agreement at least {a.agreement:g}); groups describe "
        f"clients better than one does (gain at least {a.gain:g}{untried}); and either clients differ (contrast at least "
        f"{a.contrast:g} in half of the rounds of this window or an earlier one; apart says in how many), or the cut has told "
        f"since it was made who helps whom (foretold at least {FORETOLD} deviations). Of fewer than {TOO_FEW} clients only the "
        f"latter counts. "
    )
    return f"{drifts}{groups}{trial if a.second_look else ''}Clusters of fewer than {a.fewest} clients are not tried."


def _waiting(run: Run, algorithm: Auto) -> str:
    """Say that clients are too few, or that the first window goes on."""
    if few := algorithm.too_few(len(run.clusters)):
        return f"No attempt: {few}."
    matrices = at_end(run)
    if len(matrices) != 1 or matrices[0].visits is None or not (matrices[0].distances is None and matrices[0].paths is None):
        return ""
    visits = matrices[0].visits
    if visits.ndim == 2:
        what, seen, counts_seen = "pair", "met", visits[~np.eye(len(visits), dtype=bool)]
    else:
        what, seen, counts_seen = "client", "been seen", visits
    wanted = algorithm.visits_wanted(visits.ndim == 2)
    often = int(np.median(counts_seen))
    fewer = ", or fewer visits" if algorithm.visits > 1 else ""
    so_far = f"the median {what} has {seen} {plural(often, 'time')}. It takes more rounds{fewer}."
    if often >= wanted and visits.ndim == 2:  # all that is missing is training
        so_far = (
            f"half of the clients have trained {SETTLED} times; the median one has {int(np.median(visits.diagonal()))} times."
        )
    ends = f"half of the {what}s have {seen} {plural(wanted, 'time')}"
    return f"No attempt yet: the first window of rounds ends when {ends}, and {so_far}"


def _shown(judged: tuple[Judged, ...]) -> list[Judged]:
    """Choose the verdicts to show, in the order of rounds.

    Divisions and what came of them first, then the last window of every cluster, then the latest.
    """
    last = {j.verdict.cluster: i for i, j in enumerate(judged)}
    ranked = sorted(range(len(judged)), key=lambda i: (not _matters(judged[i]), last[judged[i].verdict.cluster] != i, -i))
    return [judged[i] for i in sorted(ranked[:MOST_ROWS])]


def _matters(j: Judged) -> bool:
    return j.verdict.divides or j.verdict.reason in TRIALS


def _row(j: Judged) -> list[Cell]:
    v = j.verdict
    share = [number(100 * n / v.rounds if v.rounds else None, 0, " %") for n in (v.adrift, v.apart)]
    return [
        number(j.round, 0),
        Cell(str(v.cluster), v.cluster),
        Cell(" + ".join(map(str, v.sizes)) or str(v.clients), v.clients),
        Cell(f"{FATES.get(v.reason, 'whole')}: {REASONS[v.reason]}"),
        number(v.agreement),
        *(number(v.drift), share[0], number(v.contrast), share[1]),
        *(number(v.score), number(v.gain), number(v.foretold, 1), number(v.clear, 1)),
    ]


def _pictures(run: Run, algorithm: Auto) -> tuple[Picture, ...]:
    """Draw the course of the largest clusters that have several windows."""
    by_cluster: dict[int, list[Judged]] = {}
    for j in (j for j in run.verdicts if j.verdict.reason not in TRIALS):
        by_cluster.setdefault(j.verdict.cluster, []).append(j)
    largest = sorted(by_cluster, key=lambda c: (-by_cluster[c][0].verdict.clients, c))[:MOST_LINES]
    if len(run.verdicts) < 3:
        return ()
    lines = {c: by_cluster[c] for c in sorted(largest)}
    figure = verdicts.draw(lines, colours(run), run.last["round"], algorithm)
    most = f" The {len(lines)} largest of {len(by_cluster)} clusters." if len(by_cluster) > len(lines) else ""
    dashed = "Dashed: what is asked for; contrast only where losses tell groups, and one window is enough."
    caption = f"One dot per window; a ring is a division. {dashed}{most}"
    return (Picture("verdicts", "Window by window", verdicts.describe(lines), caption, figure),)
