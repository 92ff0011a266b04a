"""Whether a recipe can run on real nodes at all, so that nobody finds out when keys are handed out and nodes are waiting.

Data that are only not on this machine are no reason against it: nodes hold them.
"""

from __future__ import annotations

from fedgwc.core.errors import InputError, NotHere
from fedgwc.data.federation import Federation
from fedgwc.flower.introductions import Look
from fedgwc.flower.options import Options
from fedgwc.flower.preflight import grouped, look_of, no_own_data, suits_data, suits_nodes, suits_number
from fedgwc.runs.experiment import Experiment


def fitting(job: Experiment, options: Options, own_data: bool) -> int | None:
    """The number of clients that the recipe has; None: only nodes know. InputError if it cannot run under these options."""
    suits_nodes(job.algorithm, options)
    look, n_clients = (_look_of_nodes(job), None) if own_data else _recipes(job)
    suits_data(job, look)
    if n_clients is not None:
        suits_number(job.algorithm, options, n_clients)
    return n_clients


def _look_of_nodes(job: Experiment) -> Look | None:
    if why := no_own_data(job):
        raise InputError(
            f"nodes cannot read data of their own with this recipe, whose [data] holds for their files too: {why}; give it the "
            "settings of the data set arrays, such as n_classes, and no others"
        )
    return look_of(job)


def _recipes(job: Experiment) -> tuple[Look | None, int | None]:
    """What the data look like and how many clients they are dealt to, as far as it is known here."""
    federation = _here(job)
    if federation is not None:
        return Look.of(federation), federation.n_clients
    look = look_of(job) if {"shape", "n_classes"} <= job.tables["data"].keys() else None
    return look, grouped(job)


def _here(job: Experiment) -> Federation | None:
    try:
        return job.federation()
    except NotHere:
        return None
