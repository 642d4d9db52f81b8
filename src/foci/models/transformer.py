"""The Transformer: sequence to sequence with attention alone.

    memory = encoder(dropout(sqrt(D) E[source] + PE))
    P(y_t | y_<t, source) = softmax(decoder(dropout(sqrt(D) E[y_<t] + PE), memory)_t Eᵀ)

Paper: Attention Is All You Need (Vaswani et al., 2017), sections 3 and 5.4, table 3
Names: N = num_layers, d_model = model_dim, h = num_heads, d_ff = hidden_dim, P_drop = dropout, E = embedding.table
Complexity: O(N · (S² + T · S + T²) · D + N · (S + T) · D · (D + d_ff) + T · D · V)
Differs: with norm="pre" each stack ends in one more LayerNorm; dropout of attention weights, GELU, other
    positions, scores and normalizers, and sliding windows are options. The linear map before the softmax has no bias,
    as in the paper.
"""

from __future__ import annotations

from typing import Any

from foci.errors import ConfigError
from foci.models.build import build_seq2seq
from foci.models.decoders.transformer import TransformerDecoder
from foci.models.encoder_decoder import EncoderDecoder
from foci.models.encoders.transformer import TransformerTextEncoder
from foci.models.options.attention import AttentionOptions
from foci.models.options.decoders import TransformerDecoderOptions
from foci.models.options.seq2seq import Seq2SeqOptions
from foci.models.options.text_encoders import TransformerTextEncoderOptions

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"model_dim": 128, "num_heads": 4, "hidden_dim": 256, "num_layers": 4, "dropout": 0.3},
    "base": {"model_dim": 512, "num_heads": 8, "hidden_dim": 2048, "num_layers": 6, "dropout": 0.1},
}
"""Sizes by name: `base` is the paper's; `tiny` is for some ten thousand sentence pairs."""


class Transformer(EncoderDecoder):
    """The encoder and decoder of 2017, trained with `forward`, decoded with `start` and `step`.

    Args:
        source_vocabulary: number of source tokens.
        target_vocabulary: number of target tokens.
        model_dim: size of every position.
        num_heads: heads of every attention.
        hidden_dim: inner size of the feed-forward networks.
        num_layers: layers of the encoder, and of the decoder unless ``num_decoder_layers`` says otherwise.
        num_decoder_layers: layers of the decoder.
        norm: "post" (2017) or "pre".
        dropout: of embeddings and of every sublayer's output.
        attention_dropout: of the attention weights.
        feed_forward_dropout: inside the feed-forward networks.
        activation: "relu" or "gelu".
        positions: "sinusoidal", "learned", "rotary" or "alibi".
        max_length: the number of learned positions.
        scale_embeddings: multiply embeddings by sqrt(model_dim).
        share_embeddings: one table for source and target; the vocabularies must be one.
        tie_output: the target's table is also the matrix before the softmax.
        score: of every attention: "scaled_dot", "dot" or "cosine".
        normalize: of every attention: "softmax", "sparsemax", "entmax15", …
        focus: the positions that self-attention covers: "global", all; or "sliding_window", those around each one.
        radius: number of positions of a sliding window on each side; in the decoder only those before.
        copy: also produce words of the source by the first head of the last layer's attention to them; see
            `foci.layers.copying`.

    `PRESETS` holds sizes by name: ``Transformer(8000, 8000, **PRESETS["tiny"])``.

    Example:
        >>> import torch
        >>> model = Transformer(11, 13, model_dim=8, num_heads=2, hidden_dim=16, num_layers=2)
        >>> source = torch.tensor([[5, 6, 7]])
        >>> predicted = model(source, source > 0, torch.tensor([[1, 4]]))
        >>> predicted.logits.shape, predicted.attentions["decoder.1.cross"].shape
        (torch.Size([1, 2, 13]), torch.Size([1, 2, 2, 3]))
    """

    encoder: TransformerTextEncoder
    decoder: TransformerDecoder

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        *,
        model_dim: int = 512,
        num_heads: int = 8,
        hidden_dim: int = 2048,
        num_layers: int = 6,
        num_decoder_layers: int | None = None,
        norm: str = "post",
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        feed_forward_dropout: float = 0.0,
        activation: str = "relu",
        positions: str = "sinusoidal",
        max_length: int | None = None,
        scale_embeddings: bool = True,
        share_embeddings: bool = False,
        tie_output: bool = True,
        score: Any = "scaled_dot",
        normalize: Any = "softmax",
        focus: str = "global",
        radius: int | None = None,
        copy: bool = False,
    ) -> None:
        if (focus == "sliding_window") != (radius is not None):
            raise ConfigError(
                f"Transformer: focus is {focus!r} and radius is {radius}, expected a radius for 'sliding_window' and "
                "for it alone."
            )
        block: dict[str, Any] = {
            "model_dim": model_dim,
            "num_heads": num_heads,
            "hidden_dim": hidden_dim,
            "norm": norm,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "feed_forward_dropout": feed_forward_dropout,
            "activation": activation,
            "score": score,
            "normalize": normalize,
            "positions": positions,
            "max_length": max_length,
            "scale_embeddings": scale_embeddings,
        }
        options = Seq2SeqOptions(
            encoder=TransformerTextEncoderOptions(
                num_layers=num_layers, window=None if radius is None else (radius, radius), **block
            ),
            decoder=TransformerDecoderOptions(
                num_layers=num_layers if num_decoder_layers is None else num_decoder_layers,
                window=None if radius is None else (radius, 0),
                tie_output=tie_output,
                copy=copy,
                **block,
            ),
            attention=AttentionOptions(score=score, normalize=normalize),
            share_embeddings=share_embeddings,
        )
        built = build_seq2seq(source_vocabulary, target_vocabulary, options)
        super().__init__(built.encoder, built.decoder)
