"""Options of the encoders of text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from foci.errors import ConfigError, check_sizes
from foci.layers.block_options import BlockOptions
from foci.options import Options

Cell = Literal["lstm", "gru"]
LayerSizes = tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class RecurrentTextEncoderOptions(Options):
    """An LSTM or GRU over tokens, in one direction or in both."""

    kind: Literal["recurrent"] = "recurrent"
    """An LSTM or GRU."""
    embedding_dim: int = 256
    """Size of the embeddings."""
    embedding_init_range: float = 0.1
    """The embeddings start uniform within ± this number. With few features (128) torch's recurrent layers learn faster
    from 0.9."""
    hidden_dim: int = 512
    """Size of an encoded position, both directions together."""
    num_layers: int = 1
    """Number of layers."""
    cell: Cell = "gru"
    """Recurrent cell."""
    bidirectional: bool = True
    """Encode in both directions."""
    dropout: float = 0.0
    """Dropout on embeddings and between layers."""


@dataclass(frozen=True, kw_only=True)
class ConvolutionalTextEncoderOptions(Options):
    """Gated convolutions over tokens, the encoder of ConvS2S."""

    kind: Literal["convolutional"] = "convolutional"
    """Gated convolutions."""
    embedding_dim: int = 256
    """Size of the embeddings and of an encoded position."""
    layers: LayerSizes = ((256, 3),) * 4
    """(width, kernel size) of each layer; the kernel sizes are odd."""
    max_length: int = 1024
    """Longest source in tokens."""
    dropout: float = 0.0
    """Dropout on embeddings and on the inputs of convolutions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        check_layers(owner, self.layers)
        for _, kernel_size in self.layers:
            if kernel_size % 2 == 0:
                raise ConfigError(f"{owner}: a kernel size is {kernel_size}, expected an odd number.")


@dataclass(frozen=True, kw_only=True)
class TransformerTextEncoderOptions(BlockOptions):
    """Layers of self-attention over tokens, the encoder of the Transformer."""

    kind: Literal["transformer"] = "transformer"
    """Layers of self-attention."""
    num_layers: int = 6
    """Number of layers."""
    max_length: int | None = None
    """Number of learned positions, for positions = learned."""
    scale_embeddings: bool = True
    """Multiply embeddings by sqrt(model_dim)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positions(type(self).__name__, self.positions, self.max_length)


@dataclass(frozen=True, kw_only=True)
class SmoothedTextEncoderOptions(Options):
    """Embeddings and their averages over neighboring positions, the encoder of ABS."""

    kind: Literal["smoothed"] = "smoothed"
    """Embeddings and their averages over neighbors."""
    embedding_dim: int = 200
    """Size of the embeddings and of an encoded position."""
    embedding_init_range: float = 0.1
    """The embeddings start uniform within ± this number."""
    smoothing: int = 2
    """Number of neighbors on each side whose embeddings are averaged, Q; 0 reads the embeddings themselves."""
    dropout: float = 0.0
    """Dropout on embeddings."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.smoothing < 0:
            raise ConfigError(f"{type(self).__name__}: smoothing is {self.smoothing}, expected 0 or more.")


TextEncoderOptions = (
    RecurrentTextEncoderOptions
    | ConvolutionalTextEncoderOptions
    | TransformerTextEncoderOptions
    | SmoothedTextEncoderOptions
)

WIDE_CONVOLUTIONS: LayerSizes = ((512, 3),) * 9 + ((1024, 3),) * 4 + ((2048, 1),) * 2
_RECURRENT_TINY = {"embedding_dim": 128, "hidden_dim": 256, "dropout": 0.2}
_LUONG = {
    "embedding_dim": 1000,
    "hidden_dim": 1000,
    "num_layers": 4,
    "cell": "lstm",
    "bidirectional": False,
    "dropout": 0.2,
}
TRANSFORMER_TINY = {"model_dim": 128, "num_heads": 4, "hidden_dim": 256, "num_layers": 4, "dropout": 0.3}
_CONVOLUTIONAL_TINY = {"embedding_dim": 128, "layers": ((128, 3),) * 4, "dropout": 0.2}
_SMOOTHED_TINY = {"embedding_dim": 128, "dropout": 0.2}

TEXT_ENCODER_PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "recurrent": {
        "tiny": _RECURRENT_TINY,
        "sutskever": {**_LUONG, "dropout": 0.0},
        "cho": {"embedding_dim": 100, "hidden_dim": 1000, "bidirectional": False},
        "rnnsearch": {"embedding_dim": 620, "hidden_dim": 2000},
        "luong": _LUONG,
        "luong_local": _LUONG,
        "pointer": _RECURRENT_TINY,
        "see": {"embedding_dim": 128, "hidden_dim": 512, "cell": "lstm"},
    },
    "convolutional": {
        "tiny": _CONVOLUTIONAL_TINY,
        "small": {"embedding_dim": 256, "layers": ((256, 3),) * 4, "dropout": 0.2},
        "base": {"embedding_dim": 512, "layers": ((512, 3),) * 20, "dropout": 0.2},
        "wmt_en_de": {"embedding_dim": 768, "layers": WIDE_CONVOLUTIONS, "dropout": 0.2},
        "pointer": _CONVOLUTIONAL_TINY,
    },
    "transformer": {"tiny": TRANSFORMER_TINY, "base": {"dropout": 0.1}, "pointer": TRANSFORMER_TINY},
    "smoothed": {"tiny": _SMOOTHED_TINY, "paper": {"embedding_dim": 400}, "pointer": _SMOOTHED_TINY},
}
"""Kind of encoder -> name -> options. `base` has the paper's sizes, of ConvS2S those for English-Romanian; `wmt_en_de`
those of the authors' program; `tiny` is for some ten thousand examples."""


def check_layers(owner: str, layers: LayerSizes) -> None:
    """Raise unless there is one ``(width, kernel size)`` at least, and all are above 0."""
    if not layers:
        raise ConfigError(f"{owner}: layers is empty, expected one (width, kernel size) at least.")
    for width, kernel_size in layers:
        check_sizes(owner, width=width, kernel_size=kernel_size)


def check_positions(owner: str, positions: str, max_length: int | None) -> None:
    """Raise if there is a ``max_length`` without learned positions, which alone are a table."""
    if positions != "learned" and max_length is not None:
        raise ConfigError(
            f"{owner}: positions is {positions!r} and max_length is {max_length}, expected a max_length for learned "
            "positions alone, which are a table. Leave it out."
        )
