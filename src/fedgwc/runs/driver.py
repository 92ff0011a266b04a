"""The driver of a run: rounds, evaluations, checkpoints and the run's folder.

The same wherever the clients are.

A `Site` says where clients are: in a federation in memory (`runs.simulated`) or on real nodes (`fedgwc.flower`). The driver does
the rest, the same for both.
"""

from __future__ import annotations

import itertools
import math
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.layout import Layout
from fedgwc.core.protocols import (
    DescribesModel,
    Engine,
    NumbersClusters,
    State,
    UpdatesInPlace,
    Warns,
    state_type,
)
from fedgwc.core.types import Clustering, Costs, Ids, Rng, TooFewReplies
from fedgwc.engines.meter import Meter
from fedgwc.io.state_file import nbytes
from fedgwc.runs.budget import round_costs, spent
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.interrupt import PoliteInterrupt
from fedgwc.runs.progress import Watcher
from fedgwc.runs.recording import observed, save_end, save_round
from fedgwc.runs.site import Course, Memory, Site


@dataclass(frozen=True)
class Checkpoint(Generic[State, Memory]):
    """A run's progress: the algorithm's state, its costs, and the site's memory."""

    state: State
    costs: Costs
    seconds: float
    server_seconds: float
    failures: Ids  # [N] how often each client was asked in vain
    memory: Memory


@dataclass(frozen=True)
class Outcome:
    """The end of a run, by completion or interruption."""

    clustering: Clustering
    done: int  # rounds
    finished: bool  # False: interrupted


class Driver:
    """A run in progress."""

    meter: Meter

    def __init__(self, course: Course, site: Site[Any], folder: RunFolder | None, progress: Watcher) -> None:
        self.course, self.site, self.folder, self.progress = course, site, folder, progress
        self.seconds = self.server_seconds = 0.0
        if folder is not None:  # before anybody has trained: what could not be read back must not be written
            self._kind: Any = Checkpoint[state_type(course.algorithm), site.memory_type]  # type: ignore[misc]

    def go(self, resume: bool, interrupt: PoliteInterrupt) -> Outcome:
        """Run to the end, from the start or from the folder's checkpoint."""
        saved = self._restored() if resume else None
        self.site.gather(resumed=saved is not None)
        n_clients = self.site.n_clients
        notes = self._notes(n_clients)  # or an error, before there is a folder
        if saved is None:
            self._check_budget()
        if self.folder is not None and not resume:
            self.folder.create(self.site.config())
        for note in notes:
            self.progress.message(note)
        self.meter = Meter(self.site.engine, n_clients, self.site.local)
        done, state = (0, self._first(n_clients)) if saved is None else self._go_on_from(*saved)
        self._save_clients()
        self.progress.start(self.course.title, self.course.rounds, done, None if self.folder is None else self.folder.path)
        try:
            state, done = self._loop(state, done, interrupt)
            clustering, finished = self.course.algorithm.clustering(state), self._is_over(done)
            if finished:
                self._finish(state, clustering)
                self._tell_budget_left(done)
        finally:
            self.progress.stop()
        return Outcome(clustering, done, finished)

    # Beginning

    def _restored(self) -> tuple[int, Checkpoint[Any, Any]] | None:
        if self.folder is None:
            return None
        found: tuple[int, Checkpoint[Any, Any]] | None = self.folder.restore(self._kind, self.site.device, self.progress.message)
        if found is not None:
            self.site.recall(found[1].memory)
        return found

    def _go_on_from(self, done: int, saved: Checkpoint[Any, Any]) -> tuple[int, Any]:
        self.seconds, self.server_seconds = saved.seconds, saved.server_seconds
        self.meter.costs, self.meter.failures = saved.costs, saved.failures.copy()
        return done, saved.state

    def _first(self, n_clients: int) -> Any:
        model = self.site.initial()
        return self.course.algorithm.init(model, n_clients, layout_of(self.site.engine, model))

    def _notes(self, n_clients: int) -> list[str]:
        algorithm = self.course.algorithm
        return [*self.site.notes, *(algorithm.warnings(n_clients) if isinstance(algorithm, Warns) else ())]

    def _check_budget(self) -> None:
        """Refuse a budget that ends within the first round, where that is known."""
        engine, sizes = self.site.engine, self.site.clients().sizes
        layout = engine.layout if isinstance(engine, DescribesModel) else None
        model_bytes = 0 if layout is None else 4 * layout.size
        self.course.budget.check_round(round_costs(self.course.algorithm, sizes, self.site.local, model_bytes))

    # Rounds

    def _loop(self, state: Any, done: int, interrupt: PoliteInterrupt) -> tuple[Any, int]:
        began = saved = time.monotonic()
        before, course = self.seconds, self.course
        while not (over := self._is_over(done)) and not interrupt.asked:
            state, done = self.round(state, done + 1), done + 1
            self.seconds = before + time.monotonic() - began
            over = self._is_over(done)
            if done % course.every == 0 or over:
                self._evaluate(done, state)
            if not over and not interrupt.asked and time.monotonic() - saved >= course.checkpoint_seconds:
                self._checkpoint(done, state)
                saved = time.monotonic()
        self._checkpoint(done, state)
        return state, done

    def _is_over(self, done: int) -> bool:
        return done >= self.course.rounds or self.course.budget.is_used_up(self._effort(done))

    def _effort(self, done: int) -> dict[str, float]:
        """Return what the run has cost until now."""
        return {"round": done, **vars(self.meter.costs), "seconds": self.seconds}

    def _tell_budget_left(self, done: int) -> None:
        """Say so where a run ended with its rounds and its budget is not used up."""
        effort, budget = self._effort(done), self.course.budget
        if budget.limits and not budget.is_used_up(effort):
            used = ", ".join(f"{spent(effort, name):,.0f} of {limit:,.0f} {name}" for name, limit in budget.limits.items())
            self.progress.message(f"{self.course.title}: ended with round {done:,} at {used}; rounds=N allows more rounds")

    def round(self, state: Any, number: int) -> Any:
        """Run one round.

        One that gets too few replies changes nothing and is tried again.
        """
        algorithm, rng = self.course.algorithm, Rng(self.course.seed, number)
        step = algorithm.advance if self.site.in_place and isinstance(algorithm, UpdatesInPlace) else algorithm.round
        for attempt in itertools.count(1):
            began, self.meter.seconds = time.monotonic(), 0.0
            state = self.site.enter(number, algorithm, state)
            self.meter.clear(self.site.n_clients)
            numbers = self._numbers(state)
            try:
                after = step(state, self.meter, rng)
            except TooFewReplies as reason:
                self.site.again(number, attempt, reason)
                continue
            self.server_seconds += time.monotonic() - began - self.meter.seconds
            self.keep(number, after, numbers)
            return after
        raise AssertionError("unreachable")

    def _numbers(self, state: Any) -> Ids | None:
        """Return the clusters' numbers before a round may divide them."""
        algorithm = self.course.algorithm
        if isinstance(algorithm, NumbersClusters):
            return algorithm.cluster_numbers(state)
        return self._clustering(state).names

    def _n_clusters(self, state: Any) -> int:
        algorithm = self.course.algorithm
        return algorithm.n_clusters(state) if isinstance(algorithm, NumbersClusters) else len(self._clustering(state).models)

    def _clustering(self, state: Any) -> Clustering:
        clustering, n_clients = self.course.algorithm.clustering(state), self.site.n_clients
        if len(clustering.labels) != n_clients:
            labels = len(clustering.labels)
            raise InputError(f"{self.course.name} gave labels of {labels} clients, and there are {n_clients}; each needs one")
        return clustering

    # What stays

    def keep(self, number: int, state: Any, numbers: Ids | None) -> None:
        """Save and show a round's results.

        `numbers` [M] are of the clusters that trained in it.
        """
        meter = self.meter
        seen = observed(self.course.algorithm, state)
        if self.folder is not None:
            save_round(self.folder, number, seen, meter.reported, numbers)
        for message in self.site.tell_failures(number, meter.new_failures):
            self.progress.message(message)
        for decision in seen.decisions:
            self.progress.decided(number, decision)
        self.progress.round(number, mean_loss([r.losses for r in meter.reported]), self._n_clusters(state))

    def _evaluate(self, number: int, state: Any) -> None:
        row = {"round": number, **self.site.evaluate(number, self._clustering(state))}
        row |= observed(self.course.algorithm, state).numbers
        row |= vars(self.meter.costs) | {"failures": int(self.meter.failures.sum()), "state_bytes": nbytes(state)}
        row |= {"seconds": round(self.seconds, 3), "server_seconds": round(self.server_seconds, 3)}
        row["peak_memory_bytes"] = peak_memory(self.site.device)
        if self.folder is not None:
            self.folder.log(row)
        self.progress.evaluated(row)

    def _checkpoint(self, number: int, state: Any) -> None:
        if self.folder is None:
            return
        if self.site.keeps_meeting_clients:
            self._save_clients()
        meter = self.meter
        spent = meter.costs, self.seconds, self.server_seconds, meter.failures
        self.folder.checkpoint(number, Checkpoint(state, *spent, self.site.remember()))

    def _save_clients(self) -> None:
        if self.folder is not None:
            metadata = self.site.clients()
            self.folder.save_clients(metadata.counts, metadata.sizes, metadata.groups, metadata.names)

    def _finish(self, state: Any, clustering: Clustering) -> None:
        if self.folder is not None:
            save_end(self.folder, self.course.algorithm, state)
            metadata = self.site.clients()
            of_clients = clustering.numbers[clustering.labels]
            self.folder.save_clusters(of_clients, metadata.groups, metadata.counts, metadata.names)
        self.site.finish(self.folder, clustering, self.meter.failures)


def layout_of(engine: Engine, model: Tensor) -> Layout:
    """Return the layout of the model's tensors, if the engine knows it."""
    return engine.layout if isinstance(engine, DescribesModel) else Layout.unnamed(model.shape[-1])


def peak_memory(device: torch.device | str) -> int:
    """Return the most bytes in use so far: of a GPU's memory, else of this process."""
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def mean_loss(losses: Sequence[NDArray[np.floating]]) -> float:
    """Average all finite losses; NaN if there is none."""
    finite_losses = [x if (finite := np.isfinite(x)).all() else x[finite] for x in losses]
    n = sum(x.size for x in finite_losses)
    return sum(float(x.sum()) for x in finite_losses) / n if n else math.nan
