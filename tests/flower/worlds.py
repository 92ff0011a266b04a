"""Small federations on an in-process grid, and what a server needs to talk to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedgwc.engines.meter import Meter
from fedgwc.flower.attendance import Attendance
from fedgwc.flower.client import client_app
from fedgwc.flower.engine import FlowerEngine
from fedgwc.flower.introductions import Look, introduction
from fedgwc.flower.log_progress import LogProgress
from fedgwc.flower.mailbox import Post
from fedgwc.flower.options import Options
from fedgwc.flower.private_server import privacy_of
from fedgwc.flower.roster import Roster
from fedgwc.flower.site import NodesSite
from fedgwc.flower.wire import RecipeWire
from fedgwc.runs.driver import Driver
from fedgwc.runs.experiment import Experiment
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.site import Course

from .grids import LocalGrid

QUICK = {"deadline": 0.3, "poll": 0.005, "wait": 0.5, "pause": 0.01}


class WorldSite(NodesSite):
    """The nodes of a world that has been built already."""

    def __init__(self, here: World) -> None:
        self.grid, self.options, self.roster, self.attendance = here.grid, here.engine.options, here.roster, here.attendance
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
    attendance: Attendance
    engine: FlowerEngine
    job: Experiment

    def enrol(self) -> None:
        self.attendance.update()
        self.roster.enrol(self.attendance.admit())
        self.attendance.newcomers.clear()


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
    private = privacy_of(job.algorithm) if settings.private_losses else None
    attendance = Attendance(Post(grid, settings.poll), roster, introduction, Look.of(federation))
    made = World(grid, roster, attendance, FlowerEngine(grid, roster, wire, settings, private), job)
    made.enrol()
    return made
