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


def directions(pulls: Tensor, blocks: Blocks, numbers: int) -> Floats:
    """Sketch where each update [n, p] points, block by block: [n, P].

    Signs are random and columns are folded, so inner products stay about the same. Each block of an update is brought to
    length 1 first, so whatever a client sends, it can weigh no more than any other.
    """
    width, start, seen = blocks.width(numbers), 0, []
    signs = _signs(pulls.shape[1], pulls.device, pulls.dtype)
    for end in blocks.ends:
        part = pulls[:, start:end]
        folded = torch.nn.functional.pad(part * signs[start:end], (0, -(end - start) % width))
        length = torch.linalg.vector_norm(part, dim=1, keepdim=True)
        seen.append(folded.view(len(pulls), -1, width).sum(1) / length.clamp_min(TINY))
        start = end
    sketch = torch.cat(seen, 1).double().cpu().numpy()
    return np.asarray(np.nan_to_num(sketch, nan=0.0, posinf=0.0, neginf=0.0).clip(-width, width))


@lru_cache(maxsize=4)
def _signs(size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Draw a sign for each column."""
    bits = random.integers(random.mix(torch.tensor(SEED)), torch.arange(size), 2)
    return (1 - 2 * bits).to(device, dtype)


def less_common(seen: Floats, group: Ids) -> Floats:
    """Subtract what all clients of a cohort [n] have in common.

    n / (n - 1) makes up for each client's own part in the mean: expectations are those of a full cohort. A client alone in
    its cohort shows nothing.
    """
    n = np.bincount(group)
    means = np.stack([np.bincount(group, column) for column in seen.T], 1) / np.maximum(n, 1)[:, None]
    factor = np.where(n > 1, n / np.maximum(n - 1, 1), 0.0)
    return np.asarray((seen - means[group]) * factor[group, None])
