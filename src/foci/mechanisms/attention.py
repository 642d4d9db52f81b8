"""Attention composed of a score, a normalizer and a focus.

    scores = score(query, key),   weights = normalize(scores, mask and focus),   output = weights · value

Paper: Neural Machine Translation by Jointly Learning to Align and Translate (Bahdanau, Cho, Bengio, 2015), eqs. 5-6
Names: c_i = output, α_ij = weights, e_ij = scores, h_j = key and value
Complexity: that of the score, plus O(L · S · V) for the weighted sum
Differs: score, normalizer and focus are options; the paper's choice is additive, softmax, global.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from foci.checks import check_mask, check_shape, check_together, expand_query
from foci.errors import ConfigError, check_positive, check_share, check_sizes, unknown_name
from foci.masks import clear_source
from foci.mechanisms.focus import FOCUSES
from foci.mechanisms.normalizers import NORMALIZERS
from foci.mechanisms.parts import Focus, Memory, Normalizer, Reading, Score, Sizes, Stage
from foci.mechanisms.scores import SCORES
from foci.names import FocusName, NormalizerName, ScoreName
from foci.outputs import AttentionOutput

Part = TypeVar("Part")


class Attention(nn.Module):
    """Any score with any normalizer and any focus.

    Args:
        query_dim: size of the query; scores without parameters take any when it is None.
        key_dim: size of the key.
        hidden_dim: the hidden layer of the additive, concat and location_aware scores and of local_p.
        score: a name of `foci.mechanisms.scores.SCORES`, or a `foci.mechanisms.parts.Score`.
        normalize: "softmax", "sigmoid" (smoothing), "sparsemax", "entmax15", "hard", "sample" or "gumbel", or a
            `foci.mechanisms.parts.Normalizer`. "sample" and "gumbel" take the best position, without sampling, in
            ``eval()``.
        focus: "global", "causal", "sliding_window" or "median_window" (both need ``window``), "local_m" or "local_p"
            (both need ``radius``), or a `foci.mechanisms.parts.Focus`.
        sharpening: scores are multiplied by this before they are normalized; above 1 sharpens.
        dropout: share of the weights dropped in training.
        radius: D of Luong's local attention.
        window: ``(left, right)`` of the sliding or median window.
        max_length: the longest source, for the location score.
        after: a stage after reading, a `foci.mechanisms.parts.Stage`, such as a gate. Default: none.

    Call it as ``attention(query, key, value=None, mask=None, state=None)``; the value defaults to the key. A decoder
    that reads one source step by step calls `prepare` once and `read` at each step.

    Example:
        >>> import torch
        >>> attention = Attention(3, 5, score="general", focus="local_p", radius=2)
        >>> query, key = torch.zeros(2, 7, 3), torch.zeros(2, 11, 5)
        >>> output, weights, state = attention(query, key)
        >>> output.shape, weights.shape
        (torch.Size([2, 7, 5]), torch.Size([2, 7, 11]))
    """

    def __init__(
        self,
        query_dim: int | None = None,
        key_dim: int | None = None,
        hidden_dim: int | None = None,
        *,
        score: ScoreName | Score = "scaled_dot",
        normalize: NormalizerName | Normalizer = "softmax",
        focus: FocusName | Focus = "global",
        sharpening: float = 1.0,
        dropout: float = 0.0,
        radius: int | None = None,
        window: tuple[int, int] | None = None,
        max_length: int | None = None,
        after: Stage | None = None,
    ) -> None:
        super().__init__()
        check_positive("Attention", sharpening=sharpening)
        check_sizes("Attention", query_dim=query_dim, key_dim=key_dim, hidden_dim=hidden_dim, max_length=max_length)
        check_share("Attention", dropout=dropout)
        sizes = Sizes(query_dim, key_dim, hidden_dim, max_length, radius, window)
        self.normalizer: Normalizer = _part("normalizer", normalize, Normalizer, NORMALIZERS)
        self.score: Score = _part("score", score, Score, SCORES, sizes)
        self.focus: Focus = _part("focus", focus, Focus, FOCUSES, sizes)
        self.after = after
        self.sharpening = sharpening
        self.dropout = dropout
        self._owner = f"{type(self.score).__name__}Attention"  # in messages; steps are too short to make it anew
        if self.score.remembers and not self.focus.takes_steps:
            raise ConfigError(
                f"Attention: the score is {type(self.score).__name__}, which depends on the previous weights, with "
                f"focus {type(self.focus).__name__}, expected focus 'global' or 'median_window'."
            )
        if after is not None and not callable(after):
            raise _not_a_part("after", after, Stage)

    @property
    def remembers(self) -> bool:
        """Whether a read depends on the previous ones, so that every hypothesis of a decoder has a state of its own."""
        return self.score.remembers or self.focus.remembers

    def state_from_weights(self, weights: Float[Tensor, "B S"]) -> Any:
        """Return the state after weights that were given, for an attention that depends on the previous weights."""
        return weights

    def forward(
        self,
        query: Float[Tensor, "#B L Dq"],
        key: Float[Tensor, "#B S Dk"],
        value: Float[Tensor, "#B S V"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        state: Any = None,
    ) -> AttentionOutput:
        """Return the mean of ``value`` (default: the key) by the weights of the query over the key."""
        return self.read(query, self.prepare(key, value, mask), state)

    def prepare(
        self,
        key: Float[Tensor, "#B S Dk"],
        value: Float[Tensor, "#B S V"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Memory:
        """Project the source once, for many reads."""
        value = key if value is None else value
        fix = f"Build it with key_dim={key.shape[-1]}, or project the key." if key.dim() == 3 else ""
        check_shape(self._owner, "key", key, "batch", "key", self.score.key_dim or "feature", fix=fix)
        fix = "Key and value have one entry per position."
        check_shape(self._owner, "value", value, "batch", key.shape[1], "feature", fix=fix)
        check_together(self._owner, key=key, value=value)
        key, value = clear_source(key, value, mask)
        projected = self.score.project_key(key)
        return Memory(projected, value, mask, None if self.focus.gathers else self.score.prepare(projected, value))

    def read(self, query: Float[Tensor, "#B L Dq"], memory: Memory, state: Any = None) -> AttentionOutput:
        """Read a prepared source; the state is what the previous call returned, None at first."""
        score, training = self.score, self.training  # a module looks its parts up at every access
        fix = f"Build it with query_dim={query.shape[-1]}, or project the query." if query.dim() == 3 else ""
        check_shape(self._owner, "query", query, "batch", "query", score.query_dim or memory.key.shape[-1], fix=fix)
        check_together(self._owner, query=query, value=memory.value)
        query, batch = expand_query(self._owner, query, memory.key, memory.value)
        mask = self._fit_mask(query, memory, batch)
        attended = self.focus.read(
            Reading(
                self._owner,
                query,
                score.project_query(query),
                memory,
                mask,
                state,
                score,
                self.normalizer,
                self.sharpening,
                self.dropout if training else 0.0,
                training,
            )
        )
        return attended if self.after is None else self.after(query, attended)

    def _fit_mask(self, query: Tensor, memory: Memory, batch: int) -> Tensor | None:
        if memory.mask is None:
            return None
        shape = torch.Size((batch, query.shape[1], memory.key.shape[1]))
        return check_mask(self._owner, memory.mask, shape, query.device)

    def extra_repr(self) -> str:
        """Return the options, for printing."""
        return f"normalize={self.normalizer!r}, sharpening={self.sharpening}, dropout={self.dropout}"


def _part(what: str, value: str | Part, protocol: Any, table: Mapping[str, Callable[..., Part]], *sizes: Sizes) -> Part:
    """Return the part of this name, or the object itself, which must have the members of the protocol."""
    if isinstance(value, str):
        if value not in table:
            raise unknown_name(what, value, table)
        return table[value](*sizes)
    if not isinstance(value, protocol):
        raise _not_a_part(what, value, protocol)
    return cast("Part", value)


def _not_a_part(what: str, value: object, protocol: type[Any]) -> ConfigError:
    return ConfigError(
        f"Attention: {what} is a {type(value).__name__}, expected a name or an object with the members of "
        f"foci.mechanisms.parts.{protocol.__name__}."
    )
