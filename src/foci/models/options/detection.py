"""Options of the detector: its map of the image, the attention of its decoder, and its loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from foci.errors import ConfigError, check_counts, check_sizes
from foci.options import Options

_FEWEST_STAGES = 2
_MOST_STAGES = 8
_EFFICIENT_LEVELS = 3


@dataclass(frozen=True, kw_only=True)
class SmallMapOptions(Options):
    """A map by a small residual network, which is trained with the rest."""

    kind: Literal["small"] = "small"
    """A small residual network, trained from scratch."""
    stages: tuple[int, ...] = (16, 32, 64)
    """Channels of each stage; each halves height and width, so that the third has a stride of 8."""
    num_levels: int = 2
    """Levels of the map: the last stages, joined from the coarsest to the finest."""

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        for channels in self.stages:
            check_sizes(owner, stages=channels)
        if not _FEWEST_STAGES <= len(self.stages) <= _MOST_STAGES:
            raise ConfigError(
                f"{owner}: stages has {len(self.stages)} entries, expected {_FEWEST_STAGES} to {_MOST_STAGES}."
            )
        if self.num_levels > len(self.stages):
            raise ConfigError(
                f"{owner}: num_levels is {self.num_levels}, expected at most the {len(self.stages)} stages."
            )


@dataclass(frozen=True, kw_only=True)
class EfficientNetMapOptions(Options):
    """A map by EfficientNet-lite0 with ImageNet's weights."""

    kind: Literal["efficientnet"] = "efficientnet"
    """EfficientNet-lite0 with ImageNet's weights."""
    tuned: bool = False
    """Train it with the rest; otherwise its weights stay as they are."""
    num_levels: int = 2
    """Levels of the map, up to 3: strides 16 and 32, with 3 also 8."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_levels > _EFFICIENT_LEVELS:
            raise ConfigError(
                f"{type(self).__name__}: num_levels is {self.num_levels}, expected at most {_EFFICIENT_LEVELS}."
            )


MapOptions = SmallMapOptions | EfficientNetMapOptions


@dataclass(frozen=True, kw_only=True)
class PlainAttentionOptions(Options):
    """Cross-attention of DETR: a query has no place, and each layer predicts its box anew."""

    kind: Literal["plain"] = "plain"
    """Learned queries without a place (DETR, 2020)."""


@dataclass(frozen=True, kw_only=True)
class AnchoredOptions(Options):
    """What attention around anchors has in common: each query starts from a box."""

    anchors: Literal["grid", "learned"] = "grid"
    """The boxes that queries start from: fixed on a grid over the picture, or learned, starting from there."""
    refine: bool = True
    """Let each layer refine the box of the one before it; otherwise all layers start from the anchors."""


@dataclass(frozen=True, kw_only=True)
class ConditionalAttentionOptions(AnchoredOptions):
    """Cross-attention whose scores compare content and places apart (Conditional DETR, 2021)."""

    kind: Literal["conditional"] = "conditional"
    """Content and places scored apart, around anchors (Conditional DETR, 2021; DAB-DETR, 2022)."""


@dataclass(frozen=True, kw_only=True)
class DeformableAttentionOptions(AnchoredOptions):
    """Cross-attention to a few points around each query's box (Deformable DETR, 2021)."""

    kind: Literal["deformable"] = "deformable"
    """A few points around anchors (Deformable DETR, 2021)."""
    num_points: int = 4
    """Points per head and level."""


@dataclass(frozen=True, kw_only=True)
class SetLossOptions(Options):
    """The loss of a set of boxes; its weights are also those of the matching."""

    class_weight: float = 2.0
    """Weight of the classes."""
    distance_weight: float = 5.0
    """Weight of the distance of the boxes (L1)."""
    overlap_weight: float = 2.0
    """Weight of their generalized IoU."""
    auxiliary: bool = True
    """Apply the loss to answers of the earlier layers as well, which otherwise give none."""


@dataclass(frozen=True, kw_only=True)
class FocalLossOptions(SetLossOptions):
    """A sigmoid per class; clear cases count less (Lin et al., 2017)."""

    kind: Literal["focal"] = "focal"
    """A sigmoid per class, clear cases count less."""
    gamma: float = 2.0
    """How much less clear cases count, from 0."""
    positive_share: float = 0.25
    """α: weight of what is there; what is not there has 1 − α."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma < 0:
            raise ConfigError(f"{type(self).__name__}: gamma is {self.gamma!r}, expected a number from 0.")


@dataclass(frozen=True, kw_only=True)
class CrossEntropyLossOptions(SetLossOptions):
    """A softmax over the classes and "no object" (Carion et al., 2020)."""

    kind: Literal["cross_entropy"] = "cross_entropy"
    """A softmax over the classes and "no object"."""
    empty_weight: float = 0.1
    """Weight of the queries without an object."""


@dataclass(frozen=True, kw_only=True)
class DetectorOptions(Options):
    """A Transformer over a map of the image, with object queries."""

    model_dim: int = 64
    """Size of a place of the map and of a query."""
    num_heads: int = 4
    """Heads of every attention."""
    hidden_dim: int = 128
    """Inner size of the feed-forward networks."""
    encoder_layers: int = 1
    """Layers of self-attention over the coarsest level, from 0."""
    num_decoder_layers: int = 2
    """Layers of the decoder."""
    num_queries: int = 16
    """Object queries: the largest number of objects that are found in an image."""
    dropout: float = 0.0
    """Dropout of every sublayer's output."""
    encoder: MapOptions = field(default_factory=SmallMapOptions)
    """The network that turns an image into a map."""
    attention: PlainAttentionOptions | ConditionalAttentionOptions | DeformableAttentionOptions = field(
        default_factory=DeformableAttentionOptions
    )
    """The attention from queries to the map."""
    loss: FocalLossOptions | CrossEntropyLossOptions = field(default_factory=FocalLossOptions)
    """The loss, which also says what an answer is: a sigmoid per class, or a softmax with "no object"."""

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        check_counts(owner, encoder_layers=self.encoder_layers)
        if self.model_dim % self.num_heads or self.model_dim % 4:
            raise ConfigError(
                f"{owner}: model_dim is {self.model_dim} with {self.num_heads} heads, expected a multiple of both the "
                "heads and 4: half of it says how far down a place is, half how far across. Change model_dim."
            )
        if isinstance(self.attention, AnchoredOptions) and self.attention.refine and not self.loss.auxiliary:
            raise ConfigError(
                f"{owner}: attention.refine is True without auxiliary losses, expected False: earlier layers then give "
                "no boxes. Set attention.refine = false, or leave loss.auxiliary out."
            )


_KINDS: Mapping[str, Any] = {"attention": {"kind": "deformable"}, "loss": {"kind": "focal"}}
DETECTOR_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "tiny": {**_KINDS, "model_dim": 32, "hidden_dim": 64, "encoder": {"kind": "small", "stages": (8, 16, 32)}},
    "base": {**_KINDS, "encoder": {"kind": "small"}},
    "deep": {**_KINDS, "hidden_dim": 256, "encoder": {"kind": "small", "stages": (16, 32, 64, 96)}},
}
