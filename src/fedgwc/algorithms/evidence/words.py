"""Decisions as sentences for practitioners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedgwc.core.types import Ids

MOST_NAMED = 8


def in_words(about: Mapping[str, Any], members: Ids, labels: Ids, visits: int) -> str:
    """Explain why a group is divided.

    members [n] with labels [n], seen in so many visits each.
    """
    sizes = about["sizes"]
    largest = int(np.argmax(sizes))
    parts = [_named(members[labels == j]) for j in range(len(sizes)) if j != largest]
    layer = max(about["layers"], key=about["layers"].get)
    pull = f"{' and '.join(parts)} pull {f'layer {layer}' if layer else 'the model'} another way than the other {sizes[largest]}"
    chance = about["chance"]
    odds = (
        "below 1 in 1,000,000" if chance < 1e-6 else f"about 1 in {round(1 / chance, -int(np.floor(np.log10(1 / chance)))):,.0f}"
    )
    seen = f"seen in both halves of {visits} visits; chance of this without groups {odds}"
    proof = f"in {about['rounds']} rounds their own models served them better on validation samples"
    return f"{pull}; {seen}; {proof if about['rounds'] else 'too clear to need a trial on validation samples'}"


def _named(clients: Ids) -> str:
    listed = ", ".join(map(str, clients[:MOST_NAMED].tolist()))
    more = len(clients) - MOST_NAMED
    return f"clients {listed}{f' and {more} more' if more > 0 else ''}"
