"""Tuning: every method gets the same number of trials over its own search space, judged on validation samples.

Optuna chooses the trials: the first has the defaults, the next nine are drawn at random, TPE chooses the others. What is chosen
and what is given up depends on the seeds only, not on the number of processes or on interruptions. OUT/tuning.journal has
Optuna's studies, OUT/METHOD/trial-NNN the runs.
"""

from __future__ import annotations

import json
import warnings
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgwc.core.assignments import Assignment
from fedgwc.core.errors import InputError
from fedgwc.core.search import OneOf, Search
from fedgwc.engines.settings import cores, device_of
from fedgwc.io.atomic import write_atomically
from fedgwc.runs.experiment import Experiment
from fedgwc.runs.processes import Died, Job, in_processes
from fedgwc.runs.progress import watcher
from fedgwc.tuning.spaces import Recipe, Tuned
from fedgwc.tuning.trial import (
    BATCH,
    COMPLETE,
    FAILED,
    INTERRUPTED,
    PRUNED,
    RESULT,
    TrialResult,
    do_trial,
    open_study,
    read_trial,
    save_trial,
    storage,
)

if TYPE_CHECKING:
    import optuna

FIRST_SEED = 10_000  # of tuning; comparisons report on seeds from 0 on
N_SEEDS = 2  # unless the user says otherwise
RANDOM = 10  # trials until TPE begins: from fewer it mostly learns where nothing was tried yet
EVALUATIONS = 20  # of a trial's run, in which it may be given up
MOST_TRIALS = 10_000
PLAN, JOURNAL = "plan.json", "tuning.journal"


@dataclass(frozen=True)
class Trial:
    """One trial of a method."""

    method: str
    number: int
    settings: dict[str, Any]  # by full key
    result: TrialResult


@dataclass(frozen=True)
class Plan:
    """A tuning before it begins."""

    recipe: Recipe
    methods: Sequence[Tuned]
    n_trials: int
    n_seeds: int = N_SEEDS

    def __post_init__(self) -> None:
        for option, count, most in (("trials", self.n_trials, MOST_TRIALS), ("seeds", self.n_seeds, 1000)):
            if not 1 <= count <= most:
                raise InputError(f"--{option} of a tuning must be in 1..{most:,}, got {count}")

    @property
    def seeds(self) -> range:
        return range(FIRST_SEED, FIRST_SEED + self.n_seeds)

    def experiments(self, method: Tuned, settings: dict[str, Any]) -> tuple[Experiment, ...]:
        """Return the runs of a trial, one per tuning seed."""
        build: list[Assignment] = [(tuple(key.split(".")), value) for key, value in settings.items()]
        if method.job.evaluate.every is None:
            build.append(f"evaluate.every={max(1, method.job.rounds // EVALUATIONS)}")
        return tuple(self.recipe.experiment(method.name, *build, f"seed={seed}") for seed in self.seeds)

    def to_json(self) -> dict[str, Any]:
        """Return what decides the outcome, apart from the number of trials."""
        methods = {m.name: {**m.job.to_json(), "seed": None, "engine": None} for m in self.methods}
        spaces = {m.name: {key: str(search) for key, search in m.space.items()} for m in self.methods}
        return {"seeds": list(self.seeds), "spaces": spaces, "methods": methods}


def begin(plan: Plan, folder: Path) -> None:
    """Make the folder of a tuning, or check that it is the same one's."""
    path, wanted = folder / PLAN, json.loads(json.dumps(plan.to_json()))
    if path.is_file():
        try:
            there = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"{path} cannot be read: {error}; choose another --out") from None
        if other := [key for key in wanted if there.get(key) != wanted[key]]:
            raise InputError(
                f"{folder} holds a tuning with other {', '.join(other)}; repeat its command, or choose another --out"
            )
        return
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder} is not an empty folder, and holds no tuning; choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(wanted, indent=2).encode())


def n_done(folder: Path) -> int:
    """Count the trials that are in a folder already."""
    return len(list(folder.glob(f"*/trial-*/{RESULT}")))


def tune(plan: Plan, folder: Path, jobs: int = 0) -> Generator[Trial, None, list[Trial]]:
    """Yield every trial as it ends, and return all in order.

    Trials that are in the folder are not done again. KeyboardInterrupt: what had begun is saved.
    """
    check_optuna()
    begin(plan, folder)
    studies = {method.name: Study(plan, method, folder) for method in plan.methods}
    on_gpu = device_of(plan.methods[0].job.engine).type == "cuda"
    to_do = deque(job for study in studies.values() for job in study.next_batch())
    n_processes = 1 if on_gpu else jobs or cores()
    for (name, number, *_), result in _in_turn(to_do) if n_processes == 1 else in_processes(do_trial, to_do, n_processes):
        if isinstance(result, Died):
            result = TrialResult(INTERRUPTED if result.was_asked else FAILED, problem=result.what(f"{name}, trial {number}"))
        if result.state == INTERRUPTED:
            raise KeyboardInterrupt
        yield studies[name].take(number, result)
        to_do.extend(studies[name].next_batch())
    return [trial for study in studies.values() for trial in study.trials()]


def _in_turn(jobs: deque[Job]) -> Generator[tuple[Job, TrialResult], None, None]:
    """Do trials in this process, which shows how each goes on."""
    do = partial(do_trial, progress=watcher())
    while jobs:
        job = jobs.popleft()
        yield job, do(*job)


@dataclass
class Study:
    """The trials of one method: chosen in batches, told to Optuna in their order."""

    plan: Plan
    method: Tuned
    folder: Path
    results: dict[int, TrialResult] = field(default_factory=dict)
    running: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        journal, name = self.folder / JOURNAL, self.method.name
        optuna.create_study(study_name=name, storage=storage(journal), direction="maximize", load_if_exists=True)
        self.study = open_study(journal, name, self.method.job.rounds)

    def next_batch(self) -> list[Job]:
        """Return the next trials to do, once all earlier ones have ended."""
        while not self.running:
            begun = self._begun()
            if not begun:
                return []
            self.running = {t.number for t in begun}
            there = [t.number for t in begun if (self._path(t.number) / RESULT).is_file()]  # until an interruption
            self.results |= {number: read_trial(self._path(number)) for number in there}
            if jobs := [self._job(t) for t in begun if t.number not in there]:
                return jobs
            self._tell_all()
        return []

    def _begun(self) -> list[optuna.trial.FrozenTrial]:
        """Choose the trials of a batch as far as that was not done."""
        from optuna.trial import TrialState

        if not self.study.trials:
            self.study.enqueue_trial(dict(self.method.defaults))
        n_ended = sum(t.state.is_finished() for t in self.study.trials)
        end = min(self.plan.n_trials, (n_ended // BATCH + 1) * BATCH)
        while (number := sum(t.state != TrialState.WAITING for t in self.study.trials)) < end:
            self._ask(number)
        return [t for t in self.study.trials if t.state == TrialState.RUNNING]

    def _ask(self, number: int) -> None:
        """Let Optuna choose a trial, by its number and earlier batches only."""
        import optuna

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # The liar keeps the trials of a batch apart.
            sampler = optuna.samplers.TPESampler(seed=FIRST_SEED + number, n_startup_trials=RANDOM, constant_liar=True)
        self.study.sampler = sampler
        self.study.ask({key: _distribution(search) for key, search in self.method.space.items()})

    def _job(self, trial: optuna.trial.FrozenTrial) -> Job:
        jobs = self.plan.experiments(self.method, trial.params)
        return self.method.name, trial.number, trial._trial_id, jobs, self._path(trial.number), self.folder / JOURNAL

    def _path(self, number: int) -> Path:
        return self.folder / self.method.name / f"trial-{number:03d}"

    def take(self, number: int, result: TrialResult) -> Trial:
        """Note a trial's result; the batch is told once it is complete."""
        self.results[number] = result
        save_trial(self._path(number), result)
        if self.running <= self.results.keys():
            self._tell_all()
        return Trial(self.method.name, number, self.study.trials[number].params, result)

    def _tell_all(self) -> None:
        for number in sorted(self.running):
            self._tell(number, self.results[number])
        self.running = set()

    def _tell(self, number: int, result: TrialResult) -> None:
        from optuna.trial import TrialState

        if result.state == COMPLETE:
            self.study.tell(number, result.rank[0])
        else:
            self.study.tell(number, state=TrialState.PRUNED if result.state == PRUNED else TrialState.FAIL)

    def trials(self) -> list[Trial]:
        """Return all trials that have ended, in order."""
        ended = [t for t in self.study.trials if t.state.is_finished()]
        return [
            Trial(self.method.name, t.number, t.params, self.results.get(t.number) or read_trial(self._path(t.number)))
            for t in ended
        ]


def best_trials(trials: Iterable[Trial]) -> dict[str, Trial]:
    """Return each method's best completed trial; of equal ones the earlier."""
    best: dict[str, Trial] = {}
    for trial in trials:
        if trial.result.state == COMPLETE and (trial.method not in best or trial.result.rank > best[trial.method].result.rank):
            best[trial.method] = trial
    return best


def check_optuna() -> None:
    """Complain about missing Optuna before anything runs."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise InputError("tuning needs Optuna: install fedgwc with its extra `tune`") from None


def _distribution(search: Search) -> optuna.distributions.BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(search, OneOf):
        return CategoricalDistribution(search.values)
    if search.is_whole:
        return IntDistribution(int(search.low), int(search.high), log=search.log)
    return FloatDistribution(search.low, search.high, log=search.log)
