"""Sliding window: each query attends to its own position and those around it.

    query i reads the keys j with  −left ≤ j − i ≤ right

Paper: Longformer: The Long-Document Transformer (Beltagy, Peters, Cohan, 2020), section 3.1 "sliding window",
    arXiv:2004.05150
Names: i = query, j = key, left and right = window (half of w in the paper)
Complexity: O(L · (left + right + 1) · D) by positions
Differs: the two sides may differ; with fewer queries than keys the last query's own key is the last key.
"""

from __future__ import annotations

from foci.errors import ConfigError, check_window
from foci.mechanisms.focus.focus import FocusModule
from foci.mechanisms.parts import Reading, Sizes
from foci.outputs import AttentionOutput


class SlidingWindow(FocusModule):
    """Attend from ``left`` positions before a query's own to ``right`` after it; None sets no bound.

    Example:
        >>> SlidingWindow(2, 0)
        SlidingWindow(left=2, right=0)
    """

    takes_bias = True
    window: tuple[int | None, int | None]

    def __init__(self, left: int | None, right: int | None) -> None:
        super().__init__()
        check_window("SlidingWindow", (left, right))
        self.window = (left, right)

    @classmethod
    def build(cls, sizes: Sizes) -> SlidingWindow:
        """Return a new focus of this window."""
        return cls(*window_of("sliding_window", sizes))

    def read(self, reading: Reading) -> AttentionOutput:
        """Return the output and the weights; there is no state."""
        return reading.attend(self.window)

    def extra_repr(self) -> str:
        """Return the window, for printing."""
        return f"left={self.window[0]}, right={self.window[1]}"


class Causal(SlidingWindow):
    """Attend to a query's own position and all before it: the window ``(None, 0)``."""

    def __init__(self) -> None:
        super().__init__(None, 0)

    @classmethod
    def build(cls, sizes: Sizes) -> Causal:
        """Return a new focus."""
        return cls()


def window_of(name: str, sizes: Sizes) -> tuple[int, int]:
    """Return the window, or raise if it was not given."""
    if sizes.window is None:
        raise ConfigError(f"Attention: focus {name!r} needs window=(left, right).")
    return sizes.window
