"""Searches for the best target of a decoder: greedy, beam and sampling."""

from foci.decoding.beam_search import beam
from foci.decoding.constraints import GenerationConstraints
from foci.decoding.ctc_prefix import CtcJoinedDecoder
from foci.decoding.greedy_search import greedy
from foci.decoding.inputs import DecoderInputs, encode_source
from foci.decoding.sampling import Sampler, sample
from foci.decoding.search_state import Hypothesis, generate, iterate
from foci.decoding.selection import select
from foci.decoding.sliding_context import SlidingContext, windows

__all__ = [
    "CtcJoinedDecoder",
    "DecoderInputs",
    "GenerationConstraints",
    "Hypothesis",
    "Sampler",
    "SlidingContext",
    "beam",
    "encode_source",
    "generate",
    "greedy",
    "iterate",
    "sample",
    "select",
    "windows",
]
