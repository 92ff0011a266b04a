"""What nodes say of themselves, and what most of them say their data look like.

A model is built for samples of one shape, which the server may know only from the nodes. It believes none of them alone:
each node has one vote, however many clients it names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flwr.app import ConfigRecord, Message

from fedgwc.core.errors import InputError
from fedgwc.data.federation import Federation
from fedgwc.flower import checks
from fedgwc.flower.checks import Invalid
from fedgwc.flower.mailbox import reason_of
from fedgwc.flower.wire import PROTOCOL

MOST_CLASSES, LARGEST_SAMPLE, MOST_DIMENSIONS = 10**5, 10**7, 5  # a server builds its model from what nodes say


@dataclass(frozen=True)
class Look:
    """What data look like; nothing is known of it where the user's own app trains."""

    shape: tuple[int, ...] = ()  # of one sample
    n_classes: int = 0
    mean: tuple[float, ...] = ()  # by which samples are scaled, if they are
    std: tuple[float, ...] = ()

    @classmethod
    def of(cls, federation: Federation) -> Look:
        return cls(federation.shape, federation.n_classes, tuple(federation.mean), tuple(federation.std))

    def __str__(self) -> str:
        scaled = f" scaled by mean {self.mean[:4]} and std {self.std[:4]}" if self.mean else ""
        return f"samples of shape {self.shape} in {self.n_classes} classes{scaled}"


@dataclass(frozen=True)
class Identity:
    """Whom a node serves, and what their data look like."""

    names: tuple[str, ...]
    look: Look = Look()


@dataclass(frozen=True)
class Vote:
    """One look, and the nodes that say it."""

    look: Look
    nodes: tuple[int, ...]
    clients: int  # that they serve

    def __str__(self) -> str:
        return f"{self.look}: node {', '.join(map(str, self.nodes))}"[:300]


def introduction(reply: Message, node: int) -> Identity:
    """Whom a node of fedgwc's own client app serves."""
    if reply.has_error():
        raise Invalid(reason_of(reply.error))
    about = reply.content.config_records.get("identity", ConfigRecord())
    if about.get("protocol") != PROTOCOL:
        raise Invalid(f"it speaks protocol {str(about.get('protocol'))[:20]}, this server speaks {PROTOCOL}")
    shape = tuple(int(n) for n in checks.counts(about, "shape"))
    mean, std = (tuple(checks.finite(about, key).tolist()) if about.get(key) else () for key in ("mean", "std"))
    look = Look(shape, checks.count(about, "n-classes", 2), mean, std)
    if odd := oddity(look):
        raise Invalid(odd)
    return Identity(checks.names(about.get("names")), look)


def oddity(look: Look) -> str:
    """Why no samples can look so; empty: they can."""
    shape, mean, std = look.shape, look.mean, look.std
    fits = 1 <= len(shape) <= MOST_DIMENSIONS and min(shape) >= 1 and math.prod(shape) <= LARGEST_SAMPLE
    if not fits or not 2 <= look.n_classes <= MOST_CLASSES:
        return f"no samples have the shape {str(shape)[:60]} and {look.n_classes} classes"
    channels = shape[0] if len(shape) > 1 else 1
    finite = all(map(math.isfinite, (*mean, *std))) and min(std, default=1) > 0
    if len(mean) != len(std) or len(mean) not in (0, channels) or not finite:
        return f"mean and std must be {channels} finite numbers each, std positive, or none; got {len(mean)} and {len(std)}"
    return ""


def votes(said: Mapping[int, Identity]) -> list[Vote]:
    """What nodes say their data look like, what most of them say first."""
    by_look: dict[Look, list[int]] = {}
    for node, identity in said.items():
        by_look.setdefault(identity.look, []).append(node)
    found = [
        Vote(look, tuple(nodes), len({name for node in nodes for name in said[node].names})) for look, nodes in by_look.items()
    ]
    return sorted(found, key=lambda vote: -len(vote.nodes))


def is_tie(said: Sequence[Vote]) -> bool:
    return len(said) > 1 and len(said[0].nodes) == len(said[1].nodes)


def told(said: Sequence[Vote]) -> str:
    return "; ".join(map(str, said))[:2000]


def undecided(said: Sequence[Vote]) -> InputError:
    return InputError(
        f"nodes do not agree what data look like, and as many say one thing as another. {told(said)}. "
        "Correct those that are wrong, or let the recipe say it: data.shape and data.n_classes"
    )
