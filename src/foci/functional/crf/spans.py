"""Spans of a linear-chain CRF: the exact probability that a sequence has a span at a given place.

A span of a label from step i to step j is one run of tags: its first tag, its inner ones, its last one, and a step
after it that does not continue it. So its probability is a sum over all tag sequences that have this run, which
forward and backward messages (see `foci.mechanisms.structured.crf`) give at once:

    P(span) = α_i(first) exp(P[i, first] + Σ_{t=i+1..j} (A[y_t-1, y_t] + P[t, y_t])) γ_j(last) / Z
    γ_j(y)  = Σ_{y' does not continue the span} exp(A[y, y'] + P[j+1, y']) β_j+1(y'),   exp(e[y]) after the last step

After one forward and one backward pass every span costs O(1): for chosen spans the inner sums are differences of
cumulated sums, and for all spans they grow with the length. `foci.functional.kernels.crf` does both in C++.

Complexity: O(T·K²) for the messages, O(T·N·K) for γ of N labels, then O(1) for each span; O(T·K) memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

from foci.errors import ShapeError, check_positive
from foci.functional import kernels
from foci.functional.crf import spans_plain as crf_spans_plain
from foci.functional.crf.chain import checked_chain
from foci.functional.crf.chain_plain import Chain
from foci.functional.crf.spans_plain import SpanTags, SpanTerms

__all__ = ["SpanDistribution", "SpanTags", "span_distribution"]


@dataclass(frozen=True)
class SpanDistribution:
    """What a chain says about all spans at once. Made by `span_distribution`."""

    terms: SpanTerms

    def log_probability(
        self, row: Int[Tensor, " M"], first: Int[Tensor, " M"], last: Int[Tensor, " M"], label: Int[Tensor, " M"]
    ) -> Float[Tensor, " M"]:
        """Return the log-probability of M spans: from step ``first`` to step ``last`` of a row, with a label's number.

        Steps that are masked inside a span are skipped; a span that begins or ends at one has probability 0. In a row
        with a NaN or +inf among its scores everything is NaN.
        """
        return crf_spans_plain.log_probability(self.terms, row, first, last, label)

    def all(self, max_length: int | None = None) -> Float[Tensor, "B T W N"]:
        """Return the log-probability of every span: ``[b, t, w, n]`` begins at step t and has w + 1 steps.

        Args:
            max_length: the number W of steps of the longest span. Default: all steps.

        With masked steps inside of a row, w counts them too. Where a span would end behind the row it is ``-inf``.
        """
        steps = self.terms.inner.shape[1]
        if max_length is not None:
            check_positive("SpanDistribution.all", max_length=max_length)
        return kernels.crf.every_span(self.terms, steps if max_length is None else min(max_length, steps))


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
        >>> import torch
        >>> emissions, nothing = torch.zeros(1, 2, 3), torch.zeros(3)   # tags O, B, I; 9 sequences, equally likely
        >>> begin, inner = torch.tensor([1]), torch.tensor([2])
        >>> tags = SpanTags(begin, begin, inner, inner, inner)
        >>> found = span_distribution(emissions, torch.zeros(3, 3), nothing, nothing, None, tags)
        >>> found.all().exp()[0, :, :, 0].mul(9).round().tolist()  # B followed by O or B, B I; any followed by B
        [[2.0, 1.0], [3.0, 0.0]]
    """
    chain, _ = checked_chain("span_distribution", emissions, transitions, start, end, mask)
    _check_tags(tags, chain.emissions.shape[-1])
    e, t, s, d = (part.detach() for part in chain[:4])
    chain = Chain(e, t, s, d, chain.mask)
    return SpanDistribution(crf_spans_plain.terms(chain, tags, kernels.crf.span_messages(chain, tags)))


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
