"""What every mechanism returns: `AttentionOutput`, or `PairOutput` for those that compare two sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from foci.tracing import exportable
from foci.weights.handle import Weights

Forward = TypeVar("Forward")

PARTS = ("left", "right", "reverse", "read", "write")
"""What the paths of weights end with after a colon, where a module has several."""


@exportable
class AttentionOutput(NamedTuple):
    """The output of a mechanism, its attention weights, and the state to pass to its next call."""

    output: Tensor
    weights: Weights
    state: Any = None


@exportable
class PairOutput(NamedTuple):
    """The result of comparing two sequences.

    ``output (B, D)`` is the pair as one vector; ``weights (B, R, S)`` are the weights of the left positions per right
    position; ``left (B, S)`` and ``right (B, R)``, where the mechanism has them, are the weight of each position in the
    output, and ``reverse (B, S, R)`` the weights of the right positions per left position.
    """

    output: Tensor
    weights: Weights
    left: Weights | None = None
    right: Weights | None = None
    reverse: Weights | None = None


def called_as(forward: Forward) -> Callable[[Any], Forward]:
    """Give ``__call__`` the types of ``forward``: torch declares that modules take and return anything."""
    return lambda call: forward


def weights_of(output: Any) -> dict[str, Weights]:
    """Return the weights that a mechanism of foci returned, by the suffix of their name; nothing of anything else."""
    answers: dict[str, Weights | None] = {}
    if isinstance(output, AttentionOutput):
        answers = {"": output.weights}
    elif isinstance(output, PairOutput):
        answers = {"": output.weights, ":left": output.left, ":right": output.right, ":reverse": output.reverse}
    elif isinstance(output, tuple) and len(output) == 2 and "read_weights" in getattr(output[1], "_fields", ()):
        state = output[1]
        answers = {":read": Weights.from_tensor(state.read_weights), ":write": Weights.from_tensor(state.write_weights)}
    return {suffix: weights for suffix, weights in answers.items() if weights is not None}
