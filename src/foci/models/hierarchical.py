"""The hierarchical attention network: classifies documents by attention over words and over sentences.

    h_it = [→GRU; ←GRU](E w_i1 … E w_iT)_t        s_i = Σ_t α_it h_it,  α_it = softmax_t(u_w · tanh(W_w h_it + b_w))
    h_i  = [→GRU; ←GRU](s_1 … s_N)_i              v   = Σ_i α_i h_i,    α_i  = softmax_i(u_s · tanh(W_s h_i + b_s))
    p    = softmax(W_c v + b_c)

Paper: Hierarchical Attention Networks for Document Classification (Yang et al., 2016), eqs. 1-11
Names: E = embedding, h_it = output of word_encoder, W_w and b_w and u_w = word_pool,
    h_i = output of sentence_encoder, W_s and b_s and u_s = sentence_pool, α_it α_i = attentions["words"],
    α_i = attentions["sentences"], W_c and b_c = output
Complexity: O(W · D²) for W words; the number of sequential steps is the length of the longest sentence in words plus
    that of the longest document in sentences
Differs: torch's GRU resets after the product. Dropout, which the paper does not mention, is an option. In place of the
    hierarchy the document can be encoded as one sentence and pooled by attention, by its mean or by the last states.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from foci.checks import check_ids
from foci.errors import ShapeError, check_positive
from foci.layers.dropout import Dropout
from foci.layers.embedding import uniform_table
from foci.layers.recurrent import RecurrentEncoder
from foci.mechanisms.pool import AttentionPool
from foci.models.options.words import HierarchicalClassifierOptions
from foci.tracing import exportable
from foci.weights import Weights


@exportable
class ClassifierOutput(NamedTuple):
    """The scores of each class, and the weights of every attention of the pass by name.

    ``attentions["words"] (B, S)`` is each word's weight in its document, ``attentions["sentences"] (B, N)`` each
    sentence's, which is the sum of its words'. A document encoded as one sentence has words only; one that is pooled
    without attention has neither.
    """

    logits: Float[Tensor, "B C"]
    attentions: dict[str, Weights]


class HierarchicalClassifier(nn.Module):
    """Classifies documents; the attention weights are those of its sentences and words.

    Call it with ``words (B, S)``, the documents' word ids one after the other, and ``sentences (B, N)``, how many of
    them each sentence has: 0 where there is no sentence. Words after those of the last sentence are padding without
    effect; a document without a word has the scores of an all-zero vector.

    Args:
        vocabulary: number of word ids; the embedding of id 0, padding, stays 0.
        num_classes: number of classes.
        options: sizes and options.

    The sizes of the sentences are read on the host, so `torch.compile` breaks its graph here.

    Example:
        >>> import torch
        >>> model = HierarchicalClassifier(11, 3, HierarchicalClassifierOptions(embedding_dim=5, hidden_dim=4))
        >>> words = torch.tensor([[7, 8, 9, 7], [5, 0, 0, 0]])
        >>> logits, attentions = model(words, torch.tensor([[3, 1], [1, 0]]))
        >>> logits.shape, attentions["words"].shape, attentions["sentences"].dense()[1].tolist()
        (torch.Size([2, 3]), torch.Size([2, 4]), [1.0, 0.0])
    """

    def __init__(self, vocabulary: int, num_classes: int, options: HierarchicalClassifierOptions) -> None:
        super().__init__()
        check_positive("HierarchicalClassifier", vocabulary=vocabulary, num_classes=num_classes)
        hidden_dim, attention_dim = options.hidden_dim, options.attention_dim
        layers: dict[str, Any] = {
            "cell": options.cell,
            "num_layers": options.num_layers,
            "dropout": options.dropout,
        }
        self.pooling = options.pooling
        self.dropout = Dropout(options.dropout)
        self.embedding = uniform_table(vocabulary, options.embedding_dim, padding=0)
        self.word_encoder = RecurrentEncoder(options.embedding_dim, hidden_dim, **layers)
        hierarchical = self.pooling == "hierarchical"
        attends = hierarchical or self.pooling == "attention"
        self.word_pool = AttentionPool(hidden_dim, attention_dim) if attends else None
        self.sentence_encoder = RecurrentEncoder(hidden_dim, hidden_dim, **layers) if hierarchical else None
        self.sentence_pool = AttentionPool(hidden_dim, attention_dim) if hierarchical else None
        self.output = nn.Linear(hidden_dim, num_classes)

    def forward(self, words: Int[Tensor, "B S"], sentences: Int[Tensor, "B N"]) -> ClassifierOutput:
        """Classify a batch of documents."""
        owner = type(self).__name__
        check_ids(owner, "words", words, "batch", "word")
        check_ids(owner, "sentences", sentences, words.shape[0], "sentence")
        counts = sentences.sum(dim=1)
        if sentences.numel() and (int(sentences.min()) < 0 or int(counts.max()) > words.shape[1]):
            raise ShapeError(
                f"{owner}: sentences has sizes from {int(sentences.min())} on and up to {int(counts.max())} words per "
                f"document, expected sizes of at least 0 that sum to at most {words.shape[1]}, the width of words."
            )
        if self.sentence_encoder is None or self.sentence_pool is None or self.word_pool is None:
            document, attentions = self._as_one_sentence(words, counts)
        else:
            document, attentions = self._by_sentences(
                words, sentences, self.word_pool, self.sentence_encoder, self.sentence_pool
            )
        return ClassifierOutput(self.output(self.dropout(document)), attentions)

    def _embedded(self, words: Tensor, valid: Tensor) -> Tensor:
        embedded: Tensor = self.dropout(self.embedding(words.masked_fill(~valid, 0)))
        return embedded

    def _by_sentences(
        self,
        words: Tensor,
        sentences: Tensor,
        word_pool: AttentionPool,
        sentence_encoder: RecurrentEncoder,
        sentence_pool: AttentionPool,
    ) -> tuple[Tensor, dict[str, Weights]]:
        batch, size = words.shape
        exists = sentences > 0
        lengths = sentences[exists]  # of the M sentences of the batch
        first = sentences.cumsum(dim=1) - sentences + size * torch.arange(batch, device=words.device).unsqueeze(1)
        column = torch.arange(int(lengths.max()) if lengths.numel() else 0, device=words.device)
        valid = column < lengths.unsqueeze(1)
        place = first[exists].unsqueeze(1) + column  # (M, T), in words.flatten()
        rows = words.flatten()[place.masked_fill(~valid, 0)] if words.numel() else words.new_zeros(valid.shape)
        annotations, _ = self.word_encoder(self._embedded(rows, valid), valid)
        vectors, in_sentence, _ = word_pool(annotations, valid)

        spread = vectors.new_zeros(*exists.shape, vectors.shape[1]).masked_scatter(exists.unsqueeze(-1), vectors)
        annotations, _ = sentence_encoder(spread, exists)
        document, in_document, _ = sentence_pool(annotations, exists)

        shares = in_sentence.dense() * in_document.dense()[exists].unsqueeze(1)
        of_words = shares.new_zeros(batch * size).scatter(0, place[valid], shares[valid]).reshape(batch, size)
        return document, {"words": Weights.from_tensor(of_words), "sentences": in_document}

    def _as_one_sentence(self, words: Tensor, counts: Tensor) -> tuple[Tensor, dict[str, Weights]]:
        valid = torch.arange(words.shape[1], device=words.device) < counts.unsqueeze(1)
        annotations, state = self.word_encoder(self._embedded(words, valid), valid)
        if self.word_pool is not None:
            document, weights, _ = self.word_pool(annotations, valid)
            return document, {"words": weights}
        if self.pooling == "mean":
            return annotations.sum(dim=1) / counts.clamp_min(1).unsqueeze(1), {}
        return state[0][:, -1], {}
