"""Words as vectors for models that compare two sentences: learned, given, and whether the other sentence has them.

    x_w = W [E(w); V(w); 1(w occurs in the other sentence)]

Paper: projected word vectors: A Decomposable Attention Model for Natural Language Inference (Parikh et al., 2016),
    section 4.1; the last feature: Reading Wikipedia to Answer Open-Domain Questions (Chen et al., 2017), section 3.2
Names: E = embedding, V = vectors, W = project
Complexity: O(S · D²) and O(S · R) for the last feature
Differs: learned vectors stand beside the given ones, as in `foci.models.tagger`.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from foci.checks import check_ids
from foci.errors import check_positive
from foci.layers.dropout import Dropout
from foci.layers.embedding import uniform_table
from foci.models.options.words import EntailerOptions


def occurs(words: Int[Tensor, "B S"], others: Int[Tensor, "B R"]) -> Bool[Tensor, "B S"]:
    """Return which words occur among the others of their row; padding, id 0, never does.

    Example:
        >>> import torch
        >>> occurs(torch.tensor([[4, 5, 0]]), torch.tensor([[5, 0]])).tolist()
        [[False, True, False]]
    """
    return (words.unsqueeze(2) == others.unsqueeze(1)).any(dim=2) & (words > 0)


class WordInputs(nn.Module):
    """The vectors of the words of two sentences.

    Args:
        vocabulary: number of word ids. Those from ``trained`` on have no learned vector of their own but share the
            last one, which words get that are dropped in training.
        trained: number of ids with a learned vector.
        vector_dim: size of the given word vectors, which are not trained; 0 for none.
        options: those of an entailer; the result has their ``hidden_dim``.

    Example:
        >>> import torch
        >>> from foci.models.options.words import DecomposableEntailerOptions
        >>> inputs = WordInputs(11, 7, 0, DecomposableEntailerOptions(embedding_dim=3, hidden_dim=5))
        >>> inputs(torch.tensor([[2, 9, 0]]), torch.tensor([[2]])).shape
        torch.Size([1, 3, 5])
    """

    def __init__(self, vocabulary: int, trained: int, vector_dim: int, options: EntailerOptions) -> None:
        super().__init__()
        check_positive("WordInputs", vocabulary=vocabulary, trained=trained)
        embedding_dim = options.embedding_dim
        self.trained, self.exact_match = trained, options.exact_match
        self.dropout, self.word_dropout = Dropout(options.dropout), Dropout(options.word_dropout)
        self.embedding = uniform_table(trained + 1, embedding_dim, bound=(3 / embedding_dim) ** 0.5, padding=0)
        self.vectors = nn.Embedding(vocabulary, vector_dim, 0) if vector_dim else None
        if self.vectors is not None:
            nn.init.zeros_(self.vectors.weight).requires_grad_(False)
        self.project = nn.Linear(embedding_dim + vector_dim + int(options.exact_match), options.hidden_dim)

    def forward(self, words: Int[Tensor, "B S"], others: Int[Tensor, "B R"]) -> Float[Tensor, "B S D"]:
        """Return the vectors of ``words``; ``others`` are those of the other sentence."""
        check_ids("WordInputs", "words", words, "batch", "word")
        check_ids("WordInputs", "others", others, words.shape[0], "word")
        known = words.clamp_max(self.trained)
        if self.training and self.word_dropout.p > 0:
            dropped = self.word_dropout(torch.ones_like(known, dtype=self.project.weight.dtype)) == 0
            known = known.masked_fill(dropped & (words > 0), self.trained)
        parts = [self.dropout(self.embedding(known))]
        if self.vectors is not None:
            parts.append(self.dropout(self.vectors(words)))
        if self.exact_match:
            parts.append(occurs(words, others).unsqueeze(-1).to(parts[0].dtype))
        projected: Tensor = self.project(torch.cat(parts, dim=-1))
        return projected
