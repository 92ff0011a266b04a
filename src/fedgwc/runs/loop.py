"""Runs: `rounds` is the loop itself, `run` is the loop with evaluation, a run folder, checkpoints and Ctrl-C."""

from __future__ import annotations

import errno
import math
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.layout import Layout
from fedgwc.core.protocols import (
    Algorithm,
    DescribesModel,
    Engine,
    NumbersClusters,
    State,
    UpdatesInPlace,
    Warns,
    state_type,
)
from fedgwc.core.settings import flatten
from fedgwc.core.tables import UnknownNameError
from fedgwc.core.text import readable
from fedgwc.core.types import Clustering, Costs, Ids, Rng
from fedgwc.core.version import VERSION
from fedgwc.data import Federation
from fedgwc.engines.meter import Meter
from fedgwc.engines.pool import Member
from fedgwc.engines.settings import EngineSettings
from fedgwc.engines.simulator import Simulator
from fedgwc.io.state_file import nbytes
from fedgwc.metrics.classification import accuracy, balanced_accuracy, weighted_accuracy
from fedgwc.runs.evaluation import evaluate_clustering
from fedgwc.runs.experiment import Experiment, differing, experiment, load
from fedgwc.runs.folder import RunFolder, new_folder
from fedgwc.runs.interrupt import PoliteInterrupt
from fedgwc.runs.progress import Silent, Watcher
from fedgwc.runs.recording import observed, save_end, save_models, save_round

NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)  # the disk, a file's largest size, a user's share of the disk


def rounds(
    algorithm: Algorithm[State],
    engine: Engine,
    model: Tensor,
    n_clients: int,
    n_rounds: int,
    *,
    seed: int = 0,
    state: State | None = None,
    done: int = 0,
    reuse: bool = False,
) -> Iterator[tuple[int, State]]:
    """Each finished round as (its number, counted from 1; the state after it).

    With `reuse` an algorithm may write the next state over the last (its `advance` in place of its `round`), which is
    cheaper where states are large; a state is then only good until the next one comes.

    model [D] is where training starts. To go on from an earlier `state`, say how many rounds it has `done`: a round depends
    on (seed, round, state) only, so the result is the same as without the interruption.
    """
    if state is None:
        _check_start(algorithm, engine, model, n_clients)
        state = algorithm.init(model, n_clients, layout_of(engine, model))
    step = algorithm.advance if reuse and isinstance(algorithm, UpdatesInPlace) else algorithm.round
    for number in range(done + 1, n_rounds + 1):
        state = step(state, engine, Rng(seed, number))
        yield number, state


def layout_of(engine: Engine, model: Tensor) -> Layout:
    """Return where the model's tensors lie, as far as the engine knows."""
    return engine.layout if isinstance(engine, DescribesModel) else Layout.unnamed(model.shape[-1])


def _check_start(algorithm: Any, engine: Any, model: Any, n_clients: int) -> None:
    if isinstance(algorithm, type) or not callable(getattr(algorithm, "round", None)):
        raise InputError(f"the algorithm must be one with its settings, such as ALGORITHMS['fedavg'], got {algorithm!r}")
    if not isinstance(model, Tensor):
        raise InputError(f"the model must be one vector [D], such as engine.model.vector(), got {type(model).__name__}")
    there = getattr(engine, "federation", None)
    if n_clients < 1 or (there is not None and n_clients != there.n_clients):
        wanted = "at least 1" if there is None else f"the engine's {there.n_clients}"
        raise InputError(f"n_clients must be {wanted}, got {n_clients}")


@dataclass(frozen=True)
class Result:
    """What a run left behind."""

    folder: Path
    metrics: list[dict[str, Any]]
    clustering: Clustering
    finished: bool  # False: interrupted, and the folder can be resumed

    @property
    def last(self) -> dict[str, Any]:
        return self.metrics[-1] if self.metrics else {}


@dataclass(frozen=True)
class Checkpoint(Generic[State]):
    """Where a run stands: the algorithm's state and what it cost to get there."""

    state: State
    costs: Costs
    seconds: float
    server_seconds: float
    failures: Ids  # [N] how often each client was asked in vain


def run(
    recipe: Experiment | str | os.PathLike[str] | Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    resume: bool = False,
    progress: Watcher | None = None,
) -> Result:
    """Run an experiment (or a recipe's name, file or tables) into a folder; `resume=True` goes on with the one in `out`."""
    one = prepared(recipe, out, resume)
    return one.go(one.job.simulator(one.federation), progress or Silent(), PoliteInterrupt())


def prepared(recipe: Any, out: str | os.PathLike[str] | None, resume: bool) -> _Run:
    """A run that only lacks an engine: its experiment, its folder and its data."""
    if resume:
        if out is None:
            raise InputError("say which run to resume: --resume needs --out with the run's folder")
        folder = RunFolder(Path(out))
        return _Run(_resumed_experiment(folder, recipe), folder, resume)
    job = recipe if isinstance(recipe, Experiment) else load(recipe)
    return _Run(job, None if out is None else RunFolder(Path(out)), resume)


def _resumed_experiment(folder: RunFolder, recipe: Any) -> Experiment:
    config = folder.config()
    tables = config["experiment"]
    try:
        saved = experiment(tables)
    except UnknownNameError as error:
        raise InputError(f"{folder.path} cannot go on: {error}") from None
    except InputError as error:
        raise InputError(
            f"{folder.path} was begun by another version, or its config.json was changed: {error}; finish it with the version "
            f"that it names, or start anew"
        ) from None
    if new := sorted(set(flatten(saved.to_json())) - set(flatten(tables))):
        raise InputError(
            f"{folder.path} was begun by an earlier version, which did not have {', '.join(new)}: it cannot go on as it began; "
            f"finish it with that version, or start anew"
        )
    if recipe is None:
        return saved.begun_with(config)
    asked = recipe if isinstance(recipe, Experiment) else load(recipe)
    other = differing(saved.to_json(), asked.to_json())
    engine = _engine(saved.engine, asked.engine)
    if engine.dtype != saved.engine.dtype:
        other.append("engine.dtype")
    if asked.evaluate.budget < saved.evaluate.budget:  # it may have trained more clients already
        other.append("evaluate.client_updates")
    if other:
        raise InputError(
            f"{folder.path} holds a run with other {', '.join(other)}; resume it without a recipe, or choose another --out"
        )
    if (done := max((int(row["round"]) for row in folder.metrics()), default=0)) > asked.rounds:
        raise InputError(
            f"{folder.path} holds a run of {done:,} rounds already, and {asked.rounds:,} are asked for; "
            f"ask for as many or more, or choose another --out"
        )
    evaluate = replace(asked.evaluate, every=asked.evaluate.every or saved.evaluate_every)
    return replace(saved, rounds=asked.rounds, evaluate=evaluate, engine=engine).begun_with(config)


def _engine(saved: EngineSettings, asked: EngineSettings) -> EngineSettings:
    """As it was chosen at the start, except for what is asked for by name: another machine may need another device."""
    usual = vars(EngineSettings())
    return replace(saved, **{name: value for name, value in vars(asked).items() if value != usual[name]})


def _config(job: Experiment, engine: Simulator | Member, federation: Federation) -> dict[str, Any]:
    f, tables = federation, job.to_json()
    about = {"n_clients": f.n_clients, "n_classes": f.n_classes, "shape": f.shape, "mean": f.mean, "std": f.std}
    chosen = {**tables, "engine": {**tables["engine"], **engine.facts.settings}}  # so that resuming repeats it
    return {"experiment": chosen, "defaults": job.defaults(), "federation": about, "notes": f.notes, "versions": versions()}


def versions() -> dict[str, str]:
    return {
        "fedgwc": VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
    }


def _mean(losses: Sequence[NDArray[np.floating]]) -> float:
    """Mean over all finite losses; NaN if there is none."""
    made = [x if (finite := np.isfinite(x)).all() else x[finite] for x in losses]
    n = sum(x.size for x in made)
    return sum(float(x.sum()) for x in made) / n if n else math.nan


class _Run:
    """One run in progress: everything `run` needs at hand while rounds go by."""

    engine: Simulator | Member
    folder: RunFolder
    progress: Watcher
    meter: Meter

    def __init__(self, job: Experiment, folder: RunFolder | None, resume: bool) -> None:
        self.job, self.resume, self._folder = job, resume, folder  # None: a new one
        self.federation = job.federation()
        self.counts = self.federation.class_counts("train")
        self.client_names = readable(self.federation.client_names)
        self.seconds = self.server_seconds = 0.0

    def go(self, engine: Simulator | Member, progress: Watcher, interrupted: AbstractContextManager[PoliteInterrupt]) -> Result:
        self.engine, self.progress = engine, progress
        self.meter = Meter(engine, self.federation.n_clients)
        algorithm, n_clients = self.job.algorithm, self.federation.n_clients
        notes = [*self.federation.notes, *(algorithm.warnings(n_clients) if isinstance(algorithm, Warns) else ())]
        with interrupted as interrupt:
            self.folder = self._folder or RunFolder(new_folder(self.job.recipe, self.job.algorithm_name))
            try:
                result = self._into_folder(notes, interrupt)
            except KeyboardInterrupt:
                how = f"Resume with: fedgwc run --resume --out {self.folder.path}"
                raise KeyboardInterrupt(f"Interrupted at once; the last checkpoint is kept. {how}") from None
        if result.finished and interrupt.asked:  # nothing is left to resume, and nothing more should begin
            raise KeyboardInterrupt(f"Interrupted when it was done: {self.folder.path} has the whole run.")
        return result

    def _into_folder(self, notes: Sequence[str], interrupt: PoliteInterrupt) -> Result:
        if self.resume:
            self.folder.lock()
        else:
            self.folder.create(_config(self.job, self.engine, self.federation))
        for note in notes:
            self.progress.message(note)
        try:
            # Not only of a new run: it may have been killed before it came to this.
            self.folder.save_clients(self.counts, self.counts.sum(1), self.federation.groups, self.client_names)
            return self._rounds(interrupt)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise InputError(
                f"cannot write to {self.folder.path} ({error.strerror}); the last checkpoint is safe: make room, then go on with "
                f"--resume --out {self.folder.path}"
            ) from error
        finally:
            self.folder.close()

    def _rounds(self, interrupt: PoliteInterrupt) -> Result:
        model = self.job.initial(self.federation, self.engine)
        state, done = self.job.algorithm.init(model, self.federation.n_clients, layout_of(self.engine, model)), 0
        if self.resume:
            state, done = self._restore(state)
        title = f"{self.job.algorithm_name} on {self.job.recipe}"
        self.progress.start(title, self.job.rounds, done, self.folder.path)
        self._names, _ = self._clusters(state)
        try:
            state, done = self._loop(state, done, interrupt)
            finished = self._is_over(done)
            clustering = self.job.algorithm.clustering(state)
            if finished:
                self._save_results(state, clustering)
        finally:
            self.progress.stop()
        return Result(self.folder.path, self.folder.metrics(), clustering, finished)

    def _restore(self, fresh: Any) -> tuple[Any, int]:
        kind: Any = Checkpoint[state_type(self.job.algorithm)]  # type: ignore[misc]
        found = self.folder.restore(kind, self.engine.device, self.progress.message)
        if found is None:
            return fresh, 0
        done, saved = found
        self.meter.costs, self.seconds, self.server_seconds = saved.costs, saved.seconds, saved.server_seconds
        self.meter.failures = saved.failures.copy()
        return saved.state, done

    def _loop(self, state: Any, done: int, interrupt: PoliteInterrupt) -> tuple[Any, int]:
        job = self.job
        began = saved = turn = time.monotonic()
        before = self.seconds
        arguments = (job.algorithm, self.meter, torch.empty(0), self.federation.n_clients, job.rounds)
        going_on = rounds(*arguments, seed=job.seed, state=state, done=done, reuse=True)
        for number, state in () if self._is_over(done) else going_on:
            self.server_seconds += time.monotonic() - turn - self.meter.seconds
            done = number
            self._observe(number, state)
            self.seconds = before + time.monotonic() - began
            over = self._is_over(done)
            if number % job.evaluate_every == 0 or over:
                self._evaluate(number, state)
            if over or interrupt.asked:
                break
            if time.monotonic() - saved >= job.evaluate.checkpoint_seconds:
                self._checkpoint(number, state)
                saved = time.monotonic()
            turn, self.meter.seconds = time.monotonic(), 0.0
        self._checkpoint(done, state)
        return state, done

    def _is_over(self, done: int) -> bool:
        return done >= self.job.rounds or self.meter.costs.client_updates >= self.job.evaluate.budget

    def _observe(self, number: int, state: Any) -> None:
        algorithm, meter = self.job.algorithm, self.meter
        save_round(self.folder, algorithm, number, state, meter.reported, self._names)
        for client in meter.news:
            who = f"client {client} ({self.client_names[client]})" if self.client_names else f"client {client}"
            self.progress.message(f"{who} failed in round {number} (its model or loss is not finite) and was left out")
        mean = _mean([r.losses for r in meter.reported])
        meter.clear()
        self._names, n_clusters = self._clusters(state)
        self.progress.round(number, mean, n_clusters)

    def _clusters(self, state: Any) -> tuple[Ids | None, int]:
        """Their names and how many there are; where an algorithm tells these alone, many large models need not be gathered."""
        if isinstance(self.job.algorithm, NumbersClusters):
            return self.job.algorithm.cluster_numbers(state), self.job.algorithm.n_clusters(state)
        clustering, n_clients = self.job.algorithm.clustering(state), self.federation.n_clients
        if len(clustering.labels) != n_clients:
            name = self.job.algorithm_name
            raise InputError(f"{name} gave labels of {len(clustering.labels)} clients, and there are {n_clients}; each needs one")
        return clustering.names, len(clustering.models)

    def _evaluate(self, number: int, state: Any) -> None:
        clustering = self.job.algorithm.clustering(state)
        row = {"round": number, **evaluate_clustering(clustering, self.engine, self.federation, self.counts)}
        row |= observed(self.job.algorithm, state).numbers
        row |= vars(self.meter.costs) | {"failures": int(self.meter.failures.sum()), "state_bytes": nbytes(state)}
        row |= {"seconds": round(self.seconds, 3), "server_seconds": round(self.server_seconds, 3)}
        self.folder.log(row)
        self.progress.evaluated(row)

    def _checkpoint(self, number: int, state: Any) -> None:
        meter = self.meter
        self.folder.checkpoint(number, Checkpoint(state, meter.costs, self.seconds, self.server_seconds, meter.failures))

    def _save_results(self, state: Any, clustering: Clustering) -> None:
        folder = self.folder
        save_end(folder, self.job.algorithm, state)
        save_models(folder, self.engine.model, clustering, str(self.job.tables["model"].get("name")))
        of_clients = clustering.numbers[clustering.labels]
        folder.save_clusters(of_clients, self.federation.groups, self.counts, self.client_names)
        scores = self.engine.evaluate(np.arange(self.federation.n_clients), clustering.models, clustering.labels)
        weighted = weighted_accuracy(scores, self.counts[scores.clients])
        folder.save_per_client(
            {
                "clients": scores.clients,
                "accuracy": accuracy(scores),
                "balanced": balanced_accuracy(scores),
                "weighted": weighted,
                "failures": self.meter.failures[scores.clients],
            }
        )
