"""The parts of `foci.Attention`: protocols of score, normalizer, focus and the stage after reading, and what they pass.

Each protocol is one call, which any function or module can answer; a module's parameters are trained with the rest.
docs/your-own-parts.md has an example of each, and `foci.check` tries one. `ScoreModule` and `FocusModule` are the bases
for what one call cannot say: projections, kernels, other ways of reading. State is passed in and returned, never kept.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from foci.functional.attend import Window, attend_dots, attend_scores, both_limits, mask_and_bias
from foci.functional.sample import Drawn
from foci.outputs import AttentionOutput
from foci.tracing import exportable

if TYPE_CHECKING:
    from foci.mechanisms.normalizers import NamedNormalizer, NormalizerFunction
    from foci.mechanisms.scores.score import ScoreModule


@exportable
class Memory(NamedTuple):
    """A source prepared for many reads: projected keys, values, and the mask.

    ``prepared`` is what the score has computed of the keys for all reads; for the location_aware score, the alias of
    the keys that `foci.functional.stepwise.share_source` returns. ``source`` is the key before its projection, for a
    focus that looks at it.
    """

    key: Tensor
    value: Tensor
    mask: Tensor | None
    prepared: Tensor | None = None
    source: Tensor | None = None


class Sizes(NamedTuple):
    """What a score or a focus is built from by its name; None for what was not given.

    Attributes:
        query_dim: size of the query.
        key_dim: size of the key.
        hidden_dim: size of a hidden layer.
        max_length: the longest source.
        radius: D of Luong's local windows.
        window: positions before and after, ``(left, right)``.
    """

    query_dim: int | None = None
    key_dim: int | None = None
    hidden_dim: int | None = None
    max_length: int | None = None
    radius: int | None = None
    window: tuple[int, int] | None = None


@runtime_checkable
class Score(Protocol):
    """How well each key fits a query: a function or a module, called like this.

    `foci.mechanisms.scores.ScoreModule` is the base class of scores with projections, which a source goes through once.
    """

    @abstractmethod
    def __call__(self, query: Float[Tensor, "... L Dq"], key: Float[Tensor, "... S Dk"], /) -> Float[Tensor, "... L S"]:
        """Return the score of each query with each key."""


@runtime_checkable
class Normalizer(Protocol):
    """How one unit of attention is shared out: a function or a module, called like this.

    A row of the mask without readable positions does not occur: foci gives such a row weights of 0 itself.
    """

    @abstractmethod
    def __call__(
        self, scores: Float[Tensor, "... L S"], mask: Bool[Tensor, "..."] | None, /
    ) -> Float[Tensor, "... L S"] | tuple[Float[Tensor, "... L S"], Tensor | None] | Drawn:
        """Return the weights, 0 where the mask is False; one that samples returns `Drawn`."""


@runtime_checkable
class Focus(Protocol):
    """Which keys a query reads: a function or a module, called like this.

    `foci.mechanisms.focus.FocusModule` is the base class of those that read in their own way or keep a state.
    """

    @abstractmethod
    def __call__(self, query: Float[Tensor, "#B L Dq"], key: Float[Tensor, "#B S Dk"], /) -> Tensor:
        """Return a boolean mask (True = may be read), or a bias of numbers for the scores, of sizes (B, L, S) or 1."""


@runtime_checkable
class Stage(Protocol):
    """A stage after reading, such as a gate on the output: a function or a module, called like this."""

    @abstractmethod
    def __call__(self, query: Float[Tensor, "#B L Dq"], attended: AttentionOutput, /) -> AttentionOutput:
        """Return the result instead, mostly ``attended._replace(output=…)``."""


class Reading(NamedTuple):
    """One read of a prepared source.

    Attributes:
        owner: who reads, for messages.
        query: as it was passed, ``(B, L, Dq)``.
        projected: by the score, ``(B, L, P)``.
        memory: the prepared source.
        mask: which positions may be read, broadcast to ``(B, L, S)``; None for all.
        bias: finite numbers added to the scores, broadcast to ``(B, L, S)``; None for none.
        state: what the previous read returned; None at first.
        score: compares projected queries and keys.
        normalizer: turns scores into weights.
        sharpening: factor of the scores.
        dropout: share of the weights to drop; 0 outside of training.
        training: whether the attention is in training mode.
    """

    owner: str
    query: Tensor
    projected: Tensor
    memory: Memory
    mask: Tensor | None
    bias: Tensor | None
    state: Any
    score: ScoreModule
    normalizer: NamedNormalizer | NormalizerFunction
    sharpening: float
    dropout: float
    training: bool

    @property
    def fused_scale(self) -> float | None:
        """The factor of dot products where a fused kernel can read them; None where it cannot."""
        if not self.score.is_dot_product or self.normalizer.name != "softmax":
            return None
        return self.score.scale * self.sharpening

    def compare(self, query: Tensor, key: Tensor, prepared: Tensor | None = None) -> Tensor:
        """Return the scores, sharpened; the bias is still to be added."""
        scores = self.score.compare(query, key, prepared)
        return scores if self.sharpening == 1.0 else scores * self.sharpening

    def normalize(self, scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None] | Drawn:
        """Return what the normalizer returns."""
        return self.normalizer(scores, mask, self.training)

    def limited(self, mask: Tensor | None = None, bias: Tensor | None = None, *, owner: str | None = None) -> Reading:
        """Return the same read with a further mask or bias, which broadcast to ``(B, L, S)``; −∞ closes a position."""
        shape = torch.broadcast_shapes(self.query.shape[:1], self.memory.key.shape[:1])
        shape = torch.Size((*shape, self.query.shape[1], self.memory.key.shape[1]))
        mask, bias = mask_and_bias(mask, bias, shape, self.query.device, owner=owner or self.owner)
        mask, bias = both_limits((mask, None if bias is None else bias.to(self.query.dtype)), (self.mask, self.bias))
        return self._replace(mask=mask, bias=bias)

    def attend(self, window: Window | None = None) -> AttentionOutput:
        """Read all positions, or those of a window around each query's own, by the fastest path; there is no state."""
        memory = self.memory
        bias, dropout, scale = self.bias, self.dropout, self.fused_scale
        if scale is not None:
            return attend_dots(
                self.projected,
                memory.key,
                memory.value,
                self.mask,
                scale=scale,
                bias=bias,
                window=window,
                dropout=dropout,
            )
        scores = self.compare(self.projected, memory.key, memory.prepared)
        return attend_scores(
            scores, memory.value, self.mask, bias=bias, window=window, normalize=self.normalize, dropout=dropout
        )
