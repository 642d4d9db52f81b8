"""Greedy search: the likeliest token at every step."""

from __future__ import annotations

from foci.decoding.limits import Limits
from foci.decoding.search_state import Hypothesis, follow
from foci.decoding.start import SearchStart
from foci.layers.interfaces import StepDecoder


def greedy(decoder: StepDecoder, start: SearchStart, *, limits: Limits | None = None) -> list[list[Hypothesis]]:
    """Take the likeliest token at every step.

    Args:
        decoder: in ``eval()``.
        start: the decoder's memory and first state.
        limits: allowed lengths and tokens.

    Returns:
        One hypothesis per source, each in a list as from the other searches.
    """
    return follow(decoder, start, limits or Limits(), lambda logs, tokens, sources: logs.argmax(dim=-1))
