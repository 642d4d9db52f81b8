"""Attention composed of a score, a normalizer and a focus.

    scores = score(query, key),   weights = normalize(scores, mask and focus),   output = weights · value

Paper: Neural Machine Translation by Jointly Learning to Align and Translate (Bahdanau, Cho, Bengio, 2015), eqs. 5-6
Names: c_i = output, α_ij = weights, e_ij = scores, h_j = key and value
Complexity: that of the score, plus O(L · S · V) for the weighted sum
Differs: score, normalizer and focus are options; the paper's choice is additive, softmax, global.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from foci.checks import check_batch, check_mask, check_shape, check_together
from foci.errors import ConfigError, check_positive, check_share, check_sizes, unknown_name
from foci.functional.attend import NORMALIZERS, attend_dots, attend_scores, normalizer
from foci.functional.sample import best
from foci.functional.stepwise import StepOptions, over_steps, read_location_aware, share_source
from foci.functional.windows import local, local_dots, row_lengths
from foci.masks import clear_source
from foci.mechanisms.focus import Causal, LocalM, LocalP, MedianWindow, SlidingWindow
from foci.mechanisms.scores import (
    Additive,
    Concat,
    Cosine,
    Dot,
    General,
    Location,
    LocationAware,
    ScaledDot,
    Score,
)
from foci.outputs import AttentionOutput
from foci.tracing import exportable, known_true
from foci.weights import Weights

Focus = SlidingWindow | LocalM | LocalP | MedianWindow

SCORES: dict[str, Callable[..., Score]] = {
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "general": General,
    "additive": Additive,
    "concat": Concat,
    "cosine": Cosine,
    "location": Location,
    "location_aware": LocationAware,
}
_WITHOUT_CHANCE = {"sample": "best", "gumbel": "hard"}
FOCUSES = ("global", "causal", "sliding_window", "local_m", "local_p", "median_window")


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


class Attention(nn.Module):
    """Any score with any normalizer and any focus.

    Args:
        query_dim: size of the query; scores without parameters take any when it is None.
        key_dim: size of the key.
        hidden_dim: the hidden layer of the additive, concat and location_aware scores and of local_p.
        score: a name of `SCORES`, or a `foci.mechanisms.scores.Score`.
        normalize: "softmax", "sigmoid" (smoothing), "sparsemax", "entmax15", "hard", "sample" or "gumbel". The last
            two take the best cell, without sampling, in ``eval()``.
        focus: "global", "causal", "sliding_window" or "median_window" (both need ``reach``), "local_m" or "local_p"
            (both need ``radius``), or a module of `foci.mechanisms.focus`.
        sharpening: scores are multiplied by this before they are normalized; above 1 sharpens.
        dropout: share of the weights dropped in training.
        radius: D of Luong's local attention.
        reach: ``(left, right)`` of the sliding or median window.
        max_length: the longest source, for the location score.

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
        score: str | Score = "scaled_dot",
        normalize: str = "softmax",
        focus: str | Focus = "global",
        sharpening: float = 1.0,
        dropout: float = 0.0,
        radius: int | None = None,
        reach: tuple[int, int] | None = None,
        max_length: int | None = None,
    ) -> None:
        super().__init__()
        if normalize not in NORMALIZERS:
            raise unknown_name("normalizer", normalize, NORMALIZERS)
        check_positive("Attention", sharpening=sharpening)
        check_sizes("Attention", query_dim=query_dim, key_dim=key_dim, hidden_dim=hidden_dim, max_length=max_length)
        check_share("Attention", dropout=dropout)
        self.score = _build_score(score, query_dim, key_dim, hidden_dim, max_length)
        self._owner = f"{type(self.score).__name__}Attention"  # in messages; steps are too short to make it anew
        self.focus = _build_focus(focus, query_dim, hidden_dim, radius, reach)
        self.normalize = normalize
        self.sharpening = sharpening
        self.dropout = dropout
        if self._stepwise and not isinstance(self.focus, MedianWindow | None):
            raise ConfigError(
                "Attention: a score or focus that depends on the previous weights needs focus 'global' or "
                f"'median_window', not {type(self.focus).__name__}."
            )

    @property
    def _stepwise(self) -> bool:
        return isinstance(self.score, LocationAware) or isinstance(self.focus, MedianWindow)

    def forward(
        self,
        query: Float[Tensor, "#B L Dq"],
        key: Float[Tensor, "#B S Dk"],
        value: Float[Tensor, "#B S V"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        state: Any = None,
    ) -> AttentionOutput:
        """Return the mean of ``value`` (the key unless given) by the weights of the query over the key."""
        return self.read(query, self.prepare(key, value, mask), state)

    def prepare(
        self,
        key: Float[Tensor, "#B S Dk"],
        value: Float[Tensor, "#B S V"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Memory:
        """Project the source once, for many reads."""
        value = key if value is None else value
        check_shape(
            self._owner,
            "key",
            key,
            "batch",
            "key",
            self.score.key_dim or "feature",
            fix=f"Build it with key_dim={key.shape[-1]}, or project the key." if key.dim() == 3 else "",
        )
        check_shape(
            self._owner,
            "value",
            value,
            "batch",
            key.shape[1],
            "feature",
            fix="Key and value have one entry per cell.",
        )
        check_together(self._owner, key=key, value=value)
        key, value = clear_source(key, value, mask)
        projected = self.score.project_key(key)
        if isinstance(self.score, LocationAware):
            return Memory(projected, value, mask, share_source(projected, value))
        whole = not isinstance(self.focus, LocalM | LocalP)  # a local focus gathers other keys for every query
        return Memory(projected, value, mask, self.score.prepare_cells(projected) if whole else None)

    def read(self, query: Float[Tensor, "#B L Dq"], memory: Memory, state: Any = None) -> AttentionOutput:
        """Read a prepared source; the state is what the previous call returned, None at first."""
        score = self.score  # a module looks its parts up at every access
        check_shape(
            self._owner,
            "query",
            query,
            "batch",
            "query",
            score.query_dim or memory.key.shape[-1],
            fix=f"Build it with query_dim={query.shape[-1]}, or project the query." if query.dim() == 3 else "",
        )
        check_together(self._owner, query=query, value=memory.value)
        mask = self._fit_mask(query, memory)
        projected = score.project_query(query)
        if self._stepwise:
            return self._read_steps(projected, memory, mask, state)
        if isinstance(self.focus, LocalM | LocalP):
            return self._read_local(query, projected, memory, mask, state)
        if state is not None:
            raise ConfigError(f"{self._owner}: it keeps no state, expected state=None.")
        window = self.focus.window if isinstance(self.focus, SlidingWindow) else None
        dropout = self.dropout if self.training else 0.0
        if score.scale is not None and self.normalize == "softmax":
            scale = score.scale * self.sharpening
            return attend_dots(projected, memory.key, memory.value, mask, scale=scale, window=window, dropout=dropout)
        scores = self._cells(projected, memory.key, memory.prepared)
        return attend_scores(scores, memory.value, mask, window=window, normalize=self._normalize, dropout=dropout)

    def _cells(self, query: Tensor, key: Tensor, prepared: Tensor | None = None) -> Tensor:
        scores = self.score.cells(query, key, prepared)
        return scores if self.sharpening == 1.0 else scores * self.sharpening

    @property
    def _normalizer(self) -> str:
        """The normalizer of this mode: outside of training the best cell is read, without sampling."""
        return self.normalize if self.training else _WITHOUT_CHANCE.get(self.normalize, self.normalize)

    def _normalize(self, scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        name = self._normalizer
        return best(scores, mask) if name == "best" else normalizer(name)(scores, mask)

    def _read_local(
        self, query: Tensor, projected: Tensor, memory: Memory, mask: Tensor | None, state: Any
    ) -> AttentionOutput:
        focus: LocalM | LocalP = self.focus  # type: ignore[assignment]
        center, state = focus.center(query, row_lengths(mask, memory.key), state)
        where = (memory.key, memory.value, center, mask)
        radius, sigma, dropout = focus.radius, focus.sigma, self.dropout if self.training else 0.0
        if self.score.scale is not None and self.normalize == "softmax":
            scale = self.score.scale * self.sharpening
            read = local_dots(projected, *where, radius=radius, sigma=sigma, scale=scale, dropout=dropout)
        else:
            read = local(
                projected,
                *where,
                radius=radius,
                sigma=sigma,
                score=self._cells,
                normalize=self._normalize,
                dropout=dropout,
            )
        return read._replace(state=state)

    def _read_steps(self, query: Tensor, memory: Memory, mask: Tensor | None, state: Any) -> AttentionOutput:
        """Read step by step: each step needs the weights of the previous one."""
        batch, size = check_batch(self._owner, query, memory.key), memory.key.shape[1]
        previous = query.new_zeros(batch, size) if state is None else state
        check_shape(self._owner, "state", previous, batch, size, fix="Pass what the previous call returned.")
        if known_true(query.shape[1] == 0):
            nothing = query.new_zeros(batch, 0, size)
            return AttentionOutput(nothing @ memory.value, Weights.from_tensor(nothing), previous)
        window = self.focus if isinstance(self.focus, MedianWindow) else None
        reach = None if window is None else (window.left, window.right)
        options = StepOptions(self._normalizer, self.sharpening, reach)
        given = () if mask is None else (mask,)
        per_query, shared = (given, ()) if mask is not None and mask.shape[1] != 1 else ((), given)
        score = self.score
        if isinstance(score, LocationAware):
            source = (memory.key, *score.location_parameters)
            if known_true(query.shape[1] == 1) and not (self.training and self.dropout):
                read = read_location_aware(previous, query, (*source, *given), memory.value, options, memory.prepared)
                if read is not None:
                    return AttentionOutput(read[0], Weights.from_tensor(read[1]), read[1].squeeze(1))
            previous, outputs = over_steps("location_aware", previous, (query, *per_query), (*source, *shared), options)
        else:
            scores = score.cells(query, memory.key, memory.prepared)
            previous, outputs = over_steps("median_window", previous, (scores, *per_query), shared, options)
        weights, *log_prob = outputs
        output = F.dropout(weights, self.dropout if self.training else 0.0) @ memory.value
        return AttentionOutput(output, Weights.from_tensor(weights, log_prob[0] if log_prob else None), previous)

    def _fit_mask(self, query: Tensor, memory: Memory) -> Tensor | None:
        batch = check_batch(self._owner, query, memory.key)
        if memory.mask is None:
            return None
        shape = torch.Size((batch, query.shape[1], memory.key.shape[1]))
        return check_mask(self._owner, memory.mask, shape, query.device)

    def extra_repr(self) -> str:
        """Return the options, for printing."""
        return f"normalize={self.normalize!r}, sharpening={self.sharpening}, dropout={self.dropout}"


def _build_score(
    score: str | Score,
    query_dim: int | None,
    key_dim: int | None,
    hidden_dim: int | None,
    max_length: int | None,
) -> Score:
    if isinstance(score, Score):
        return score
    if score not in SCORES:
        raise unknown_name("score", score, SCORES)
    if score in ("dot", "scaled_dot", "cosine"):
        return SCORES[score](query_dim, key_dim)
    if query_dim is None or (key_dim is None and score != "location"):
        raise ConfigError(f"Attention: score {score!r} learns parameters and needs query_dim and key_dim.")
    if score == "general":
        return General(query_dim, key_dim)  # type: ignore[arg-type]
    if score == "location":
        if max_length is None:
            raise ConfigError("Attention: score 'location' has one row per position and needs max_length.")
        return Location(query_dim, key_dim, max_length=max_length)
    return SCORES[score](query_dim, key_dim, hidden_dim)


def _build_focus(
    focus: str | Focus,
    query_dim: int | None,
    hidden_dim: int | None,
    radius: int | None,
    reach: tuple[int, int] | None,
) -> Focus | None:
    if not isinstance(focus, str):
        return focus
    if focus not in FOCUSES:
        raise unknown_name("focus", focus, FOCUSES)
    if focus == "global":
        return None
    if focus == "causal":
        return Causal()
    if focus in ("sliding_window", "median_window"):
        if reach is None:
            raise ConfigError(f"Attention: focus {focus!r} needs reach=(left, right).")
        return SlidingWindow(*reach) if focus == "sliding_window" else MedianWindow(*reach)
    if radius is None:
        raise ConfigError(f"Attention: focus {focus!r} needs radius, the D of its 2D+1 cells.")
    if focus == "local_m":
        return LocalM(radius)
    if query_dim is None:
        raise ConfigError("Attention: focus 'local_p' predicts from the query and needs query_dim.")
    return LocalP(query_dim, hidden_dim, radius=radius)
