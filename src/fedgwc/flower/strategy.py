"""For people who already have a Flower app: clustering as a `Strategy`, over client apps of their own."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.errors import InputError
from fedgwc.core.protocols import Algorithm, StartsFromSeveral
from fedgwc.core.settings import override, plain
from fedgwc.core.types import Clustering
from fedgwc.flower.attendance import Attendance
from fedgwc.flower.checks import UNREADABLE, Invalid
from fedgwc.flower.engine import FlowerEngine
from fedgwc.flower.introductions import Look
from fedgwc.flower.journal import Journal, told
from fedgwc.flower.mailbox import Letter, Post
from fedgwc.flower.means import averaged, scalars
from fedgwc.flower.options import Options
from fedgwc.flower.private_server import PrivateLosses, privacy_of
from fedgwc.flower.roster import Roster
from fedgwc.flower.rounds import Rounds
from fedgwc.flower.server import speak
from fedgwc.flower.state_dicts import StateWire, introduction, metrics_of
from fedgwc.flower.wire import Kind, Task
from fedgwc.runs.folder import RunFolder

log = logging.getLogger("fedgwc")

PATIENCE = 3600.0  # seconds for a round unless options say otherwise, as Flower's own strategies have it
Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class FedGWCStrategy(Strategy):
    """FedGWC over the client apps that one has. `start` does it all; see `fedgwc.flower.state_dicts` for what they must reply.

    Settings are those of `fedgwc.ALGORITHMS["auto"]` (rate=0.5, visits=5, ...); another algorithm that trains and never
    evaluates (fedavg, fesem, cfl) may be given whole. With `out` every round is checkpointed there, and a server that was
    killed goes on from it. Afterwards `models` and `labels` tell each cluster's model and each client's cluster.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any] | None = None,
        *,
        options: Options | None = None,
        out: str | os.PathLike[str] | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        self.algorithm = override(algorithm or ALGORITHMS["auto"], settings, type(self).__name__)
        if isinstance(self.algorithm, StartsFromSeveral) and self.algorithm.n_models is not None:
            raise InputError("this algorithm starts from several initial models, but start() is given one; use server_app")
        self.options, self.out, self.seed = options or Options(deadline=PATIENCE), out, seed
        self._private()  # refuses what does not go together
        self.models: list[ArrayRecord] = []
        self.labels: dict[str, int] = {}

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        """Run all rounds. The result's arrays are the largest cluster's model; a `timeout` is each round's deadline, in place
        of that of the options.
        """
        speak()
        options = self.options if timeout is None else replace(self.options, deadline=float(timeout))
        configs: dict[Kind, Any] = {"train": dict(train_config or {}), "evaluate": dict(evaluate_config or {})}
        wire = StateWire.of(initial_arrays, configs, options.private_losses, options.max_steps)
        roster = Roster(options.strikes)
        attendance = Attendance(Post(grid, options.poll), roster, introduction, Look(), most=options.max_clients)
        journal = self._journal(wire, options)
        saved = journal.restore(roster) if journal else None
        attendance.gather(options, resumed=saved is not None)
        engine = FlowerEngine(grid, roster, wire, options, self._private())
        rounds = Rounds(self.algorithm, engine, attendance, self.seed)
        began = time.monotonic()
        if saved is None:
            done, state = 0, rounds.start(wire.vector(initial_arrays))
        else:
            done, state, engine.costs, began = saved[0], saved[1].state, saved[1].costs, began - saved[1].seconds
        result = Result()
        try:
            if saved is None:  # as Flower's strategies do; a mistake in evaluate_fn then costs no round
                self._at_server(0, state, wire, result, evaluate_fn)
            for number in range(done + 1, num_rounds + 1):
                names, state = self.algorithm.clustering(state).names, rounds.step(state, number)
                seconds = time.monotonic() - began
                row = journal.record(number, names, state, rounds, seconds) if journal else {**rounds.summary()}
                told(number, num_rounds, {"clusters": len(self.algorithm.clustering(state).models), **row})
                self._watch(number, state, rounds, wire, result, evaluate_fn)
            return self._finish(num_rounds, state, rounds, wire, result, journal)
        finally:
            if journal:
                journal.folder.close()

    def _private(self) -> PrivateLosses | None:
        note = Path(self.out) / "state" / "summed" if self.out is not None else None
        return privacy_of(self.algorithm, note) if self.options.private_losses else None

    def _journal(self, wire: StateWire, options: Options) -> Journal | None:
        if self.out is None:
            return None
        folder = RunFolder(Path(self.out))
        shapes = [[e.name, list(e.shape)] for e in wire.entries]
        job = {"algorithm": plain(self.algorithm), "seed": self.seed, "model": shapes}
        if not folder.has_run():
            folder.create({"experiment": job, "flower": asdict(options)})
        elif folder.config()["experiment"] == job:
            folder.lock()
        else:
            raise InputError(f"{folder.path} holds a run with other settings or another model; choose another out")
        return Journal(folder, self.algorithm)

    def _watch(
        self, number: int, state: Any, rounds: Rounds[Any], wire: StateWire, result: Result, evaluate_fn: Evaluate | None
    ) -> None:
        reported = rounds.engine.reported
        losses = np.concatenate([np.nanmean(r.losses, 1) for r in reported if r.losses.size] or [[]])
        known = (
            {"train_loss": float(np.median(losses))} if len(losses) else {}
        )  # of the usual client; private losses are not known
        clients = sum(len(r.clients) for r in reported)
        result.train_metrics_clientapp[number] = MetricRecord({**known, "num-clients": clients})
        self._at_server(number, state, wire, result, evaluate_fn)

    def _at_server(self, number: int, state: Any, wire: StateWire, result: Result, evaluate_fn: Evaluate | None) -> None:
        if evaluate_fn is None:
            return
        found = MetricRecord()
        for i, theta in enumerate(self.algorithm.clustering(state).models):
            for key, value in (evaluate_fn(number, wire.arrays(theta)) or {}).items():
                found[f"cluster-{i}.{key}"] = _metric(key, value)
        result.evaluate_metrics_serverapp[number] = found

    def _finish(
        self, number: int, state: Any, rounds: Rounds[Any], wire: StateWire, result: Result, journal: Journal | None
    ) -> Result:
        clustering, roster = self.algorithm.clustering(state), rounds.engine.roster
        self.models = [wire.arrays(theta) for theta in clustering.models]
        self.labels = {name: int(row) for name, row in zip(roster.names, clustering.labels, strict=True)}
        result.arrays = self.models[int(np.bincount(clustering.labels, minlength=len(self.models)).argmax())]
        result.evaluate_metrics_clientapp[number] = self._evaluate(number, clustering, rounds.engine, wire)
        if journal:
            journal.finish(state, clustering, roster)
        log.info("finished: %d clients in %d clusters, %d excluded", len(roster), len(self.models), len(roster.excluded))
        return result

    def _evaluate(self, number: int, clustering: Clustering, engine: FlowerEngine, wire: StateWire) -> MetricRecord:
        """Each client's own test metrics of its cluster's model, averaged (see `means`); an app without is left out."""
        here = engine.roster.available()
        tasks = [Task(int(k), engine.roster.names[k], int(clustering.labels[k])) for k in here]
        questions = wire.evaluate(tasks, clustering.models, "test", number)
        letters = [Letter(engine.roster.node[q.tasks[0].name], q.kind, q.content) for q in questions]
        told: dict[str, dict[str, float]] = {}
        for task, reply in zip(tasks, engine.post.exchange(letters, engine.options.deadline, str(number)), strict=True):
            if reply is None or (isinstance(reply, Message) and not (reply.has_content() and reply.content.metric_records)):
                continue  # it is away, or its app has none
            try:
                if isinstance(reply, Invalid):
                    raise reply
                told[task.name] = scalars(metrics_of(reply.content))
            except (Invalid, *UNREADABLE) as reason:
                log.warning("dropped the test metrics of client %s: %.300s", task.name, reason)
        return MetricRecord({**averaged(told)})

    def summary(self) -> None:
        log.info("%s", self.algorithm)

    # Flower's own loop averages one model; this one has as many as it finds clusters, so `start` does not call these.

    def configure_train(self, *_: Any, **__: Any) -> Iterable[Message]:
        raise NotImplementedError("FedGWC keeps one model per cluster: call start()")

    def aggregate_train(self, *_: Any, **__: Any) -> tuple[ArrayRecord | None, MetricRecord | None]:
        raise NotImplementedError("FedGWC keeps one model per cluster: call start()")

    def configure_evaluate(self, *_: Any, **__: Any) -> Iterable[Message]:
        raise NotImplementedError("FedGWC keeps one model per cluster: call start()")

    def aggregate_evaluate(self, *_: Any, **__: Any) -> MetricRecord | None:
        raise NotImplementedError("FedGWC keeps one model per cluster: call start()")


def _metric(key: str, value: Any) -> Any:
    """As Flower's records take it: numbers of numpy and torch become Python's."""
    if isinstance(value, int | float | list) and not isinstance(value, bool):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"evaluate_fn must return numbers, or lists of them; {key} is {value!r:.60}") from None
