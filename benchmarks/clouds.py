"""How often a cloud of clients without groups is taken for groups: the table in docs/algorithms/fedgwc.md.

python -m benchmarks.clouds
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedgwc.algorithms.fedgwc import FedGWC
from fedgwc.commands.tables import Table, markdown
from fedgwc.core import Floats
from fedgwc.cuts import best_cut
from fedgwc.spectral import principal_axes

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


def mistaken(draw: Draw, K: int, clouds: int) -> float:
    """The share of clouds whose groups would be believed."""
    algorithm, rng = FedGWC(), np.random.default_rng(K)
    found = 0
    for _ in range(clouds):
        x = draw(rng, (K, DIMENSIONS))
        x = (x - x.mean(0)) / x.std(0) * SHORTER ** np.arange(DIMENSIONS)
        axes = principal_axes(x, sum(algorithm.axes_of(K)))  # as many as a run looks at
        cut = best_cut(axes, algorithm.min_size, algorithm.n_max)
        found += cut is not None and cut.gain >= algorithm.gain
    return found / clouds


def main() -> None:
    rows = [[kind, *(f"{mistaken(draw, K, 60 if K == 100 else 100):.0%}" for K in SIZES)] for kind, draw in KINDS.items()]
    print(markdown(Table(["clients", *map(str, SIZES)], rows)))


if __name__ == "__main__":
    main()
