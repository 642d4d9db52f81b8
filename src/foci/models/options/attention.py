"""Options of the attention of a decoder to its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

from foci.errors import ConfigError, check_positive, check_sizes, check_window
from foci.layers.several_heads import HeadOptions
from foci.names import DotScoreName, NormalizerName, ScoreName
from foci.options import OwnPart

Focus = Literal["global", "local_m", "local_p", "median_window"]

HEAD_SCORES: tuple[DotScoreName, ...] = get_args(DotScoreName)
"""The scores of multi-head attention."""


@dataclass(frozen=True, kw_only=True)
class AttentionOptions(HeadOptions):
    """The attention of a decoder to its source: a score, a normalizer and a focus, or several heads with their options.

    Each may be a function or a module of your own (docs/your-own-parts.md), of which every attention of a model has a
    copy, as has ``after``, a stage after reading.
    """

    score: ScoreName | OwnPart | None = None
    """Score function. Default: general for a recurrent or feed-forward decoder, scaled_dot with several heads."""
    normalize: NormalizerName | OwnPart = "softmax"
    """Normalizer of the scores; sigmoid is Chorowski's smoothing, sample is trained by REINFORCE."""
    focus: Focus | OwnPart = "global"
    """Source positions that are read: all of them, Luong's windows (local_m, local_p), or Chorowski's window around
    the median of the previous weights."""
    hidden_dim: int | None = None
    """Size of the hidden layer of the additive, concat and location_aware scores and of local_p. Default: the size of
    the decoder's state."""
    sharpening: float = 1.0
    """Factor of the scores before they are normalized; above 1 sharpens the weights."""
    radius: int | None = None
    """D of Luong's local windows of 2D + 1 positions, for local_m and local_p."""
    window: tuple[int, int] | None = None
    """Positions before and after the median, (left, right), for median_window."""
    max_length: int | None = None
    """Longest source, for the location score."""
    num_heads: int | None = None
    """Heads of multi-head attention, which together have the size of the decoder's state. Default: one head, the
    attention of `foci.Attention`."""
    content: bool = True
    """Compare contents. False reads by location alone, for location_aware."""
    num_filters: int = 10
    """Filters over the previous weights, for location_aware."""
    kernel_size: int = 101
    """Positions that a filter covers, an odd number, for location_aware."""
    initial_alignment: Literal["none", "first"] = "none"
    """Weights before the first step, for location_aware and median_window: none, or all weight on the first position,
    for targets in the order of the source."""
    expectation_share: float | None = None
    """Share of the rows that read the weighted sum in training, for normalize = sample. Default: none of them; 0.5 in
    captioners."""
    after: OwnPart | None = None
    """Stage after reading, such as a gate."""

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        check_positive(owner, sharpening=self.sharpening)
        check_sizes(owner, radius=self.radius)
        check_window(owner, self.window, bounded=True)
        if self.kernel_size % 2 == 0:
            raise ConfigError(
                f"{owner}: kernel_size is {self.kernel_size}, expected an odd number, so that a filter has a center."
            )
        for name, needed, fitting in (
            ("radius", self.focus in ("local_m", "local_p"), "focus 'local_m' or 'local_p'"),
            ("window", self.focus == "median_window", "focus 'median_window'"),
            ("max_length", self.score == "location", "score 'location'"),
        ):
            if (getattr(self, name) is not None) != needed:
                raise ConfigError(
                    f"{owner}: {name} is {getattr(self, name)} with score {self.score!r} and focus {self.focus!r}, "
                    f"expected it for {fitting}, and for that alone."
                )
        if not self.content and self.score != "location_aware":
            raise ConfigError(f"{owner}: content is False with score {self.score!r}, expected 'location_aware'.")
        if self.initial_alignment != "none" and not self.reads_by_weights:
            raise ConfigError(
                f"{owner}: initial_alignment is {self.initial_alignment!r} with score {self.score!r} and focus "
                f"{self.focus!r}, expected an attention that depends on the previous weights. Set "
                "score='location_aware' or focus='median_window'."
            )
        if self.expectation_share is not None and (self.normalize != "sample" or self.num_heads is not None):
            raise ConfigError(
                f"{owner}: expectation_share is {self.expectation_share} with normalize {self.normalize!r} and "
                f"num_heads {self.num_heads}, expected normalize='sample' and one head."
            )
        if self.num_heads is not None and not (self.has_head_score and self.has_head_focus):
            raise ConfigError(
                f"{owner}: num_heads is {self.num_heads}, score is {self.score!r} and focus is {self.focus!r}, "
                f"expected a score of {', '.join(HEAD_SCORES)} or of your own, and focus 'global' or of your own, with "
                "several heads."
            )

    @property
    def own_parts(self) -> tuple[str, ...]:
        """The parts that are objects, not names."""
        return tuple(name for name in ("score", "normalize", "focus", "after") if callable(getattr(self, name)))

    @property
    def has_head_score(self) -> bool:
        """Whether several heads can have its score."""
        return not isinstance(self.score, str) or self.score in HEAD_SCORES

    @property
    def head_score(self) -> DotScoreName | OwnPart:
        """The score of several heads; where there are some, `has_head_score` was checked."""
        return cast("DotScoreName | OwnPart", self.score or "scaled_dot")

    @property
    def has_head_focus(self) -> bool:
        """Whether several heads can have its focus."""
        return not isinstance(self.focus, str) or self.focus == "global"

    @property
    def head_focus(self) -> OwnPart | None:
        """The focus of several heads; None for all positions."""
        return None if isinstance(self.focus, str) else self.focus

    @property
    def reads_by_weights(self) -> bool:
        """Whether a step depends on the weights of the previous one."""
        return self.score == "location_aware" or self.focus == "median_window"
