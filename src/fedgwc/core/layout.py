"""The positions of a model's tensors in its one vector."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """The tensors of a vector [D], in order: parameters first, then floating-point buffers."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    n_params: int  # where the parameters end

    @classmethod
    def unnamed(cls, size: int) -> Layout:
        """Describe a vector of known length and unknown tensors."""
        return cls(("",), ((size,),), size)

    @cached_property
    def lengths(self) -> list[int]:
        """Count the entries of each tensor."""
        return [torch.Size(shape).numel() for shape in self.shapes]

    @cached_property
    def size(self) -> int:
        """Count the entries of the vector, D."""
        return sum(self.lengths)

    @property
    def layers(self) -> list[str]:
        """List the modules that own tensors, in the order of the vector.

        >>> Layout(("0.weight", "0.bias", "2.weight"), ((2, 2), (2,), (2, 1)), 8).layers
        ['0', '2']
        """
        return list(dict.fromkeys(name.rpartition(".")[0] for name in self.names))

    def spans(self) -> dict[str, slice]:
        """Locate each tensor in the vector."""
        found, first = {}, 0
        for name, length in zip(self.names, self.lengths, strict=True):
            found[name] = slice(first, first + length)
            first += length
        return found

    def mask(self, prefixes: Iterable[str]) -> Tensor:
        """Mark the entries [D] of tensors and layers with these names.

        >>> Layout(("0.weight", "2.weight"), ((2,), (1,)), 3).mask(["2"]).tolist()
        [False, False, True]
        """
        wanted = tuple(prefixes)
        marked = torch.zeros(self.size, dtype=torch.bool)
        for name, span in self.spans().items():
            marked[span] = any(name == prefix or name.startswith(f"{prefix}.") for prefix in wanted)
        return marked
