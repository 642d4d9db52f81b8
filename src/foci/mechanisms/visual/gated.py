"""Multiplying a map by its gates, in a way that `foci.edit` can change."""

from __future__ import annotations

from torch import Tensor

from foci.outputs import AttentionOutput
from foci.recording.changes import Gates
from foci.recording.rereading import Reread
from foci.recording.watching import editable
from foci.weights import Weights


def _reread(features: Tensor, weights: Weights, output: Tensor | None = None) -> Reread:
    """Return how gates read."""
    return Reread(lambda gates: features * gates, lambda: None, None, kind=Gates)


@editable(_reread)
def gated(features: Tensor, weights: Weights, output: Tensor | None = None) -> AttentionOutput:
    """Return the features times their weights; or the output, where that is computed already."""
    return AttentionOutput(features * weights.dense() if output is None else output, weights)
