"""Check that a recipe can run on real nodes, before anything is set up.

Data that are only not on this machine are no reason against it: nodes hold them.
"""

from __future__ import annotations

from fedgwc.core.errors import InputError, NotHere
from fedgwc.data.federation import Federation
from fedgwc.flower.identity import DataDescription
from fedgwc.flower.options import Options
from fedgwc.flower.preflight import (
    check_algorithm,
    check_model,
    check_n_clients,
    describe_data,
    n_grouped_clients,
    own_data_problem,
)
from fedgwc.runs.experiment import Experiment


def check_recipe(job: Experiment, options: Options, own_data: bool) -> int | None:
    """Refuse a recipe that cannot run; return its number of clients.

    None: only nodes know how many there are.
    """
    check_algorithm(job.algorithm, options)
    description, n_clients = (_describe_nodes_data(job), None) if own_data else _describe_recipe_data(job)
    check_model(job, description)
    if n_clients is not None:
        check_n_clients(job.algorithm, options, n_clients)
    return n_clients


def _describe_nodes_data(job: Experiment) -> DataDescription | None:
    """Describe data that nodes bring, by the recipe's words."""
    if why := own_data_problem(job):
        raise InputError(
            f"nodes cannot read data of their own with this recipe, whose [data] holds for their files too: {why}; give it the "
            "settings of the data set arrays, such as n_classes, and no others"
        )
    return describe_data(job)


def _describe_recipe_data(job: Experiment) -> tuple[DataDescription | None, int | None]:
    """Describe the recipe's data and count its clients, if known here."""
    federation = _federation_here(job)
    if federation is not None:
        return DataDescription.of(federation), federation.n_clients
    description = describe_data(job) if {"shape", "n_classes"} <= job.tables["data"].keys() else None
    return description, n_grouped_clients(job)


def _federation_here(job: Experiment) -> Federation | None:
    """Build the recipe's federation; None: its data are on other machines."""
    try:
        return job.federation(newcomers=False)
    except NotHere:
        return None
