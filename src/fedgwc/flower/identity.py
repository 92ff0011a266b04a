"""The clients that each node serves, and what most nodes say their data look like.

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
from fedgwc.flower.mailbox import error_reason
from fedgwc.flower.wire import PROTOCOL

MOST_CLASSES, LARGEST_SAMPLE, MOST_DIMENSIONS = 10**5, 10**7, 5  # a server builds its model from what nodes say


@dataclass(frozen=True)
class DataDescription:
    """The shape, classes and scaling of samples; empty where a user's own app trains."""

    shape: tuple[int, ...] = ()  # of one sample
    n_classes: int = 0
    mean: tuple[float, ...] = ()  # by which samples are scaled, if they are
    std: tuple[float, ...] = ()

    @classmethod
    def of(cls, federation: Federation) -> DataDescription:
        """Describe a federation's data."""
        return cls(federation.shape, federation.n_classes, tuple(federation.mean), tuple(federation.std))

    def __str__(self) -> str:
        scaled = f" scaled by mean {self.mean[:4]} and std {self.std[:4]}" if self.mean else ""
        return f"samples of shape {self.shape} in {self.n_classes} classes{scaled}"


@dataclass(frozen=True)
class Identity:
    """The clients that a node serves, and their data."""

    names: tuple[str, ...]
    data: DataDescription = DataDescription()


@dataclass(frozen=True)
class Vote:
    """One description of the data, and the nodes that give it."""

    data: DataDescription
    nodes: tuple[int, ...]
    clients: int  # that they serve

    def __str__(self) -> str:
        return f"{self.data}: node {', '.join(map(str, self.nodes))}"[:300]


def read_identity(reply: Message, node: int) -> Identity:
    """Read which clients a node of the ready-made client app serves."""
    if reply.has_error():
        raise Invalid(error_reason(reply.error))
    about = reply.content.config_records.get("identity", ConfigRecord())
    if about.get("protocol") != PROTOCOL:
        raise Invalid(f"it speaks protocol {str(about.get('protocol'))[:20]}, this server speaks {PROTOCOL}")
    shape = tuple(int(n) for n in checks.counts(about, "shape"))
    mean, std = (tuple(checks.finite(about, key).tolist()) if about.get(key) else () for key in ("mean", "std"))
    data = DataDescription(shape, checks.count(about, "n-classes", 2), mean, std)
    if problem := data_problem(data):
        raise Invalid(problem)
    return Identity(checks.names(about.get("names")), data)


def data_problem(data: DataDescription) -> str:
    """Say why no samples can be like this; empty if some can."""
    shape, mean, std = data.shape, data.mean, data.std
    fits = 1 <= len(shape) <= MOST_DIMENSIONS and min(shape) >= 1 and math.prod(shape) <= LARGEST_SAMPLE
    if not fits or not 2 <= data.n_classes <= MOST_CLASSES:
        return f"no samples have the shape {str(shape)[:60]} and {data.n_classes} classes"
    channels = shape[0] if len(shape) > 1 else 1
    finite = all(map(math.isfinite, (*mean, *std))) and min(std, default=1) > 0
    if len(mean) != len(std) or len(mean) not in (0, channels) or not finite:
        return f"mean and std must be {channels} finite numbers each, std positive, or none; got {len(mean)} and {len(std)}"
    return ""


def count_votes(identities: Mapping[int, Identity]) -> list[Vote]:
    """Count the nodes behind each description, the most common first."""
    nodes_of: dict[DataDescription, list[int]] = {}
    for node, identity in identities.items():
        nodes_of.setdefault(identity.data, []).append(node)
    votes = []
    for data, nodes in nodes_of.items():
        names = {name for node in nodes for name in identities[node].names}
        votes.append(Vote(data, tuple(nodes), len(names)))
    return sorted(votes, key=lambda vote: -len(vote.nodes))


def is_tie(votes: Sequence[Vote]) -> bool:
    """Tell whether two descriptions have the most votes."""
    return len(votes) > 1 and len(votes[0].nodes) == len(votes[1].nodes)


def in_words(votes: Sequence[Vote]) -> str:
    """Describe all votes in one line."""
    return "; ".join(map(str, votes))[:2000]


def disagreement(votes: Sequence[Vote]) -> InputError:
    """Return the error for a tie."""
    return InputError(
        f"nodes do not agree what data look like, and as many say one thing as another. {in_words(votes)}. "
        "Correct those that are wrong, or let the recipe say it: data.shape and data.n_classes"
    )
