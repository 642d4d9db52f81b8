"""The linear-chain CRF: a distribution over whole tag sequences that scores tags and their neighbours.

    s(y)  = start[y_1] + Σ_t emissions[t, y_t] + Σ_t transitions[y_t, y_t+1] + end[y_T]
    log Z = log Σ_y exp s(y)             p(y) = exp(s(y) - log Z)

Every function takes ``emissions (B, T, K)``, ``transitions (K, K)`` from row to column, ``start (K,)``,
``end (K,)`` and ``mask (B, T)`` (True = the step exists; see `foci.masks`). The mask may have any pattern: a
masked step is skipped wherever it stands, so that its neighbours become adjacent, and what it holds does not
matter at all. A row without a step has one sequence, the empty one, of score 0.

What is forbidden scores ``-inf`` in transitions, start, end or emissions. A row in which every sequence is
forbidden has ``log Z = -inf`` and marginals 0. No NaN comes of it, neither in values nor in gradients.

Half precision is computed in float32 and rounded at the end. All recursions are in log space, O(T·K²) for a
row, T steps one after another (``torch.compile`` unrolls them: it takes its time over long sequences).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from foci.errors import DataError, ShapeError, check_positive, check_shape, check_together, check_valid
from foci.masks import masked_softmax


class Decoded(NamedTuple):
    """The best tag sequences, best first: ``tags (B, k, T)``, -1 at masked steps, and ``scores (B, k)``.

    Where a row has fewer than k allowed sequences, the rest have score ``-inf`` and tags -1.
    """

    tags: Tensor
    scores: Tensor


class _Chain(NamedTuple):
    """The checked arguments in the precision that is computed in; masked steps hold zeros."""

    emissions: Tensor
    transitions: Tensor
    start: Tensor
    end: Tensor
    mask: Tensor


def log_partition(
    emissions: Float[Tensor, "B T K"],
    transitions: Float[Tensor, "K K"],
    start: Float[Tensor, " K"],
    end: Float[Tensor, " K"],
    mask: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, " B"]:
    """``log Z``: the log of the summed exponential scores of all tag sequences, 0 for an empty row.

    Example:
        >>> emissions, nothing = torch.zeros(1, 3, 2), torch.zeros(2)
        >>> log_partition(emissions, torch.zeros(2, 2), nothing, nothing).exp()  # 2 tags, 3 steps
        tensor([8.])
    """
    chain, dtype = _prepare("log_partition", emissions, transitions, start, end, mask)
    return _log_partition(chain).to(dtype)


def log_likelihood(
    emissions: Float[Tensor, "B T K"],
    transitions: Float[Tensor, "K K"],
    start: Float[Tensor, " K"],
    end: Float[Tensor, " K"],
    mask: Bool[Tensor, "B T"] | None,
    tags: Int[Tensor, "B T"],
) -> Float[Tensor, " B"]:
    """``log p(tags)``; 0 for an empty row, ``-inf`` and without a gradient where the tags are forbidden.

    Tags at masked steps are ignored, whatever they are (-100, say). Minus its mean is the loss to train with.
    """
    chain, dtype = _prepare("log_likelihood", emissions, transitions, start, end, mask)
    scores = _sequence_scores(chain, _check_tags(tags, chain))
    # A forbidden sequence stands aside before the subtraction: -inf - -inf would be NaN.
    forbidden = scores == -torch.inf
    difference = scores.masked_fill(forbidden, 0.0) - _log_partition(chain).masked_fill(forbidden, 0.0)
    return difference.masked_fill(forbidden, -torch.inf).to(dtype)


def viterbi(
    emissions: Float[Tensor, "B T K"],
    transitions: Float[Tensor, "K K"],
    start: Float[Tensor, " K"],
    end: Float[Tensor, " K"],
    mask: Bool[Tensor, "B T"] | None = None,
    k: int = 1,
) -> Decoded:
    """The ``k`` best tag sequences, exactly and best first, in O(k·T·K²).

    The scores are differentiable: their gradient marks what each sequence went through.
    """
    check_positive("viterbi", k=k)
    chain, dtype = _prepare("viterbi", emissions, transitions, start, end, mask)
    lists, sources = _best_lists(chain, k)
    scores, cells = _highest((lists + chain.end.unsqueeze(-1)).flatten(1), k)
    only_the_empty_one = pad(scores.new_zeros(1), (0, k - 1), value=-torch.inf)
    scores = torch.where(chain.mask.any(dim=1, keepdim=True), scores, only_the_empty_one)
    tags = _trace_back(sources, cells, chain.mask, k)
    return Decoded(tags.masked_fill((scores == -torch.inf).unsqueeze(-1), -1), scores.to(dtype))


def marginals(
    emissions: Float[Tensor, "B T K"],
    transitions: Float[Tensor, "K K"],
    start: Float[Tensor, " K"],
    end: Float[Tensor, " K"],
    mask: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B T K"]:
    """``p(y_t = tag)`` over all sequences: sums to 1 at every step that exists, 0 at masked ones."""
    chain, dtype = _prepare("marginals", emissions, transitions, start, end, mask)
    before = _messages(chain.emissions, chain.transitions, chain.start, chain.mask)
    # The same chain read from its end.
    backwards = _messages(chain.emissions.flip(1), chain.transitions.mT, chain.end, chain.mask.flip(1))
    scores = before + chain.emissions + backwards.flip(1)
    allowed = (scores > -torch.inf) & chain.mask.unsqueeze(-1)
    return masked_softmax(scores, allowed).to(dtype)


def _messages(emissions: Tensor, transitions: Tensor, start: Tensor, mask: Tensor) -> Tensor:
    """``(B, T, K)``: the log-sum over all that may come before each tag of each step, without its emission."""
    before = start.expand(emissions.shape[0], -1)
    messages = []
    for emission, here in zip(emissions.unbind(1), mask.unsqueeze(-1).unbind(1)):
        messages.append(before)
        onward = _logsumexp((before + emission).unsqueeze(-1) + transitions, dim=1)
        before = torch.where(here, onward, before)
    return torch.stack(messages, dim=1) if messages else emissions


def _log_partition(chain: _Chain) -> Tensor:
    before = _messages(chain.emissions, chain.transitions, chain.start, chain.mask)
    at_last = torch.where(_last(chain.mask).unsqueeze(-1), before + chain.emissions, 0.0).sum(dim=1)
    return _logsumexp(at_last + chain.end, dim=-1).masked_fill(~chain.mask.any(dim=1), 0.0)


def _sequence_scores(chain: _Chain, tags: Tensor) -> Tensor:
    """``s(y)`` of one sequence a row, ``(B,)``; masked steps hold tag 0."""
    steps = torch.arange(tags.shape[1], device=tags.device)
    last_so_far = torch.where(chain.mask, steps, -1).cummax(dim=1).values
    neighbour = pad(last_so_far, (1, 0), value=-1)[:, : tags.shape[1]]  # the step before, holes skipped; -1: none
    previous_tags = tags.gather(1, neighbour.clamp_min(0))
    pieces = [
        torch.where(_first(chain.mask), chain.start[tags], 0.0),
        torch.where(chain.mask & (neighbour >= 0), chain.transitions[previous_tags, tags], 0.0),
        torch.where(chain.mask, chain.emissions.gather(2, tags.unsqueeze(-1)).squeeze(-1), 0.0),
        torch.where(_last(chain.mask), chain.end[tags], 0.0),
    ]
    return torch.stack(pieces).sum(dim=(0, 2))


def _best_lists(chain: _Chain, k: int) -> tuple[Tensor, list[Tensor]]:
    """List Viterbi: the k best scores that end in each tag, ``(B, K, k)``, and for each step their sources.

    A cell (tag, rank) is numbered ``tag * k + rank``; ``sources[t] (B, K * k)`` holds for each cell of step t
    the cell of the step before. At the first step of a row there is none, and the number means nothing.
    """
    batch, _, num_tags = chain.emissions.shape
    opening = pad(chain.start.unsqueeze(-1), (0, k - 1), value=-torch.inf)
    lists = chain.emissions.new_full((batch, num_tags, k), -torch.inf)
    first = _first(chain.mask)
    sources = []
    for step, emission in enumerate(chain.emissions.unbind(1)):
        # (B, to, from, rank)
        candidates = lists.unsqueeze(1) + chain.transitions.mT.unsqueeze(-1)
        arrived, source = _highest(candidates.flatten(2), k)
        arrived = torch.where(first[:, step, None, None], opening, arrived)
        lists = torch.where(chain.mask[:, step, None, None], arrived + emission.unsqueeze(-1), lists)
        sources.append(source.flatten(1))
    return lists, sources


def _trace_back(sources: list[Tensor], cells: Tensor, mask: Tensor, k: int) -> Tensor:
    """``(B, k, T)``: the tags passed on the way to the last ``cells (B, k)``, -1 at masked steps."""
    tags = []
    for source, here in zip(reversed(sources), reversed(mask.unsqueeze(-1).unbind(1))):
        tags.append(torch.where(here, cells // k, -1))
        cells = torch.where(here, source.gather(1, cells), cells)
    return torch.stack(tags[::-1], dim=-1) if tags else cells.new_empty(*cells.shape, 0)


def _highest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k highest scores of the last axis and where they stand; for k = 1 `torch.max` is twice as fast."""
    best = scores.max(dim=-1, keepdim=True) if k == 1 else scores.topk(k, dim=-1)
    return best.values, best.indices


def _logsumexp(scores: Tensor, dim: int) -> Tensor:
    """As `torch.logsumexp`, but sums of nothing but ``-inf`` have gradient 0 instead of NaN."""
    # The maximum cancels out of the value, so that its gradient is not needed.
    highest = scores.detach().amax(dim=dim, keepdim=True)
    highest = highest.masked_fill(highest == -torch.inf, 0.0)
    total = (scores - highest).exp().sum(dim=dim)
    dead = total == 0
    return (total.masked_fill(dead, 1.0).log() + highest.squeeze(dim)).masked_fill(dead, -torch.inf)


def _first(mask: Tensor) -> Tensor:
    """Which step is the first that exists in its row; ``(B, T)``."""
    return mask & (mask.cumsum(dim=1) == 1)


def _last(mask: Tensor) -> Tensor:
    """Which step is the last that exists in its row; ``(B, T)``."""
    return _first(mask.flip(1)).flip(1)


def _prepare(
    owner: str, emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, mask: Tensor | None
) -> tuple[_Chain, torch.dtype]:
    """The checked chain in at least float32, and the dtype to answer in."""
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
    if mask is None:
        mask = torch.ones(batch, steps, dtype=torch.bool, device=emissions.device)
    else:
        check_valid(owner, "mask", mask, batch, steps, emissions.device)
        emissions = emissions.masked_fill(~mask.unsqueeze(-1), 0.0)
    chain = _Chain(emissions.to(wide), transitions.to(wide), start.to(wide), end.to(wide), mask)
    return chain, dtype


def _check_tags(tags: Tensor, chain: _Chain) -> Tensor:
    """Tags as int64 with 0 at masked steps, or raise what is wrong with them."""
    batch, steps, num_tags = chain.emissions.shape
    if not isinstance(tags, Tensor) or tags.is_floating_point() or tags.dtype == torch.bool:
        kind = tags.dtype if isinstance(tags, Tensor) else type(tags).__name__
        raise ShapeError(f"log_likelihood: tags is {kind}, expected a tensor of whole numbers 0 to {num_tags - 1}.")
    if tags.shape != chain.mask.shape:
        raise ShapeError(
            f"log_likelihood: tags has shape {tuple(tags.shape)}, expected (batch, step) = "
            f"({batch}, {steps}). Give every step a tag; at masked steps any number will do."
        )
    if tags.device != chain.mask.device:
        raise ShapeError(
            f"log_likelihood: tags is on {tags.device}, but emissions is on {chain.mask.device}. "
            "Move it with tags.to(emissions.device)."
        )
    known = tags.long().masked_fill(~chain.mask, 0)
    # What a tensor holds cannot be asked while a graph is being traced.
    if not torch.compiler.is_compiling() and bool(((known < 0) | (known >= num_tags)).any()):
        raise DataError(
            f"log_likelihood: tags lie outside 0 to {num_tags - 1} at steps that exist. Mask the steps that "
            "have no tag (mask = tags != -100, say), or score more tags."
        )
    return known
