"""What can be told of a run before a node is asked. The server looks at it when it starts, `fedgwc deploy` before that."""

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
from fedgwc.core.protocols import Algorithm, StartsFromSeveral
from fedgwc.core.sampling import cohort_size
from fedgwc.core.settings import arguments, call, convert, lookup
from fedgwc.data.federation import Federation
from fedgwc.data.groups import Group
from fedgwc.data.rows import Rows
from fedgwc.engines.simulator import Simulator
from fedgwc.flower.client import with_data
from fedgwc.flower.introductions import Look, oddity
from fedgwc.flower.options import Options
from fedgwc.flower.private_server import privacy_of
from fedgwc.models import MODELS
from fedgwc.runs.experiment import Experiment

OWN_DATA = "/path/to/data.npz"  # what an operator of a node replaces
log = logging.getLogger("fedgwc")


def look_of(job: Experiment) -> Look | None:
    """What data look like by the recipe's own words or, where this machine has them, its data; None: only nodes know."""
    said = job.tables["data"]
    if {"shape", "n_classes"} <= said.keys():
        return call(Look, {key: said[key] for key in said.keys() & Look.__dataclass_fields__}, "data")
    try:
        return Look.of(job.federation())
    except (InputError, OSError) as error:
        log.info("what most nodes say their data look like will hold for all, since the recipe's are not here (%s)", error)
        log.info("one node alone is believed only when `wait` is over; to say it yourself give data.shape and data.n_classes")
        return None


def no_own_data(job: Experiment) -> str:
    """Why nodes cannot bring data of their own, which the recipe's [data] would hold for too; empty: they can."""
    try:
        with_data(job, OWN_DATA).federation()
    except NotHere:
        return ""
    except InputError as error:
        return str(error)
    return ""


def grouped(job: Experiment) -> int | None:
    """Clients in the groups to which a data set is dealt out; others come with clients of their own."""
    data = {**job.defaults()["data"], **job.tables["data"]}
    groups = convert(data["groups"], tuple[Group, ...], "data.groups") if "groups" in data else ()
    return None if "partition_file" in job.tables["data"] else sum(group.clients for group in groups) or None


def numbered(job: Experiment) -> int | None:
    """How many clients there are, all called by their numbers; None: nodes bring others, or only they know."""
    return grouped(job) if no_own_data(job) else None


def suits_nodes(algorithm: Algorithm[Any], options: Options) -> None:
    """Whether an algorithm would learn anything from real nodes."""
    if options.private_losses:
        privacy_of(algorithm)
    if trains_alone(algorithm) and options.min_replies > 1:
        raise InputError(
            f"alone trains a model per client, and a model with fewer than min-replies = {options.min_replies} answers stays as "
            "it is, so nothing would be trained; choose another algorithm, or try alone in a simulation: fedgwc run. "
            "(min-replies = 1 in app/pyproject.toml lets single clients be seen)"
        )


def suits_number(algorithm: Algorithm[Any], options: Options, n_clients: int) -> None:
    """Whether so many clients are enough, and not too many; an algorithm's first state says for itself."""
    if n_clients < options.min_clients:
        raise InputError(
            f"the recipe has {n_clients} clients, and the server waits for min-clients = {options.min_clients} before it starts; "
            "give more clients, or lower min-clients"
        )
    size = cohort_size(n_clients, getattr(algorithm, "rate", 1.0))
    if not trains_alone(algorithm) and size < options.min_replies:
        raise InputError(
            f"a round asks {size} of {n_clients} clients, and a model with fewer than min-replies = {options.min_replies} "
            "answers stays as it is, so nothing would be trained; raise algorithm.rate or lower min-replies"
        )
    n_models = algorithm.n_models if isinstance(algorithm, StartsFromSeveral) else None
    model = torch.zeros(1) if n_models is None else torch.zeros(n_models, 1)
    algorithm.init(model, n_clients, Layout.unnamed(1))


def trains_alone(algorithm: Algorithm[Any]) -> bool:
    """Tell whether each client trains a model of its own."""
    return isinstance(algorithm, Method) and isinstance(algorithm.who, Alone)


def suits_data(job: Experiment, look: Look | None) -> None:
    """Whether the recipe's model can be built for such data; of unknown ones, whether its settings are known at least."""
    if look is not None and (odd := oddity(look)):
        raise InputError(f"no node has such data: {odd}; correct [data]")
    try:
        if look is not None:
            at_server(job, look)
            return
        settings = dict(job.tables["model"])
        arguments(lookup(MODELS, settings.pop("name", None), "model"), settings, "model", "shape", "n_classes")
    except NotHere:  # its weights; whoever trains it has them
        return


def at_server(job: Experiment, look: Look) -> Simulator:
    """The model as the server has it, which trains nobody: it needs no GPU and no processes where the recipe gives nodes some."""
    device = "auto" if job.engine.device == "cuda" else job.engine.device
    return replace(job, engine=replace(job.engine, how="one-by-one", device=device)).simulator(placeholder(look))


def placeholder(look: Look) -> Federation:
    """A federation of one empty sample: the server holds no data, but a model is built for data of some shape."""
    rows = Rows.of([np.zeros(1, np.int64)])
    x, y = torch.zeros(1, *look.shape), torch.zeros(1, dtype=torch.int64)
    return Federation(x, y, rows, rows, look.n_classes, mean=look.mean, std=look.std)
