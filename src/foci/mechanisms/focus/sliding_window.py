"""Sliding window: each query attends to its own cell and the cells around it.

    query i reads the keys j with  −left ≤ j − i ≤ right

Paper: Longformer: The Long-Document Transformer (Beltagy, Peters, Cohan, 2020), section 3.1 "sliding window",
    arXiv:2004.05150
Names: i = query, j = key, left and right = reach (half of w in the paper)
Complexity: O(L · (left + right + 1) · D) by cells
Differs: the two sides may differ; with fewer queries than keys the last query's own key is the last key.
"""

from __future__ import annotations

from torch import nn

from foci.errors import ConfigError


class SlidingWindow(nn.Module):
    """Attend from ``left`` cells before a query's own to ``right`` after it; None sets no bound.

    Example:
        >>> SlidingWindow(2, 0)
        SlidingWindow(left=2, right=0)
    """

    window: tuple[int | None, int | None]

    def __init__(self, left: int | None, right: int | None) -> None:
        super().__init__()
        for name, reach in (("left", left), ("right", right)):
            if reach is not None and reach < 0:
                raise ConfigError(f"SlidingWindow: {name} is {reach}, expected 0 or more, or None for no bound.")
        self.window = (left, right)

    def extra_repr(self) -> str:
        """Return the reach, for printing."""
        return f"left={self.window[0]}, right={self.window[1]}"


class Causal(SlidingWindow):
    """Attend to a query's own cell and all before it: the window ``(None, 0)``."""

    def __init__(self) -> None:
        super().__init__(None, 0)
