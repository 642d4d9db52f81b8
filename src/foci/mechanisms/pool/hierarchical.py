"""Hierarchical attention pooling: words are pooled into sentences, and sentences into a document.

    s_i = Σ_t α_it h_it        α_it = softmax_t(u_w · tanh(W_w h_it + b_w))
    h_i = encode(s_1 … s_N)_i
    v   = Σ_i α_i h_i          α_i  = softmax_i(u_s · tanh(W_s h_i + b_s))

Paper: Hierarchical Attention Networks for Document Classification (Yang et al., 2016), eqs. 5-10, ACL:N16-1174
Names: h_it = value, W_w and b_w and u_w = word_pool, encode = sentence_encoder,
    W_s and b_s and u_s = sentence_pool, α_it = weights.words, α_i = weights.sentences, v = output
Complexity: O(N·T·D·A) time, O(N·T·A) memory, without the sentence encoder.
Differs: the paper's two bidirectional GRUs are not included: the first computes ``value``, the second is
    passed as ``sentence_encoder``. Without it, the sentence vectors are pooled directly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from foci.checks import check_boolean, check_shape, check_valid, refuse_script
from foci.errors import ConfigError, ShapeError
from foci.functional.own_parts import name_of
from foci.mechanisms.pool.pool import AttentionPool
from foci.outputs import AttentionOutput, called_as
from foci.tracing import exportable
from foci.weights import Weights
from foci.weights.sources import Dense


@exportable
@dataclass(eq=False, repr=False, kw_only=True)
class HierarchicalWeights(Weights):
    """The weight ``(B, N*T)`` of each word in its document, and the two levels whose product it is.

    Args:
        words: ``(B, N, T)``: the weight of each word in its sentence.
        sentences: ``(B, N)``: the weight of each sentence in its document.
    """

    words: Weights
    sentences: Weights

    def __repr__(self) -> str:
        return f"HierarchicalWeights(shape={tuple(self.shape)}, words={self.words}, sentences={self.sentences})"


class HierarchicalPool(nn.Module):
    """A document as one vector: attention over the words of each sentence, then over the sentences.

    Call it with ``value (B, N sentences, T words, D)`` and, for padding, ``mask (B, N, T)`` (True = a real
    word). A sentence exists when one of its words does; whole sentences and whole documents may be empty, and
    an empty document gives zeros. ``value (B, S, D)`` with ``mask (B, S)`` is a document of one sentence.
    The weights are a `HierarchicalWeights`.

    Args:
        value_dim: the size D of a word.
        hidden_dim: the size in which positions are compared with the learned vectors. Default: D for words,
            sentence_dim for sentences.
        sentence_encoder: run between the levels, with the sentences ``(B, N, D)`` and which of them exist
            ``(B, N)``; returns ``(B, N, sentence_dim)``. A bidirectional GRU in the paper.
        sentence_dim: the size of an encoded sentence, where it is not D.

    Example:
        >>> import torch
        >>> pool = HierarchicalPool(3)
        >>> value = torch.ones(1, 2, 2, 3)  # one document: a sentence of two words, and one of one word
        >>> output, weights, _ = pool(value, torch.tensor([[[True, True], [True, False]]]))
        >>> weights.words.dense().tolist(), weights.sentences.dense().tolist()
        ([[[0.5, 0.5], [1.0, 0.0]]], [[0.5, 0.5]])
        >>> weights.dense().tolist()
        [[0.25, 0.25, 0.5, 0.0]]
    """

    __prepare_scriptable__ = refuse_script

    def __init__(
        self,
        value_dim: int,
        hidden_dim: int | None = None,
        *,
        sentence_encoder: Callable[[Tensor, Tensor], Tensor] | None = None,
        sentence_dim: int | None = None,
    ) -> None:
        super().__init__()
        sentence_dim = value_dim if sentence_dim is None else sentence_dim
        if sentence_encoder is None and sentence_dim != value_dim:
            raise ConfigError(
                f"HierarchicalPool: sentence_dim is {sentence_dim}, but without an encoder sentences keep "
                f"the size {value_dim} of their words. Pass sentence_encoder=… or leave sentence_dim out."
            )
        self.value_dim = value_dim
        self.sentence_dim = sentence_dim
        self.word_pool = AttentionPool(value_dim, hidden_dim)
        self.sentence_encoder = sentence_encoder
        self.sentence_pool = AttentionPool(sentence_dim, hidden_dim)

    def extra_repr(self) -> str:
        """Return the encoder where it is no module, for printing."""
        encoder = self.sentence_encoder
        return "" if encoder is None or isinstance(encoder, nn.Module) else f"sentence_encoder={name_of(encoder)}"

    def forward(
        self,
        value: Float[Tensor, "B N T D"] | Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B N T"] | Bool[Tensor, "B S"] | None = None,
    ) -> AttentionOutput:
        """Pool every document of the batch."""
        value, mask = self._documents(value, mask)
        batch, num_sentences, num_words, _ = value.shape
        words = self.word_pool(value.flatten(0, 1), mask.flatten(0, 1))
        sentences = words.output.unflatten(0, (batch, num_sentences))
        exists = mask.any(dim=-1)
        if self.sentence_encoder is not None:
            sentences = self.sentence_encoder(sentences, exists)
            fix = "Set the size of an encoded sentence with sentence_dim=…."
            name, sizes = "what sentence_encoder gave", (batch, num_sentences, self.sentence_dim)
            check_shape("HierarchicalPool", name, sentences, *sizes, fix=fix)
        document = self.sentence_pool(sentences, exists)

        of_sentence = words.weights.dense().reshape(batch, num_sentences, num_words)
        of_document = of_sentence * document.weights.dense().unsqueeze(-1)
        weights = HierarchicalWeights(
            Dense(of_document.flatten(1)), words=Weights.from_tensor(of_sentence), sentences=document.weights
        )
        return AttentionOutput(document.output, weights)

    if TYPE_CHECKING:

        @called_as(forward)
        def __call__(self) -> None:
            """Call `forward`, as torch does."""

    def _documents(self, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return ``value (B, N, T, D)`` and ``mask (B, N, T)``, or raise an error that says what is wrong with them."""
        owner = "HierarchicalPool"
        if isinstance(value, Tensor) and value.dim() == 3:
            check_shape(owner, "value", value, "batch", "word", self.value_dim)
            if mask is not None:
                check_valid(owner, "mask", mask, value.shape[0], value.shape[1], value.device)
                mask = mask.unsqueeze(1)
            value = value.unsqueeze(1)
        fix = f"A document of one sentence may be (batch, word, {self.value_dim})."
        check_shape(owner, "value", value, "batch", "sentence", "word", self.value_dim, fix=fix)
        sizes = value.shape[:-1]
        if mask is None:
            return value, torch.ones(sizes, dtype=torch.bool, device=value.device)
        check_boolean(owner, "mask", mask, value.device)
        if mask.shape != sizes:
            raise ShapeError(
                f"{owner}: mask has shape {tuple(mask.shape)}, expected (batch, sentence, word) = "
                f"{tuple(sizes)}. From lengths (batch, sentence), 0 for a missing sentence, make it with "
                f"masks.lengths(lengths.flatten(), {sizes[2]}).unflatten(0, lengths.shape)."
            )
        return value, mask
