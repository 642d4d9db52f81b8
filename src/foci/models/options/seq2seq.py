"""Options of an encoder of text with a decoder: any of one with any of the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from foci.errors import ConfigError, unknown_name
from foci.layers.several_heads import HEAD_OPTIONS
from foci.models.options.attention import HEAD_SCORES, AttentionOptions
from foci.models.options.decoders import (
    ATTENTION_PRESETS,
    DECODER_PRESETS,
    ConvolutionalDecoderOptions,
    DecoderOptions,
    FeedForwardDecoderOptions,
    HistoryDecoderOptions,
    RecurrentDecoderOptions,
    TransformerDecoderOptions,
)
from foci.models.options.text_encoders import TEXT_ENCODER_PRESETS, RecurrentTextEncoderOptions, TextEncoderOptions
from foci.options import Options, check_default

SEQ2SEQ_KINDS: Mapping[str, tuple[str, str]] = {
    "rnn": ("recurrent", "recurrent"),
    "transformer": ("transformer", "transformer"),
    "conv": ("convolutional", "convolutional"),
    "abs": ("smoothed", "feed_forward"),
}
"""Name of a model -> kinds of its encoder and decoder."""


@dataclass(frozen=True, kw_only=True)
class Seq2SeqOptions(Options):
    """An encoder of text, a decoder, and the attention of the decoder to the text."""

    encoder: TextEncoderOptions = field(default_factory=RecurrentTextEncoderOptions)
    """The encoder of the source."""
    decoder: DecoderOptions = field(default_factory=RecurrentDecoderOptions)
    """The decoder of the target."""
    attention: AttentionOptions = field(default_factory=AttentionOptions)
    """The attention of the decoder to the source."""
    share_embeddings: bool = False
    """One table of embeddings for source and target, and for a recurrent or convolutional decoder also for the output
    layer; needs one vocabulary, and encoder and decoder of one kind."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_attention(self.decoder, self.attention)
        encoder, decoder = self.encoder, self.decoder
        for part in (encoder, decoder):
            if getattr(part, "positions", "") == "learned" and getattr(part, "max_length", None) is None:
                raise ConfigError(f"{type(part).__name__}: learned positions are a table and need max_length.")
        if isinstance(decoder, ConvolutionalDecoderOptions) and decoder.embedding_dim not in (
            None,
            output_dim(encoder),
        ):
            raise ConfigError(
                f"Seq2SeqOptions: decoder.embedding_dim is {decoder.embedding_dim} and the encoder's positions have "
                f"size {output_dim(encoder)}, expected the same for a convolutional decoder. Leave it out."
            )
        if self.share_embeddings and encoder.kind != decoder.kind:
            raise ConfigError(
                f"Seq2SeqOptions: share_embeddings with encoder.kind {encoder.kind!r} and decoder.kind "
                f"{decoder.kind!r}, expected one kind for both, whose tables of embeddings are alike."
            )
        if self.share_embeddings and _embedding_dim(encoder) != (_embedding_dim(decoder) or output_dim(encoder)):
            raise ConfigError(
                f"Seq2SeqOptions: share_embeddings with embeddings of size {_embedding_dim(encoder)} in the encoder "
                f"and {_embedding_dim(decoder)} in the decoder, expected the same."
            )


def output_dim(encoder: TextEncoderOptions) -> int:
    """Return the size of an encoded position."""
    if isinstance(encoder, RecurrentTextEncoderOptions):
        return encoder.hidden_dim
    return _embedding_dim(encoder) or 0


def _embedding_dim(part: Any) -> int | None:
    size: int | None = part.model_dim if part.kind == "transformer" else part.embedding_dim
    return size


def check_attention(decoder: DecoderOptions | HistoryDecoderOptions, attention: AttentionOptions) -> None:
    """Raise unless the attention fits the decoder; what would have no effect is refused."""
    owner, names = type(decoder).__name__, list(vars(attention))
    if attention.sink is not None and getattr(decoder, "copy", False):
        raise ConfigError(
            f"{owner}: copy is True with attention.sink {attention.sink!r}, expected no sink: words are copied by "
            "weights that sum to 1."
        )
    if isinstance(decoder, RecurrentDecoderOptions):
        if decoder.variant in ("sutskever", "cho"):
            check_default(owner, attention, *names, reason=f"The variant {decoder.variant!r} has no attention.")
        elif attention.num_heads is None:
            check_default(owner, attention, *HEAD_OPTIONS, reason="One head has none of it. Set attention.num_heads.")
        elif decoder.coverage:
            raise ConfigError(f"{owner}: coverage is True with num_heads {attention.num_heads}, expected one head.")
    elif isinstance(decoder, FeedForwardDecoderOptions):
        usual = {"score", "normalize", "sharpening", "hidden_dim", "max_length", *attention.own_parts}
        remembered = [name for name in names if name not in usual]
        check_default(owner, attention, *remembered, reason="A feed-forward decoder reads all positions, by one head.")
        if attention.score == "location_aware":
            raise ConfigError(f"{owner}: attention.score is 'location_aware', expected one that remembers nothing.")
    elif isinstance(decoder, TransformerDecoderOptions):
        others = [name for name in names if name not in ("score", "normalize", *attention.own_parts, *HEAD_OPTIONS)]
        check_default(owner, attention, *others, reason="A Transformer's decoder reads all positions by its own heads.")
        if not attention.has_head_score:
            raise ConfigError(
                f"{owner}: attention.score is {attention.score!r}, expected a score of several heads: "
                f"{', '.join(HEAD_SCORES)}."
            )
        attention.check_heads(decoder.model_dim, decoder.num_heads)
    else:
        check_default(
            owner, attention, *names, reason=f"A decoder of kind {decoder.kind!r} has an attention of its own."
        )


def seq2seq_preset(name: str, encoder: str, decoder: str) -> dict[str, Any]:
    """Return the tables of a preset for an encoder and a decoder of these kinds.

    Example:
        >>> seq2seq_preset("tiny", "smoothed", "feed_forward")["encoder"]
        {'kind': 'smoothed', 'embedding_dim': 128, 'dropout': 0.2}
    """
    for what, kind, known in (("encoder", encoder, TEXT_ENCODER_PRESETS), ("decoder", decoder, DECODER_PRESETS)):
        if kind not in known:
            raise unknown_name(f"{what}", kind, known)
    encoders, decoders = TEXT_ENCODER_PRESETS[encoder], DECODER_PRESETS[decoder]
    if name not in encoders or name not in decoders:
        both = [known for known in encoders if known in decoders]
        raise unknown_name(f"preset of a {encoder} encoder with a {decoder} decoder", name, both)
    tables: dict[str, Any] = {
        "encoder": {"kind": encoder, **encoders[name]},
        "decoder": {"kind": decoder, **decoders[name]},
        "attention": dict(ATTENTION_PRESETS.get(decoder, {}).get(name, {})),
    }
    if name == "pointer" and encoder == decoder:
        tables["share_embeddings"] = True
    return tables
