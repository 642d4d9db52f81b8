"""The decoder of ABS: a feed-forward language model over the last C words, with attention to the source.

    ỹ_c = [E y_{i−C+1}, …, E y_i],   h = tanh(U ỹ_c + b),   ỹ'_c = [G y_{i−C+1}, …, G y_i]
    α = softmax(x̃ P ỹ'_c),   enc = Σ_j α_j x̄_j,   p(y_{i+1} | y_c, x) = softmax(V h + W enc)

Nothing is carried from step to step but the last C words, so that training computes all positions at once.

Paper: A Neural Attention Model for Abstractive Sentence Summarization (Rush, Chopra, Weston, 2015), eqs. 4-6 and
    section 3.2 (attention-based encoder); the language model: A Neural Probabilistic Language Model (Bengio et al.,
    2003)
Names: C = context_size, D = embedding_dim, H = hidden_dim, E = embedding, G = context_embedding, U = hidden,
    P = attention.score, V and W = the halves of output, x̃ = encoded.keys, x̄ = encoded.values
Complexity: O(C · D · H + S · H + (H + source_dim) · V) per position
Differs: the output layer has one bias. Before the beginning the window holds the first token, BOS. The extractive
    features of ABS+, tuned on validation data, are left out.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from foci.checks import check_ids
from foci.errors import check_positive
from foci.layers.copying import CopyHead, CopyingDecoder
from foci.layers.dropout import Dropout
from foci.layers.embedding import uniform_table
from foci.layers.incremental.hypotheses import as_rows, hypotheses_each
from foci.layers.interfaces import DecoderStep, EncoderOutput, check_encoded, source_mask
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss
from foci.mechanisms.parts import Memory
from foci.models.attention import build_one_head
from foci.models.options.attention import AttentionOptions
from foci.models.options.decoders import FeedForwardDecoderOptions
from foci.models.options.seq2seq import check_attention
from foci.weights import Weights


class FeedForwardMemory(NamedTuple):
    """The sources as the steps use them, B rows.

    Attributes:
        source: the source as attention reads it.
        copied: what each position is as a target token, ``(B, S)``; None without copying.
    """

    source: Memory
    copied: Tensor | None = None


class FeedForwardState(NamedTuple):
    """The last tokens of each hypothesis, ``(N, C)``, the newest last; −1 before the first one."""

    tokens: Int[Tensor, "N C"]


class FeedForwardDecoder(CopyingDecoder):
    """A language model with a window of words that attends to a source.

    Args:
        vocabulary: number of target tokens; the embedding of token 0, padding, stays 0.
        source_dim: size of the source's positions.
        options: sizes and options.
        attention: the attention to the source. Default: the paper's, "general" and "softmax".

    Example:
        >>> import torch
        >>> decoder = FeedForwardDecoder(13, 4, FeedForwardDecoderOptions(embedding_dim=3, context_size=2))
        >>> encoded = EncoderOutput(torch.zeros(2, 5, 4), torch.ones(2, 5, dtype=torch.bool))
        >>> predicted = decoder(encoded, torch.ones(2, 7, dtype=torch.long))
        >>> predicted.logits.shape, predicted.attentions["decoder.cross"].shape
        (torch.Size([2, 7, 13]), torch.Size([2, 7, 5]))
    """

    max_length: int | None = None  # a window has no longest target

    def __init__(
        self,
        vocabulary: int,
        source_dim: int,
        options: FeedForwardDecoderOptions,
        attention: AttentionOptions | None = None,
    ) -> None:
        super().__init__()
        check_positive("FeedForwardDecoder", vocabulary=vocabulary)
        attention = AttentionOptions() if attention is None else attention
        check_attention(options, attention)
        size, hidden_dim = options.embedding_dim, options.hidden_dim
        table = partial(uniform_table, vocabulary, size, bound=options.embedding_init_range, padding=0)
        self.source_dim: int | None = source_dim
        self.context_size = options.context_size
        self.dropout = Dropout(options.dropout)
        self.embedding = table()
        self.context_embedding = table()
        self.hidden = nn.Linear(self.context_size * size, hidden_dim)
        self.attention = build_one_head(self.context_size * size, source_dim, attention)
        self.output = nn.Linear(hidden_dim + source_dim, vocabulary)
        self.copying = CopyHead(hidden_dim + source_dim, vocabulary) if options.copy else None

    def forward(
        self, encoded: EncoderOutput | None, target: Int[Tensor, "B T"], targets: Targets | None = None
    ) -> TokenLogits | TokenLoss:
        """Predict by teacher forcing: ``logits[:, t]`` predict ``target[:, t + 1]``; the loss with ``targets``."""
        check_ids("FeedForwardDecoder", "target", target, "batch" if encoded is None else len(encoded.values), "time")
        memory, state = self.start(encoded)
        windows = torch.cat([state.tokens[:, 1:], target], dim=1)
        features, weights = self._features(self._windows(windows, target.shape[1]), memory.source)
        return self._predict(features, {"decoder.cross": weights}, targets, weights, memory.copied)

    def start(self, encoded: EncoderOutput | None, rows: int = 1) -> tuple[FeedForwardMemory, FeedForwardState]:
        """Return the memory and the empty windows."""
        check_encoded("FeedForwardDecoder", encoded, self.source_dim)
        encoded = cast("EncoderOutput", encoded)  # without a source, check_encoded has raised
        key = encoded.values if encoded.keys is None else encoded.keys
        source = self.attention.prepare(key, encoded.values, source_mask(encoded.valid))
        copied = self._copied("FeedForwardDecoder", encoded)
        tokens = torch.full((key.shape[0], self.context_size), -1, dtype=torch.long, device=key.device)
        return FeedForwardMemory(source, copied), FeedForwardState(tokens)

    def step(self, token: Int[Tensor, " N"], memory: FeedForwardMemory, state: FeedForwardState) -> DecoderStep:
        """Return the scores of what follows ``token`` in each of N hypotheses."""
        check_ids("FeedForwardDecoder", "token", token, state.tokens.shape[0])
        tokens = torch.cat([state.tokens[:, 1:], token.unsqueeze(1)], dim=1)
        sources = memory.source.key.shape[0]
        each = hypotheses_each("FeedForwardDecoder", token.shape[0], sources)
        windows = self._windows(tokens, 1).reshape(sources, each, self.context_size)
        features, weights = self._features(windows, memory.source)
        features, weights = features.flatten(0, 1), as_rows(weights)
        logits = self._mixed(self.output(features), features, weights, memory.copied)
        return DecoderStep(logits, FeedForwardState(tokens), weights)

    def _windows(self, tokens: Int[Tensor, "B W"], count: int) -> Int[Tensor, "B T C"]:
        """Return ``count`` windows; positions before the beginning hold the first token of the row."""
        if count == 0:
            return tokens.new_zeros(tokens.shape[0], 0, self.context_size)
        tokens = self._readable(tokens)
        before = (tokens < 0).sum(dim=1, keepdim=True).clamp_max(tokens.shape[1] - 1)
        first = tokens.gather(1, before).clamp_min(0)
        filled = torch.where(tokens < 0, first, tokens)
        return filled.unfold(1, self.context_size, 1)[:, :count]

    def _features(self, windows: Int[Tensor, "B T C"], source: Memory) -> tuple[Float[Tensor, "B T F"], Weights]:
        """Return the input of the output layer, and the attention weights."""
        embedded = self.dropout(self.embedding(windows)).flatten(2)
        query = self.dropout(self.context_embedding(windows)).flatten(2)
        read, weights, _ = self.attention.read(query, source)
        hidden = torch.tanh(self.hidden(embedded))
        return self.dropout(torch.cat([hidden, read], dim=-1)), weights
