"""Attention over attention: each query word's attention over a document, averaged by the weight of the query words.

    M(i, j) = h_doc(i) · h_query(j)
    α(j)    = softmax_i M(i, j)          what query word j reads of the document
    β(i)    = softmax_j M(i, j)          what document word i reads of the query
    β       = 1/|D| Σ_i β(i)
    s       = αᵀ β                       the attended document attention

Paper: Attention-over-Attention Neural Networks for Reading Comprehension (Cui et al., 2017), section 3,
    arXiv:1607.04423; the sum over the occurrences of a word is `foci.functional.pointer.sum_occurrences`
Names: h_doc = left, h_query = right, M = scores, α = weights, β(i) = matched.reverse, β = matched.right,
    s = matched.left
Complexity: O(S·R·D) time, O(S·R) memory.
Differs: output, the mean of the document by s, is added; the paper only points with s. The mean β runs over the
    words that exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxtyping import Bool, Float
from torch import Tensor, nn

from foci.checks import refuse_script
from foci.errors import check_sizes
from foci.functional.scores import dot
from foci.masks import masked_softmax
from foci.mechanisms.pair.inputs import check_pair
from foci.outputs import AttentionOutput, PairOutput, called_as
from foci.recording.rereading import Reread
from foci.recording.watching import editable
from foci.weights import Weights


def _reread(of_right: Tensor, scores: Tensor, mask: Tensor) -> Reread:
    """Return how the query words' weights are read, for `foci.edit`."""

    def limited(open: Tensor) -> AttentionOutput:
        return _over_attention(of_right, scores, mask & open)

    return Reread(lambda weights: of_right.unsqueeze(1) @ weights, lambda: mask, limited)


@editable(_reread)
def _over_attention(of_right: Tensor, scores: Tensor, mask: Tensor) -> AttentionOutput:
    """Return αᵀ β ``(B, 1, S)`` and α."""
    weights = masked_softmax(scores, mask)
    return AttentionOutput(of_right.unsqueeze(1) @ weights, Weights.from_tensor(weights))


def _reverse_reread(scores: Tensor, mask: Tensor, num_words: Tensor) -> Reread:
    """Return what the document words' weights over the query are read for."""

    def limited(open: Tensor) -> AttentionOutput:
        return _over_query(scores, mask & open, num_words)

    return Reread(lambda weights: weights.sum(dim=1) / num_words, lambda: mask, limited)


@editable(_reverse_reread, ":reverse")
def _over_query(scores: Tensor, mask: Tensor, num_words: Tensor) -> AttentionOutput:
    """Return β ``(B, R)``, and each document word's weights ``(B, S, R)``, whose mean it is."""
    weights = masked_softmax(scores, mask)  # zeros for a document word that does not exist
    return AttentionOutput(weights.sum(dim=1) / num_words, Weights.from_tensor(weights))


@editable(lambda weights, valid: Reread(lambda new: new, lambda: valid, None, has_queries=False), ":right")
def _of_query(weights: Tensor, valid: Tensor) -> AttentionOutput:
    """Return β as it is used, and as weights."""
    return AttentionOutput(weights, Weights.from_tensor(weights))


def _mean(weights: Tensor, left: Tensor) -> Tensor:
    return (weights.unsqueeze(1) @ left).squeeze(1)


def _left_reread(weights: Tensor, left: Tensor, valid: Tensor) -> Reread:
    """Return how a document is read."""
    return Reread(lambda new: _mean(new, left), lambda: valid, None, has_queries=False)


@editable(_left_reread, ":left")
def _of_document(weights: Tensor, left: Tensor, valid: Tensor) -> AttentionOutput:
    """Return the mean of the document, and the weights."""
    return AttentionOutput(_mean(weights, left), Weights.from_tensor(weights))


class AttentionOverAttention(nn.Module):
    """Attention from a query to the words of a document; it has no parameters.

    Call it with the document ``left (B, S, D)``, the query ``right (B, R, D)`` and, for padding,
    ``left_mask (B, S)`` and ``right_mask (B, R)`` (True = a real word). In the result ``left (B, S)`` is the
    weight of each document word, ``right (B, R)`` that of each query word, ``weights (B, R, S)`` the weights of each
    query word over the document, ``reverse (B, S, R)`` those of each document word over the query, and
    ``output (B, D)`` the mean of the document by ``left``. Where either side is empty all of them are zeros.

    Args:
        value_dim: the size D, if it is to be checked.

    Example:
        >>> import torch
        >>> from foci.functional.pointer import sum_occurrences
        >>> matched = AttentionOverAttention()(torch.zeros(1, 4, 3), torch.zeros(1, 2, 3))
        >>> matched.left.dense().tolist()
        [[0.25, 0.25, 0.25, 0.25]]
        >>> tokens, candidates = torch.tensor([[5, 6, 5, 7]]), torch.tensor([[5, 7]])
        >>> sum_occurrences(matched.left.dense(), tokens, candidates).tolist()
        [[0.5, 0.25]]
    """

    __prepare_scriptable__ = refuse_script

    def __init__(self, value_dim: int | None = None) -> None:
        super().__init__()
        check_sizes("AttentionOverAttention", value_dim=value_dim)
        self.value_dim = value_dim

    def extra_repr(self) -> str:
        """Return the size, for printing."""
        return f"value_dim={self.value_dim}"

    def forward(
        self,
        left: Float[Tensor, "B S D"],
        right: Float[Tensor, "B R D"],
        left_mask: Bool[Tensor, "B S"] | None = None,
        right_mask: Bool[Tensor, "B R"] | None = None,
    ) -> PairOutput:
        """Read the document ``left`` for the query ``right``."""
        left, right, left_valid, right_valid = check_pair(
            "AttentionOverAttention", left, right, left_mask, right_mask, size=self.value_dim
        )
        scores = dot(right, left)
        mask = right_valid.unsqueeze(2) & left_valid.unsqueeze(1)
        num_words = left_valid.sum(dim=1, keepdim=True).clamp_min(1)
        reverse = _over_query(scores.mT, mask.mT, num_words)
        of_right = _of_query(reverse.output, mask.any(dim=2))
        read = _over_attention(of_right.output, scores, mask)
        of_left = _of_document(read.output.squeeze(1), left, mask.any(dim=1))
        return PairOutput(of_left.output, read.weights, of_left.weights, of_right.weights, reverse.weights)

    if TYPE_CHECKING:

        @called_as(forward)
        def __call__(self) -> None:
            """Call `forward`, as torch does."""
