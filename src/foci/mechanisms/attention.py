"""Attention composed of a score, a normalizer and a focus.

    scores = score(query, key),   weights = normalize(scores, mask and focus),   output = weights · value

Paper: Neural Machine Translation by Jointly Learning to Align and Translate (Bahdanau, Cho, Bengio, 2015), eqs. 5-6
Names: c_i = output, α_ij = weights, e_ij = scores, h_j = key and value
Complexity: that of the score, plus O(L · S · V) for the weighted sum
Differs: score, normalizer and focus are options; the paper's choice is additive, softmax, global.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from foci.checks import are_together, check_shape, check_together, expand_query, is_sequence, refuse_script
from foci.errors import ConfigError, check_positive, check_share, check_sizes, check_window, unknown_name
from foci.functional.attend import close_by_bias, mask_and_bias
from foci.functional.own_parts import (
    check_attended,
    check_closed,
    check_takes,
    is_first_call,
    mark_checked,
    name_of,
    own_stage,
)
from foci.masks import clear_source
from foci.mechanisms.focus import FOCUSES, FocusFunction, FocusModule
from foci.mechanisms.focus.reading import read_focus
from foci.mechanisms.normalizers import NORMALIZERS, NamedNormalizer, NormalizerFunction
from foci.mechanisms.parts import Focus, Memory, Normalizer, Reading, Score, Sizes, Stage
from foci.mechanisms.scores import SCORES, ScoreFunction, ScoreModule
from foci.names import NORMALIZER_ALIASES, SCORE_ALIASES, FocusName, NormalizerName, ScoreName, settled
from foci.outputs import AttentionOutput, called_as
from foci.torch_private import submodules

Part = TypeVar("Part")


class Attention(nn.Module):
    """Any score with any normalizer and any focus.

    Args:
        query_dim: size of the query; scores without parameters take any when it is None.
        key_dim: size of the key.
        hidden_dim: the hidden layer of the additive, concat and location_aware scores and of local_p.
        score: a name of `foci.mechanisms.scores.SCORES`, or a function or module ``(query, key) -> scores``.
        normalize: "softmax", "sigmoid" (smoothing), "sparsemax", "entmax15", "hard", "sample" or "gumbel", or a
            function or module ``(scores, mask) -> weights``. "sample" and "gumbel" take the best position, without
            sampling, in ``eval()``.
        focus: "global", "causal", "sliding_window" or "median_window" (both need ``window``), "local_m" or "local_p"
            (both need ``radius``), or a function or module ``(query, key) -> mask or bias``.
        sharpening: scores are multiplied by this before they are normalized; above 1 sharpens.
        dropout: share of the weights dropped in training.
        radius: D of Luong's local attention.
        window: ``(left, right)`` of the sliding or median window.
        max_length: the longest source, for the location score.
        after: a stage after reading, such as a gate, a function or module ``(query, attended) -> AttentionOutput``.
            Default: none.

    Call it as ``attention(query, key, value=None, mask=None, state=None, *, bias=None)``; the value defaults to the
    key. A decoder that reads one source step by step calls `prepare` once and `read` at each step. Parts of your own
    are described in docs/your-own-parts.md and `foci.mechanisms.parts`.

    Example:
        >>> import torch
        >>> attention = Attention(3, 5, score="general", focus="local_p", radius=2)
        >>> query, key = torch.zeros(2, 7, 3), torch.zeros(2, 11, 5)
        >>> output, weights, state = attention(query, key)
        >>> output.shape, weights.shape
        (torch.Size([2, 7, 5]), torch.Size([2, 7, 11]))
    """

    __prepare_scriptable__ = refuse_script

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
        check_window("Attention", window)
        sizes = Sizes(query_dim, key_dim, hidden_dim, max_length, radius, window)
        score, normalize = settled(score, SCORE_ALIASES), settled(normalize, NORMALIZER_ALIASES)
        _refuse_unused(score, focus, sizes)
        if normalize == "hard" and sharpening != 1.0:
            raise ConfigError(
                f"Attention: sharpening is {sharpening} with normalize 'hard', expected it to be left out: the best "
                "position stays the best."
            )
        self.normalizer = _build_normalizer(normalize)
        self.score = _build_score(score, sizes)
        self.focus = _build_focus(focus, sizes)
        self.after = after
        if after is not None:
            check_takes("after", after, "query", "attended")
        self._has_own_parts = not (isinstance(score, str) and isinstance(focus, str)) or after is not None
        self.sharpening = sharpening
        self.dropout = dropout
        self._owner = f"{type(self.score).__name__}Attention"  # in messages; steps are too short to make it anew
        if self.score.remembers and not self.focus.takes_steps:
            raise ConfigError(
                f"Attention: the score is {type(self.score).__name__}, which depends on the previous weights, with "
                f"focus {type(self.focus).__name__}, expected focus 'global' or 'median_window'."
            )

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
        *,
        bias: Float[Tensor, "..."] | None = None,
    ) -> AttentionOutput:
        """Return the mean of ``value`` (default: the key) by the weights of the query over the key.

        The bias, of the shape of a mask, is added to the sharpened scores; −∞ closes a position.
        """
        mask, bias = close_by_bias(self._owner, query, key, mask, bias)
        return self.read(query, self.prepare(key, value, mask), state, bias=bias)

    if TYPE_CHECKING:

        @called_as(forward)
        def __call__(self) -> None:
            """Call `forward`, as torch does."""

    def prepare(
        self,
        key: Float[Tensor, "#B S Dk"],
        value: Float[Tensor, "#B S V"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Memory:
        """Project the source once, for many reads."""
        value = key if value is None else value
        parts = submodules(self)
        score: ScoreModule = parts["score"]
        focus: FocusModule = parts["focus"]
        if value is not key or not is_sequence(key, score.key_dim):
            self._check_source(key, value, score)
        if mask is not None:
            key, value = clear_source(key, value, mask)
        projected = score.project_key(key)
        prepared = None if focus.gathers else score.prepare(projected, value)
        return Memory(projected, value, mask, prepared, key if focus.sees_key else None)

    def _check_source(self, key: Tensor, value: Tensor, score: ScoreModule) -> None:
        fix = f"Build it with key_dim={key.shape[-1]}, or project the key." if key.dim() == 3 else ""
        check_shape(self._owner, "key", key, "batch", "key", score.key_dim or "feature", fix=fix)
        fix = "Key and value have one entry per position."
        check_shape(self._owner, "value", value, "batch", key.shape[1], "feature", fix=fix)
        check_together(self._owner, key=key, value=value)

    def read(
        self,
        query: Float[Tensor, "#B L Dq"],
        memory: Memory,
        state: Any = None,
        *,
        bias: Float[Tensor, "..."] | None = None,
    ) -> AttentionOutput:
        """Read a prepared source; the state is what the previous call returned, None at first."""
        parts = submodules(self)  # a module looks its parts up slowly, and a step is short
        score: ScoreModule = parts["score"]
        focus: FocusModule = parts["focus"]
        training = self.training
        query, batch = self._fit(query, memory, score)
        mask = memory.mask
        if mask is not None or bias is not None:
            shape = torch.Size((batch, query.shape[1], memory.key.shape[1]))
            mask, bias = mask_and_bias(mask, bias, shape, query.device, owner=self._owner)
        if state is not None and not self.remembers:
            raise ConfigError(f"{self._owner}: it keeps no state, expected state=None.")
        if bias is not None:
            bias = bias.to(query.dtype)
            if not focus.takes_bias:
                raise ConfigError(
                    f"{self._owner}: the focus {type(focus).__name__} adds no bias to its scores, expected bias=None."
                )
        attended = read_focus(
            focus,
            Reading(
                self._owner,
                query,
                score.project_query(query),
                memory,
                mask,
                bias,
                state,
                score,
                self.normalizer,
                self.sharpening,
                self.dropout if training else 0.0,
                training,
            ),
        )
        return self._finish(query, memory, mask, batch, attended) if self._has_own_parts else attended

    def _fit(self, query: Tensor, memory: Memory, score: ScoreModule) -> tuple[Tensor, int]:
        """Return the query, expanded to the batch of the memory, and that batch's size, or raise."""
        size = score.query_dim or (memory.key.shape[-1] if score.is_dot_product else "feature")
        if is_sequence(query, size) and are_together(query, memory.key, memory.value):
            return query, query.shape[0]
        fix = f"Build it with query_dim={query.shape[-1]}, or project the query." if query.dim() == 3 else ""
        check_shape(self._owner, "query", query, "batch", "query", size, fix=fix)
        check_together(self._owner, query=query, value=memory.value)
        return expand_query(self._owner, query, memory.key, memory.value)

    def _finish(
        self, query: Tensor, memory: Memory, mask: Tensor | None, batch: int, attended: AttentionOutput
    ) -> AttentionOutput:
        """Check what parts of one's own have returned, once, and go through the stage after reading."""
        shape = torch.Size((batch, query.shape[1], memory.key.shape[1]))
        first = is_first_call(self, "returns", query)
        if first:
            check_attended(self._owner, attended, shape, memory.value.shape[-1])
        if mask is not None and is_first_call(self, "mask", query) and not mask.all():
            check_closed(self._owner, attended, mask)
            mark_checked(self, "mask")
        if first:
            mark_checked(self, "returns")
        if self.after is None:
            return attended
        dead = None if mask is None else ~mask.any(dim=-1, keepdim=True)
        return own_stage(self._owner, self.after, query, attended, dead)

    def extra_repr(self) -> str:
        """Return the options, for printing."""
        after = "" if self.after is None or isinstance(self.after, nn.Module) else f", after={name_of(self.after)}"
        return f"normalize={self.normalizer!r}, sharpening={self.sharpening}, dropout={self.dropout}{after}"


_USED_BY = {
    "hidden_dim": ("additive", "concat", "location_aware", "local_p"),
    "max_length": ("location",),
    "radius": ("local_m", "local_p"),
    "window": ("sliding_window", "median_window"),
}
"""Options of some scores and focuses -> which of them have it."""


def _refuse_unused(score: str | Score, focus: str | Focus, sizes: Sizes) -> None:
    """Raise for an option that this score and this focus do not have."""
    for option, names in _USED_BY.items():
        value = getattr(sizes, option)
        if value is not None and not any(isinstance(part, str) and part in names for part in (score, focus)):
            raise ConfigError(
                f"Attention: {option} is {value} and has no effect here, expected it to be left out. It is an option "
                f"of {', '.join(names)} by these names; a part of your own is built with its own options."
            )


def _build_normalizer(given: str | Normalizer) -> NamedNormalizer | NormalizerFunction:
    if isinstance(given, str):
        return _named("normalizer", given, NORMALIZERS)()
    return given if isinstance(given, NamedNormalizer | NormalizerFunction) else NormalizerFunction(given)


def _build_score(given: str | Score, sizes: Sizes) -> ScoreModule:
    if isinstance(given, str):
        return _named("score", given, SCORES)(sizes)
    score = given if isinstance(given, ScoreModule) else ScoreFunction(given, sizes.query_dim, sizes.key_dim)
    for name in ("query_dim", "key_dim"):
        own, wanted = getattr(score, name), getattr(sizes, name)
        if own is not None and wanted is not None and own != wanted:
            raise ConfigError(
                f"Attention: {name} is {wanted}, but that of the score {type(score).__name__} is {own}, expected the "
                "same. Leave it out."
            )
    return score


def _build_focus(given: str | Focus, sizes: Sizes) -> FocusModule:
    if isinstance(given, str):
        return _named("focus", given, FOCUSES)(sizes)
    return given if isinstance(given, FocusModule) else FocusFunction(given)


def _named(kind: str, name: str, table: Mapping[str, Part]) -> Part:
    if name not in table:
        raise unknown_name(kind, name, table)
    return table[name]
