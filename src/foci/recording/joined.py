"""Attention that a module computes in pieces, which cannot be followed to the values: known when the module returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from foci.recording.changes import Attended
from foci.recording.written_out import Softmax
from foci.weights import Weights


@dataclass(eq=False)
class Pieces:
    """What was seen of one call of such a module.

    Attributes:
        join: puts them together, None where they have another form.
        softmaxes: those that it took, and what they gave.
        gathered: the indices of what it gathered.
        call: its arguments by name, when it has returned.
    """

    join: Callable[[Any, Pieces], Joined | None]
    softmaxes: list[tuple[Softmax, Tensor]] = field(default_factory=list)
    gathered: list[Tensor] = field(default_factory=list)
    call: Mapping[str, Any] = field(default_factory=dict)

    def have(self, axes: Sequence[int], *names: str) -> bool:
        """Return whether the softmaxes have these numbers of axes, and the call these arguments."""
        dims = [result.dim() for _, result in self.softmaxes]
        return dims == [*axes] and all(self.call.get(name) is not None for name in names)

    def are_read(self) -> None:
        """Take note that values were read with all columns of the softmaxes."""
        for softmax, _ in self.softmaxes:
            softmax.was_read, softmax.is_partly_read = True, False


@dataclass(frozen=True)
class Joined:
    """The pieces as one attention.

    Attributes:
        weights: ``(B, H, L, S)``.
        find_open: returns which positions may be read.
        values: of all queries or, first, of those that ``chosen (B, L)`` has, and of the others; ``(B, S, H · V)``.
        dropout: the probability that a weight is dropped out.
        chosen: which queries have values of their own.
        finish: returns the output of the module from what is read, and from its output without edits.
    """

    weights: Weights
    find_open: Callable[[], Tensor]
    values: Callable[[], Sequence[Tensor]]
    dropout: float = 0.0
    chosen: Tensor | None = None
    finish: Callable[[Tensor, Any], Any] = lambda read, output: (read, *output[1:])

    def attended(self, name: str) -> Attended:
        """Return the call, for those who edit it."""
        return Attended(name, self.weights.shape, self.weights.device, self.weights.dense, self.find_open)

    def read_with(self, weights: Tensor, kept: Tensor | None) -> Tensor:
        """Return what is read with these weights, ``(B, L, H · V)``."""
        first, *others = self.values()
        weights = F.dropout(weights if kept is None else weights * kept, self.dropout).to(first.dtype)

        def read(values: Tensor) -> Tensor:
            output: Tensor = weights @ values.unflatten(-1, (weights.shape[1], -1)).transpose(1, 2)
            return output.transpose(1, 2).flatten(2)

        if self.chosen is None or not others:
            return read(first)
        return read(first).where(self.chosen.unsqueeze(-1), read(others[0]))
