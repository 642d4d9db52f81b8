"""Greedy search: the likeliest token at every step."""

from __future__ import annotations

from foci.decoding.constraints import GenerationConstraints
from foci.decoding.inputs import DecoderInputs
from foci.decoding.search_state import Hypothesis, generate
from foci.layers.interfaces import StepDecoder


def greedy(
    decoder: StepDecoder, inputs: DecoderInputs, *, constraints: GenerationConstraints | None = None
) -> list[list[Hypothesis]]:
    """Take the likeliest token at every step.

    Args:
        decoder: in ``eval()``.
        inputs: the decoder's memory and first state.
        constraints: allowed lengths and tokens.

    Returns:
        One hypothesis per source, each in a list as from the other searches.
    """
    return generate(
        decoder, inputs, constraints or GenerationConstraints(), lambda logs, tokens, sources: logs.argmax(dim=-1)
    )
