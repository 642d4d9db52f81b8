"""Greedy search: the likeliest token, step after step."""

from __future__ import annotations

from jaxtyping import Bool, Int
from torch import Tensor

from foci.decoding.limits import Limits
from foci.decoding.search import Hypothesis, follow
from foci.layers.seq2seq import Seq2Seq


def greedy(
    model: Seq2Seq, source: Int[Tensor, "B S"], source_valid: Bool[Tensor, "B S"], *, limits: Limits | None = None
) -> list[list[Hypothesis]]:
    """One hypothesis for each source, in a list as from the other searches. The model should be in ``eval()``."""
    return follow(model, source, source_valid, limits or Limits(), lambda logs: logs.argmax(dim=-1))
