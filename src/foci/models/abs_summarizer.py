"""ABS, attention-based summarization: a smoothed bag of embeddings, read by a feed-forward language model.

    x̃, x̄ = encoder(source),   p(y_{i+1} | y_c, x) as in `foci.models.decoders.feed_forward`

Paper: A Neural Attention Model for Abstractive Sentence Summarization (Rush, Chopra, Weston, 2015)
Names: x̃ = encoded.keys, x̄ = encoded.values
Complexity: O(S · Q · H + T · (C · D · H + S · H + H · V)), all positions at once
Differs: as in `foci.models.encoders.smoothed` and `foci.models.decoders.feed_forward`; copying is an option.
"""

from __future__ import annotations

from typing import Any

from foci.models.build import build_seq2seq
from foci.models.encoder_decoder import EncoderDecoder
from foci.models.options.attention import AttentionOptions
from foci.models.options.decoders import FeedForwardDecoderOptions
from foci.models.options.seq2seq import Seq2SeqOptions
from foci.models.options.text_encoders import SmoothedTextEncoderOptions

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 64, "hidden_dim": 64, "source_dim": 128, "window": 5, "smoothing": 2, "dropout": 0.2},
    "paper": {"embedding_dim": 200, "hidden_dim": 400, "source_dim": 400, "window": 5, "smoothing": 2},
}
"""Sizes by name: `paper` has those of section 6; `tiny` is for some ten thousand texts."""


class AttentionBasedSummarizer(EncoderDecoder):
    """The attention-based encoder with the feed-forward language model of 2015.

    Args:
        source_vocabulary: number of source tokens.
        target_vocabulary: number of target tokens.
        embedding_dim: size of the target's embeddings.
        hidden_dim: size of the language model's hidden layer.
        source_dim: size of the source's embeddings.
        window: number of produced words that are read, C.
        smoothing: number of neighbors on each side of a source word whose embeddings are averaged, Q.
        score, normalize: of the attention, as in `foci.Attention`.
        copy: also produce words of the source by the attention to them; see `foci.layers.copying`.
        dropout: on embeddings and before the output layer.
        embedding_bound: the embeddings begin uniform within ± this.

    Example:
        >>> import torch
        >>> model = AttentionBasedSummarizer(11, 13, embedding_dim=3, hidden_dim=5, source_dim=7)
        >>> source = torch.tensor([[5, 6, 7]])
        >>> model(source, source > 0, torch.tensor([[1, 4]])).logits.shape
        torch.Size([1, 2, 13])
    """

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        *,
        embedding_dim: int = 200,
        hidden_dim: int = 400,
        source_dim: int = 400,
        window: int = 5,
        smoothing: int = 2,
        score: Any = "general",
        normalize: Any = "softmax",
        copy: bool = False,
        dropout: float = 0.0,
        embedding_bound: float = 0.1,
    ) -> None:
        options = Seq2SeqOptions(
            encoder=SmoothedTextEncoderOptions(
                embedding_dim=source_dim, smoothing=smoothing, dropout=dropout, embedding_init_range=embedding_bound
            ),
            decoder=FeedForwardDecoderOptions(
                embedding_dim=embedding_dim,
                embedding_init_range=embedding_bound,
                hidden_dim=hidden_dim,
                context_size=window,
                copy=copy,
                dropout=dropout,
            ),
            attention=AttentionOptions(score=score, normalize=normalize),
        )
        built = build_seq2seq(source_vocabulary, target_vocabulary, options)
        super().__init__(built.encoder, built.decoder)
