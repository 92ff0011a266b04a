"""How often a cloud of clients without groups is divided by `auto`, on trial or not.

python -m benchmarks.clouds
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.algorithms.auto.cuts import best_cut
from fedgwc.algorithms.auto.second_look import is_tried, who_waits
from fedgwc.algorithms.auto.windows import places
from fedgwc.core.types import Floats, Ids
from fedgwc.runs.tables import Table, markdown

Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]
KINDS: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "heavy tails (t with 5 degrees of freedom)": lambda rng, shape: rng.standard_t(5, shape),
    "no tails (uniform)": lambda rng, shape: rng.uniform(-1, 1, shape),
    "skewed (lognormal, sigma 0.5)": lambda rng, shape: np.exp(0.5 * rng.standard_normal(shape)),
    "very skewed (lognormal, sigma 1)": lambda rng, shape: np.exp(rng.standard_normal(shape)),
}
SIZES = 10, 20, 30, 60, 100
DIMENSIONS, SHORTER = 8, 0.7  # each axis that much shorter than the one before


@dataclass(frozen=True)
class Chance:
    """Clients who differ without groups, and whose echoes are chance."""

    members: Ids
    paths: Floats
    echo: Floats
    distances: None = None


def mistaken(draw: Draw, K: int, clouds: int) -> float:
    """The share of clouds that would be divided. Who could not try that is asked for more."""
    algorithm, rng = Auto(), np.random.default_rng(K)
    found = 0
    for _ in range(clouds):
        x = draw(rng, (K, DIMENSIONS))
        x = (x - x.mean(0)) / x.std(0) * SHORTER ** np.arange(DIMENSIONS)
        _, points = places(Chance(np.arange(K), x, rng.standard_normal((K, K))), algorithm.directions)
        cut = best_cut(points, algorithm.min_size, algorithm.n_max)
        found += cut is not None and cut.gain >= algorithm.gain + algorithm.doubt * (not is_tried(cut, who_waits(cut)))
    return found / clouds


def main() -> None:
    rows = [[kind, *(f"{mistaken(draw, K, 60 if K == 100 else 100):.0%}" for K in SIZES)] for kind, draw in KINDS.items()]
    print(markdown(Table(["clients", *map(str, SIZES)], rows)))


if __name__ == "__main__":
    main()
