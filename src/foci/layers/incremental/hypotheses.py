"""Several hypotheses of one source attend to the same row of memory.

    rows (B·K, …)  <->  queries (B, K, …),   row b · K + k is hypothesis k of source b

Decoding keeps hypotheses as rows; attention takes the K hypotheses of a source as its K queries, so that no memory is
copied.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from foci.errors import ShapeError
from foci.tracing import exportable
from foci.weights import Weights
from foci.weights.sources import ByWeights, Dense, Rows, Source


def as_queries(owner: str, rows: Float[Tensor, "N D"], sources: int) -> Float[Tensor, "B K D"]:
    """Return the K hypotheses of each source as its queries."""
    return rows.reshape(sources, hypotheses_each(owner, rows.shape[0], sources), rows.shape[-1])


def hypotheses_each(owner: str, rows: int, sources: int) -> int:
    """Return K, the number of hypotheses per source."""
    if sources == 0 and rows == 0:
        return 1
    if sources == 0 or rows % sources:
        raise ShapeError(
            f"{owner}: token has {rows} rows, expected a multiple of the {sources} sources in the memory. "
            "Every source has the same number of hypotheses, in neighboring rows."
        )
    return rows // sources


def as_rows(weights: Weights) -> Weights:
    """Return the handle ``(B·K, 1, S)`` or ``(B·K, H, 1, S)`` on weights ``(B, K, S)`` or ``(B, H, K, S)``."""
    if weights.shape[-2] == 1:
        return weights
    log_prob = weights.log_prob
    if log_prob is not None:
        log_prob = log_prob.movedim(-1, 1).flatten(0, 1).unsqueeze(-1)
    drawn_from = None if weights.drawn_from is None else PerHypothesis(weights.drawn_from)
    return Weights(PerHypothesis(weights.source), log_prob, drawn_from)


def stack_steps(steps: list[Weights]) -> Weights:
    """Return one handle ``(B, T, S)`` on the weights ``(B, 1, S)`` of T steps."""
    logs = [step.log_prob for step in steps if step.log_prob is not None]
    behind = [step.drawn_from for step in steps if step.drawn_from is not None]
    return Weights(
        StackedSteps([step.source for step in steps]),
        torch.cat(logs, dim=-1) if logs else None,
        StackedSteps(behind) if behind else None,
    )


@exportable
@dataclass(eq=False)
class PerHypothesis(ByWeights):
    """Weights whose K queries per row became K rows of one query each."""

    of: Source

    @property
    def shape(self) -> torch.Size:
        """``(B·K, [H,] 1, S)``."""
        batch, *heads, queries, positions = self.of.shape
        return torch.Size((batch * queries, *heads, 1, positions))

    def rows(self, index: Rows) -> Tensor:
        """Return these rows of the second last axis."""
        weights = self.of.rows(slice(None)).movedim(-2, 1).flatten(0, 1).unsqueeze(-2)
        return weights[..., index, :]

    def entries(self, index: slice) -> Dense:  # type: ignore[override]
        """Return some hypotheses only."""
        return Dense(self.rows(slice(None))[index])

    def heads(self, index: int | slice | Tensor) -> PerHypothesis:
        """Return the source of some heads only."""
        return PerHypothesis(self.of.heads(index))


@exportable
@dataclass(eq=False)
class StackedSteps(ByWeights):
    """The weights of consecutive steps, of one query each."""

    of: list[Source]

    @property
    def shape(self) -> torch.Size:
        """``(…, T, S)``."""
        first = self.of[0].shape
        return torch.Size((*first[:-2], len(self.of), first[-1]))

    def rows(self, index: Rows) -> Tensor:
        """Return these rows of the second last axis; a slice computes no others."""
        if not isinstance(index, slice):
            return self.rows(slice(None))[..., index, :]
        chosen = self.of[index]
        if not chosen:
            return self.of[0].rows(slice(0, 0))
        return torch.cat([step.rows(slice(None)) for step in chosen], dim=-2)

    def heads(self, index: int | slice | Tensor) -> StackedSteps:
        """Return the source of some heads only."""
        return StackedSteps([step.heads(index) for step in self.of])
