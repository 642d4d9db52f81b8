"""Focus: which positions a query may read. `foci.Attention` takes one by name or as a module."""

from collections.abc import Callable

from foci.mechanisms.focus.all_positions import Global
from foci.mechanisms.focus.focus import FocusFunction, FocusModule
from foci.mechanisms.focus.local_m import LocalM
from foci.mechanisms.focus.local_p import LocalP
from foci.mechanisms.focus.median_window import MedianWindow
from foci.mechanisms.focus.sliding_window import Causal, SlidingWindow
from foci.mechanisms.parts import Sizes

__all__ = [
    "FOCUSES",
    "Causal",
    "FocusFunction",
    "FocusModule",
    "Global",
    "LocalM",
    "LocalP",
    "MedianWindow",
    "SlidingWindow",
]

FOCUSES: dict[str, Callable[[Sizes], FocusModule]] = {
    "global": Global.build,
    "causal": Causal.build,
    "sliding_window": SlidingWindow.build,
    "local_m": LocalM.build,
    "local_p": LocalP.build,
    "median_window": MedianWindow.build,
}
"""Name -> builder."""
