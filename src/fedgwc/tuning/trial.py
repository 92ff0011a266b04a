"""One trial of a tuning: a method under some settings, once per tuning seed."""

from __future__ import annotations

import json
import math
import shutil
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedgwc.core.errors import InputError, os_error_text
from fedgwc.io.atomic import write_atomically
from fedgwc.runs.budget import MEASURES, spent
from fedgwc.runs.experiment import Experiment
from fedgwc.runs.folder import SUBFOLDERS, RunFolder
from fedgwc.runs.loop import run
from fedgwc.runs.progress import SILENT, Silent, Watcher
from fedgwc.runs.selection import validation_rank

if TYPE_CHECKING:
    import optuna

COMPLETE, PRUNED, FAILED, INTERRUPTED = "complete", "pruned", "failed", "interrupted"
WARM_UP = 0.5  # share of the first seed's rounds in which no trial is given up: some methods divide clients late
BATCH = 5  # trials of a method that are chosen together, so that what is chosen does not depend on which one ends first
ENOUGH = 3  # completed trials from which a median says something
RESULT = "trial.json"


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial, on validation samples only."""

    state: str
    accuracies: tuple[float, ...] = ()  # of each seed that was completed: validation accuracy of the last evaluation
    losses: tuple[float, ...] = ()  # likewise
    effort: Mapping[str, float] = field(default_factory=dict)  # by measure, all seeds together
    pruned_at: int | None = None  # the round in which it was given up
    problem: str = ""  # why it failed

    @property
    def rank(self) -> tuple[float, float]:
        """Return mean accuracy, then mean loss; larger is better."""
        return (fmean(self.accuracies), -fmean(self.losses)) if self.state == COMPLETE else (-math.inf, -math.inf)


def do_trial(
    name: str, number: int, storage_id: int, jobs: tuple[Experiment, ...], folder: Path, journal: Path, progress: Watcher = SILENT
) -> TrialResult:
    """Run a trial into `folder`, one experiment per seed."""
    import optuna

    study = open_study(journal, name, jobs[0].rounds)
    trial, known = optuna.trial.Trial(study, storage_id), set(study.trials[number].intermediate_values)
    done = TrialResult(COMPLETE, effort=dict.fromkeys(MEASURES, 0.0))
    for i, job in enumerate(jobs):
        path = folder / f"seed{job.seed}"
        one = _do_seed(job, path, Reporter(trial, i * job.rounds, known, progress))
        if one.state == INTERRUPTED:
            return one
        _drop_models(path)
        done = replace(
            one,
            accuracies=done.accuracies + one.accuracies,
            losses=done.losses + one.losses,
            effort={measure: cost + one.effort.get(measure, 0.0) for measure, cost in done.effort.items()},
        )
        if done.state != COMPLETE:
            break
    save_trial(folder, done)
    return done


def _do_seed(job: Experiment, path: Path, reporter: Reporter) -> TrialResult:
    import optuna

    def ended(state: str, **more: Any) -> TrialResult:
        return TrialResult(state, effort=_effort(path), **more)

    try:
        result = run(job, path, resume=RunFolder(path).has_run(), progress=reporter)
    except optuna.TrialPruned:
        return ended(PRUNED, pruned_at=reporter.number)
    except InputError as error:
        return ended(FAILED, problem=str(error))
    except OSError as error:
        return ended(FAILED, problem=os_error_text(error))
    except KeyboardInterrupt:
        return TrialResult(INTERRUPTED)
    except Exception as error:  # of somebody's own algorithm, perhaps: the other trials go on
        traceback.print_exc()
        return ended(FAILED, problem=f"{type(error).__name__}: {error}".splitlines()[0])
    if not result.finished:
        return TrialResult(INTERRUPTED)
    accuracy, negative_loss = validation_rank(result.last)
    if not math.isfinite(accuracy):
        return ended(FAILED, problem="its validation accuracy is no number")
    return ended(COMPLETE, accuracies=(accuracy,), losses=(-negative_loss,))


def save_trial(folder: Path, result: TrialResult) -> None:
    """Write the result of a trial, unless it is there already."""
    if not (folder / RESULT).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / RESULT, json.dumps(asdict(result)).encode())


def read_trial(folder: Path) -> TrialResult:
    """Read the result of a trial that was done."""
    try:
        written = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        return TrialResult(**{**written, **{key: tuple(written[key]) for key in ("accuracies", "losses")}})
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder / RESULT} cannot be read ({error}); remove {folder}, and the trial is done again") from None


def open_study(journal: Path, name: str, rounds: int) -> optuna.Study:
    """Open a method's study, which gives up what is worse than the median of earlier trials."""
    import optuna

    pruner = optuna.pruners.MedianPruner(ENOUGH, n_warmup_steps=int(WARM_UP * rounds))
    return optuna.load_study(study_name=name, storage=storage(journal), pruner=pruner)


def storage(journal: Path) -> optuna.storages.BaseStorage:
    """Open Optuna's storage in one file, which several processes may share."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return JournalStorage(JournalFileBackend(str(journal)))


class Reporter(Silent):
    """A watcher that reports validation accuracies, and gives a trial up."""

    number = 0  # the last round that was evaluated

    def __init__(self, trial: optuna.Trial, first: int, known: set[int], other: Watcher) -> None:
        self.trial, self.other = trial, other
        self.first, self.known = first, known  # rounds of the seeds before, and what was reported until an interruption
        self.start, self.message, self.round = other.start, other.message, other.round  # type: ignore[method-assign]
        self.decided, self.step, self.stop = other.decided, other.step, other.stop  # type: ignore[method-assign]

    def evaluated(self, row: Mapping[str, Any]) -> None:
        import optuna

        self.other.evaluated(row)
        self.number, accuracy = int(row["round"]), validation_rank(row)[0]
        step = self.first + self.number
        if math.isfinite(accuracy) and step not in self.known:
            self.trial.report(accuracy, step)
        if self.trial.should_prune():
            raise optuna.TrialPruned


def _effort(path: Path) -> dict[str, float]:
    """Return what a run has cost; nothing is known of one that failed before its first evaluation."""
    rows = RunFolder(path).metrics()
    return {measure: spent(rows[-1], measure) for measure in MEASURES} if rows else {}


def _drop_models(path: Path) -> None:
    """Remove what nobody will look at: a tuning has many runs, and some have a model per client."""
    for name in SUBFOLDERS:
        shutil.rmtree(path / name, ignore_errors=True)
