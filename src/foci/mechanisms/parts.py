"""The parts of `foci.Attention`: protocols of score, normalizer, focus and the stage after reading, and what they pass.

Any object with the members of a protocol is accepted in its place; a module's parameters are trained with the rest.
State is passed in and returned, never kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Bool, Float
from torch import Tensor

from foci.functional.sample import Drawn
from foci.outputs import AttentionOutput
from foci.tracing import exportable


@exportable
class Memory(NamedTuple):
    """A source prepared for many reads: projected keys, values, and the mask.

    ``prepared`` is what the score has computed of the keys for all reads; for the location_aware score, the alias of
    the keys that `foci.functional.stepwise.share_source` returns.
    """

    key: Tensor
    value: Tensor
    mask: Tensor | None
    prepared: Tensor | None = None


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
    """How well each key fits a query, in two parts: a source is projected once, a query per read."""

    @property
    def query_dim(self) -> int | None:
        """The size of the query; None takes any."""

    @property
    def key_dim(self) -> int | None:
        """The size of the key; None takes any."""

    @property
    def projected_dim(self) -> int | None:
        """The size of a projected key; None where it is that of the key."""

    @property
    def scale(self) -> float | None:
        """The factor of the dot product of projected query and key, which a fused kernel may compute.

        None for a score that compares in another way.
        """

    @property
    def remembers(self) -> bool:
        """Whether it depends on the weights of the previous query."""

    def project_query(self, query: Float[Tensor, "#B L Dq"]) -> Float[Tensor, "#B L P"]:
        """Return the projected query."""

    def project_key(self, key: Float[Tensor, "#B S Dk"]) -> Float[Tensor, "#B S P"]:
        """Return the projected key."""

    def prepare(self, key: Float[Tensor, "#B S P"], value: Float[Tensor, "#B S V"]) -> Tensor | None:
        """Return what can be computed from the projected keys for all reads; None if there is nothing."""

    def compare(
        self, query: Float[Tensor, "... L P"], key: Float[Tensor, "... S P"], prepared: Tensor | None = None
    ) -> Float[Tensor, "... L S"]:
        """Compare each projected query with each projected key."""

    def read_steps(self, reading: Reading, window: tuple[int, int] | None) -> AttentionOutput:
        """Read query by query, each within a window around the median of the previous weights, if there is one."""


@runtime_checkable
class Normalizer(Protocol):
    """How one unit of attention is shared out; may have parameters."""

    @property
    def name(self) -> str | None:
        """Its name in `foci.functional.attend.NORMALIZERS`, by which kernels compute it; None for any other."""

    def __call__(
        self, scores: Float[Tensor, "... L S"], mask: Bool[Tensor, "..."] | None, training: bool
    ) -> tuple[Float[Tensor, "... L S"], Tensor | None] | Drawn:
        """Return the weights, and the log-probability of what was sampled, None without sampling.

        One that samples may return `Drawn`, so that the handle knows the probabilities too.
        """


@runtime_checkable
class Focus(Protocol):
    """Which positions a query reads, and how."""

    @property
    def gathers(self) -> bool:
        """Whether it gathers other keys for every query, so that nothing is prepared from all keys."""

    @property
    def remembers(self) -> bool:
        """Whether a read depends on the previous ones."""

    @property
    def takes_steps(self) -> bool:
        """Whether it reads query by query with a score that remembers."""

    def read(self, reading: Reading) -> AttentionOutput:
        """Return the output, the weights and the next state."""


@runtime_checkable
class Stage(Protocol):
    """A stage after reading, such as a gate on the output; may have parameters."""

    def __call__(self, query: Float[Tensor, "#B L Dq"], attended: AttentionOutput) -> AttentionOutput:
        """Return the result in its place."""


class Reading(NamedTuple):
    """One read of a prepared source.

    Attributes:
        owner: who reads, for messages.
        query: as it was passed, ``(B, L, Dq)``.
        projected: by the score, ``(B, L, P)``.
        memory: the prepared source.
        mask: which positions may be read, broadcast to ``(B, L, S)``; None for all.
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
    state: Any
    score: Score
    normalizer: Normalizer
    sharpening: float
    dropout: float
    training: bool

    @property
    def fused_scale(self) -> float | None:
        """The factor of dot products where a fused kernel can read them; None where it cannot."""
        if self.score.scale is None or self.normalizer.name != "softmax":
            return None
        return self.score.scale * self.sharpening

    def compare(self, query: Tensor, key: Tensor, prepared: Tensor | None = None) -> Tensor:
        """Return the scores as they are normalized."""
        scores = self.score.compare(query, key, prepared)
        return scores if self.sharpening == 1.0 else scores * self.sharpening

    def normalize(self, scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None] | Drawn:
        """Return what the normalizer returns."""
        return self.normalizer(scores, mask, self.training)
