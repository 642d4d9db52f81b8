"""Conditional encoding with attention: whether a premise entails a hypothesis, read word by word.

    Y     = LSTM_p(x_1 … x_S)                                                  the premise
    h     = LSTM_h(x'_1 … x'_R),  its memory starting with the premise's last   the hypothesis, given the premise
    none          h* = h_R
    attention     α = softmax(wᵀ tanh(W^y Y + W^h h_R)),   r = Y αᵀ,   h* = tanh(W^p r + W^x h_R)
    word_by_word  the same with weights and a memory for every word of the hypothesis (`foci.mechanisms.pair`)
    two_way       h* = [word_by_word(premise, hypothesis); word_by_word(hypothesis, premise)], one set of weights
    p     = softmax(W_s h* + b)

Paper: Reasoning about Entailment with Neural Attention (Rocktäschel et al., 2016), sections 2.2 to 2.5, eqs. 7-14
Names: x = inputs, LSTM_p = premise_encoder, LSTM_h = hypothesis_encoder, Y = premise annotations, W^y and W^h and w =
    score, α = attentions, W^p = from_premise, W^x = from_hypothesis, W_s = output
Complexity: O((S + R) · D²) in S + R sequential steps, and O(S · R · D) for word-by-word attention
Differs: there is no delimiter between the sentences: the second LSTM reads the hypothesis alone. Dropout is on the
    inputs of the LSTMs and on h*. Learned word vectors stand beside the given ones. The feature of exact match is an
    option that the paper does not have.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from foci import masks
from foci.layers.dropout import Dropout
from foci.layers.recurrent import Recurrence
from foci.mechanisms.attention import Attention
from foci.mechanisms.pair import WordByWord
from foci.models.options.words import ConditionalEntailerOptions
from foci.models.word_inputs import WordInputs
from foci.tracing import exportable
from foci.weights import Weights


@exportable
class EntailerOutput(NamedTuple):
    """The scores of each label, and the weights of every attention of the pass by name.

    ``attentions["premise"]`` are the weights over the premise: ``(B, R, S)`` of each word of the hypothesis, or
    ``(B, 1, S)`` of the hypothesis as a whole. ``attentions["hypothesis"] (B, S, R)``, of the models that read in both
    directions, are those of each word of the premise over the hypothesis.
    """

    logits: Float[Tensor, "B C"]
    attentions: dict[str, Weights]


class ConditionalEntailer(nn.Module):
    """Reads a premise, then a hypothesis given the premise, and scores the labels of the pair.

    Call it with ``premise (B, S)`` and ``hypothesis (B, R)``, the ids of the words, 0 is padding.

    Args:
        vocabulary: number of word ids.
        trained: number of ids with a learned vector; the others share the last one.
        vector_dim: size of the given word vectors, which are not trained; 0 for none.
        num_labels: number of labels.
        options: sizes and options.

    Example:
        >>> import torch
        >>> options = ConditionalEntailerOptions(embedding_dim=5, hidden_dim=7, attention="two_way")
        >>> model = ConditionalEntailer(11, 10, 0, 3, options)
        >>> found = model(torch.tensor([[4, 10, 3]]), torch.tensor([[4, 2]]))
        >>> found.logits.shape, {name: tuple(weights.shape) for name, weights in found.attentions.items()}
        (torch.Size([1, 3]), {'premise': (1, 2, 3), 'hypothesis': (1, 3, 2)})
    """

    def __init__(
        self,
        vocabulary: int,
        trained: int,
        vector_dim: int,
        num_labels: int,
        options: ConditionalEntailerOptions,
    ) -> None:
        super().__init__()
        hidden_dim, self.attention = options.hidden_dim, options.attention
        self.inputs = WordInputs(vocabulary, trained, vector_dim, options)
        self.dropout = Dropout(options.dropout)
        self.premise_encoder = Recurrence(hidden_dim, hidden_dim)
        self.hypothesis_encoder = Recurrence(hidden_dim, hidden_dim)
        self.match: _OnceAttended | WordByWord | None = None
        if options.attention == "attention":
            self.match = _OnceAttended(hidden_dim)
        elif options.attention != "none":
            self.match = WordByWord(hidden_dim)
        self.output = nn.Linear(2 * hidden_dim if options.attention == "two_way" else hidden_dim, num_labels)

    def forward(self, premise: Int[Tensor, "B S"], hypothesis: Int[Tensor, "B R"]) -> EntailerOutput:
        """Score the labels of a batch of pairs."""
        first = self.dropout(self.inputs(premise, hypothesis))
        second = self.dropout(self.inputs(hypothesis, premise))
        pair, weights = self._read(first, second, premise > 0, hypothesis > 0)
        attentions = {} if weights is None else {"premise": weights}
        if self.attention == "two_way":
            swapped, weights = self._read(second, first, hypothesis > 0, premise > 0)
            pair = torch.cat([pair, swapped], dim=-1)
            attentions |= {} if weights is None else {"hypothesis": weights}
        return EntailerOutput(self.output(self.dropout(pair)), attentions)

    def _read(
        self, first: Tensor, second: Tensor, first_valid: Tensor, second_valid: Tensor
    ) -> tuple[Float[Tensor, "B D"], Weights | None]:
        """Return the pair as one vector, and the weights over the words that are read first."""
        left, (_, memory) = self.premise_encoder.read_padded(first, ~first_valid)
        start = (torch.zeros_like(memory), memory)
        right, (last, _) = self.hypothesis_encoder.read_padded(second, ~second_valid, start)
        if isinstance(self.match, WordByWord):
            matched = self.match(left, right, first_valid, second_valid)
            return matched.output, matched.weights
        summary = last[:, -1].masked_fill(~second_valid.any(dim=1, keepdim=True), 0.0)
        return (summary, None) if self.match is None else self.match(left, summary, first_valid)


class _OnceAttended(nn.Module):
    """The last state of the hypothesis attends to the premise once."""

    def __init__(self, hidden_dim: int) -> None:
        super().__init__()
        self.score = Attention(hidden_dim, hidden_dim, score="additive", hidden_dim=hidden_dim)
        self.from_premise = nn.Linear(hidden_dim, hidden_dim, bias=False)
        self.from_hypothesis = nn.Linear(hidden_dim, hidden_dim, bias=False)

    def forward(
        self, left: Float[Tensor, "B S D"], last: Float[Tensor, "B D"], left_valid: Bool[Tensor, "B S"]
    ) -> tuple[Float[Tensor, "B D"], Weights]:
        read, weights, _ = self.score(last.unsqueeze(1), left, left, masks.keys(left_valid))
        return torch.tanh(self.from_premise(read.squeeze(1)) + self.from_hypothesis(last)), weights
