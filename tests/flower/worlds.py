"""Small federations on an in-process grid, and what a server needs to talk to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from fedgwc.engines.meter import Meter
from fedgwc.flower.client import client_app
from fedgwc.flower.engine import FlowerEngine
from fedgwc.flower.identity import DataDescription, read_identity
from fedgwc.flower.log_progress import LogProgress
from fedgwc.flower.mailbox import Mailbox
from fedgwc.flower.node_tracker import NodeTracker
from fedgwc.flower.options import Options
from fedgwc.flower.private_server import private_losses_for
from fedgwc.flower.roster import Roster
from fedgwc.flower.site import NodesSite
from fedgwc.flower.wire import RecipeWire
from fedgwc.runs.driver import Driver
from fedgwc.runs.experiment import Experiment
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.site import Course

from .grids import LocalGrid

QUICK: dict[str, Any] = {"deadline": 0.3, "poll": 0.005, "wait": 0.5, "pause": 0.01}


class WorldSite(NodesSite):
    """The nodes of a world that has been built already."""

    def __init__(self, here: World) -> None:
        self.grid, self.options, self.roster, self.tracker = here.grid, here.engine.options, here.roster, here.tracker
        self.engine, self._has_told_who_waits = here.engine, False

    def build_engine(self) -> FlowerEngine:
        return self.engine

    def config(self) -> dict[str, Any]:
        return {}

    def initial(self) -> Tensor:
        raise NotImplementedError

    def finish(self, folder: Any, clustering: Any, failures: Any) -> None: ...


def driver(here: World, algorithm: Any = None, seed: int = 0, folder: RunFolder | None = None) -> Driver:
    """A run over a world, of which single rounds are asked."""
    course = Course(algorithm or here.job.algorithm, "test", "test", 1, seed)
    made = Driver(course, WorldSite(here), folder, LogProgress())
    made.meter = Meter(here.engine, len(here.roster))
    return made


@dataclass
class World:
    """A grid, and everything a server needs to talk to it."""

    grid: LocalGrid
    roster: Roster
    tracker: NodeTracker
    engine: FlowerEngine
    job: Experiment

    def add(self) -> None:
        self.tracker.update()
        self.roster.add(self.tracker.sorted_newcomers())
        self.tracker.newcomers.clear()


class BlobJob(Protocol):
    """An experiment on the twelve clients of `blobs`: `blob_job(rounds=6, min_size=3)`."""

    def __call__(
        self, rounds: int = 12, steps: int = 8, engine: dict[str, Any] | None = None, **algorithm: Any
    ) -> Experiment: ...


class MakeWorld(Protocol):
    """All clients of an experiment on a grid, four per node: `world(job, min_replies=1)`."""

    def __call__(self, job: Experiment, consent: bool = False, **options: Any) -> World: ...


def nodes_for(grid: LocalGrid, job: Experiment, per_node: int = 4, **config: Any) -> None:
    n = job.federation().n_clients
    app = client_app(job)
    for node, first in enumerate(range(0, n, per_node)):
        grid.add(100 + node, app, clients=f"{first}-{min(first + per_node, n) - 1}", **config)


def build(job: Experiment, consent: bool = False, **options: Any) -> World:
    """All of the job's clients, four per node."""
    grid, settings = LocalGrid(), Options(**{**QUICK, **options})
    nodes_for(grid, job, share_class_counts=consent)
    roster = Roster(settings.strikes)
    federation = job.federation()
    wire = RecipeWire.of(job.simulator(federation).model, federation.n_classes, settings.private_losses, local=job.local)
    private = private_losses_for(job.algorithm) if settings.private_losses else None
    tracker = NodeTracker(Mailbox(grid, settings.poll), roster, read_identity, DataDescription.of(federation))
    made = World(grid, roster, tracker, FlowerEngine(grid, roster, wire, settings, private), job)
    made.add()
    return made
