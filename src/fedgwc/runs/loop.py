"""Runs: `rounds` is the loop itself, `run` adds evaluation and a folder.

The folder holds checkpoints, and Ctrl-C is handled.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from fedgwc.core.assignments import flatten
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import (
    Algorithm,
    Engine,
    State,
    UpdatesInPlace,
)
from fedgwc.core.tables import UnknownNameError
from fedgwc.core.types import Clustering, Rng
from fedgwc.engines.settings import EngineSettings
from fedgwc.runs.driver import Driver, Outcome, layout_of
from fedgwc.runs.experiment import Experiment, differing, experiment, load
from fedgwc.runs.folder import RunFolder, new_folder
from fedgwc.runs.interrupt import PoliteInterrupt
from fedgwc.runs.progress import Silent, Watcher
from fedgwc.runs.simulated import SimulatedSite
from fedgwc.runs.site import Course

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
    """Yield each finished round's number and state.

    Counted from 1.

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
    """A run's results."""

    folder: Path
    metrics: list[dict[str, Any]]
    clustering: Clustering
    finished: bool  # False: interrupted, and the folder can be resumed

    @property
    def last(self) -> dict[str, Any]:
        return self.metrics[-1] if self.metrics else {}


def run(
    recipe: Experiment | str | os.PathLike[str] | Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    resume: bool = False,
    progress: Watcher | None = None,
) -> Result:
    """Run an experiment into a folder.

    An experiment, or a recipe's name, file or tables; `resume=True` goes on with the run in `out`.
    """
    one = prepare(recipe, out, resume)
    one.site.use(one.job.simulator(one.site.federation))
    return one.go(progress or Silent(), PoliteInterrupt())


def prepare(recipe: Any, out: str | os.PathLike[str] | None, resume: bool) -> PreparedRun:
    """Prepare a run without its engine: its experiment, folder and data."""
    if resume:
        if out is None:
            raise InputError("say which run to resume: --resume needs --out with the run's folder")
        folder = RunFolder(Path(out))
        return PreparedRun(_resumed_experiment(folder, recipe), folder, resume)
    job = recipe if isinstance(recipe, Experiment) else load(recipe)
    return PreparedRun(job, None if out is None else RunFolder(Path(out)), resume)


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
    # It may have spent more than a smaller budget already.
    other += [f"evaluate.budget.{name}" for name in asked.evaluate.budget.smaller(saved.evaluate.budget)]
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
    """Choose the engine as at the start, except for settings given now.

    Another machine may need another device.
    """
    usual = vars(EngineSettings())
    return replace(saved, **{name: value for name, value in vars(asked).items() if value != usual[name]})


class PreparedRun:
    """A run of an experiment in memory."""

    def __init__(self, job: Experiment, folder: RunFolder | None, resume: bool) -> None:
        self.job, self.resume, self.folder = job, resume, folder  # None: a new one
        self.site = SimulatedSite(job)

    def go(self, progress: Watcher, interrupted: AbstractContextManager[PoliteInterrupt]) -> Result:
        """Run on the site's engine; the first interrupt finishes the round."""
        with interrupted as interrupt:
            folder = self.folder or RunFolder(new_folder(self.job.recipe, self.job.algorithm_name))
            try:
                outcome = self._in_folder(folder, progress, interrupt)
            except KeyboardInterrupt:
                how = f"Resume with: fedgwc run --resume --out {folder.path}"
                raise KeyboardInterrupt(f"Interrupted at once; the last checkpoint is kept. {how}") from None
        if outcome.finished and interrupt.asked:  # nothing is left to resume, and nothing more should begin
            raise KeyboardInterrupt(f"Interrupted when it was done: {folder.path} has the whole run.")
        return Result(folder.path, folder.metrics(), outcome.clustering, outcome.finished)

    def _in_folder(self, folder: RunFolder, progress: Watcher, interrupt: PoliteInterrupt) -> Outcome:
        if self.resume:
            folder.lock()
        try:
            return Driver(course_of(self.job), self.site, folder, progress).go(self.resume, interrupt)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise InputError(
                f"cannot write to {folder.path} ({error.strerror}); the last checkpoint is safe: make room, then go on with "
                f"--resume --out {folder.path}"
            ) from error
        finally:
            folder.close()


def course_of(job: Experiment) -> Course:
    """Return the experiment's course: the parts that no site changes."""
    title = f"{job.algorithm_name} on {job.recipe}"
    budget, pause = job.evaluate.budget, job.evaluate.checkpoint_seconds
    return Course(job.algorithm, job.algorithm_name, title, job.rounds, job.seed, job.evaluate_every, budget, pause)
