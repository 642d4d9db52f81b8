"""The linear-chain CRF: a distribution over whole tag sequences that scores tags and their neighbors.

    s(y)  = start[y_1] + Σ_t emissions[t, y_t] + Σ_t transitions[y_t, y_t+1] + end[y_T]
    log Z = log Σ_y exp s(y)             p(y) = exp(s(y) - log Z)

Every function takes ``emissions (B, T, K)``, ``transitions (K, K)`` from row to column, ``start (K,)``,
``end (K,)`` and ``mask (B, T)`` (True = the step exists; see `foci.masks`). The mask may have any pattern: a
masked step is skipped at any position, so that its neighbors become adjacent, and its contents have no
effect. A row without steps has one sequence, the empty one, of score 0.

Forbidden tags and transitions score ``-inf`` in transitions, start, end or emissions. A row in which every sequence is
forbidden has ``log Z = -inf`` and marginals 0, and no NaN in values or gradients.

Half precision is computed in float32 and rounded at the end. A row takes O(T·K²) time in T sequential steps, and
training keeps O(T·K) numbers where `foci.functional.kernels.crf` is active; elsewhere the plain recursions of
`foci.functional.crf.chain_plain` run, in log space, and training keeps O(T·K²). ``torch.compile`` and ``torch.export``
see one operator for every batch size and number of steps.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from foci.checks import check_shape, check_together, check_valid
from foci.errors import ShapeError, check_positive
from foci.functional import kernels
from foci.functional.crf.chain_plain import Chain


class BestSequences(NamedTuple):
    """The best tag sequences, best first: ``tags (B, k, T)``, -1 at masked steps, and ``scores (B, k)``.

    Where a row has fewer than k allowed sequences, the rest have score ``-inf`` and tags -1.
    """

    tags: Tensor
    scores: Tensor


def log_partition(
    emissions: Float[Tensor, "B T K"],
    transitions: Float[Tensor, "K K"],
    start: Float[Tensor, " K"],
    end: Float[Tensor, " K"],
    mask: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, " B"]:
    """Return ``log Z``, the logsumexp of the scores of all tag sequences; 0 for an empty row.

    Example:
        >>> emissions, nothing = torch.zeros(1, 3, 2), torch.zeros(2)
        >>> log_partition(emissions, torch.zeros(2, 2), nothing, nothing).exp()  # 2 tags, 3 steps
        tensor([8.])
    """
    chain, dtype = checked_chain("log_partition", emissions, transitions, start, end, mask)
    return kernels.crf.total(chain, None).to(dtype)


def log_likelihood(
    emissions: Float[Tensor, "B T K"],
    transitions: Float[Tensor, "K K"],
    start: Float[Tensor, " K"],
    end: Float[Tensor, " K"],
    mask: Bool[Tensor, "B T"] | None,
    tags: Int[Tensor, "B T"],
) -> Float[Tensor, " B"]:
    """Return ``log p(tags)``; 0 for an empty row, ``-inf`` without a gradient where the tags are forbidden.

    Tags at masked steps are ignored and may have any value, such as -100. The training loss is minus its mean.
    """
    chain, dtype = checked_chain("log_likelihood", emissions, transitions, start, end, mask)
    _check_tags(tags, chain)
    return kernels.crf.total(chain, tags.long()).to(dtype)


def viterbi(
    emissions: Float[Tensor, "B T K"],
    transitions: Float[Tensor, "K K"],
    start: Float[Tensor, " K"],
    end: Float[Tensor, " K"],
    mask: Bool[Tensor, "B T"] | None = None,
    k: int = 1,
) -> BestSequences:
    """Return the exact ``k`` best tag sequences, best first, in O(k·T·K²).

    The scores are differentiable: their gradient is 1 at the tags and transitions of each sequence.
    """
    check_positive("viterbi", k=k)
    chain, dtype = checked_chain("viterbi", emissions, transitions, start, end, mask)
    tags, scores = kernels.crf.best(chain, k)
    return BestSequences(tags, scores.to(dtype))


def marginals(
    emissions: Float[Tensor, "B T K"],
    transitions: Float[Tensor, "K K"],
    start: Float[Tensor, " K"],
    end: Float[Tensor, " K"],
    mask: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B T K"]:
    """Return ``p(y_t = tag)`` over all sequences: it sums to 1 at every step that exists, and is 0 at masked ones."""
    chain, dtype = checked_chain("marginals", emissions, transitions, start, end, mask)
    return kernels.crf.marginals(chain).to(dtype)


def checked_chain(
    owner: str, emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, mask: Tensor | None
) -> tuple[Chain, torch.dtype]:
    """Return the checked chain in at least float32, and the dtype of the result."""
    check_shape(owner, "emissions", emissions, "batch", "step", "tag")
    batch, steps, num_tags = emissions.shape
    if num_tags == 0:
        raise ShapeError(f"{owner}: emissions has shape {tuple(emissions.shape)}, expected at least one tag.")
    fix = f"The emissions {tuple(emissions.shape)} score {num_tags} tags."
    check_shape(owner, "transitions", transitions, num_tags, num_tags, fix=fix)
    check_shape(owner, "start", start, num_tags, fix=fix)
    check_shape(owner, "end", end, num_tags, fix=fix)
    check_together(owner, emissions=emissions, transitions=transitions, start=start, end=end)
    dtype = torch.promote_types(emissions.dtype, transitions.dtype)
    wide = torch.promote_types(dtype, torch.float32)
    if mask is not None:
        check_valid(owner, "mask", mask, batch, steps, emissions.device)
    return Chain(emissions.to(wide), transitions.to(wide), start.to(wide), end.to(wide), mask), dtype


def _check_tags(tags: Tensor, chain: Chain) -> None:
    """Raise if type, shape or device of the tags is wrong; their values are checked later."""
    batch, steps, num_tags = chain.emissions.shape
    if not isinstance(tags, Tensor) or tags.is_floating_point() or tags.dtype == torch.bool:
        kind = tags.dtype if isinstance(tags, Tensor) else type(tags).__name__
        raise ShapeError(f"log_likelihood: tags is {kind}, expected a tensor of whole numbers 0 to {num_tags - 1}.")
    if tags.shape != (batch, steps):
        raise ShapeError(
            f"log_likelihood: tags has shape {tuple(tags.shape)}, expected (batch, step) = "
            f"({batch}, {steps}). Give every step a tag; masked steps may have any number."
        )
    if tags.device != chain.emissions.device:
        raise ShapeError(
            f"log_likelihood: tags is on {tags.device}, but emissions is on {chain.emissions.device}. "
            "Move it with tags.to(emissions.device)."
        )
