"""Searches for the best target of a decoder: greedy, beam and sampling."""

from foci.decoding.beam_search import beam
from foci.decoding.ctc_prefix import CtcJoinedDecoder
from foci.decoding.greedy_search import greedy
from foci.decoding.limits import Limits
from foci.decoding.sampling import Sampler, sample
from foci.decoding.search_state import Hypothesis, follow, following
from foci.decoding.selection import select
from foci.decoding.sliding_context import SlidingContext, windows
from foci.decoding.start import SearchStart, start_from_source

__all__ = [
    "CtcJoinedDecoder",
    "Hypothesis",
    "Limits",
    "Sampler",
    "SearchStart",
    "SlidingContext",
    "beam",
    "follow",
    "following",
    "greedy",
    "sample",
    "select",
    "start_from_source",
    "windows",
]
