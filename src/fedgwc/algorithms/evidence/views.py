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
CLIP = 2.0  # times the median: what is longer may be a lie, and weighs no more than this
TINY = 1e-30


@dataclass(frozen=True)
class Blocks:
    """The layers of a model, in at most `MOST_BLOCKS` blocks of neighbours."""

    names: tuple[str, ...]  # [L] the first layer of each
    ends: tuple[int, ...]  # [L] in the vector of parameters

    @classmethod
    def of(cls, layout: Layout) -> Blocks:
        ends: dict[str, int] = {}
        for name, span in layout.spans().items():
            if span.start < layout.n_params:
                ends[name.rpartition(".")[0]] = span.stop
        groups = np.array_split(np.array(list(ends), object), min(len(ends), MOST_BLOCKS))
        return cls(tuple(str(group[0]) for group in groups), tuple(ends[group[-1]] for group in groups))

    def width(self, numbers: int) -> int:
        """Return the numbers per block, of about `numbers` in all."""
        return max(1, numbers // len(self.ends))


def sketches(pulls: Tensor, blocks: Blocks, numbers: int) -> Floats:
    """Sketch updates [n, p] block by block: [n, P].

    Signs are random and columns are folded, so inner products stay about the same.
    """
    width, start, seen = blocks.width(numbers), 0, []
    signs = _signs(pulls.shape[1], pulls.device, pulls.dtype)
    for end in blocks.ends:
        folded = torch.nn.functional.pad(pulls[:, start:end] * signs[start:end], (0, -(end - start) % width))
        seen.append(folded.view(len(pulls), -1, width).sum(1))
        start = end
    return np.asarray(torch.cat(seen, 1).double().cpu().numpy())


@lru_cache(maxsize=4)
def _signs(size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Draw a sign for each column."""
    bits = random.integers(random.mix(torch.tensor(SEED)), torch.arange(size), 2)
    return (1 - 2 * bits).to(device, dtype)


def less_common(seen: Floats, group: Ids, blocks: int) -> tuple[Floats, Ids]:
    """Subtract what all clients of a cohort [n] have in common, and bring every block to one scale.

    Returns what each client shows alone [n, P], and how many were clipped: nobody is longer than `CLIP` times the median.

    n / (n - 1) makes up for a client's own part in the mean: expectations are those of a full cohort. A client alone in its
    cohort shows nothing.
    """
    n = np.bincount(group)
    parts = np.stack(np.split(np.where(np.isfinite(seen), seen, 0.0), blocks, axis=1), 1)  # [n, L, P / L]
    parts, long = _clipped(parts)
    means = np.stack([parts[group == i].mean(0) if n[i] else np.zeros_like(parts[0]) for i in range(len(n))])
    alone = (parts - means[group]) * np.where(n > 1, n / np.maximum(n - 1, 1), 0.0)[group, None, None]
    alone, longer = _clipped(alone)
    return alone.reshape(len(seen), -1), long | longer


def _clipped(parts: Floats) -> tuple[Floats, Ids]:
    """Divide by the median length of each block, and shorten what is longer than `CLIP` of it."""
    length = np.linalg.norm(parts, axis=2)
    usual = np.median(length, axis=0).clip(min=TINY)
    length = length / usual
    return parts / usual[:, None] * np.minimum(1, CLIP / length.clip(min=TINY))[..., None], (length > CLIP).any(1)
