"""Checks of a run before any node is asked: by the server when it starts, by `fedgwc deploy` before that."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fedgwc.algorithms.alone import Alone
from fedgwc.algorithms.method import Method
from fedgwc.core.errors import InputError, NotHere
from fedgwc.core.layout import Layout
from fedgwc.core.protocols import Algorithm, SamplesClients, StartsFromSeveral
from fedgwc.core.sampling import cohort_size
from fedgwc.core.settings import arguments, call, convert, lookup
from fedgwc.data.federation import Federation
from fedgwc.data.groups import Group
from fedgwc.data.rows import Rows
from fedgwc.engines.simulator import Simulator
from fedgwc.flower.client import with_data
from fedgwc.flower.identity import DataDescription, data_problem
from fedgwc.flower.options import Options
from fedgwc.flower.private_server import private_losses_for
from fedgwc.models import MODELS
from fedgwc.runs.experiment import Experiment

OWN_DATA = "/path/to/data.npz"  # a node's operator replaces it
log = logging.getLogger("fedgwc")


def describe_data(job: Experiment) -> DataDescription | None:
    """Describe the recipe's data; None: only nodes know them."""
    table = job.tables["data"]
    if {"shape", "n_classes"} <= table.keys():
        return call(DataDescription, {key: table[key] for key in table.keys() & DataDescription.__dataclass_fields__}, "data")
    try:
        return DataDescription.of(job.federation(newcomers=False))
    except (InputError, OSError) as error:
        log.info("what most nodes say their data look like will hold for all, since the recipe's are not here (%s)", error)
        log.info("one node alone is believed only when `wait` is over; to say it yourself give data.shape and data.n_classes")
        return None


def own_data_problem(job: Experiment) -> str:
    """Say why nodes cannot bring their own data, if so.

    The recipe's [data] holds for their files too.
    """
    try:
        with_data(job, OWN_DATA).federation(newcomers=False)
    except NotHere:
        return ""
    except InputError as error:
        return str(error)
    return ""


def n_grouped_clients(job: Experiment) -> int | None:
    """Count clients of the recipe's groups; None: it has none."""
    data = {**job.defaults()["data"], **job.tables["data"]}
    groups = convert(data["groups"], tuple[Group, ...], "data.groups") if "groups" in data else ()
    return None if "partition_file" in job.tables["data"] else sum(group.clients for group in groups) or None


def n_recipe_clients(job: Experiment) -> int | None:
    """Count the recipe's clients; None: nodes may bring their own."""
    return n_grouped_clients(job) if own_data_problem(job) else None


def check_algorithm(algorithm: Algorithm[Any], options: Options) -> None:
    """Refuse an algorithm that would learn nothing from real nodes."""
    if options.private_losses:
        private_losses_for(algorithm)
    if trains_alone(algorithm) and options.min_replies > 1:
        raise InputError(
            f"alone trains a model per client, and a model with fewer than min-replies = {options.min_replies} answers stays as "
            "it is, so nothing would be trained; choose another algorithm, or try alone in a simulation: fedgwc run. "
            "(min-replies = 1 in app/pyproject.toml lets single clients be seen)"
        )


def check_n_clients(algorithm: Algorithm[Any], options: Options, n_clients: int) -> None:
    """Refuse too few clients for a round, or too many altogether."""
    if n_clients < options.min_clients:
        raise InputError(
            f"the recipe has {n_clients} clients, and the server waits for min-clients = {options.min_clients} before it starts; "
            "give more clients, or lower min-clients"
        )
    size = cohort_size(n_clients, algorithm.rate if isinstance(algorithm, SamplesClients) else 1.0)
    if not trains_alone(algorithm) and size < options.min_replies:
        raise InputError(
            f"a round asks {size} of {n_clients} clients, and a model with fewer than min-replies = {options.min_replies} "
            "answers stays as it is, so nothing would be trained; raise algorithm.rate or lower min-replies"
        )
    n_models = algorithm.n_models if isinstance(algorithm, StartsFromSeveral) else None
    model = torch.zeros(1) if n_models is None else torch.zeros(n_models, 1)
    algorithm.init(model, n_clients, Layout.unnamed(1))  # refuses more clients than it can hold


def trains_alone(algorithm: Algorithm[Any]) -> bool:
    """Tell whether each client trains a model of its own."""
    return isinstance(algorithm, Method) and isinstance(algorithm.who, Alone)


def check_model(job: Experiment, data: DataDescription | None) -> None:
    """Refuse a model that cannot be built for the data.

    Of unknown data only the names of the model's settings are checked.
    """
    if data is not None and (problem := data_problem(data)):
        raise InputError(f"no node has such data: {problem}; correct [data]")
    try:
        if data is not None:
            server_simulator(job, data)
            return
        settings = dict(job.tables["model"])
        arguments(lookup(MODELS, settings.pop("name", None), "model"), settings, "model", "shape", "n_classes")
    except NotHere:  # its weights; whoever trains it has them
        return


def server_simulator(job: Experiment, data: DataDescription) -> Simulator:
    """Build the model at the server, which trains nobody.

    It needs no GPU and no processes where the recipe gives nodes some.
    """
    device = "auto" if job.engine.device == "cuda" else job.engine.device
    return replace(job, engine=replace(job.engine, how="one-by-one", device=device)).simulator(placeholder_federation(data))


def placeholder_federation(data: DataDescription) -> Federation:
    """Make a federation of one empty sample, to build models for."""
    rows = Rows.of([np.zeros(1, np.int64)])
    x, y = torch.zeros(1, *data.shape), torch.zeros(1, dtype=torch.int64)
    return Federation(x, y, rows, rows, data.n_classes, mean=data.mean, std=data.std)
