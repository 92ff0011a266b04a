"""A round's changes to local training, as tensors.

A recorded program takes them as inputs and never keeps their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedgwc.core.errors import InputError
from fedgwc.core.work import LocalTraining, Work
from fedgwc.training.schedules import learning_rate


@dataclass(frozen=True)
class RoundInputs:
    """A round's `Work`, one row for each model sent."""

    rates: Tensor | None = None  # [M, 1] learning rates; None: `local.lr`
    anchors: Tensor | None = None  # [M, D]; None: the models sent
    moves: Tensor | None = None  # [M, D] true where entries train; None: all of them

    @property
    def present(self) -> dict[str, Tensor]:
        """Return those that are not None, by name."""
        return {name: t for name, t in vars(self).items() if t is not None}

    def rows(self, which: Tensor) -> RoundInputs:
        """Select a row for each client, by its starting model [n]."""
        return self if self is USUAL else RoundInputs(**{name: t.index_select(0, which) for name, t in self.present.items()})

    def row(self, model: int) -> RoundInputs:
        """Select the row of one model."""
        return RoundInputs(**{name: t[model : model + 1] for name, t in self.present.items()})

    def arguments(self, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the anchor, moves and rate for `local_step`.

        For clients that start from `start` [n, D].
        """
        nothing = start.new_empty(len(start), 0)
        anchors, moves, rates = self.anchors, self.moves, self.rates
        return start if anchors is None else anchors, nothing if moves is None else moves, nothing if rates is None else rates


USUAL, USUAL_WORK = RoundInputs(), Work()


def round_inputs(work: Work | None, local: LocalTraining, models: Tensor) -> RoundInputs:
    """Check a round's work, and move it to the models' device.

    `models` [M, D] are those that the round sends.
    """
    work = work or USUAL_WORK
    if work.anchor is None and work.moves is None and local.schedule == "constant":
        return USUAL  # nearly always, and rounds of small models count microseconds
    rate = learning_rate(local, work.round)
    if work.anchor is not None and work.anchor.shape != models.shape:
        raise InputError(f"a round's anchor has a point for each model, {list(models.shape)}; got {list(work.anchor.shape)}")
    if work.moves is not None and (work.moves.dtype != torch.bool or work.moves.shape != models.shape[1:]):
        came = f"{list(work.moves.shape)} of {work.moves.dtype}"
        raise InputError(f"a round's `moves` marks the {models.shape[1]} entries of a model by true or false; got {came}")
    return RoundInputs(
        None if rate is None else models.new_full((len(models), 1), rate),
        None if work.anchor is None or not local.prox else work.anchor.to(models),
        None if work.moves is None else work.moves.to(models.device).expand(models.shape),
    )


def concatenate(parts: Sequence[tuple[RoundInputs, Tensor]]) -> RoundInputs:
    """Concatenate the inputs of several runs.

    Each comes with the models it sent; all have the same `LocalTraining`.
    """
    rates, anchors, moves = ([getattr(inputs, name) for inputs, _ in parts] for name in ("rates", "anchors", "moves"))
    sent = [models for _, models in parts]
    return RoundInputs(
        None if rates[0] is None else torch.cat(rates),
        _concatenate(anchors, sent),
        _concatenate(moves, [m.new_ones((), dtype=torch.bool).expand(m.shape) for m in sent]),
    )


def _concatenate(tensors: Sequence[Tensor | None], usual: Sequence[Tensor]) -> Tensor | None:
    """Concatenate tensors, with `usual` for missing ones.

    None if all are missing.
    """
    if all(t is None for t in tensors):
        return None
    return torch.cat([other if t is None else t for t, other in zip(tensors, usual, strict=True)])
