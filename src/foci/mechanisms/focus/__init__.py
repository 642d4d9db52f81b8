"""Focus: which cells a query may read. `foci.Attention` takes one by name or as a module."""

from foci.mechanisms.focus.local_m import LocalM
from foci.mechanisms.focus.local_p import LocalP
from foci.mechanisms.focus.median_window import MedianWindow
from foci.mechanisms.focus.sliding_window import Causal, SlidingWindow

__all__ = ["Causal", "LocalM", "LocalP", "MedianWindow", "SlidingWindow"]
