"""Views: what a visit of a client shows, as a vector whose noise is independent between visits.

n clients in a cohort, P numbers of a visit, L blocks of layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fedgwc.core import random
from fedgwc.core.layout import Layout
from fedgwc.core.types import Floats, Ids

MOST_BLOCKS = 16  # layers of a deeper model are seen in blocks of neighbours
SEED = 20260  # of the signs: the same for every client and every round, or sketches could not be compared
TINY = 1e-30


@dataclass(frozen=True)
class Blocks:
    """The layers of a model but the last, in at most `MOST_BLOCKS` blocks of neighbours.

    The last layer reads off which labels a client has, and that differs in every federation. What groups differ by reaches the
    layers before it too. A model of one layer keeps it.
    """

    names: tuple[str, ...] = ()  # [L] the first layer of each
    ends: tuple[int, ...] = ()  # [L] in the vector of parameters

    @classmethod
    def of(cls, layout: Layout) -> Blocks:
        ends: dict[str, int] = {}
        for name, span in layout.spans().items():
            if span.start < layout.n_params:
                ends[name.rpartition(".")[0]] = span.stop
        seen = list(ends)[:-1] or list(ends)
        groups = np.array_split(np.array(seen, object), min(len(seen), MOST_BLOCKS))
        return cls(tuple(str(group[0]) for group in groups), tuple(ends[group[-1]] for group in groups))

    def width(self, numbers: int) -> int:
        """Return the numbers per block, of about `numbers` in all."""
        return max(1, numbers // len(self.ends))


def directions(pulls: Tensor, blocks: Blocks, numbers: int) -> Floats:
    """Sketch where each update [n, p] points, block by block: [n, P].

    Signs are random and columns are folded, so inner products stay about the same. Each block of an update has length 1,
    whatever the client sent: large data sets, long training and lies all weigh the same, and layers too.
    """
    width, start, seen = blocks.width(numbers), 0, []
    signs = _signs(pulls.shape[1], pulls.device, pulls.dtype)
    for end in blocks.ends:
        part = pulls[:, start:end]
        part = torch.where(part.isfinite(), part, 0.0)
        part = part / part.abs().amax(1, keepdim=True).clamp_min(TINY)  # first, or squares of huge numbers overflow
        length = torch.linalg.vector_norm(part, dim=1, keepdim=True).clamp_min(TINY)
        folded = torch.nn.functional.pad(part / length * signs[start:end], (0, -(end - start) % width))
        seen.append(folded.view(len(pulls), -1, width).sum(1))
        start = end
    return np.asarray(torch.cat(seen, 1).double().cpu().numpy())


@lru_cache(maxsize=4)
def _signs(size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Draw a sign for each column."""
    bits = random.integers(random.mix(torch.tensor(SEED)), torch.arange(size), 2)
    return (1 - 2 * bits).to(device, dtype)


def less_common(seen: Floats, group: Ids) -> Floats:
    """Subtract what all clients of a cohort [n, P] have in common.

    n / (n - 1) makes up for a client's own part in the mean: expectations are those of a full cohort. A client alone in its
    cohort shows nothing.
    """
    n = np.bincount(group)
    means = (group == np.arange(len(n))[:, None]) @ seen / n.clip(min=1)[:, None]
    return np.asarray((seen - means[group]) * (n / (n - 1).clip(min=1))[group, None])
