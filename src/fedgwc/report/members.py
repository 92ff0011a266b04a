"""The section on each cluster's members, where clients have names."""

from __future__ import annotations

import numpy as np

from fedgwc.report.content import Cell, Section, Table, number
from fedgwc.report.data import Run

MOST = 1000  # clients listed


def members_section(run: Run) -> Section | None:
    if not run.names:
        return None
    shown = np.argsort(run.clusters, kind="stable")[:MOST].tolist()
    group = [] if run.truth is None else ["true group"]
    table = Table("Clients", ["name", "client", "cluster", *group, "samples", "accuracy %"], _rows(run, shown), sortable=True)
    note = f"The first {MOST:,} of {len(run.names):,} clients are shown; labels.csv has all." if len(run.names) > MOST else ""
    lead = "Clients by name, cluster by cluster. Click a heading to sort."
    return Section("members", "Who is where", lead, tables=(table,), note=note)


def _rows(run: Run, clients: list[int]) -> list[list[Cell]]:
    scores = run.per_client or {}
    accuracy = dict(zip(scores["clients"].tolist(), scores["accuracy"].tolist(), strict=True)) if "accuracy" in scores else {}
    rows = []
    for k in clients:
        where = [run.clusters[k]] if run.truth is None else [run.clusters[k], run.truth[k]]
        numbers = [number(int(n), 0) for n in (k, *where)]
        samples = number(int(run.sizes[k]) or None, 0)
        rows.append([Cell(run.names[k]), *numbers, samples, number(100 * accuracy.get(k, np.nan), 1)])
    return rows
