"""Means of clients' own metrics that no single client can dominate; within these bounds a client is believed."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
from flwr.app import MetricRecord

from fedgwc.flower import checks

log = logging.getLogger("fedgwc")

HEAVIEST = 10  # times the median client's weight
FARTHEST = 100  # times the median client's value, or 1 if that is more
SIZE = "num-examples"


def read_scalars(record: MetricRecord) -> dict[str, float]:
    """Read a client's metrics and its weight; lists are left out."""
    found = {k: checks.number(record, k) for k, v in record.items() if not isinstance(v, list)}
    return {**found, SIZE: checks.count(record, SIZE, 1)}


def robust_means(reports: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Average metrics that more than half of the clients report, by num-examples.

    `reports` are by the client's name.

    >>> robust_means({"a": {"num-examples": 1, "acc": 0.5}, "b": {"num-examples": 3, "acc": 0.9}})
    {'acc': 0.8, 'num-examples': 4}
    """
    if not reports:
        return {}
    heaviest = HEAVIEST * float(np.median([t[SIZE] for t in reports.values()]))
    weights = {name: min(t[SIZE], heaviest) for name, t in reports.items()}
    for name in (n for n, t in reports.items() if t[SIZE] > heaviest):
        log.warning("client %s claims %d test samples; it counts as %d", name, reports[name][SIZE], heaviest)
    keys = list(dict.fromkeys(k for t in reports.values() for k in t if k != SIZE))
    usual = [k for k in keys if 2 * sum(k in t for t in reports.values()) > len(reports)]
    if len(usual) < len(keys):
        few = [k for k in keys if k not in usual]
        log.warning("left out %d test metrics that at most half of the clients told: %.200s", len(few), ", ".join(few))
    means = {k: _mean(k, {name: t[k] for name, t in reports.items() if k in t}, weights) for k in usual}
    return {**means, SIZE: round(sum(weights.values()))}


def _mean(key: str, values: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Average one metric, without values far from all others."""
    farthest = FARTHEST * max(1.0, float(np.median(np.abs(list(values.values())))))
    near = {name: v for name, v in values.items() if abs(v) <= farthest}
    for name in values.keys() - near.keys():
        log.warning("left out that %s of client %s is %g, far from all others", key[:60], name, values[name])
    return sum(v * weights[name] for name, v in near.items()) / sum(weights[name] for name in near)
