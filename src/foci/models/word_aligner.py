"""An aligner of words: each target word reads one source word, by hard attention that is marginalized exactly.

    p(y | x) = Σ_a Π_t p(a_t | a_{t−1}) p(y_t | x, a_t)       p(a_t = j | a_{t−1} = i) = softmax_k(r_k) at k = j − i
    p(y_t | x, a_t = j) = (1 − π) softmax_y(u_y · v_{x_j} + b_y) + π softmax_y(u_y · v_∅ + b_y)
    w_tj = p(a_t = j and y_t is not from ∅ | x, y)

The source's positions are the tags of a linear-chain CRF over the target's words, whose log Z is log p(y | x) and whose
marginals are the weights. The attention is trained by itself: no gold, no other aligner, and no other words of the
target that a decoder could guess the next one from instead of looking at the source.

Paper: HMM-Based Word Alignment in Statistical Translation (Vogel, Ney, Tillmann, 1996), eqs. 3-5; Structured Attention
    Networks (Kim et al., 2017), section 3.2: marginals of a CRF as attention; Hard Non-Monotonic Attention for
    Character-Level Transduction (Wu, Shapiro, Cotterell, 2018): attention marginalized in polynomial time
Names: x = source, y = target, v = embedding, u, b = output, v_∅ = nothing, r = jumps, π = sigmoid(unaligned), w = what
    `align` returns
Complexity: O(T · S²) for the chain, and O((U + 1) · V · D) for the words, U different ones of the sources among V of
    the targets
Differs: words are probabilities of embeddings, not counts. A word from ∅ leaves the position where the jump put it,
    where Och and Ney (2003) double the states. The softmax of words is over those of the batch's targets, in training,
    and of the pair's target, in `align`: of source words it asks which of them each translates. Multiplying the words'
    probabilities of both directions is ours, in the spirit of Alignment by Agreement (Liang et al., 2006). Jumps
    beyond the ends of a source keep their probability.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from foci.checks import check_ids
from foci.errors import check_positive
from foci.functional import crf
from foci.functional.crf.chain_plain import Chain
from foci.weights import Weights

_FARTHEST = 40
"""Jumps of more positions share the probability of this one."""
_NEVER = -1e4
"""The score of padding among the words; an infinite one has no gradient where every way is forbidden."""
_LONGEST = 512
"""Positions at which the first word may read; later ones share the probability of the last."""


class WordAligner(nn.Module):
    """Aligns the words of sentence pairs; trained by maximizing what `forward` returns.

    Args:
        source_vocabulary, target_vocabulary: numbers of word ids; 0 is padding.
        hidden_dim: size of the embeddings.

    Example:
        >>> aligner = WordAligner(11, 13, hidden_dim=6)
        >>> source, target = torch.tensor([[5, 6, 0]]), torch.tensor([[7, 8, 9, 4]])
        >>> aligner(source, source > 0, target, target > 0).shape
        torch.Size([1])
        >>> aligner.align(source, source > 0, target, target > 0).shape
        torch.Size([1, 4, 3])
    """

    def __init__(self, source_vocabulary: int, target_vocabulary: int, hidden_dim: int) -> None:
        super().__init__()
        check_positive(
            "WordAligner",
            source_vocabulary=source_vocabulary,
            target_vocabulary=target_vocabulary,
            hidden_dim=hidden_dim,
        )
        self.embedding = nn.Embedding(source_vocabulary, hidden_dim)
        self.output = nn.Linear(hidden_dim, target_vocabulary)
        for table in (self.embedding, self.output):
            nn.init.normal_(table.weight, std=0.1)
        self.nothing = nn.Parameter(torch.zeros(hidden_dim))
        self.unaligned = nn.Parameter(torch.tensor(-2.0))
        # A target begins at the source's beginning and goes one word on: without that, words alone would have to tell.
        apart = torch.arange(-_FARTHEST, _FARTHEST + 1).sub(1).abs()
        self.jumps = nn.Parameter(-0.5 * apart.clamp(max=8).float())
        self.first = nn.Parameter(-0.3 * torch.arange(_LONGEST).float())

    def forward(
        self,
        source: Int[Tensor, "B S"],
        source_valid: Bool[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        target_valid: Bool[Tensor, "B T"],
    ) -> Float[Tensor, " B"]:
        """Return ``log p(y | x)``, words among those of the batch's targets."""
        read, nothing = self._words(source, source_valid, target, target_valid)
        return crf.log_partition(*self._chain(torch.logaddexp(read, nothing), source_valid, target_valid))

    @torch.no_grad()
    def align(
        self,
        source: Int[Tensor, "B S"],
        source_valid: Bool[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        target_valid: Bool[Tensor, "B T"],
        reverse: WordAligner | None = None,
    ) -> Weights:
        """Return the weights ``(B, T, S)``; the rest of a row to 1 is the probability that its word has no source.

        Args:
            source, source_valid, target, target_valid: the pairs, each of which is read for itself.
            reverse: an aligner of the other direction. What it gives for the source word, from the target word or from
                nothing, is multiplied with what this one gives for the target word.
        """
        read, nothing = self._own_words(source, source_valid, target, target_valid)
        if reverse is not None:
            other, others = reverse._own_words(target, target_valid, source, source_valid)
            read, nothing = read + other.transpose(1, 2), nothing + others.transpose(1, 2)
        both = torch.logaddexp(read, nothing)
        places = crf.marginals(*self._chain(both, source_valid, target_valid))
        return Weights.from_tensor(places * (read - both).exp())

    def _own_words(
        self, source: Tensor, source_valid: Tensor, target: Tensor, target_valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return what `_words` does, of words among those of each pair's own target."""
        source, target = self._checked(source, source_valid, target, target_valid)
        vectors = torch.cat([self.nothing.expand(len(source), 1, -1), self.embedding(source)], dim=1)
        scores = vectors @ self.output.weight[target].transpose(1, 2) + self.output.bias[target].unsqueeze(1)
        again = (target.unsqueeze(2) == target.unsqueeze(1)).tril(-1).any(dim=2)  # a word that occurs twice is one
        among = scores.masked_fill((again | ~target_valid).unsqueeze(1), _NEVER)
        words = (scores - among.logsumexp(dim=2, keepdim=True)).transpose(1, 2)  # (B, T, 1 + S)
        read = words[..., 1:] + F.logsigmoid(-self.unaligned)
        nothing = words[..., :1] + F.logsigmoid(self.unaligned)
        return read, nothing.expand_as(read)

    @staticmethod
    def _checked(source: Tensor, source_valid: Tensor, target: Tensor, target_valid: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ids, 0 where there is no word."""
        check_ids("WordAligner", "source", source, "batch", "source")
        check_ids("WordAligner", "target", target, len(source), "target")
        return source.masked_fill(~source_valid, 0), target.masked_fill(~target_valid, 0)

    def _words(
        self, source: Tensor, source_valid: Tensor, target: Tensor, target_valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities ``(B, T, S)`` of each target word from each source word, and from nothing.

        They are of words among those of all targets.
        """
        source, target = self._checked(source, source_valid, target, target_valid)
        sources, source_numbers = source.unique(return_inverse=True)
        targets, target_numbers = target.unique(return_inverse=True)
        vectors = torch.cat([self.nothing.unsqueeze(0), self.embedding(sources)])
        words = F.linear(vectors, self.output.weight[targets], self.output.bias[targets])
        words = words.masked_fill(targets == 0, _NEVER).log_softmax(dim=-1)  # (1 + U, V)
        number = target_numbers.unsqueeze(2)
        read = words[1:][source_numbers.unsqueeze(1), number] + F.logsigmoid(-self.unaligned)
        nothing = words[0][number] + F.logsigmoid(self.unaligned)
        return read, nothing.expand_as(read)

    def _chain(self, emissions: Tensor, source_valid: Tensor, target_valid: Tensor) -> Chain:
        """Return the CRF whose tags are the positions of the source."""
        emissions = emissions.masked_fill(~source_valid.unsqueeze(1), -torch.inf)
        place = torch.arange(emissions.shape[2], device=emissions.device)
        apart = (place - place.unsqueeze(1)).clamp(-_FARTHEST, _FARTHEST) + _FARTHEST
        first = self.first.log_softmax(dim=0)[place.clamp(max=_LONGEST - 1)]
        jumps = self.jumps.log_softmax(dim=0)[apart]
        return Chain(emissions, jumps, first, torch.zeros_like(first), target_valid)
