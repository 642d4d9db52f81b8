"""Options of speech encoders and of the recognizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from foci.errors import ConfigError
from foci.layers.block_options import BlockOptions
from foci.models.options.attention import AttentionOptions
from foci.models.options.decoders import RecurrentDecoderOptions
from foci.models.options.seq2seq import check_attention
from foci.models.options.text_encoders import Cell
from foci.options import Options, from_preset


@dataclass(frozen=True, kw_only=True)
class _SpeechEncoderOptions(Options):
    """What the encoders without self-attention share."""

    hidden_dim: int = 256
    """Size of an encoded position, both directions of a recurrent encoder together."""
    subsampling_factor: int = 4
    """Frames per encoded position, a power of 2."""
    dropout: float = 0.0
    """Dropout of convolutions and between recurrent layers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        halvings(type(self).__name__, self.subsampling_factor)


@dataclass(frozen=True, kw_only=True)
class ConvolutionalSpeechEncoderOptions(_SpeechEncoderOptions):
    """Strided convolutions, then a bidirectional recurrent network."""

    kind: Literal["convolutional"] = "convolutional"
    """Strided convolutions and a recurrent network."""
    num_layers: int = 2
    """Number of recurrent layers."""
    cell: Cell = "gru"
    """Recurrent cell."""


@dataclass(frozen=True, kw_only=True)
class DilatedSpeechEncoderOptions(_SpeechEncoderOptions):
    """Strided convolutions, then dilated ones."""

    kind: Literal["dilated"] = "dilated"
    """Strided and dilated convolutions."""
    num_layers: int = 4
    """Number of dilated convolutions."""


@dataclass(frozen=True, kw_only=True)
class PyramidalSpeechEncoderOptions(_SpeechEncoderOptions):
    """Bidirectional recurrent layers between which every two positions become one."""

    kind: Literal["pyramidal"] = "pyramidal"
    """Recurrent layers that halve the positions."""
    num_layers: int = 3
    """Number of layers; the first reads all frames, and each halving needs one more."""
    cell: Cell = "lstm"
    """Recurrent cell."""

    def __post_init__(self) -> None:
        super().__post_init__()
        needed = halvings(type(self).__name__, self.subsampling_factor) + 1
        if self.num_layers < needed:
            raise ConfigError(
                f"{type(self).__name__}: num_layers is {self.num_layers} with a subsampling_factor of "
                f"{self.subsampling_factor}, expected at least {needed}: one that reads all frames and one for each "
                "halving."
            )


@dataclass(frozen=True, kw_only=True)
class TransformerSpeechEncoderOptions(BlockOptions):
    """Strided convolutions, then layers of self-attention."""

    kind: Literal["transformer"] = "transformer"
    """Strided convolutions and self-attention."""
    num_layers: int = 4
    """Number of layers of self-attention."""
    subsampling_factor: int = 4
    """Frames per encoded position, a power of 2."""

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        halvings(owner, self.subsampling_factor)
        if self.positions == "learned":
            raise ConfigError(
                f"{owner}: positions is 'learned', expected 'sinusoidal' or a kind of self-attention for speech."
            )


SpeechEncoderOptions = (
    ConvolutionalSpeechEncoderOptions
    | DilatedSpeechEncoderOptions
    | PyramidalSpeechEncoderOptions
    | TransformerSpeechEncoderOptions
)


@dataclass(frozen=True, kw_only=True)
class NoDecoderOptions(Options):
    """No decoder: CTC alone."""

    kind: Literal["none"] = "none"
    """No decoder."""


@dataclass(frozen=True, kw_only=True)
class RecognizerOptions(Options):
    """A speech encoder with a recurrent decoder, a CTC output, or both."""

    encoder: SpeechEncoderOptions = field(default_factory=ConvolutionalSpeechEncoderOptions)
    """The encoder of the frames."""
    decoder: RecurrentDecoderOptions | NoDecoderOptions = field(default_factory=RecurrentDecoderOptions)
    """The decoder of the tokens, or none."""
    attention: AttentionOptions = field(default_factory=AttentionOptions)
    """The attention of the decoder to the sound."""
    ctc: bool = True
    """Have a CTC output on the encoder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.decoder, NoDecoderOptions):
            check_attention(self.decoder, self.attention)
        elif not self.ctc:
            raise ConfigError("RecognizerOptions: there is neither a decoder nor CTC, expected at least one of them.")


def halvings(owner: str, subsampling_factor: int) -> int:
    """Return how often the number of positions is halved; raise unless the factor is a power of 2."""
    if subsampling_factor < 1 or subsampling_factor & (subsampling_factor - 1):
        raise ConfigError(f"{owner}: subsampling_factor is {subsampling_factor}, expected a power of 2: 1, 2, 4, 8.")
    return subsampling_factor.bit_length() - 1


def _sizes(hidden_dim: int, num_layers: int, dropout: float) -> dict[str, dict[str, Any]]:
    """Return the options of each kind of encoder of one size."""
    plain = {"hidden_dim": hidden_dim, "num_layers": num_layers, "dropout": dropout}
    block = {
        "model_dim": hidden_dim,
        "num_heads": 4,
        "hidden_dim": 4 * hidden_dim,
        "norm": "pre",
        "num_layers": num_layers,
        "dropout": dropout,
    }
    return {
        "convolutional": plain,
        "dilated": plain,
        "pyramidal": {**plain, "cell": "gru"},
        "transformer": block,
    }


_SPEECH_PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "tiny": _sizes(64, 4, 0.1),
    "small": _sizes(192, 2, 0.2),
    "base": _sizes(320, 3, 0.3),
    "chorowski": {"convolutional": {"hidden_dim": 512, "num_layers": 3, "subsampling_factor": 1}},
    "las": {"pyramidal": {"hidden_dim": 512, "num_layers": 4, "subsampling_factor": 8}},
}
SPEECH_ENCODER_PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    kind: {name: kinds[kind] for name, kinds in _SPEECH_PRESETS.items() if kind in kinds}
    for kind in ("convolutional", "dilated", "pyramidal", "transformer")
}
"""Kind of encoder -> name -> options."""


def _recognizer(
    encoder: str, decoder: dict[str, Any], attention: dict[str, Any], **others: Any
) -> Mapping[str, Mapping[str, Any] | bool | str]:
    recurrent = {"kind": "recurrent", "variant": "bahdanau", "embedding_dim": 64, **decoder}
    return {"encoder": encoder, "decoder": recurrent, "attention": attention, **others}


def _located(hidden_dim: int, kernel_size: int = 51) -> dict[str, Any]:
    return {"score": "location_aware", "hidden_dim": hidden_dim, "kernel_size": kernel_size}


RECOGNIZER_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "tiny": _recognizer("dilated", {"hidden_dim": 64, "embedding_dim": 32, "dropout": 0.1}, _located(48, 31)),
    "small": _recognizer("convolutional", {"hidden_dim": 192, "dropout": 0.2}, _located(128)),
    "base": _recognizer("convolutional", {"hidden_dim": 320, "embedding_dim": 96, "dropout": 0.3}, _located(192)),
    "chorowski": _recognizer("convolutional", {"hidden_dim": 256}, _located(512, 201), ctc=False),
    "las": _recognizer("pyramidal", {"hidden_dim": 512, "cell": "lstm"}, {"score": "general"}, ctc=False),
}
"""Name -> kind of the encoder, tables of decoder and attention, and ctc; see `recognizer_preset`."""


def recognizer_preset(name: str, encoder: str | None = None) -> dict[str, Any]:
    """Return the tables of a preset, with an encoder of this kind. Default: the preset's own.

    Example:
        >>> recognizer_preset("tiny")["encoder"]
        {'kind': 'dilated', 'hidden_dim': 64, 'num_layers': 4, 'dropout': 0.1}
    """
    tables = dict(from_preset("the recognizer", RECOGNIZER_PRESETS, name))
    kind = encoder or str(tables["encoder"])
    sizes = from_preset("speech encoder", SPEECH_ENCODER_PRESETS, kind)
    return {**tables, "encoder": {"kind": kind, **from_preset(f"a {kind} speech encoder", sizes, name)}}
