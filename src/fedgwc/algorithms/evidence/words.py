"""Decisions as sentences for practitioners."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedgwc.core.types import Ids

MOST_NAMED = 8


@dataclass(frozen=True)
class Decision:
    """A group that was divided, or merged into another."""

    cluster: int
    divides: bool
    why: str
    sizes: tuple[int, ...] = ()
    chance: float = 1.0  # of such a cut without groups
    rounds: int = 0  # that its jury took
    layers: dict[str, float] = field(default_factory=dict)  # share of clients' differences that lie between the parts


def why_divided(parts: list[Ids], layers: dict[str, float], chance: float, visits: int, rounds: int) -> str:
    """Explain a division: its parts, where they differ, how likely that is by chance, and what the jury said."""
    *small, largest = sorted(parts, key=len)
    layer = max(layers, key=lambda name: layers[name])
    pull = f"{' and '.join(map(_named, small))} pull {f'layer {layer}' if layer else 'the model'} another way than the other "
    odds = "below 1 in 1,000,000" if chance < 1e-6 else f"about 1 in {float(f'{1 / chance:.1g}'):,.0f}"
    seen = f"seen in both halves of {visits} visits; chance of this without groups {odds}"
    proof = f"in {rounds} rounds their own models served them better on validation samples"
    return f"{pull}{len(largest)}; {seen}; {proof if rounds else 'too clear to need a trial on validation samples'}"


def _named(clients: Ids) -> str:
    more = f" and {len(clients) - MOST_NAMED} more" if len(clients) > MOST_NAMED else ""
    return f"clients {', '.join(map(str, clients[:MOST_NAMED].tolist()))}{more}"
