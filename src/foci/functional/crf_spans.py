"""Spans of a linear-chain CRF: the exact probability that a sequence has a span at a given place.

A span of a label from step i to step j is one run of tags: its first tag, its inner ones, its last one, and a step
after it that does not continue it. So its probability is a sum over all tag sequences that have this run, which
forward and backward messages (see `foci.mechanisms.structured.crf`) give at once:

    P(span) = α_i(first) exp(P[i, first] + Σ_{t=i+1..j} (A[y_t-1, y_t] + P[t, y_t])) γ_j(last) / Z
    γ_j(y)  = Σ_{y' does not continue the span} exp(A[y, y'] + P[j+1, y']) β_j+1(y'),   exp(e[y]) after the last step

The inner sums are differences of cumulated sums, so that after one forward and one backward pass every span costs O(1).

Complexity: O(T·K²) for the messages, O(T·N·K) for γ of N labels, then O(1) for each span; O(T·K) memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from foci.errors import ShapeError, check_positive
from foci.functional.crf import checked_chain
from foci.functional.crf_plain import Chain, Filled, fill

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


@dataclass(frozen=True)
class SpanDistribution:
    """What a chain says about all spans at once. Made by `span_distribution`.

    The tensors are float64: sums over long rows are differences of large numbers.
    """

    opened: Float[Tensor, "B T N"]
    """Log of the scores of all sequences up to a step that is the first of a longer span, its emission included."""
    alone: Float[Tensor, "B T N"]
    """The same for a span of one step."""
    until: Float[Tensor, "2 B T N"]
    """Emissions of the inner tag, summed over the steps before each one, and how many of them are forbidden."""
    through: Float[Tensor, "2 B T N"]
    """The same with the step itself."""
    last_emission: Float[Tensor, "B T N"]
    closed: Float[Tensor, "B T N"]
    """Log of the scores of all that may come after a longer span that ends at a step."""
    closed_alone: Float[Tensor, "B T N"]
    moves: Float[Tensor, "4 N"]
    """Transitions first → last, first → inner, inner → inner, inner → last."""
    place: Int[Tensor, "B T"]
    """How many steps that exist come before each step."""
    exists: Bool[Tensor, "B T"]
    log_partition: Float[Tensor, " B"]

    def log_probability(
        self, row: Int[Tensor, " M"], first: Int[Tensor, " M"], last: Int[Tensor, " M"], label: Int[Tensor, " M"]
    ) -> Float[Tensor, " M"]:
        """Return the log-probability of M spans: from step ``first`` to step ``last`` of a row, with a label's number.

        Steps that are masked inside a span are skipped; a span that begins or ends at one has probability 0.
        """
        length = self.place[row, last] - self.place[row, first] + 1
        to_last, to_inner, among_inner, from_inner = self.moves[:, label]
        between, forbidden = self.until[:, row, last, label] - self.through[:, row, first, label]
        between = between.masked_fill(forbidden > 0, -torch.inf)
        path = torch.where(length == 2, to_last, to_inner + from_inner + _times(length - 3, among_inner) + between)
        long = self.opened[row, first, label] + path + self.last_emission[row, last, label]
        long = long + self.closed[row, last, label]
        short = self.alone[row, first, label] + self.closed_alone[row, last, label]
        total = torch.where(length == 1, short, long) - self.log_partition[row]
        possible = (length > 0) & self.exists[row, first] & self.exists[row, last] & total.isfinite()
        return total.clamp_max(0.0).masked_fill(~possible, -torch.inf)

    def all(self, max_length: int | None = None) -> Float[Tensor, "B T W N"]:
        """Return the log-probability of every span: ``[b, t, w, n]`` begins at step t and has w + 1 steps.

        Args:
            max_length: the number W of steps of the longest span; all steps unless given.

        With masked steps inside of a row, w counts them too. Where a span would end behind the row it is ``-inf``.
        """
        rows, steps, labels = self.opened.shape
        width = steps if max_length is None else min(max_length, steps)
        if max_length is not None:
            check_positive("SpanDistribution.all", max_length=max_length)
        device = self.opened.device
        grid = torch.meshgrid(*(torch.arange(n, device=device) for n in (rows, steps, width, labels)), indexing="ij")
        row, first, longer, label = (part.flatten() for part in grid)
        last = first + longer
        found = self.log_probability(row, first, last.clamp_max(max(steps - 1, 0)), label)
        return found.masked_fill(last >= steps, -torch.inf).view(rows, steps, width, labels)


def span_distribution(
    emissions: Float[Tensor, "B T K"],
    transitions: Float[Tensor, "K K"],
    start: Float[Tensor, " K"],
    end: Float[Tensor, " K"],
    mask: Bool[Tensor, "B T"] | None,
    tags: SpanTags,
) -> SpanDistribution:
    """Return the distribution of the spans of a chain; arguments as in `foci.functional.crf`.

    Example:
        >>> emissions, nothing = torch.zeros(1, 2, 3), torch.zeros(3)   # tags O, B, I; 9 sequences, equally likely
        >>> begin, inner = torch.tensor([1]), torch.tensor([2])
        >>> tags = SpanTags(begin, begin, inner, inner, inner)
        >>> found = span_distribution(emissions, torch.zeros(3, 3), nothing, nothing, None, tags)
        >>> found.all().exp()[0, :, :, 0].mul(9).round().tolist()  # B followed by O or B, B I; any followed by B
        [[2.0, 1.0], [3.0, 0.0]]
    """
    chain, _ = checked_chain("span_distribution", emissions, transitions, start, end, mask)
    _check_tags(tags, chain.emissions.shape[-1])
    emissions, transitions, start, end = (part.detach().double() for part in chain[:4])
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

    inner = scores[..., tags.inner]
    forbidden = inner == -torch.inf
    inner = torch.stack([inner.masked_fill(forbidden, 0.0), forbidden.double()])
    through = inner.cumsum(dim=2)
    return SpanDistribution(
        opened=(before + scores)[..., tags.first],
        alone=(before + scores)[..., tags.single],
        until=through - inner,
        through=through,
        last_emission=scores[..., tags.last],
        closed=closed(tags.last),
        closed_alone=closed(tags.single),
        moves=torch.stack(
            [
                moves[tags.first, tags.last],
                moves[tags.first, tags.inner],
                moves[tags.inner, tags.inner],
                moves[tags.inner, tags.last],
            ]
        ),
        place=exists.cumsum(dim=1) - 1,
        exists=exists,
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
    """How far finite scores can put two tags of one step apart, beside each other and through their neighbours."""
    finite = [part[part.isfinite()] for part in scores]
    return 2 * sum(float(part.max() - part.min()) for part in finite if part.numel())


def _log_partition(joined: Tensor, exists: Tensor) -> Tensor:
    """``log Z`` from the scores of all sequences through each tag of each step; 0 for a row without a step."""
    if joined.shape[1] == 0:
        return joined.new_zeros(len(joined))
    first = exists.long().argmax(dim=1)
    totals = joined[torch.arange(len(joined), device=joined.device), first].logsumexp(dim=-1)
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


def _check_tags(tags: SpanTags, num_tags: int) -> None:
    count = tags.single.shape
    for name, part in tags._asdict().items():
        least = -1 if name == "continuing" else 0
        if part.dim() != 1 or part.shape != count or part.is_floating_point():
            raise ShapeError(
                f"span_distribution: {name} has shape {tuple(part.shape)} and {part.dtype}, expected one whole number "
                f"for each of the {count.numel()} labels."
            )
        if part.numel() and not least <= int(part.min()) <= int(part.max()) < num_tags:
            raise ShapeError(
                f"span_distribution: {name} lies outside of {least} to {num_tags - 1}, expected numbers of tags."
            )
