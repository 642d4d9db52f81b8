"""Searches for the best target of a decoder: greedy, beam and sampling."""

from foci.decoding.beam_search import beam
from foci.decoding.greedy_search import greedy
from foci.decoding.limits import Limits
from foci.decoding.sampling import sample
from foci.decoding.search_state import Hypothesis
from foci.decoding.selection import select
from foci.decoding.start import SearchStart, start_from_source

__all__ = ["Hypothesis", "Limits", "SearchStart", "beam", "greedy", "sample", "select", "start_from_source"]
