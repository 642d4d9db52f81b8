"""Options of the decoders, with a source or, as language models, without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from foci.errors import ConfigError, check_sizes
from foci.layers.block_options import BlockOptions
from foci.models.options.text_encoders import (
    TRANSFORMER_TINY,
    WIDE_CONVOLUTIONS,
    Cell,
    LayerSizes,
    check_layers,
    check_positions,
)
from foci.options import Options

Variant = Literal["sutskever", "cho", "bahdanau", "luong", "xu"]
ATTENDING = ("bahdanau", "luong", "xu")
"""The variants of the recurrent decoder that have attention."""


@dataclass(frozen=True, kw_only=True)
class RecurrentDecoderOptions(Options):
    """An LSTM or GRU that predicts a target, with attention to a source or without."""

    kind: Literal["recurrent"] = "recurrent"
    """An LSTM or GRU."""
    variant: Variant | None = None
    """How the source is used: sutskever and cho (its summary alone), bahdanau (attention before the recurrent step), xu
    (the same, with a gate on what was read), luong (attention after the step). Default: luong with a source, sutskever
    without."""
    embedding_dim: int = 256
    """Size of the embeddings."""
    embedding_init_range: float = 0.1
    """The embeddings start uniform within ± this number. With few features (128) torch's recurrent layers learn faster
    from 0.9."""
    hidden_dim: int = 512
    """Size of the recurrent state."""
    readout_dim: int | None = None
    """Size of the output layer's input. Default: hidden_dim, or embedding_dim with tie_output and for xu."""
    num_layers: int = 1
    """Number of recurrent layers."""
    cell: Cell = "gru"
    """Recurrent cell."""
    copy_state: bool | None = None
    """Start from the source's summary itself, which must have the decoder's cell, layers and size; otherwise a layer
    maps it to the first state. Default: where an encoder in one direction fits, for sutskever and luong."""
    input_feeding: bool = True
    """Luong's: the attention output of a step is an input of the next one. Without it (and without coverage) teacher
    forcing computes all steps at once."""
    coverage: bool = False
    """Add the sum of the previous weights to the keys (See 2017)."""
    copy: bool = False
    """Also produce words of the source by the attention to them (See 2017)."""
    dropout: float = 0.0
    """Dropout on embeddings, between layers, and before the output layer."""
    tie_output: bool = False
    """Use the embedding table also as the matrix before the softmax."""

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        if self.tie_output and self.readout_dim not in (None, self.embedding_dim):
            raise ConfigError(
                f"{owner}: the output is tied with readout_dim {self.readout_dim} and embedding_dim "
                f"{self.embedding_dim}, expected the same. Leave readout_dim out."
            )
        if self.variant == "xu" and self.readout_dim not in (None, self.embedding_dim):
            raise ConfigError(
                f"{owner}: variant is 'xu' with readout_dim {self.readout_dim} and embedding_dim {self.embedding_dim}, "
                "expected the same, since the embedding is added to the readout. Leave readout_dim out."
            )
        if self.variant in ("sutskever", "cho") and (self.coverage or self.copy):
            name = "coverage" if self.coverage else "copy"
            raise ConfigError(
                f"{owner}: {name} is True with variant {self.variant!r}, expected a variant with attention: "
                f"{', '.join(ATTENDING)}."
            )


@dataclass(frozen=True, kw_only=True)
class ConvolutionalDecoderOptions(Options):
    """Causal gated convolutions with attention to the source in every layer, the decoder of ConvS2S."""

    kind: Literal["convolutional"] = "convolutional"
    """Causal gated convolutions."""
    embedding_dim: int | None = None
    """Size of the embeddings, and of the keys and values of attention. Default: the size of the source's positions, 256
    without a source."""
    layers: LayerSizes = ((256, 3),) * 3
    """(width, kernel size) of each layer."""
    max_length: int = 1024
    """Longest target in tokens."""
    copy: bool = False
    """Also produce words of the source by the last layer's attention to them (See 2017)."""
    dropout: float = 0.0
    """Dropout on embeddings, on the inputs of convolutions, and before the output layer."""
    tie_output: bool = False
    """Use the embedding table also as the matrix before the softmax."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layers(type(self).__name__, self.layers)


@dataclass(frozen=True, kw_only=True)
class TransformerDecoderOptions(BlockOptions):
    """Layers of causal self-attention, each with attention to the source, the decoder of the Transformer."""

    kind: Literal["transformer"] = "transformer"
    """Layers of causal self-attention."""
    num_layers: int = 6
    """Number of layers."""
    max_length: int | None = None
    """Number of learned positions, for positions = learned."""
    scale_embeddings: bool = True
    """Multiply embeddings by sqrt(model_dim)."""
    tie_output: bool = True
    """Use the embedding table also as the matrix before the softmax."""
    logit_cap: float | None = None
    """Keep the logits between −logit_cap and logit_cap by a tanh. Default: no bound."""
    copy: bool = False
    """Also produce words of the source by the first head of the last layer's attention to them (See 2017)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        check_positions(owner, self.positions, self.max_length)
        if self.focus is not None:
            raise ConfigError(
                f"{owner}: focus is {self.focus!r}, expected it to be left out: a decoder keeps its past as projected "
                "keys, which a focus of one's own does not read. Set window, positions, score or normalize, or the "
                "focus of the attention to the source."
            )
        if self.window is not None and self.window[1] != 0:
            raise ConfigError(
                f"{owner}: window is {self.window}, expected ({self.window[0]}, 0): a decoder reads no later positions."
            )


@dataclass(frozen=True, kw_only=True)
class FeedForwardDecoderOptions(Options):
    """A feed-forward language model over the last words with attention to the source, the decoder of ABS."""

    kind: Literal["feed_forward"] = "feed_forward"
    """A feed-forward network over the last words."""
    embedding_dim: int = 200
    """Size of the embeddings."""
    embedding_init_range: float = 0.1
    """The embeddings start uniform within ± this number."""
    hidden_dim: int = 400
    """Size of the hidden layer."""
    context_size: int = 5
    """Number of produced words that are read, C."""
    copy: bool = False
    """Also produce words of the source by the attention to them (See 2017)."""
    dropout: float = 0.0
    """Dropout on embeddings and before the output layer."""


@dataclass(frozen=True, kw_only=True)
class HistoryDecoderOptions(Options):
    """An LSTM language model with attention over its own history."""

    kind: Literal["history"] = "history"
    """An LSTM with attention over its own history."""
    embedding_dim: int = 256
    """Size of the embeddings."""
    hidden_dim: int = 513
    """Size of the recurrent state, which split divides."""
    num_layers: int = 1
    """Number of recurrent layers."""
    span: int = 15
    """Number of earlier tokens that are read."""
    split: Literal[1, 2, 3] = 3
    """Parts of the LSTM's output: 3 for key, value and prediction, 2 for a key and the rest, 1 for one vector that is
    all of them."""
    dropout: float = 0.0
    """Dropout on embeddings, between layers, and before the output layer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        check_sizes(owner, span=self.span)
        if self.hidden_dim % self.split:
            raise ConfigError(
                f"{owner}: split is {self.split} and hidden_dim is {self.hidden_dim}, expected a split that divides "
                "hidden_dim."
            )


DecoderOptions = (
    RecurrentDecoderOptions | ConvolutionalDecoderOptions | TransformerDecoderOptions | FeedForwardDecoderOptions
)
LanguageModelOptions = TransformerDecoderOptions | RecurrentDecoderOptions | HistoryDecoderOptions

_RECURRENT_TINY = {"embedding_dim": 128, "hidden_dim": 256, "dropout": 0.2}
_LUONG = {"embedding_dim": 1000, "hidden_dim": 1000, "num_layers": 4, "cell": "lstm", "dropout": 0.2}
_CONVOLUTIONAL_TINY = {"layers": ((128, 3),) * 3, "dropout": 0.2}
_FEED_FORWARD_TINY = {"embedding_dim": 64, "hidden_dim": 64, "dropout": 0.2}
_POINTER = {"copy": True}

DECODER_PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "recurrent": {
        "tiny": _RECURRENT_TINY,
        "sutskever": {**_LUONG, "dropout": 0.0, "variant": "sutskever"},
        "cho": {"embedding_dim": 100, "hidden_dim": 1000, "readout_dim": 500, "variant": "cho"},
        "rnnsearch": {"embedding_dim": 620, "hidden_dim": 1000, "readout_dim": 500, "variant": "bahdanau"},
        "luong": _LUONG,
        "luong_local": _LUONG,
        "pointer": {**_RECURRENT_TINY, **_POINTER},
        "see": {"embedding_dim": 128, "hidden_dim": 256, "cell": "lstm", "coverage": True, **_POINTER},
    },
    "convolutional": {
        "tiny": _CONVOLUTIONAL_TINY,
        "small": {"layers": ((256, 3),) * 3, "dropout": 0.2},
        "base": {"layers": ((512, 3),) * 20, "dropout": 0.2},
        "wmt_en_de": {"layers": WIDE_CONVOLUTIONS, "dropout": 0.2},
        "pointer": {**_CONVOLUTIONAL_TINY, **_POINTER},
    },
    "transformer": {
        "tiny": TRANSFORMER_TINY,
        "base": {"dropout": 0.1},
        "pointer": {**TRANSFORMER_TINY, **_POINTER},
    },
    "feed_forward": {"tiny": _FEED_FORWARD_TINY, "paper": {}, "pointer": {**_FEED_FORWARD_TINY, **_POINTER}},
}
"""Kind of decoder -> name -> options; see `foci.models.options.text_encoders.TEXT_ENCODER_PRESETS`."""

ATTENTION_PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "recurrent": {
        "rnnsearch": {"score": "additive", "hidden_dim": 1000},
        "luong_local": {"focus": "local_p", "radius": 10},
        "pointer": {"score": "additive"},
        "see": {"score": "additive", "hidden_dim": 512},
    },
}
"""Kind of decoder -> name -> options of its attention; a name that is not here has the defaults."""

_MODERN = {
    "positions": "rotary",
    "norm": "pre",
    "qk_norm": True,
    "activation": "relu2",
    "bias": False,
    "zero_residual": True,
    "tie_output": False,
    "scale_embeddings": False,
}
_TINY = {"model_dim": 128, "num_heads": 4, "hidden_dim": 512, "num_layers": 4}

LANGUAGE_MODEL_PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "transformer": {
        "tiny": {**_MODERN, **_TINY},
        "small": {**_MODERN, "model_dim": 256, "num_heads": 4, "hidden_dim": 1024, "num_layers": 6},
        "gpt2": {**_TINY, "positions": "learned", "norm": "pre", "activation": "gelu", "scale_embeddings": False},
    },
    "recurrent": {
        "tiny": {"embedding_dim": 64, "hidden_dim": 256, "cell": "lstm"},
        "small": {"embedding_dim": 128, "hidden_dim": 512, "num_layers": 2, "cell": "lstm"},
    },
    "history": {
        "tiny": {"embedding_dim": 64, "hidden_dim": 258},
        "small": {"embedding_dim": 128, "hidden_dim": 516, "num_layers": 2},
    },
}
"""Kind of decoder -> name -> options; `gpt2` has the blocks of GPT-2 (Radford et al., 2019) at the size of `tiny`, and
`history` is about as large as the LSTM of the same name."""
