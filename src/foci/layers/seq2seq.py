"""What every sequence-to-sequence model gives, and what decoding asks of it.

A model has three calls, and no base class:

    forward(source, source_valid, target) -> Predicted      teacher forcing; the target starts with BOS
    forward(source, source_valid, target, wanted) -> Learned      the same in training: the loss instead of the logits
    start(source, source_valid) -> (memory, state)          encode once
    step(token, memory, state) -> Stepped                   one token for each of N = B · K hypotheses

The hypotheses of one source share its row of the memory, which is never copied or reordered: row ``b · K + k`` of
``token`` and ``state`` is hypothesis k of source b. Both ways of running give the same log-probabilities.

A model that can take a limited number of steps has that number as its attribute ``max_length`` (None: no limit);
decoding stops there.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor

from foci.results import Weights, exportable


@exportable
class Predicted(NamedTuple):
    """``logits[:, t]`` predict ``target[:, t + 1]``; every attention of the pass by its name.

    Names: ``encoder.0.self``, ``decoder.0.self``, ``decoder.0.cross``, …; their weights are computed when asked for.
    """

    logits: Float[Tensor, "B T V"]
    attentions: dict[str, Weights]


class Learned(NamedTuple):
    """What is left of a pass that was told the tokens to predict: no logits.

    ``loss`` is summed over the tokens, ``log_probs (B, T)`` is each token's log-probability, without a gradient and 0
    for padding.
    """

    loss: Float[Tensor, ""]
    log_probs: Float[Tensor, "B T"]
    attentions: dict[str, Weights]


class Stepped(NamedTuple):
    """One step of decoding: scores of the next token, the state to go on with, and what was read of the source.

    ``state`` is a tree of tensors with N rows; ``attention (N, 1, S)`` or ``(N, H, 1, S)`` is a handle, None in a
    model without attention.
    """

    logits: Float[Tensor, "N V"]
    state: Any
    attention: Weights | None


@runtime_checkable
class Seq2Seq(Protocol):
    """The three calls."""

    def __call__(
        self, source: Int[Tensor, "B S"], source_valid: Bool[Tensor, "B S"], target: Int[Tensor, "B T"]
    ) -> Predicted:
        """Teacher forcing."""

    def start(self, source: Int[Tensor, "B S"], source_valid: Bool[Tensor, "B S"]) -> tuple[Any, Any]:
        """The memory of the sources and the first state, B rows each."""

    def step(self, token: Int[Tensor, " N"], memory: Any, state: Any) -> Stepped:
        """The scores of what follows ``token``."""
