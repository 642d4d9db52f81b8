"""The probabilities of spans in plain torch; `foci.functional.crf.spans` documents what they are.

Where `foci.functional.kernels.crf` is active it computes the same faster; elsewhere these functions run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from foci.functional.crf.chain_plain import Chain, Filled, fill

_SAFE = 700.0
"""exp of less than minus this is 0 in float64."""

_Combine = Callable[[Tensor, Tensor], Tensor]


class SpanTags(NamedTuple):
    """The tags of N labels, each ``(N,)``: of a span of one step; of the first, inner and last step of a longer one.

    ``continuing`` is the tag that must not follow a span, because it would continue it; -1 where there is none.
    """

    single: Tensor
    first: Tensor
    inner: Tensor
    last: Tensor
    continuing: Tensor


class SpanMessages(NamedTuple):
    """The log-sums of all that surrounds the spans of each step and label, and that of all sequences; in float64."""

    opened: Float[Tensor, "B T N"]
    """Of the sequences up to a step that is the first of a longer span, its emission included."""
    alone: Float[Tensor, "B T N"]
    """The same for a span of one step."""
    closed: Float[Tensor, "B T N"]
    """Of all that may come after a longer span that ends at a step."""
    closed_alone: Float[Tensor, "B T N"]
    """The same for a span of one step."""
    log_partition: Float[Tensor, " B"]
    """Of all sequences; NaN where a score is NaN or +inf."""


@dataclass(frozen=True)
class SpanTerms:
    """All terms of the probabilities of spans, in float64: sums over long rows are differences of large numbers."""

    messages: SpanMessages
    inner: Float[Tensor, "B T N"]
    """Emissions of the inner tag."""
    last: Float[Tensor, "B T N"]
    """Emissions of the last tag."""
    moves: Float[Tensor, "4 N"]
    """Transitions first → last, first → inner, inner → inner, inner → last."""
    exists: Bool[Tensor, "B T"]

    @cached_property
    def place(self) -> Int[Tensor, "B T"]:
        """How many steps that exist come before each step."""
        return self.exists.cumsum(dim=1) - 1

    @cached_property
    def through(self) -> Float[Tensor, "2 B T N"]:
        """Emissions of the inner tag, summed up to each step, and how many of them are forbidden."""
        forbidden = self.inner == -torch.inf
        return torch.stack([self.inner.masked_fill(forbidden, 0.0), forbidden.double()]).cumsum(dim=2)


def terms(chain: Chain, tags: SpanTags, messages: SpanMessages) -> SpanTerms:
    """Return the terms of a chain whose messages are known."""
    filled = fill(chain)
    moves = filled.transitions
    pairs = ((tags.first, tags.last), (tags.first, tags.inner), (tags.inner, tags.inner), (tags.inner, tags.last))
    return SpanTerms(
        messages,
        filled.emissions[..., tags.inner].double(),
        filled.emissions[..., tags.last].double(),
        torch.stack([moves[pair] for pair in pairs]).double(),
        filled.mask,
    )


def log_probability(spans: SpanTerms, row: Tensor, first: Tensor, last: Tensor, label: Tensor) -> Tensor:
    """Return the log-probability of some spans; see `crf_spans.SpanDistribution.log_probability`."""
    found, moves, exists = spans.messages, spans.moves[:, label], spans.exists
    length = spans.place[row, last] - spans.place[row, first] + 1
    to_last, to_inner, among_inner, from_inner = moves
    # The sum before the last step less that up to the first one; the last emission may be -inf by itself.
    between, forbidden = spans.through[:, row, last, label] - spans.through[:, row, first, label]
    own = spans.inner[row, last, label]
    forbidden = forbidden - (own == -torch.inf).double()
    between = (between - own.masked_fill(own == -torch.inf, 0.0)).masked_fill(forbidden > 0, -torch.inf)
    path = torch.where(length == 2, to_last, to_inner + from_inner + _times(length - 3, among_inner) + between)
    long = found.opened[row, first, label] + path + spans.last[row, last, label] + found.closed[row, last, label]
    short = found.alone[row, first, label] + found.closed_alone[row, last, label]
    total = found.log_partition[row]
    possible = (length > 0) & exists[row, first] & exists[row, last] & (total != -torch.inf)
    return (torch.where(length == 1, short, long) - total).clamp_max(0.0).masked_fill(~possible, -torch.inf)


def every_span(spans: SpanTerms, width: int) -> Tensor:
    """Return the log-probability of all spans of up to ``width`` steps, ``(B, T, width, N)``."""
    rows, steps, labels = spans.inner.shape
    sizes = (rows, steps, width, labels)
    grid = torch.meshgrid(*(torch.arange(n, device=spans.inner.device) for n in sizes), indexing="ij")
    row, first, longer, label = (part.flatten() for part in grid)
    last = first + longer
    found = log_probability(spans, row, first, last.clamp_max(max(steps - 1, 0)), label)
    return found.masked_fill(last >= steps, -torch.inf).view(sizes)


def messages(chain: Chain, tags: SpanTags) -> SpanMessages:
    """Return what may come before and after the spans of each step and label."""
    emissions, transitions, start, end = (part.double() for part in chain[:4])
    filled = fill(Chain(emissions, transitions, start, end, chain.mask))
    scores, moves, exists = filled.emissions, filled.transitions, filled.mask
    combine = _log_matmul if _range(*filled[:4]) < _SAFE else _log_sum
    before, after = _both_messages(filled, combine)
    onward = _gather_next(scores + after, exists)
    has_next = exists & (exists.flip(1).cumsum(dim=1).flip(1) > 1)

    def closed(tag: Tensor) -> Tensor:
        """Log-sum over all that may come after each step with these tags and does not continue their spans."""
        allowed = moves[tag].clone()  # (N, K)
        continued = tags.continuing >= 0
        allowed[continued.nonzero().squeeze(1), tags.continuing[continued]] = -torch.inf
        return torch.where(has_next.unsqueeze(-1), combine(onward, allowed), filled.end[tag])

    return SpanMessages(
        opened=(before + scores)[..., tags.first],
        alone=(before + scores)[..., tags.single],
        closed=closed(tags.last),
        closed_alone=closed(tags.single),
        log_partition=_log_partition(before + scores + after, exists),
    )


def _both_messages(chain: Filled, combine: _Combine) -> tuple[Tensor, Tensor]:
    """Return the log-sums over all that comes before each tag of each step, and over all that comes after it."""
    emissions, transitions, start, end, exists = chain
    before = _messages(emissions, transitions.mT, start, exists, combine)
    after = _messages(emissions.flip(1), transitions, end, exists.flip(1), combine).flip(1)
    return before, after


def _messages(emissions: Tensor, moves: Tensor, start: Tensor, exists: Tensor, combine: _Combine) -> Tensor:
    """``(B, T, K)``: the log-sum over all that may come before each tag of each step, without its emission."""
    message, found = start.expand(len(emissions), -1), []
    for step in range(emissions.shape[1]):
        found.append(message)
        onward = combine(message + emissions[:, step], moves)
        message = torch.where(exists[:, step : step + 1], onward, message)
    return torch.stack(found, dim=1) if found else emissions


def _range(*scores: Tensor) -> float:
    """How far finite scores can put two tags of one step apart, beside each other and through their neighbors."""
    finite = [part[part.isfinite()] for part in scores]
    return 2 * sum(float(part.max() - part.min()) for part in finite if part.numel())


def _log_partition(joined: Tensor, exists: Tensor) -> Tensor:
    """``log Z`` from the scores of all sequences through each tag of each step; 0 for a row without a step."""
    if joined.shape[1] == 0:
        return joined.new_zeros(len(joined))
    first = exists.long().argmax(dim=1)
    totals = joined[torch.arange(len(joined), device=joined.device), first].logsumexp(dim=-1)
    totals = totals.masked_fill(totals == torch.inf, torch.nan)
    return totals.masked_fill(~exists.any(dim=1), 0.0)


def _times(count: Tensor, value: Tensor) -> Tensor:
    """``count · value``, 0 where the count is 0 even if the value is ``-inf``."""
    return torch.where(count > 0, count * value, 0.0)


def _gather_next(scores: Tensor, exists: Tensor) -> Tensor:
    """What the next step that exists holds, for each step; any step where there is none."""
    steps = torch.arange(exists.shape[1], device=exists.device)
    at = torch.where(exists, steps, exists.shape[1])
    following = torch.cat([at[:, 1:], at.new_full((len(at), 1), exists.shape[1])], dim=1)
    following = following.flip(1).cummin(dim=1).values.flip(1).clamp_max(max(exists.shape[1] - 1, 0))
    return scores.gather(1, following.unsqueeze(-1).expand_as(scores))


def _log_matmul(scores: Tensor, moves: Tensor) -> Tensor:
    """``log Σ_k exp(scores[…, k] + moves[n, k])``, ``(…, n)``, by a product of matrices instead of n exponentials each.

    Terms that lie `_SAFE` below the largest scores and moves are lost.
    """
    of_scores, of_moves = (part.amax(dim=-1, keepdim=True).nan_to_num(neginf=0.0) for part in (scores, moves))
    summed = (scores - of_scores).exp() @ (moves - of_moves).exp().mT
    return summed.log() + of_scores + of_moves.squeeze(-1)


def _log_sum(scores: Tensor, moves: Tensor) -> Tensor:
    """The same for scores of any size."""
    return (scores.unsqueeze(-2) + moves).logsumexp(dim=-1)
