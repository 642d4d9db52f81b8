"""Encoders, decoders and sequence models by their options: any encoder with any decoder with any attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from foci.errors import ConfigError
from foci.layers.interfaces import Decoder, Encoder
from foci.models.decoders.convolutional import ConvolutionalDecoder
from foci.models.decoders.feed_forward import FeedForwardDecoder
from foci.models.decoders.history import HistoryDecoder
from foci.models.decoders.recurrent import recurrent_decoder
from foci.models.decoders.transformer import TransformerDecoder
from foci.models.encoder_decoder import EncoderDecoder, check_one_vocabulary
from foci.models.encoders.convolutional import ConvolutionalTextEncoder
from foci.models.encoders.recurrent import RecurrentTextEncoder
from foci.models.encoders.smoothed import SmoothedTextEncoder
from foci.models.encoders.transformer import TransformerTextEncoder
from foci.models.options.attention import AttentionOptions
from foci.models.options.decoders import (
    ConvolutionalDecoderOptions,
    DecoderOptions,
    FeedForwardDecoderOptions,
    HistoryDecoderOptions,
    RecurrentDecoderOptions,
    TransformerDecoderOptions,
)
from foci.models.options.seq2seq import Seq2SeqOptions, check_attention
from foci.models.options.text_encoders import (
    ConvolutionalTextEncoderOptions,
    RecurrentTextEncoderOptions,
    SmoothedTextEncoderOptions,
    TextEncoderOptions,
    TransformerTextEncoderOptions,
)


def build_text_encoder(vocabulary: int, options: TextEncoderOptions, *, num_readers: int = 1) -> Encoder:
    """Return a new encoder of text.

    Args:
        vocabulary: number of source tokens.
        options: sizes and options; their class says which encoder.
        num_readers: number of decoder layers that attend to the source, by which a convolutional encoder divides their
            gradient.

    Example:
        >>> build_text_encoder(11, SmoothedTextEncoderOptions(embedding_dim=3)).output_dim
        3
    """
    match options:
        case RecurrentTextEncoderOptions():
            return RecurrentTextEncoder(vocabulary, options)
        case ConvolutionalTextEncoderOptions():
            return ConvolutionalTextEncoder(vocabulary, options, num_readers=num_readers)
        case TransformerTextEncoderOptions():
            return TransformerTextEncoder(vocabulary, options)
        case SmoothedTextEncoderOptions():
            return SmoothedTextEncoder(vocabulary, options)


def build_decoder(
    vocabulary: int,
    source_dim: int | None,
    options: DecoderOptions | HistoryDecoderOptions,
    attention: AttentionOptions | None = None,
) -> Decoder:
    """Return a new decoder.

    Args:
        vocabulary: number of target tokens.
        source_dim: size of the source's positions; None for a language model.
        options: sizes and options; their class says which decoder.
        attention: the attention to the source. Default: that of the decoder.

    Example:
        >>> build_decoder(13, 4, FeedForwardDecoderOptions(embedding_dim=3, context_size=2)).source_dim
        4
    """
    attention = AttentionOptions() if attention is None else attention
    check_attention(options, attention)
    match options:
        case RecurrentDecoderOptions():
            return recurrent_decoder(vocabulary, source_dim, options, attention)
        case ConvolutionalDecoderOptions():
            return ConvolutionalDecoder(vocabulary, source_dim, options)
        case TransformerDecoderOptions():
            return TransformerDecoder(vocabulary, source_dim, options, attention)
        case FeedForwardDecoderOptions() if source_dim is not None:
            return FeedForwardDecoder(vocabulary, source_dim, options, attention)
        case HistoryDecoderOptions() if source_dim is None:
            return HistoryDecoder(vocabulary, options)
    raise ConfigError(
        f"build_decoder: kind is {options.kind!r} and source_dim is {source_dim}, expected a source for a feed-forward "
        "decoder and none for a decoder with a history."
    )


def build_seq2seq(source_vocabulary: int, target_vocabulary: int, options: Seq2SeqOptions) -> EncoderDecoder:
    """Return a new encoder of text with a decoder.

    Args:
        source_vocabulary: number of source tokens.
        target_vocabulary: number of target tokens.
        options: encoder, decoder, attention, and whether both share their embeddings.

    Example:
        >>> import torch
        >>> encoder = ConvolutionalTextEncoderOptions(embedding_dim=4, layers=((5, 3),))
        >>> decoder = RecurrentDecoderOptions(embedding_dim=3, hidden_dim=6)
        >>> attention = AttentionOptions(focus="local_p", radius=2)
        >>> model = build_seq2seq(11, 13, Seq2SeqOptions(encoder=encoder, decoder=decoder, attention=attention))
        >>> source = torch.tensor([[5, 6, 7]])
        >>> model(source, source > 0, torch.tensor([[1, 4]])).logits.shape
        torch.Size([1, 2, 13])
    """
    decoder_options = _fitted(options)
    if options.share_embeddings:
        check_one_vocabulary("build_seq2seq", source_vocabulary, target_vocabulary)
    encoder = build_text_encoder(source_vocabulary, options.encoder, num_readers=_num_readers(decoder_options))
    decoder = build_decoder(target_vocabulary, encoder.output_dim, decoder_options, options.attention)
    model = EncoderDecoder(encoder, decoder)
    if options.share_embeddings:
        reading, producing = cast("Any", encoder), cast("Any", decoder)
        if isinstance(encoder, TransformerTextEncoder):
            reading.embedding.table = producing.embedding.table
        else:
            reading.embedding = producing.embedding
    return model


def _fitted(options: Seq2SeqOptions) -> DecoderOptions:
    """Return the decoder's options with what follows from the encoder's."""
    encoder, decoder = options.encoder, options.decoder
    if options.share_embeddings and isinstance(decoder, RecurrentDecoderOptions | ConvolutionalDecoderOptions):
        decoder = replace(decoder, tie_output=True)
    if isinstance(decoder, RecurrentDecoderOptions) and decoder.copy_state is None:
        fits = (
            isinstance(encoder, RecurrentTextEncoderOptions)
            and not encoder.bidirectional
            and (encoder.cell, encoder.num_layers, encoder.hidden_dim)
            == (decoder.cell, decoder.num_layers, decoder.hidden_dim)
        )
        decoder = replace(decoder, copy_state=fits and decoder.variant in (None, "sutskever", "luong"))
    return decoder


def _num_readers(decoder: DecoderOptions) -> int:
    if isinstance(decoder, ConvolutionalDecoderOptions):
        return len(decoder.layers)
    return decoder.num_layers if isinstance(decoder, TransformerDecoderOptions) else 1
