"""The page of one run: its course, its clusters, and the reasons."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedgwc.core.assignments import flatten
from fedgwc.core.tables import Table
from fedgwc.core.text import plural
from fedgwc.report.clusters import cluster_sections
from fedgwc.report.content import Cell, Headline, Page, Section, number, settings_tables
from fedgwc.report.content import Table as Rows
from fedgwc.report.data import Node, Run
from fedgwc.report.figures import accuracy, clients, tree
from fedgwc.report.interaction import interaction_sections
from fedgwc.report.members import members_section
from fedgwc.report.render import Picture
from fedgwc.report.theme import colours
from fedgwc.report.verdicts import why_section
from fedgwc.runs.progress import SILENT, Watcher

COSTS = {
    "client_updates": ("clients trained", 1.0, 0),
    "gradient_steps": ("gradient steps", 1.0, 0),
    "bytes_down": ("megabytes to clients", 1e-6, 1),
    "bytes_up": ("megabytes from clients", 1e-6, 1),
    "evaluations": ("samples scored because the algorithm asked", 1.0, 0),
    "seconds": ("seconds", 1.0, 1),
}


def one_run(run: Run, progress: Watcher = SILENT) -> Page:
    """Build the page of one run: all figures of the table."""
    sections = [section for draw in FIGURES.values() for section in draw(run, progress)]
    about = str(run.experiment.get("about") or "")
    subtitle = f"{about} · run {run.name}" if about else f"run {run.name}"
    return Page(
        f"{run.algorithm} on {run.experiment.get('recipe', 'a federation')}",
        subtitle,
        headlines(run),
        [s for s in sections if s is not None],
    )


def headlines(run: Run) -> list[Headline]:
    last = run.last
    sizes = sorted((int((run.clusters == c).sum()) for c in run.leaves), reverse=True)
    shown = " + ".join(map(str, sizes[:6])) + (" + …" if len(sizes) > 6 else "")
    found = [Headline("clusters", str(len(sizes)), f"{shown} clients")]
    for key, label in (
        ("balanced_accuracy", "balanced accuracy"),
        ("accuracy", "accuracy"),
        ("weighted_accuracy", "weighted accuracy"),
    ):
        if isinstance(last.get(key), int | float):
            found.append(Headline(label, f"{100 * last[key]:.1f} %", "mean over clients"))
    if "ari" in last:
        found.append(
            Headline("adjusted Rand", f"{last['ari']:.2f}", f"with the known groups; Rand {last.get('rand', np.nan):.2f}")
        )
    if "was" in last:
        beside = f"; WADB {last['wadb']:.2f}, best 0" if "wadb" in last else ""  # not defined where everybody is alone
        found.append(Headline("WAS", f"{last['was']:.2f}", f"best 1{beside}"))
    found.append(Headline("rounds", f"{last['round']:,}", f"{len(run.clusters)} clients, seed {run.experiment.get('seed')}"))
    if isinstance(last.get("seconds"), int | float):
        sent = (last.get("bytes_down", 0) + last.get("bytes_up", 0)) * 1e-6
        found.append(Headline("time", f"{last['seconds']:,.0f} s", f"{sent:,.0f} MB sent both ways"))
    return found


def _accuracy(run: Run) -> Section:
    marked = " Dotted lines mark splits, named where there is room by the cluster and its children." if run.splits else ""
    picture = Picture(
        "accuracy",
        "Accuracy over rounds",
        accuracy.describe(run),
        f"Mean over clients of each one's own model on its own test set; names have the last value.{marked}",
        accuracy.draw(run),
    )
    lead = accuracy.jumps(run).replace("it goes", f"{accuracy.leading(run).replace('_', ' ')} goes")
    return Section("accuracy", "Accuracy", lead, (picture,), layout="wide")


def _tree(run: Run) -> Section | None:
    if not run.nodes:
        return None
    if not run.splits:
        return Section("tree", "Tree of clusters", f"No split: all {len(run.clusters)} clients stayed in one cluster.")
    caption = "A band per cluster, from its birth to its split, as high as it has clients; names and numbers where they fit."
    picture = Picture("tree", "Clusters over time", tree.describe(run), caption, tree.draw(run))
    lead = f"{plural(len(run.splits), 'split')} made {len(run.leaves)} clusters of {len(run.clusters)} clients."
    return Section("tree", "Tree of clusters", lead, (picture,), (_tree_table(run),), layout="wide")


def _tree_table(run: Run) -> Rows:
    head = ["cluster", "parent", "clients", "born", "split"]
    scored = any(n.scores for n in run.nodes)
    cosine = any(n.cosine is not None for n in run.nodes)
    head += (["Davies-Bouldin"] if scored else []) + (["cosine across its split"] if cosine else [])
    head += ["true groups"] if run.truth is not None else []
    rows = []
    for n in run.nodes:
        row = [Cell(str(n.id), n.id), Cell("–" if n.parent is None else str(n.parent), -1 if n.parent is None else n.parent)]
        row += [number(len(n.members), 0), number(n.born, 0), number(n.ended, 0)]
        row += [number(tree.davies_bouldin(run, n), 3)] if scored else []
        row += [number(n.cosine, 3)] if cosine else []
        rows.append(row + ([Cell(_groups(run, n))] if run.truth is not None else []))
    return Rows(
        "Every cluster that ever was" + ("; Davies-Bouldin of the split that made it, lower is better" if scored else ""),
        head,
        rows,
        sortable=True,
    )


def _groups(run: Run, node: Node) -> str:
    if run.truth is None:
        return ""
    kinds, counts = np.unique(run.truth[node.members], return_counts=True)
    return ", ".join(f"{n} of group {k}" for k, n in zip(kinds, counts, strict=True))


def _per_client(run: Run) -> Section | None:
    scores = run.per_client
    if scores is None or not {"clients", "accuracy"} <= scores.keys():
        return None
    tested = np.isfinite(scores["accuracy"])
    values, ids = 100 * scores["accuracy"][tested], scores["clients"][tested]
    if not len(values):
        return None
    groups = {c: values[run.clusters[ids] == c] for c in run.leaves}
    groups = {c: v for c, v in groups.items() if len(v)}
    text = clients.describe(values, groups)
    note = f"The {clients.MOST} largest of {len(groups)} clusters are shown." if len(groups) > clients.MOST else ""
    caption = "Histogram per cluster, each scaled to its own highest bar; the upright line is the mean."
    picture = Picture("clients", "Accuracy of single clients", text, caption, clients.draw(values, groups, colours(run)))
    lead = f"A tenth of the clients reaches at most {np.percentile(values, 10):.1f} %; the mean is {values.mean():.1f} %."
    return Section("clients", "Clients", lead, (picture,), note=note, layout="wide")


def _costs(run: Run) -> Section | None:
    rows = [[Cell(label), number(run.last[k] * scale, digits)] for k, (label, scale, digits) in COSTS.items() if k in run.last]
    table = Rows("From the first round to the last", ["what", "how much"], rows)
    return Section("costs", "Costs", "What the run took.", parts=(table,)) if rows else None


def _configuration(run: Run) -> Section:
    environment = {k: run.config[k] for k in ("federation", "versions") if isinstance(run.config.get(k), dict)}
    tables = settings_tables(flatten(run.experiment | environment))
    notes = run.config.get("notes")
    notes_text = " ".join(map(str, notes)) if isinstance(notes, list) else ""
    return Section(
        "configuration",
        "Configuration",
        "Everything that decides the result.",
        parts=tuple(tables),
        note=notes_text,
    )


Draw = Callable[
    [Run, Watcher], Sequence[Section | None]
]  # the parts of a page that a run gives rise to; None: it has no such part

FIGURES: Table[Draw] = Table(
    "figure",
    "fedgwc.figures",
    {
        "accuracy": lambda run, progress: [_accuracy(run)],
        "tree": lambda run, progress: [_tree(run)],
        "members": lambda run, progress: [members_section(run)],
        "why": lambda run, progress: [why_section(run)],
        "interactions": interaction_sections,
        "clusters": lambda run, progress: cluster_sections(run),
        "clients": lambda run, progress: [_per_client(run)],
        "costs": lambda run, progress: [_costs(run)],
        "settings": lambda run, progress: [_configuration(run)],
    },
)
