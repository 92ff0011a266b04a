"""Which rule divides right: FedGWC's default, its constants halved and doubled, its parts left out, over recorded losses.

    python -m benchmarks.evidence TRACES

TRACES/<federation>/ holds run folders or npz files, as `python -m benchmarks.record TRACES --first 20` writes them. Results go
to results/evidence.json, and what is there already is not replayed again; the tables of results/evidence.md are made from that
file, also by `python -m benchmarks.evidence` alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass, fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from fedgwc.algorithms import ALGORITHMS
from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.algorithms.auto.beginnings import fresh
from fedgwc.algorithms.auto.second_look import LATE
from fedgwc.algorithms.auto.state import Cluster
from fedgwc.algorithms.auto.verdicts import NO_ONE_WAITS, Attempt
from fedgwc.core.types import Floats, Ids
from fedgwc.engines.settings import cores
from fedgwc.io.atomic import write_atomically
from fedgwc.metrics import (
    adjusted_rand_index,
    rand_index,
    wasserstein_adjusted_davies_bouldin,
    wasserstein_adjusted_silhouette,
)
from fedgwc.runs.replay import read_trace, replay, tree_of
from fedgwc.runs.tables import Table, markdown

ROOT = Path(__file__).parents[1]
KEPT, PAGE = ROOT / "results/evidence.json", ROOT / "results/evidence.md"
DEFAULT = "the default"
PARTED = 0.5  # of one kind of clients, at least, more than of another on one side: else a replay undoes the division
# The rule and its constants were settled with these recordings at hand. The others of the same federations were first replayed
# when everything was fixed; of federations that are not named all were looked at, and none had a say.
CHOSEN_ON = {
    "40 clean, 30 noisy, 30 blurred": ("seed20", "seed21", "seed22", "seed23"),
    "50 clean, 50 blurred": ("seed20", "seed21"),
    "50 clean, 50 noisy": ("seed20", "seed21"),
    "40 + 30 + 30, weaker": ("seed20", "seed21"),
}


def halved_and_doubled(name: str, constant: str, half: float, double: float) -> dict[str, dict[str, Any]]:
    """Two candidates that differ from the default in a constant that is no setting."""
    return {name.format(f"{value:g}"): {"constants": {constant: value}} for value in (half, double)}


GONE: dict[str, Any] = {"gone": True}  # a rule of 0.1.0: what was measured of it is kept
CANDIDATES: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "`contrast` 1": {"contrast": 1.0},
    "`contrast` 4": {"contrast": 4.0},
    "`gain` 2": {"gain": 2.0},
    "`gain` 8": {"gain": 8.0},
    "`doubt` 5.5": {"doubt": 5.5},
    "`doubt` 22": {"doubt": 22.0},
    "`drift` 0.5": {"drift": 0.5},
    "`drift` 2": {"drift": 2.0},
    "`agreement` 0.88": {"agreement": 0.88},
    "`agreement` 0.97": {"agreement": 0.97},
    "`visits` 2": {"visits": 2},
    "`directions` 3": {"directions": 3},
    "`directions` 12": {"directions": 12},
    "`min_size` 2": {"min_size": 2},
    "`min_size` 6": {"min_size": 6},
    "`n_max` 2": {"n_max": 2},
    "`n_max` 10": {"n_max": 10},
    **halved_and_doubled("foretold by {} deviations", "algorithms.auto.verdicts.FORETOLD", 1.5, 6),
    **halved_and_doubled("settled after {} rounds", "algorithms.auto.algorithm.SETTLED", 5, 20),
    "drift from the second window on": {"constants": {"algorithms.auto.verdicts.SURE": 0}},
    "drift from the fourth window on": {"constants": {"algorithms.auto.verdicts.SURE": 2}},
    **halved_and_doubled("tried from {} clients of a side on", "algorithms.auto.second_look.SMALLEST", 5, 18),
    **halved_and_doubled("trusted from {} clients of a side on", "algorithms.auto.second_look.MANY", 8, 30),
    **halved_and_doubled("{} of a side unsure", "algorithms.auto.second_look.NEAR", 0.125, 0.5),
    **halved_and_doubled("unsure up to {} of the way", "algorithms.auto.second_look.UNSURE", 0.4, 1.6),
    **halved_and_doubled("an axis for every {} clients", "algorithms.auto.windows.PER_DIRECTION", 5, 20),
    **halved_and_doubled("axes of echoes: {}", "algorithms.auto.windows.HELPING", 1, 4),
    **halved_and_doubled("usual losses with step {}", "algorithms.auto.learning.USUAL", 0.05, 0.2),
    **halved_and_doubled("first losses at most {} from usual", "algorithms.auto.learning.MOST", 0.5, 2),
    **halved_and_doubled("losses bounded at {} median deviations", "algorithms.auto.readings.BEYOND", 2.5, 10),
    **halved_and_doubled("a cut stands at {} of the best gain", "algorithms.auto.proposals.STANDS", 0.25, 1.0),
    **halved_and_doubled("at most {} put aside", "algorithms.auto.cuts.MOST_ASIDE", 0.05, 0.2),
    **halved_and_doubled("{} random lines", "algorithms.auto.cuts.LINES", 6, 24),
    "groups from 5 clients on": {
        "constants": {
            "algorithms.auto.cuts.TOO_FEW": 5,
            "algorithms.auto.proposals.TOO_FEW": 5,
            "algorithms.auto.cuts.TOO_FEW_IN_ONE": 3,
        }
    },
    "groups from 20 clients on": {
        "constants": {
            "algorithms.auto.cuts.TOO_FEW": 20,
            "algorithms.auto.proposals.TOO_FEW": 20,
            "algorithms.auto.cuts.TOO_FEW_IN_ONE": 12,
        }
    },
    "by client, `pairs_up_to` 0": {"pairs_up_to": 0},
    "without drift": {"drift": np.inf},
    "without gain": {"gain": -np.inf},
    "without contrast": {"contrast": -1.0},
    "without agreement": {"agreement": -1.0},
    "without echoes": {"echo": False},
    "without sides, spreads and echoes": {"sides": False},
    "`when=visits`, the first default": GONE,
    "`fedgwc-release`": {"preset": "fedgwc-release"},
    "`fedgwc-paper`": {"preset": "fedgwc"},  # as 0.1.0 called it
}


@dataclass(frozen=True)
class Outcome:
    """What one candidate made of one recording."""

    candidate: str
    federation: str
    trace: str
    rounds: int
    first: int | None  # round of the first split
    labels: str  # of all clients, a letter each
    was: float | None
    wadb: float | None
    ari: float | None = None  # where groups are known
    rand: float | None = None
    smallest: int | None = None  # clients in the smallest of these groups
    exact: bool | None = None  # whether that group is a cluster

    @property
    def clusters(self) -> int:
        return len(set(self.labels))


@dataclass(frozen=True)
class Told(Auto):
    """Nobody can be asked in a replay. Where groups are known, those who would wait after a division say at once what is true."""

    truth: Ids | None = None

    def _end_of_window(self, cluster: Cluster) -> Attempt:
        tried = super()._end_of_window(cluster)
        waiting = tried.waiting.clients
        if tried.labels is None or self.truth is None or not len(waiting):
            return replace(tried, waiting=NO_ONE_WAITS)
        _, kind = np.unique(self.truth[cluster.members], return_inverse=True)
        share = np.array([tried.labels[kind == k].mean() for k in range(kind.max() + 1)])  # [kinds] that went to the second side
        if np.ptp(share) < PARTED:
            c = cluster
            anew = fresh(self, c.id, c.parent, c.born, c.members, c.server, c.scores, c.by_pairs)
            anew = replace(anew, undone=c.undone + 1, differed=c.has_differed, late=np.full(len(kind), LATE))
            return Attempt(anew, verdict=tried.verdict)
        labels = tried.labels.copy()
        labels[waiting] = share[kind[waiting]] > 0.5
        return replace(tried, labels=labels, waiting=NO_ONE_WAITS)


def judge(candidate: str, federation: str, path: Path) -> Outcome:
    settings = dict(CANDIDATES[candidate])
    constants = settings.pop("constants", {})
    trace = read_trace(path)
    algorithm = ALGORITHMS[settings["preset"]] if "preset" in settings else Told(**settings, truth=trace.truth)
    with with_constants(constants):
        state = replay(trace, algorithm)
    first = min((s.ended for s in tree_of(state).splits), default=None)
    about = candidate, federation, path.stem, len(trace.ids), first
    return outcome(about, algorithm.clustering(state).labels, trace.counts, trace.truth)


def outcome(about: tuple[str, str, str, int, int | None], labels: Ids, counts: Floats | None, truth: Ids | None) -> Outcome:
    """`about`: candidate, federation, recording, rounds, and the round of the first split."""
    was = wadb = None
    if labels.any() and counts is not None:
        was, wadb = (score(counts, labels) for score in (wasserstein_adjusted_silhouette, wasserstein_adjusted_davies_bouldin))
    letters = "".join(chr(ord("0") + y) for y in labels)
    return Outcome(*about, letters, was, wadb, **({} if truth is None else _against(truth, labels)))


@contextmanager
def with_constants(constants: Mapping[str, float]) -> Iterator[None]:
    """Until then constants of the package, by module and name, have other values."""
    with ExitStack() as until_then:
        for name, value in constants.items():
            until_then.enter_context(patch(f"fedgwc.{name}", value))
        yield


def _against(truth: Ids, labels: Ids) -> dict[str, Any]:
    sizes = np.bincount(truth)
    small = truth == sizes.argmin()
    exact = bool((small == (labels == labels[small][0])).all())
    ari, rand = adjusted_rand_index(truth, labels), rand_index(truth, labels)
    return {"ari": ari, "rand": rand, "smallest": int(sizes.min()), "exact": exact}


# Tables


COLUMNS = {
    "rounds": ("rounds", "{:,.0f}"),
    "first split": ("first", "{:,.0f}"),
    "clusters": ("clusters", "{:.0f}"),
    "adjusted Rand": ("ari", "{:.2f}"),
    "Rand": ("rand", "{:.2f}"),
    "WAS": ("was", "{:.2f}"),
    "WADB": ("wadb", "{:.2f}"),
}


def default_table(outcomes: list[Outcome]) -> Table:
    rows = []
    for federation in _federations(outcomes):
        every = [o for o in outcomes if o.federation == federation and o.candidate == DEFAULT]
        for part in ("", ", chosen on", ", held out"):
            mine = [o for o in every if part == _part(o)]
            if mine:
                told = (_span(mine, *column) for column in COLUMNS.values())
                rows.append([federation + part, str(len(mine)), *told, _agreement(mine)])
    return Table(["federation", "recordings", *COLUMNS, "seeds agree"], rows)


def _part(o: Outcome) -> str:
    if o.federation not in CHOSEN_ON:
        return ""
    return ", chosen on" if o.trace in CHOSEN_ON[o.federation] else ", held out"


def candidates_table(outcomes: list[Outcome], candidates: Iterable[str]) -> Table:
    federations = _federations(outcomes)
    rows = []
    for candidate in candidates:
        cells = [_cell([o for o in outcomes if (o.candidate, o.federation) == (candidate, f)]) for f in federations]
        if any(c != "–" for c in cells):
            rows.append([candidate, *cells])
    return Table(["", *federations], rows)


def _cell(mine: list[Outcome]) -> str:
    """Of a federation with few odd clients, in how many recordings they were found; of other groups, how well; else clusters."""
    if not mine:
        return "–"
    if mine[0].ari is None:
        return _span(mine, "clusters", "{:.0f}")
    if mine[0].smallest is not None and 10 * mine[0].smallest <= len(mine[0].labels):
        return f"{sum(bool(o.exact) for o in mine)} of {len(mine)}"
    middle, span = f"{np.median([o.ari for o in mine if o.ari is not None]):.2f}", _span(mine, "ari", "{:.2f}")
    return middle if span == middle else f"{middle} ({span})"


def _federations(outcomes: list[Outcome]) -> list[str]:
    return sorted({o.federation for o in outcomes})


def _span(mine: Iterable[Outcome], name: str, form: str) -> str:
    return between([value for o in mine if (value := getattr(o, name)) is not None], form)


def between(values: Sequence[float], form: str) -> str:
    """From the least to the most."""
    texts = [form.format(v) for v in sorted(values)]
    return "–" if not texts else texts[0] if texts[0] == texts[-1] else f"{texts[0]} – {texts[-1]}"


def _agreement(mine: list[Outcome]) -> str:
    """Mean adjusted Rand index between the labels of two seeds; clients are the same ones, or stand in the same groups."""
    labels = [[ord(c) for c in o.labels] for o in mine]
    pairs = [adjusted_rand_index(a, b) for a, b in combinations(labels, 2)]
    return f"{np.mean(pairs):.2f}" if pairs else "–"


def written(page: str, outcomes: list[Outcome]) -> str:
    """`page` with its tables made anew."""
    return with_table(with_table(page, "evidence", default_table(outcomes)), "candidates", candidates_table(outcomes, CANDIDATES))


def with_table(page: str, name: str, table: Table) -> str:
    """`page` with this table between its two marks."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    before, rest = page.split(begin)
    return before + begin + markdown(table) + end + rest.split(end)[1]


def kept(path: Path) -> list[Outcome]:
    if not path.exists():
        return []
    table = json.loads(path.read_text())
    return [Outcome(**dict(zip(table["columns"], row, strict=True))) for row in table["rows"]]


def keep(path: Path, outcomes: Iterable[Outcome], candidates: Iterable[str]) -> None:
    """A line each, in the order of the table, with as many digits as anybody reads."""
    rank = {candidate: i for i, candidate in enumerate(candidates)}
    columns = [f.name for f in fields(Outcome)]
    some = sorted(outcomes, key=lambda o: (rank[o.candidate], o.federation, o.trace))
    rows = ([round(x, 4) if isinstance(x, float) else x for x in astuple(o)] for o in some)
    lines = ",\n".join(json.dumps(row) for row in rows)
    write_atomically(path, f'{{"columns": {json.dumps(columns)}, "rows": [\n{lines}\n]}}\n'.encode())


def judged(judge: Callable[..., Outcome], todo: list[tuple[Any, ...]], save: Callable[[list[Outcome]], None]) -> list[Outcome]:
    """The outcomes of all that is to do, each saved at once: it takes hours."""
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(1 if len(todo) < 4 else cores()) as pool:
        for o in pool.map(judge, *zip(*todo, strict=True)) if todo else ():
            outcomes.append(o)
            said = f"{o.candidate}, {o.federation}/{o.trace}: {o.clusters} clusters, ari {o.ari}"
            print(f"{len(outcomes)}/{len(todo)} {said}", flush=True)
            save(outcomes)
    return outcomes


def recordings(place: Path) -> list[tuple[str, Path]]:
    found = (p for f in sorted(place.iterdir()) if f.is_dir() for p in sorted(f.iterdir()))
    return [(p.parent.name, p) for p in found if p.suffix == ".npz" or (p / "config.json").is_file()]


def main(places: list[Path]) -> None:
    outcomes = kept(KEPT)
    done = {(o.candidate, o.federation, o.trace) for o in outcomes}
    found = [r for place in places for r in recordings(place)]
    todo = [(c, f, p) for c, its in CANDIDATES.items() if its != GONE for f, p in found if (c, f, p.stem) not in done]
    outcomes += judged(judge, todo, lambda more: keep(KEPT, [*outcomes, *more], CANDIDATES))
    PAGE.write_text(written(PAGE.read_text(), outcomes))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, help="folders of federations; none: the tables alone")
    main(parser.parse_args().traces)
