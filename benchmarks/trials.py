"""What the constants of a trial are worth: real runs on digits, with each of them halved and doubled.

    python -m benchmarks.trials

A recording cannot be asked, so `benchmarks.evidence` says nothing of these. Results go to results/trials.json, and what is there
already is not run again; the table of results/evidence.md is made from that file.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from benchmarks.evidence import (
    DEFAULT,
    PAGE,
    ROOT,
    Outcome,
    candidates_table,
    halved_and_doubled,
    judged,
    keep,
    kept,
    outcome,
    with_constants,
    with_table,
)
from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.runs.experiment import load
from fedgwc.runs.loop import rounds

KEPT = ROOT / "results/trials.json"
SEEDS, ROUNDS = range(3), 3000


def of_one_size(groups: int, clients: int) -> str:
    """Groups that code their labels differently."""
    return "data.groups=[" + ",".join(f"{{clients={clients},relabel={g}}}" for g in range(groups)) + "]"


FEDERATIONS: dict[str, tuple[str, ...]] = {
    "15 of 100 shifted": (),
    "2 of 50": (of_one_size(2, 50),),
    "4 of 25": (of_one_size(4, 25),),
    # Contrast protects nobody here, so whoever is divided was divided wrongly.
    "homogeneous, in every batch all of a client's data": (
        'data.groups=[{clients=100,partition="dirichlet",alpha=1000.0}]',
        "local.batch=16",
    ),
}

CANDIDATES: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    **halved_and_doubled("up to {} witnesses of a side", "algorithms.auto.second_look.WITNESSES", 4, 14),
    **halved_and_doubled("asked every {} trainings", "algorithms.auto.second_look.EVERY", 5, 20),
    **halved_and_doubled("clear at {} deviations", "algorithms.auto.second_look.CLEAR", 2.5, 10.0),
    **halved_and_doubled("{} trainings at most", "algorithms.auto.second_look.LONGEST", 20, 80),
    **halved_and_doubled("undone below {} deviations", "algorithms.auto.second_look.FAINT", 1.0, 4.0),
    **halved_and_doubled("{} misplaced before anybody is asked", "algorithms.auto.second_look.SELDOM", 0.05, 0.2),
    **halved_and_doubled("outliers from {} median deviations on", "algorithms.auto.second_look.OUTLIER", 2.5, 10.0),
    **halved_and_doubled("late for {} windows", "algorithms.auto.second_look.LATE", 2, 6),
    **halved_and_doubled("{} of a side unsure", "algorithms.auto.second_look.NEAR", 0.125, 0.5),
    **halved_and_doubled("unsure up to {} of the way", "algorithms.auto.second_look.UNSURE", 0.4, 1.6),
    "without trials": {"second_look": False},
}


def judge(candidate: str, federation: str, seed: int) -> Outcome:
    """What one candidate makes of one federation."""
    settings = dict(CANDIDATES[candidate])
    constants = settings.pop("constants", {})
    sets = [f"algorithm.{name}={str(value).lower()}" for name, value in settings.items()]
    job = load("digits", ["algorithm.name=auto", f"seed={seed}", f"rounds={ROUNDS}", *FEDERATIONS[federation], *sets])
    clients = job.federation()
    engine = job.simulator(clients)
    start, algorithm = job.initial(clients, engine), job.algorithm
    assert isinstance(algorithm, Auto)
    with with_constants(constants):
        every = rounds(algorithm, engine, start, clients.n_clients, job.rounds, seed=seed, reuse=True)
        [(_, state)] = deque(every, maxlen=1)
    first = min((s.ended for s in state.splits), default=None)
    about = candidate, federation, f"seed{seed}", job.rounds, first
    return outcome(about, np.asarray(algorithm.clustering(state).labels), clients.class_counts(), clients.groups)


def written(page: str, outcomes: list[Outcome]) -> str:
    return with_table(page, "trials", candidates_table(outcomes, CANDIDATES))


def main() -> None:
    outcomes = kept(KEPT)
    done = {(o.candidate, o.federation, o.trace) for o in outcomes}
    every = ((c, f, s) for c in CANDIDATES for f in FEDERATIONS for s in SEEDS)
    todo = [each for each in every if (*each[:2], f"seed{each[2]}") not in done]
    outcomes += judged(judge, todo, lambda more: keep(KEPT, [*outcomes, *more], CANDIDATES))
    PAGE.write_text(written(PAGE.read_text(), outcomes))


if __name__ == "__main__":
    main()
