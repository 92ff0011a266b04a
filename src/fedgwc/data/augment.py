"""Random crop and horizontal flip of images.

Padding 4, for a whole cohort at once and on whatever device the batch is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedgwc.core import random

PADDING = 4


def crop_and_flip(x: Tensor, key: Tensor, step: int, fill: Tensor) -> Tensor:
    """Crop and flip a cohort's images at random.

    x [n, B, c, H, W], key [n] (each client's own stream), fill [c] (a black pixel as the model sees it).
    """
    n, batch, channels, height, width = x.shape
    # Counters from 2^62 on: the shuffles of the same stream use the small ones. A step has room for 2^20 samples.
    counter = (1 << 62) + (((step << 20) + torch.arange(batch, device=x.device)) << 2)
    k = key[:, None]
    down = random.integers(k, counter, 2 * PADDING + 1) - PADDING  # [n, B]
    right = random.integers(k, counter + 1, 2 * PADDING + 1) - PADDING
    flip = random.integers(k, counter + 2, 2).bool()
    rows = torch.arange(height, device=x.device) + down[..., None]  # [n, B, H]
    columns = torch.arange(width, device=x.device)
    columns = torch.where(flip[..., None], width - 1 - columns, columns) + right[..., None]  # [n, B, W]
    inside = ((rows >= 0) & (rows < height))[..., :, None] & ((columns >= 0) & (columns < width))[..., None, :]
    source = rows.clamp(0, height - 1)[..., :, None] * width + columns.clamp(0, width - 1)[..., None, :]  # [n, B, H, W]
    moved = x.flatten(-2).gather(-1, source.flatten(-2)[:, :, None].expand(n, batch, channels, height * width))
    return torch.where(inside[:, :, None], moved.view_as(x), fill.view(1, 1, channels, 1, 1))
