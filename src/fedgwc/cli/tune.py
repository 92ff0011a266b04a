"""`fedgwc tune`: the same number of trials for every method, judged on validation samples."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import closing
from pathlib import Path

from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.errors import InputError
from fedgwc.engines.settings import device_of
from fedgwc.io.atomic import write_atomically
from fedgwc.reproduce.provenance import provenance
from fedgwc.runs.folder import new_folder
from fedgwc.runs.tables import show
from fedgwc.tuning.search import N_SEEDS, Plan, Trial, check_optuna, n_done, tune
from fedgwc.tuning.spaces import Recipe, tuned_methods
from fedgwc.tuning.trial import COMPLETE, PRUNED
from fedgwc.tuning.tuned import save_tuning, setting_text, summary, tuned_settings

ALL = "all"


def tune_command(
    recipe: str | None,
    algorithms: list[str],
    n_trials: int,
    n_seeds: int,
    sets: list[str],
    out: Path | None = None,
    scale: str = "full",
    spaces: list[str] | None = None,
    jobs: int = 0,
) -> None:
    plan = plan_tuning(recipe, algorithms, n_trials, n_seeds, sets, scale, spaces or [])
    folder = out or new_folder(plan.methods[0].job.recipe, "tune")
    tuned(plan, folder, jobs)
    told = provenance(_command(recipe, algorithms, n_trials, n_seeds, sets, scale, spaces or []))
    write_atomically(folder / "provenance.json", json.dumps(told, indent=2).encode())
    print(f"\nWritten: {folder} (trials.csv and .json, tuned.toml, the runs)")
    print(f"Compare on other seeds: fedgwc compare {recipe or ''} -a {','.join(algorithms)} --tuned {folder}")


def plan_tuning(
    recipe: str | None, algorithms: list[str], n_trials: int, n_seeds: int, sets: list[str], scale: str, spaces: list[str]
) -> Plan:
    """Plan a tuning; slips are told before there is a folder."""
    check_optuna()
    names = list(ALGORITHMS) if algorithms == [ALL] else algorithms
    plan = Plan(source := Recipe(recipe, tuple(sets), scale), tuned_methods(source, names, spaces), n_trials, n_seeds)
    device_of(plan.methods[0].job.engine)
    return plan


def tuned_for_comparison(
    recipe: str | None,
    algorithms: list[str],
    n_trials: int,
    n_seeds: int,
    sets: list[str],
    out: Path | None,
    scale: str,
    jobs: int,
) -> tuple[list[str], Path]:
    """Tune the methods of a comparison below its folder.

    Returns the comparison's settings and its folder. It reports on other seeds than those of the tuning.
    """
    plan = plan_tuning(recipe, algorithms, n_trials, N_SEEDS, sets, scale, [])
    first = plan.methods[0].job.seed
    if first < plan.seeds.stop and plan.seeds.start < first + n_seeds:
        raise InputError(f"seeds {plan.seeds[0]:,} to {plan.seeds[-1]:,} are for tuning; report on others: --set seed=0")
    folder = out or new_folder(plan.methods[0].job.recipe, "compare")
    try:
        return [*tuned(plan, folder / "tuning", jobs), *sets], folder
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Interrupted and saved. The same command with --out {folder} goes on from here.") from None


def with_tuned(folder: Path, algorithms: list[str], sets: list[str]) -> list[str]:
    """Return settings with those that a tuning has found; settings on the command line win."""
    found = tuned_settings(folder)
    methods = {setting.partition(".")[0] for setting in found}
    if missing := [name for name in algorithms if name not in methods and name != ALL]:
        print(f"{folder} has no settings of {', '.join(missing)}: as the recipe has them", file=sys.stderr)
    return [*found, *sets]


def tuned(plan: Plan, folder: Path, jobs: int) -> list[str]:
    """Do a tuning, show its outcome, and return the best settings of all methods."""
    for method in plan.methods:
        space = [f"{key.removeprefix(f'{method.name}.')} in {search}" for key, search in method.space.items()]
        print(f"{method.name}: {', '.join(space)}", file=sys.stderr)
    seeds, rounds = f"seeds {plan.seeds[0]}..{plan.seeds[-1]}", plan.methods[0].job.rounds
    print(f"{plan.n_trials} trials each, {seeds}, {rounds:,} rounds, the first with the defaults", file=sys.stderr, flush=True)
    trials = _do_all(plan, folder, jobs)
    save_tuning(plan, trials, folder)
    show(summary(plan, trials))
    return tuned_settings(folder)


def _do_all(plan: Plan, folder: Path, jobs: int) -> list[Trial]:
    total, done = plan.n_trials * len(plan.methods), n_done(folder)
    try:
        with closing(tune(plan, folder, jobs)) as going:
            while True:
                try:
                    trial = next(going)
                except StopIteration as end:
                    return list(end.value)
                done += 1
                print(f"{done}/{total} {_line(trial)}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Interrupted and saved. The same command with --out {folder} goes on from here.") from None


def _command(
    recipe: str | None, algorithms: list[str], n_trials: int, n_seeds: int, sets: list[str], scale: str, spaces: list[str]
) -> str:
    """Return the command that repeats a tuning."""
    words = ["fedgwc", "tune", *([recipe] if recipe else []), "--algorithms", ",".join(algorithms)]
    words += ["--trials", str(n_trials), "--seeds", str(n_seeds), "--scale", scale]
    words += [word for s in sets for word in ("--set", s)] + [word for s in spaces for word in ("--space", s)]
    return shlex.join(words)


def _line(trial: Trial) -> str:
    result = trial.result
    what = f"failed: {result.problem}"
    if result.state == COMPLETE:
        what = f"validation accuracy {result.rank[0]:.1%}"
    elif result.state == PRUNED:
        what = f"given up at round {result.pruned_at:,}"
    return f"{trial.method} trial {trial.number}: {what} ({setting_text(trial)})"
