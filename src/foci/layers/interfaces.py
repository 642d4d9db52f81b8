"""The interfaces between encoders, decoders and decoding.

    encoder(source, valid) -> EncoderOutput                       any source: words, image regions, sound frames
    decoder(encoded, target) -> TokenLogits                 teacher forcing; the target starts with BOS
    decoder(encoded, target, targets) -> TokenLoss          the same in training: the loss instead of the logits
    decoder.start(encoded) -> (memory, state)               prepare the source once
    decoder.step(token, memory, state) -> DecoderStep       one token for each of N = B · K hypotheses

A language model is a decoder whose ``encoded`` is None. The hypotheses of one source share its row of the memory, which
is never copied or reordered: row ``b · K + k`` of ``token`` and ``state`` is hypothesis k of source b. Teacher forcing
and stepping give the same log-probabilities.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from foci import masks
from foci.checks import check_shape, check_valid
from foci.errors import ConfigError
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss
from foci.tracing import exportable, is_traced
from foci.weights import Weights


@exportable
class EncoderOutput(NamedTuple):
    """A batch of sources as decoders use it.

    Attributes:
        values: the positions that attention reads, ``(B, S, D)``.
        valid: which positions exist, ``(B, S)``.
        summary: each source as a whole, ``(hidden,)`` or ``(hidden, cell)`` of each layer, ``(B, layers, D)`` each;
            None where the encoder has no such state.
        keys: what queries are compared with, ``(B, S, D)``; None where these are the values.
        attentions: the weights of the encoder's own attentions by name, such as ``encoder.0.self``.
        copied: what each position is as a target token, for decoders that copy; see `foci.layers.copying.CopySource`.

    Example:
        >>> import torch
        >>> encoded = EncoderOutput(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]]))
        >>> encoded.mean()
        tensor([[2.]])
    """

    values: Float[Tensor, "B S D"]
    valid: Bool[Tensor, "B S"]
    summary: tuple[Tensor, ...] | None = None
    keys: Float[Tensor, "B S D"] | None = None
    attentions: dict[str, Weights] | None = None
    copied: Int[Tensor, "B S"] | None = None

    def mean(self) -> Float[Tensor, "B D"]:
        """Return the mean of the valid values of each source, 0 for a source without any."""
        closed = ~self.valid.unsqueeze(-1)
        return self.values.masked_fill(closed, 0.0).sum(dim=1) / self.valid.sum(dim=1, keepdim=True).clamp_min(1)


class DecoderStep(NamedTuple):
    """The result of one decoding step.

    Attributes:
        logits: scores of the next token, ``(N, V)``.
        state: the state for the next step, a tree of tensors with N rows.
        attention: the weights over the source, ``(N, 1, S)`` or ``(N, H, 1, S)``; None without attention to a source.
    """

    logits: Float[Tensor, "N V"]
    state: Any
    attention: Weights | None


@runtime_checkable
class Encoder(Protocol):
    """Turns a batch of sources into `EncoderOutput`."""

    output_dim: int
    """D of ``EncoderOutput.values``."""

    def __call__(self, source: Any, valid: Any) -> EncoderOutput:
        """Encode a batch of sources; ``valid`` says which positions of a source exist."""


@runtime_checkable
class StepDecoder(Protocol):
    """The interface between a search and a decoder, or a model that has one."""

    @property
    def max_length(self) -> int | None:
        """The largest number of steps the decoder can take; None without such a limit."""

    def step(self, token: Int[Tensor, " N"], memory: Any, state: Any) -> DecoderStep:
        """Return the scores of what follows ``token``."""


@runtime_checkable
class Decoder(StepDecoder, Protocol):
    """Predicts a target token by token, with a source or without."""

    source_dim: int | None
    """D of the ``EncoderOutput.values`` it reads; None for a decoder without a source."""

    def __call__(
        self, encoded: EncoderOutput | None, target: Int[Tensor, "B T"], targets: Targets | None = None
    ) -> TokenLogits | TokenLoss:
        """Predict by teacher forcing."""

    def start(self, encoded: EncoderOutput | None, rows: int = 1) -> tuple[Any, Any]:
        """Return the memory and the first state: B rows each, or ``rows`` without a source."""


def check_encoded(owner: str, encoded: EncoderOutput | None, source_dim: int | None) -> None:
    """Check that a decoder gets the source it was built for.

    Raises:
        ConfigError: there is a source where none is expected, or the other way round.
        ShapeError: the values or the validity mask have the wrong shape.
    """
    if encoded is None:
        if source_dim is not None:
            raise ConfigError(
                f"{owner}: encoded is None, expected a source with values of size {source_dim}. "
                "Build the decoder with source_dim=None to use it without a source."
            )
        return
    if source_dim is None:
        raise ConfigError(
            f"{owner}: there is a source, expected encoded=None. Build the decoder with "
            f"source_dim={encoded.values.shape[-1]} to read a source."
        )
    values = encoded.values
    check_shape(owner, "encoded.values", values, "batch", "position", source_dim)
    check_valid(owner, "encoded.valid", encoded.valid, values.shape[0], values.shape[1], values.device)
    if encoded.keys is not None:
        check_shape(owner, "encoded.keys", encoded.keys, *values.shape)


def source_mask(valid: Bool[Tensor, "B S"]) -> Bool[Tensor, "B 1 S"] | None:
    """Return the mask of the valid positions, or None in inference where all are valid.

    Attention without a mask is faster. Checking the values needs a synchronization and breaks a compiled graph, so
    training and tracing always get a mask.
    """
    if not torch.is_grad_enabled() and not is_traced() and bool(valid.all()):
        return None
    return masks.keys(valid)
