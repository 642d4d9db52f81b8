"""From a model's three calls to sentences: greedy, beam and sampled search."""

from foci.decoding.beam import beam
from foci.decoding.greedy import greedy
from foci.decoding.limits import Limits
from foci.decoding.sample import sample
from foci.decoding.search import Hypothesis
from foci.decoding.state import select

__all__ = ["Hypothesis", "Limits", "beam", "greedy", "sample", "select"]
