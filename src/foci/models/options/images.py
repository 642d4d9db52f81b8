"""Options of image encoders, and of the models that read images: classifier, answerer, captioner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from foci.errors import ConfigError, check_sizes
from foci.models.options.attention import AttentionOptions
from foci.models.options.decoders import RecurrentDecoderOptions, TransformerDecoderOptions
from foci.models.options.seq2seq import check_attention
from foci.models.options.text_encoders import Cell
from foci.options import Options, check_default, from_preset

_MOST_STAGES = 16
"""They leave one region of an image of 32,768 pixels a side."""


@dataclass(frozen=True, kw_only=True)
class ImageGridOptions(Options):
    """A small residual network that turns images into a grid of regions."""

    hidden_dim: int = 64
    """Channels of the last stage, and so the size of a region; each stage before has half of them."""
    num_stages: int = 3
    """Number of stages; all but the first halve height and width."""
    depth: int = 1
    """Blocks per stage."""
    stride: int = 1
    """Stride of the first convolution; 2 halves height and width at once."""
    block_attention: Literal["none", "squeeze_excitation", "efficient_channel", "cbam", "spatial"] = "none"
    """Attention to channels or locations in the blocks."""
    reduction: int = 4
    """Channels per hidden unit, for squeeze_excitation and cbam."""
    kernel_size: int = 7
    """Height and width of the neighborhood of a location, an odd number, for spatial and cbam."""

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        check_sizes(owner, depth=self.depth, stride=self.stride, reduction=self.reduction)
        if self.num_stages > _MOST_STAGES:
            raise ConfigError(
                f"{owner}: num_stages is {self.num_stages}, expected at most {_MOST_STAGES}: each halves the image."
            )
        if self.kernel_size % 2 == 0:
            raise ConfigError(f"{owner}: kernel_size is {self.kernel_size}, expected an odd number.")


@dataclass(frozen=True, kw_only=True)
class ImageClassifierOptions(ImageGridOptions):
    """A residual network that classifies images."""

    dropout: float = 0.0
    """Dropout before the output layer."""


IMAGE_CLASSIFIER_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "tiny": {"hidden_dim": 32},
    "base": {"hidden_dim": 64, "stride": 2},
    "deep": {"hidden_dim": 128, "num_stages": 4, "depth": 2, "dropout": 0.1},
}


@dataclass(frozen=True, kw_only=True)
class ImageAnswererOptions(Options):
    """Stacked attention to the regions of an image, which answers questions."""

    embedding_dim: int = 64
    """Size of the word embeddings."""
    hidden_dim: int = 128
    """Size of the question, and of a region as it is compared with it."""
    num_hops: int = 2
    """Number of times that the image is read."""
    cell: Cell = "lstm"
    """Recurrent cell of the question."""
    dropout: float = 0.0
    """Dropout on word embeddings and before the output layer."""
    fusion: Literal["concat", "product"] = "concat"
    """How the question and what was read are combined before the answer: a hidden layer over both, or a product."""
    encoder: ImageGridOptions = field(default_factory=ImageGridOptions)
    """The encoder of the image."""
    attention: AttentionOptions = field(default_factory=lambda: AttentionOptions(score="additive"))
    """The attention of each hop: its score, normalizer, sharpening and hidden_dim."""

    def __post_init__(self) -> None:
        super().__post_init__()
        used = ("score", "normalize", "sharpening", "hidden_dim", *self.attention.own_parts)
        others = [name for name in vars(self.attention) if name not in used]
        check_default(type(self).__name__, self.attention, *others, reason="A hop reads all regions at once.")


IMAGE_ANSWERER_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "tiny": {
        "embedding_dim": 32,
        "hidden_dim": 64,
        "encoder": {"hidden_dim": 32, "stride": 2},
        "attention": {"score": "additive"},
    },
    "base": {"encoder": {"stride": 2}, "attention": {"score": "additive"}},
    "yang": {
        "embedding_dim": 500,
        "hidden_dim": 500,
        "encoder": {"hidden_dim": 128, "num_stages": 4},
        "attention": {"score": "additive", "hidden_dim": 512},
    },
}


@dataclass(frozen=True, kw_only=True)
class GridAnnotationOptions(ImageGridOptions):
    """Annotations by a small residual network, which is trained with the rest."""

    kind: Literal["grid"] = "grid"
    """A small residual network, trained with the rest."""
    annotation_dim: int | None = None
    """Size to which one layer maps a region's features and location. Default: they are read as they are."""
    dropout: float = 0.0
    """Dropout on the regions."""


@dataclass(frozen=True, kw_only=True)
class FrozenAnnotationOptions(Options):
    """Annotations by a frozen network, whose features are computed before the training."""

    kind: Literal["frozen"] = "frozen"
    """A frozen network with weights of its own."""
    network: str = "efficientnet_lite0"
    """The network: efficientnet_lite0, or module:function of your own."""
    annotation_dim: int | None = None
    """Size to which one layer maps a region's features and location. Default: they are read as they are."""
    dropout: float = 0.0
    """Dropout on the regions."""


AnnotationOptions = GridAnnotationOptions | FrozenAnnotationOptions


@dataclass(frozen=True, kw_only=True)
class CaptionerOptions(Options):
    """An encoder of images with a decoder that attends to their regions."""

    encoder: AnnotationOptions = field(default_factory=GridAnnotationOptions)
    """The encoder of the image."""
    decoder: RecurrentDecoderOptions | TransformerDecoderOptions = field(
        default_factory=lambda: RecurrentDecoderOptions(variant="xu", cell="lstm")
    )
    """The decoder of the caption."""
    attention: AttentionOptions = field(default_factory=AttentionOptions)
    """The attention of the decoder to the regions; normalize = sample is hard attention, trained by REINFORCE."""
    double_weight: float = 0.0
    """λ of the doubly stochastic term, 1 in the paper: all words together shall cover every region equally."""
    reward_weight: float = 0.1
    """λ_r of hard attention (normalize = sample)."""
    entropy_weight: float = 0.002
    """λ_e of hard attention (normalize = sample)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_attention(self.decoder, self.attention)


_RECURRENT = {"variant": "xu", "cell": "lstm"}
ANNOTATION_PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "grid": {
        "tiny": {"hidden_dim": 32, "num_stages": 2, "stride": 2},
        "base": {"hidden_dim": 64, "num_stages": 2, "stride": 2},
        "xu": {"hidden_dim": 128, "num_stages": 4, "annotation_dim": 512, "dropout": 0.5},
    },
    "frozen": {"tiny": {}, "base": {}, "xu": {"annotation_dim": 512, "dropout": 0.5}},
}
"""Kind of encoder -> name -> options."""
CAPTION_DECODER_PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "recurrent": {
        "tiny": {**_RECURRENT, "embedding_dim": 32, "embedding_init_range": 1.7, "hidden_dim": 64},
        "base": {**_RECURRENT, "embedding_dim": 128, "hidden_dim": 256},
        "xu": {**_RECURRENT, "embedding_dim": 256, "hidden_dim": 512, "dropout": 0.5},
    },
    "transformer": {
        "tiny": {"model_dim": 64, "num_heads": 4, "hidden_dim": 128, "num_layers": 2, "norm": "pre"},
        "base": {
            "model_dim": 256,
            "num_heads": 8,
            "hidden_dim": 1024,
            "num_layers": 3,
            "norm": "pre",
            "dropout": 0.1,
        },
    },
}
"""Kind of decoder -> name -> options."""
_CAPTION_ATTENTION: Mapping[str, Mapping[str, Any]] = {
    "tiny": {"score": "additive", "sharpening": 5.0},
    "base": {"score": "additive"},
    "xu": {"score": "additive", "hidden_dim": 256},
}


def captioner_preset(name: str, encoder: str = "grid", decoder: str = "recurrent") -> dict[str, Any]:
    """Return the tables of a preset for an encoder and a decoder of these kinds.

    Example:
        >>> captioner_preset("base", "frozen")["encoder"]
        {'kind': 'frozen'}
    """
    encoders = from_preset("image encoder", ANNOTATION_PRESETS, encoder)
    decoders = from_preset("captioner's decoder", CAPTION_DECODER_PRESETS, decoder)
    tables: dict[str, Any] = {
        "decoder": {"kind": decoder, **from_preset(f"a {decoder} captioner", decoders, name)},
        "encoder": {"kind": encoder, **from_preset(f"the image encoder {encoder}", encoders, name)},
        "attention": dict(_CAPTION_ATTENTION[name]) if decoder == "recurrent" else {},
    }
    if decoder == "transformer" and "dropout" in tables["decoder"]:
        tables["encoder"]["dropout"] = tables["decoder"]["dropout"]
    if name == "xu":
        tables["double_weight"] = 1.0
    return tables
