"""Decomposable attention: aligns the words of two sentences, compares each with what it is aligned to, and adds up.

    attend     e_ij = F(a_i) · F(b_j),   β_i = Σ_j softmax_j(e_ij) b_j,   α_j = Σ_i softmax_i(e_ij) a_i
    compare    v_i = G([a_i; β_i; |a_i − β_i|; a_i ∘ β_i; m_i]),   v'_j likewise with b_j and α_j
    aggregate  p = softmax(H([Σ_i v_i; Σ_j v'_j]))

Paper: A Decomposable Attention Model for Natural Language Inference (Parikh et al., 2016), eqs. 1-5; the features
    |a − β| and a ∘ β, encoded words and the pooling "mean_max": Enhanced LSTM for Natural Language Inference (Chen et
    al., 2017), eqs. 1-2 and 14-19
Names: a = premise, b = hypothesis, F = attend, e and its softmax = attentions, G = compare, H = aggregate and output,
    m_i = whether the other sentence has word i
Complexity: O((S + R) · D²) and O(S · R · D), no sequential steps without an encoder
Differs: intra-sentence attention (section 3.4) is left out; a recurrent encoder before the attention is an option in
    its place. |a − β|, a ∘ β and m are options that the paper does not have; m is a feature of the words that F reads
    too, so that the attention can prefer words without an equal one. Word vectors are not normalized, and learned ones
    stand beside the given ones.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from foci.functional.attend import attend
from foci.layers.dropout import Dropout
from foci.layers.recurrent import RecurrentEncoder
from foci.models.entailer import EntailerOutput
from foci.models.options.words import DecomposableEntailerOptions
from foci.models.word_inputs import WordInputs, occurs
from foci.weights import Weights


class DecomposableEntailer(nn.Module):
    """Aligns and compares the words of a premise and a hypothesis, and scores the labels of the pair.

    Call it with ``premise (B, S)`` and ``hypothesis (B, R)``, the ids of the words, 0 is padding. With ``null`` the
    attentions have one row and one column more, the first ones: the word that is aligned with nothing.

    Args:
        vocabulary: number of word ids.
        trained: number of ids with a learned vector; the others share the last one.
        vector_dim: size of the given word vectors, which are not trained; 0 for none.
        num_labels: number of labels.
        options: sizes and options.

    Example:
        >>> import torch
        >>> options = DecomposableEntailerOptions(embedding_dim=5, hidden_dim=7, null=False)
        >>> model = DecomposableEntailer(11, 10, 0, 3, options)
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
        options: DecomposableEntailerOptions,
    ) -> None:
        super().__init__()
        hidden_dim, dropout = options.hidden_dim, options.dropout
        self.difference, self.product = options.difference, options.product
        self.exact_match, self.pooling = options.exact_match, options.pooling
        self.inputs = WordInputs(vocabulary, trained, vector_dim, options)
        self.dropout = Dropout(dropout)
        encoder = options.encoder
        self.encoder = None if encoder == "none" else RecurrentEncoder(hidden_dim, hidden_dim, cell=encoder)
        self.null = nn.Parameter(0.1 * torch.randn(hidden_dim)) if options.null else None
        self.attend = _layers(hidden_dim, hidden_dim, dropout)
        compared = hidden_dim * (2 + options.difference + options.product) + options.exact_match
        self.compare = _layers(compared, hidden_dim, dropout)
        pooled = 2 * hidden_dim * (1 if options.pooling == "sum" else 2)
        self.aggregate = _layers(pooled, hidden_dim, dropout)
        self.output = nn.Linear(hidden_dim, num_labels)

    def forward(self, premise: Int[Tensor, "B S"], hypothesis: Int[Tensor, "B R"]) -> EntailerOutput:
        """Score the labels of a batch of pairs."""
        a, a_valid = self._words(premise, hypothesis)
        b, b_valid = self._words(hypothesis, premise)
        of_a, of_b = self.attend(a), self.attend(b)
        both = a_valid.unsqueeze(2) & b_valid.unsqueeze(1)
        aligned_b, to_hypothesis, _ = attend(of_a, of_b, b, both, score="dot")
        aligned_a, to_premise, _ = attend(of_b, of_a, a, both.mT, score="dot")
        pair = torch.cat(
            [
                self._compared(a, aligned_b, premise, hypothesis, a_valid),
                self._compared(b, aligned_a, hypothesis, premise, b_valid),
            ],
            dim=-1,
        )
        attentions: dict[str, Weights] = {"premise": to_premise, "hypothesis": to_hypothesis}
        return EntailerOutput(self.output(self.aggregate(pair)), attentions)

    def _words(
        self, words: Int[Tensor, "B S"], others: Int[Tensor, "B R"]
    ) -> tuple[Float[Tensor, "B N D"], Bool[Tensor, "B N"]]:
        """Return the words of a sentence as vectors, the null word first, and which of them exist."""
        vectors, valid = self.inputs(words, others), words > 0
        if self.encoder is not None:
            vectors, _ = self.encoder(self.dropout(vectors), valid)
        if self.null is not None:
            null = self.null.to(vectors.dtype).expand(len(vectors), 1, -1)
            vectors = torch.cat([null, vectors], dim=1)
            valid = F.pad(valid, (1, 0), value=True)
        return vectors.masked_fill(~valid.unsqueeze(-1), 0.0), valid

    def _compared(
        self, vectors: Tensor, aligned: Tensor, words: Tensor, others: Tensor, valid: Tensor
    ) -> Float[Tensor, "B E"]:
        """Return the comparisons of a sentence, added up."""
        parts = [vectors, aligned]
        parts += [(vectors - aligned).abs()] if self.difference else []
        parts += [vectors * aligned] if self.product else []
        if self.exact_match:
            found = occurs(words, others)
            if self.null is not None:
                found = F.pad(found, (1, 0), value=False)
            parts.append(found.unsqueeze(-1).to(vectors.dtype))
        compared: Tensor = self.compare(torch.cat(parts, dim=-1))
        compared = compared.masked_fill(~valid.unsqueeze(-1), 0.0)
        total = compared.sum(dim=1)
        if self.pooling == "sum":
            return total
        mean = total / valid.sum(dim=1, keepdim=True).clamp_min(1)
        # The comparisons end with a ReLU, so the zeros of padding never exceed a word's.
        highest = compared.amax(dim=1) if compared.shape[1] else total
        return torch.cat([mean, highest], dim=-1)


def _layers(input_dim: int, hidden_dim: int, dropout: float) -> nn.Sequential:
    """Return two linear layers, each with dropout before it and a ReLU after it."""
    return nn.Sequential(
        Dropout(dropout),
        nn.Linear(input_dim, hidden_dim),
        nn.ReLU(),
        Dropout(dropout),
        nn.Linear(hidden_dim, hidden_dim),
        nn.ReLU(),
    )
