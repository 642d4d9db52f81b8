"""A moving average of the weights, which is validated, saved and used instead of them.

    a ← d a + (1 − d) w                     after step s, d = min(decay, (1 + s) / (10 + s))

It smooths over the last 1 / (1 − decay) steps; the smaller d of the first steps forgets the weights of the start. A
checkpoint's model.safetensors has the average, and its optimizer.safetensors the weights that are trained, as
``trained/parameter``.

Paper: Acceleration of Stochastic Approximation by Averaging (Polyak, Juditsky, 1992), which weighs all steps equally
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from foci.errors import CheckpointError
from foci.training.named_tensors import TRAINED, is_sharded_tensor, like, own_part


class MovingAverage:
    """The average of a module's parameters that are trained; buffers are always the module's own.

    Args:
        module: the module.
        decay: from 0 to below 1; with 0 there is no average, and all methods do nothing.

    Example:
        >>> layer = nn.Linear(1, 1, bias=False)
        >>> average = MovingAverage(layer, 0.5)
        >>> before = layer.weight.item()
        >>> with torch.no_grad():
        ...     _ = layer.weight.add_(1.0)
        >>> average.update(100)
        >>> with average.in_place():
        ...     round(layer.weight.item() - before, 4)
        0.5
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        learning = {name: one for name, one in module.named_parameters() if one.requires_grad and decay > 0}
        self.names = list(learning)
        self.weights: list[Tensor] = [*learning.values()]
        self.averages = [one.detach().clone() for one in self.weights]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after a step, counted from 1."""
        if self.averages:
            decay = min(self.decay, (1 + step) / (10 + step))
            torch._foreach_mul_(self.averages, decay)
            torch._foreach_add_(self.averages, self.weights, alpha=1 - decay)

    @torch.no_grad()
    def exchange(self) -> None:
        """Put the average into the module, and its weights here; a second call takes that back, bit for bit."""
        for average, weight in zip(self.averages, self.weights):
            kept = average.clone()
            average.copy_(weight)
            weight.copy_(kept)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Have the average in the module meanwhile."""
        self.exchange()
        try:
            yield
        finally:
            self.exchange()

    def tensors(self, rank: int = 0) -> dict[str, Tensor]:
        """Return what a checkpoint has beside the average, where that is in place: the weights, by name."""
        return {
            f"{TRAINED}/{name}": own_part(one)
            for name, one in zip(self.names, self.averages)
            if rank == 0 or is_sharded_tensor(one)
        }

    @torch.no_grad()
    def restore(self, values: Mapping[str, Tensor], origin: Path) -> None:
        """Go on from a checkpoint, whose average was loaded into the module."""
        missing = [name for name in self.names if f"{TRAINED}/{name}" not in values]
        if missing:
            raise CheckpointError(
                f"{origin}: has no moving average of {len(missing)} weights, first {missing[0]!r}. Resume it with the "
                "training.moving_average that it was begun with."
            )
        for name, average, weight in zip(self.names, self.averages, self.weights):
            average.copy_(weight)
            weight.copy_(like(values[f"{TRAINED}/{name}"], weight))
