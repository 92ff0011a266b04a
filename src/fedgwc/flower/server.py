"""The ready-made server app: a recipe over real nodes, into an ordinary run folder, checkpointed every round."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.types import Clustering, Ids
from fedgwc.engines.simulator import Simulator
from fedgwc.flower.client import Recipe
from fedgwc.flower.engine import FlowerEngine
from fedgwc.flower.identity import DataDescription, read_identity
from fedgwc.flower.log_progress import LogProgress, show_log
from fedgwc.flower.options import Options
from fedgwc.flower.preflight import check_algorithm, check_model, describe_data, n_recipe_clients, server_simulator
from fedgwc.flower.private_server import private_losses_for
from fedgwc.flower.site import NodesSite
from fedgwc.flower.wire import RecipeWire
from fedgwc.metrics.classification import accuracy
from fedgwc.runs.driver import Driver
from fedgwc.runs.experiment import Experiment, differing, load
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.interrupt import PoliteInterrupt
from fedgwc.runs.loop import course_of
from fedgwc.runs.recording import save_models
from fedgwc.runs.versions import versions


def server_app(recipe: Recipe = None) -> ServerApp:
    """Make a ready-made server app for a recipe.

    Its run-config says where the run goes (`out`) and may set any of `Options`.
    """
    app = ServerApp()
    job = recipe if isinstance(recipe, Experiment) else load(recipe)

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        show_log()
        out = context.run_config.get("out")
        if not isinstance(out, str) or not out:
            raise InputError("the app's run-config must say where the run goes: out = '/an/absolute/folder'")
        serve(job, grid, Path(out), Options.read(context.run_config))

    return app


def serve(job: Experiment, grid: Grid, out: Path, options: Options | None = None) -> Clustering:
    """Run a recipe over a grid, or resume the run in `out`.

    Killed at any moment, the next call goes on after the last round.
    """
    options = options or Options()
    check_algorithm(job.algorithm, options)
    folder = RunFolder(out)
    resume = folder.has_run()
    data = _resumed_data(folder, job) if resume else describe_data(job)
    check_model(job, data)  # before anybody is waited for
    if resume:
        folder.lock()
    site = RecipeSite(job, grid, options, data, out)
    course = replace(course_of(job), every=1, checkpoint_seconds=0.0)
    try:
        return Driver(course, site, folder, LogProgress()).go(resume, PoliteInterrupt()).clustering
    finally:
        folder.close()


def _resumed_data(folder: RunFolder, job: Experiment) -> DataDescription:
    """Read the data's description from a run of this very recipe."""
    config = folder.config()
    other = differing(config["experiment"], job.to_json())
    if other or "flower" not in config:
        what = f"other {', '.join(other)}" if other else "no real nodes"
        raise InputError(f"{folder.path} holds a run with {what}; choose another out")
    f = config["federation"]
    return DataDescription(tuple(f["shape"]), int(f["n_classes"]), tuple(f["mean"]), tuple(f["std"]))


class RecipeSite(NodesSite):
    """Nodes with the ready-made client app, which train what a recipe says."""

    simulator: Simulator  # the model as the server has it

    def __init__(self, job: Experiment, grid: Grid, options: Options, data: DataDescription | None, out: Path) -> None:
        super().__init__(grid, options, read_identity, data, n_recipe_clients(job))
        self.job = job
        self.private = private_losses_for(job.algorithm, out / "state" / "summed") if options.private_losses else None

    def build_engine(self) -> FlowerEngine:
        self.simulator = server_simulator(self.job, self.data)
        bounds = {"local": self.job.local, "max_steps": self.options.max_steps}
        wire = RecipeWire.of(self.simulator.model, self.data.n_classes, self.options.private_losses, **bounds)
        return FlowerEngine(self.grid, self.roster, wire, self.options, self.private)

    @property
    def data(self) -> DataDescription:
        """Describe all clients' data."""
        assert self.tracker.data is not None  # noqa: S101 - gathering clients has settled it
        return self.tracker.data

    def config(self) -> dict[str, Any]:
        about = {"notes": [], "versions": versions(), "flower": asdict(self.options)}
        return {"experiment": self.job.to_json(), "federation": asdict(self.data), **about}

    def initial(self) -> Tensor:
        return self.job.initial(self.simulator.federation, self.simulator)

    def finish(self, folder: RunFolder | None, clustering: Clustering, failures: Ids) -> None:
        """Save models and final scores, which take one more exchange."""
        if folder is not None:
            save_models(folder, self.simulator.model, clustering, str(self.job.tables["model"].get("name")))
            here = self.roster.available()
            scores = self.engine.evaluate(here, clustering.models, clustering.labels[here])
            folder.save_per_client({"clients": scores.clients, "accuracy": accuracy(scores)})
        self.log_end(clustering)
