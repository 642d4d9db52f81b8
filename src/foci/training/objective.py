"""What the training loop is given: a loss, a validation, and batches that know their position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn


@dataclass(frozen=True)
class Loss:
    """The loss of a batch: ``total / count`` is minimized.

    ``count`` is the number of tokens, entries or examples that were summed over. ``metrics`` are sums as well, and are
    reported divided by ``count``.
    """

    total: Float[Tensor, ""]
    count: int | Tensor
    metrics: Mapping[str, float | Tensor] = field(default_factory=dict)


@runtime_checkable
class Objective(Protocol):
    """What is minimized, and what the held-out data is measured by."""

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """Run the model, which may be wrapped for several processes, on a batch. Every batch gives the same metrics."""

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """Return the metrics of the held-out data; the model is in evaluation mode, without gradients.

        Runs on the first process alone. A sharded model runs on all of them, with the same data and random numbers,
        so this method must not communicate with other processes itself.
        """


@runtime_checkable
class StepObjective(Objective, Protocol):
    """An objective whose loss depends on the step, such as a term that is added in the last phase of a run."""

    def begin_step(self, step: int) -> None:
        """Called before the losses of a step, which is counted from 1."""


@runtime_checkable
class Batches(Protocol):
    """An endless stream of this process's share of each batch, with a position that can be saved.

    A batch is a tensor, a tuple, list or dict of tensors, or anything with a method ``to(device)``. The state is plain
    JSON and the same on each process. Its ``epoch``, if it has one, counts the completed epochs: it has moved on once
    the last batch of an epoch has been handed out.
    """

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches from the present position on."""

    def state_dict(self) -> dict[str, Any]:
        """Return the present position."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position."""
