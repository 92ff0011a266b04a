"""The ready-made server app: the recipe's algorithm over real nodes, into an ordinary run folder, checkpointed every round."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedgwc.core.errors import InputError
from fedgwc.core.types import Clustering
from fedgwc.engines.simulator import Simulator
from fedgwc.flower.attendance import Attendance
from fedgwc.flower.client import Recipe
from fedgwc.flower.engine import FlowerEngine
from fedgwc.flower.introductions import Look, introduction
from fedgwc.flower.journal import Journal, told
from fedgwc.flower.mailbox import Post
from fedgwc.flower.options import Options
from fedgwc.flower.preflight import at_server, look_of, numbered, suits_data, suits_nodes
from fedgwc.flower.private_server import privacy_of
from fedgwc.flower.roster import Roster
from fedgwc.flower.rounds import Rounds
from fedgwc.flower.wire import RecipeWire
from fedgwc.metrics.classification import accuracy
from fedgwc.runs.experiment import Experiment, differing, load
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.loop import versions
from fedgwc.runs.recording import save_models

log = logging.getLogger("fedgwc")


def server_app(recipe: Recipe = None) -> ServerApp:
    """A ready-made server app for a recipe. Its run-config says where to (`out`) and may set any of `Options`."""
    app = ServerApp()
    job = recipe if isinstance(recipe, Experiment) else load(recipe)

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        speak()
        out = context.run_config.get("out")
        if not isinstance(out, str) or not out:
            raise InputError("the app's run-config must say where the run goes: out = '/an/absolute/folder'")
        serve(job, grid, Path(out), Options.read(context.run_config))

    return app


def speak() -> None:
    """Let the log be seen in the app's output, once."""
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("fedgwc %(levelname)s: %(message)s"))
        log.addHandler(handler)
    log.setLevel(logging.INFO)


def serve(job: Experiment, grid: Grid, out: Path, options: Options | None = None) -> Clustering:
    """Run to the end, or go on with what `out` holds. Killed at any moment, the next call resumes after the last round."""
    options = options or Options()
    suits_nodes(job.algorithm, options)
    private = privacy_of(job.algorithm, out / "state" / "summed") if options.private_losses else None
    folder, roster = RunFolder(out), Roster(options.strikes)
    known = folder.has_run()
    like = _resumed(folder, job) if known else look_of(job)
    suits_data(job, like)  # before anybody is waited for
    if known:
        folder.lock()
    attendance = Attendance(Post(grid, options.poll), roster, introduction, like, numbered(job), options.max_clients)
    log.info("waiting for %d clients", options.min_clients)
    try:
        journal = Journal(folder, job.algorithm)
        saved = journal.restore(roster) if known else None
        attendance.gather(options, resumed=saved is not None)
        like = attendance.like
        assert like is not None  # noqa: S101 - gather has settled it
        simulator = at_server(job, like)
        if not known:
            folder.create(_config(job, like, options))
        bounds = {"local": job.local, "max_steps": options.max_steps}
        wire = RecipeWire.of(simulator.model, like.n_classes, options.private_losses, **bounds)
        engine = FlowerEngine(grid, roster, wire, options, private)
        return _Run(job, journal, Rounds(job.algorithm, engine, attendance, job.seed), simulator).go(saved)
    finally:
        folder.close()


def _config(job: Experiment, like: Look, options: Options) -> dict[str, Any]:
    about = {"notes": [], "versions": versions(), "flower": asdict(options)}
    return {"experiment": job.to_json(), "federation": asdict(like), **about}


def _resumed(folder: RunFolder, job: Experiment) -> Look:
    """What the clients' data looked like, if the folder holds a run of this very recipe."""
    config = folder.config()
    other = differing(config["experiment"], job.to_json())
    if other or "flower" not in config:
        what = f"other {', '.join(other)}" if other else "no real nodes"
        raise InputError(f"{folder.path} holds a run with {what}; choose another out")
    f = config["federation"]
    return Look(tuple(f["shape"]), int(f["n_classes"]), tuple(f["mean"]), tuple(f["std"]))


class _Run:
    """One run in progress."""

    def __init__(self, job: Experiment, journal: Journal, rounds: Rounds[Any], simulator: Simulator) -> None:
        self.job, self.journal, self.rounds, self.simulator = job, journal, rounds, simulator
        self.engine = rounds.engine

    def go(self, saved: tuple[int, Any] | None) -> Clustering:
        done, seconds = 0, 0.0
        if saved is None:
            state = self.rounds.start(self.job.initial(self.simulator.federation, self.simulator))
        else:
            done, state, seconds = saved[0], saved[1].state, saved[1].seconds
            self.engine.costs = saved[1].costs
        began = time.monotonic() - seconds
        for number in range(done + 1, self.job.rounds + 1):
            if self.engine.costs.client_updates >= self.job.evaluate.budget:
                log.info("%d clients have trained: evaluate.client_updates ends the run", self.engine.costs.client_updates)
                break
            after = self.rounds.step(state, number)
            names = self.job.algorithm.clustering(state).names
            row = self.journal.record(number, names, after, self.rounds, time.monotonic() - began)
            told(number, self.job.rounds, row)
            state = after
        clustering = self.job.algorithm.clustering(state)
        self._finish(state, clustering)
        return clustering

    def _finish(self, state: Any, clustering: Clustering) -> None:
        """What a finished run leaves behind; the final scores take one more exchange."""
        roster, folder = self.engine.roster, self.journal.folder
        save_models(folder, self.simulator.model, clustering, str(self.job.tables["model"].get("name")))
        self.journal.finish(state, clustering, roster)
        here = roster.available()
        scores = self.engine.evaluate(here, clustering.models, clustering.labels[here])
        folder.save_per_client({"clients": scores.clients, "accuracy": accuracy(scores)})
        for number, why in roster.excluded.items():
            log.error("client %s was excluded: %s", roster.names[number], why)
        log.info("finished: %d clients in %d clusters, %d excluded", len(roster), len(clustering.models), len(roster.excluded))
