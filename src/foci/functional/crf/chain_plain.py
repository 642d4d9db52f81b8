"""The recursions of the linear-chain CRF in plain torch; `foci.functional.crf` documents what they compute.

They run on every device and in every precision and support all of torch's transforms; in `torch.export` each is a
`scan`, so that the number of steps stays dynamic. Where `foci.functional.kernels.crf` is active it computes the same
faster; elsewhere these functions run.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from foci.errors import DataError
from foci.masks import masked_softmax
from foci.tracing import is_traced, known_true, run_steps


class Chain(NamedTuple):
    """The checked arguments, in the precision that is computed in; without a mask every step exists."""

    emissions: Tensor
    transitions: Tensor
    start: Tensor
    end: Tensor
    mask: Tensor | None


class Filled(NamedTuple):
    """A chain with a mask; masked steps hold zeros."""

    emissions: Tensor
    transitions: Tensor
    start: Tensor
    end: Tensor
    mask: Tensor


def total(chain: Chain, tags: Tensor | None) -> Tensor:
    """Return ``log Z (B,)``, or ``log p(tags)`` of ``tags (B, T)``, whose values at masked steps are ignored."""
    filled = fill(chain)
    if tags is None:
        return _log_partition(filled)
    known = tags.masked_fill(~filled.mask, 0)
    num_tags = filled.emissions.shape[-1]
    # The values of a tensor are unknown while a graph is being traced.
    if not is_traced() and bool(((known < 0) | (known >= num_tags)).any()):
        raise unknown_tags(num_tags)
    scores = _sequence_scores(filled, known)
    # A forbidden sequence is left out before the subtraction: -inf - -inf would be NaN.
    forbidden = scores == -torch.inf
    difference = scores.masked_fill(forbidden, 0.0) - _log_partition(filled).masked_fill(forbidden, 0.0)
    return difference.masked_fill(forbidden, -torch.inf)


def unknown_tags(num_tags: int) -> DataError:
    """Return the error for tags out of range."""
    return DataError(
        f"log_likelihood: tags lie outside 0 to {num_tags - 1} at steps that exist. Mask the steps that "
        "have no tag (for example with mask = tags != -100), or score more tags."
    )


def marginals(chain: Chain) -> Tensor:
    """Return ``p(y_t = tag)``, ``(B, T, K)``; 0 at masked steps and in rows without any allowed sequence."""
    filled = fill(chain)
    before = _messages(filled.emissions, filled.transitions, filled.start, filled.mask)
    # The same chain in reverse.
    backwards = _messages(filled.emissions.flip(1), filled.transitions.mT, filled.end, filled.mask.flip(1))
    scores = before + filled.emissions + backwards.flip(1)
    allowed = (scores > -torch.inf) & filled.mask.unsqueeze(-1)
    return masked_softmax(scores, allowed)


def best(chain: Chain, k: int) -> tuple[Tensor, Tensor]:
    """Return tags ``(B, k, T)`` and scores ``(B, k)`` of the k best sequences; -1 and ``-inf`` if there are fewer."""
    filled = fill(chain)
    batch, steps, _ = filled.emissions.shape
    only_the_empty_one = pad(filled.emissions.new_zeros(1), (0, k - 1), value=-torch.inf)
    if known_true(steps == 0):
        nowhere = torch.empty((batch, k, 0), dtype=torch.int64, device=only_the_empty_one.device)
        return nowhere, only_the_empty_one.repeat(batch, 1)
    lists, sources = _best_lists(filled, k)
    scores, entries = _highest((lists + filled.end.unsqueeze(-1)).flatten(1), k)
    scores = torch.where(filled.mask.any(dim=1, keepdim=True), scores, only_the_empty_one)
    tags = _trace_back(sources, entries, filled.mask, k)
    return tags.masked_fill((scores == -torch.inf).unsqueeze(-1), -1), scores


def scores_of(chain: Chain, tags: Tensor) -> Tensor:
    """Return the scores ``(B, k)`` of the sequences that `best` found; 0, without a gradient, where there is none."""
    filled = fill(chain)
    known = tags.clamp_min(0)
    scores = torch.stack([_sequence_scores(filled, known[:, rank]) for rank in range(tags.shape[1])], dim=1)
    return torch.where((tags >= 0).any(dim=-1), scores, 0.0)


def fill(chain: Chain) -> Filled:
    """Return the chain with a mask; masked steps hold zeros."""
    emissions, transitions, start, end, mask = chain
    if mask is None:
        mask = torch.ones(emissions.shape[:2], dtype=torch.bool, device=emissions.device)
    else:
        emissions = emissions.masked_fill(~mask.unsqueeze(-1), 0.0)
    return Filled(emissions, transitions, start, end, mask)


def _messages(emissions: Tensor, transitions: Tensor, start: Tensor, mask: Tensor) -> Tensor:
    """Return ``(B, T, K)``: the log-sum over all prefixes that lead to each tag of each step, without its emission."""
    if known_true(emissions.shape[1] == 0):
        return emissions

    def step(before: Tensor, at: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        emission, here = at
        onward = _logsumexp((before + emission).mT + transitions, dim=1).unsqueeze(1)
        return torch.where(here.unsqueeze(-1), onward, before), (before,)

    _, (messages,) = run_steps(step, start.repeat(emissions.shape[0], 1, 1), (emissions, mask))
    return messages


def _log_partition(chain: Filled) -> Tensor:
    before = _messages(chain.emissions, chain.transitions, chain.start, chain.mask)
    at_last = torch.where(_last(chain.mask).unsqueeze(-1), before + chain.emissions, 0.0).sum(dim=1)
    return _logsumexp(at_last + chain.end, dim=-1).masked_fill(~chain.mask.any(dim=1), 0.0)


def _sequence_scores(chain: Filled, tags: Tensor) -> Tensor:
    """Return ``s(y)`` of one sequence per row, ``(B,)``; masked steps have tag 0."""
    steps = torch.arange(tags.shape[1], device=tags.device)
    last_so_far = torch.where(chain.mask, steps, -1).cummax(dim=1).values
    neighbor = pad(last_so_far, (1, 0), value=-1)[:, : tags.shape[1]]  # the step before, holes skipped; -1: none
    previous_tags = tags.gather(1, neighbor.clamp_min(0))
    pieces = [
        torch.where(_first(chain.mask), chain.start[tags], 0.0),
        torch.where(chain.mask & (neighbor >= 0), chain.transitions[previous_tags, tags], 0.0),
        torch.where(chain.mask, chain.emissions.gather(2, tags.unsqueeze(-1)).squeeze(-1), 0.0),
        torch.where(_last(chain.mask), chain.end[tags], 0.0),
    ]
    return torch.stack(pieces).sum(dim=(0, 2))


def _best_lists(chain: Filled, k: int) -> tuple[Tensor, Tensor]:
    """Run list Viterbi: return the k best scores that end in each tag, ``(B, K, k)``, and the back-pointers per step.

    An entry (tag, rank) is numbered ``tag * k + rank``; ``sources (B, T, K * k)`` holds for each entry of a step that
    of the step before. At the first step of a row there is none, and the number has no meaning.
    """
    batch, _, num_tags = chain.emissions.shape
    opening = pad(chain.start.unsqueeze(-1), (0, k - 1), value=-torch.inf)

    def step(lists: Tensor, at: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        emission, here, first = at
        # (B, to, from, rank)
        candidates = lists.unsqueeze(1) + chain.transitions.mT.unsqueeze(-1)
        arrived, source = _highest(candidates.flatten(2), k)
        arrived = torch.where(first.unsqueeze(-1), opening, arrived)
        lists = torch.where(here.unsqueeze(-1), arrived + emission.mT, lists)
        return lists, (source.flatten(1).unsqueeze(1),)

    nothing = chain.emissions.new_full((batch, num_tags, k), -torch.inf)
    lists, (sources,) = run_steps(step, nothing, (chain.emissions, chain.mask, _first(chain.mask)))
    return lists, sources


def _trace_back(sources: Tensor, entries: Tensor, mask: Tensor, k: int) -> Tensor:
    """Return ``(B, k, T)``: the tags on the path to the last ``entries (B, k)``, -1 at masked steps."""

    def step(entries: Tensor, at: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        source, here = at
        tags = torch.where(here, entries // k, -1)
        return torch.where(here, source.squeeze(1).gather(1, entries), entries), (tags.unsqueeze(1),)

    _, (tags,) = run_steps(step, entries, (sources.flip(1), mask.flip(1)))
    return tags.flip(1).mT


def _highest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k highest scores of the last axis and their indices; for k = 1 `torch.max` is twice as fast."""
    best = scores.max(dim=-1, keepdim=True) if k == 1 else scores.topk(k, dim=-1)
    return best.values, best.indices


def _logsumexp(scores: Tensor, dim: int) -> Tensor:
    """Compute `torch.logsumexp`, with gradient 0 instead of NaN where all terms are ``-inf``."""
    # The maximum cancels out of the value, so that its gradient is not needed.
    highest = scores.detach().amax(dim=dim, keepdim=True)
    highest = highest.masked_fill(highest == -torch.inf, 0.0)
    total = (scores - highest).exp().sum(dim=dim)
    dead = total == 0
    return (total.masked_fill(dead, 1.0).log() + highest.squeeze(dim)).masked_fill(dead, -torch.inf)


def _first(mask: Tensor) -> Tensor:
    """Return which step is the first that exists in its row; ``(B, T)``."""
    return mask & (mask.cumsum(dim=1) == 1)


def _last(mask: Tensor) -> Tensor:
    """Return which step is the last that exists in its row; ``(B, T)``."""
    return _first(mask.flip(1)).flip(1)
