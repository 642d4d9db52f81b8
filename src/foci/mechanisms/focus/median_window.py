"""Windowing: attention is limited to a window around the median of the previous step's weights.

    p_i = median of α_{i−1},   the window is [p_i − left, p_i + right]

Paper: Attention-Based Models for Speech Recognition (Chorowski et al., 2015), section 2.3 "windowing"
Names: α_{i−1} = previous, p_i = median, left and right = window (w in the paper)
Complexity: O(S) per step
Differs: the two sides may differ; before the first step there is no median and the window is the whole source.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from foci.errors import check_window
from foci.functional.stepwise import near_median
from foci.mechanisms.focus.focus import FocusModule
from foci.mechanisms.focus.sliding_window import window_of
from foci.mechanisms.parts import Reading, Sizes
from foci.outputs import AttentionOutput


class MedianWindow(FocusModule):
    """A window around the median of the previous weights, for scores whose state they are.

    Example:
        >>> import torch
        >>> MedianWindow(1, 2).mask(torch.tensor([[0.0, 0.2, 0.8, 0.0, 0.0, 0.0]])).int()
        tensor([[[0, 1, 1, 1, 1, 0]]], dtype=torch.int32)
    """

    remembers = True
    takes_steps = True
    takes_bias = True

    def __init__(self, left: int, right: int) -> None:
        super().__init__()
        check_window("MedianWindow", (left, right), bounded=True)
        self.left = left
        self.right = right

    @classmethod
    def build(cls, sizes: Sizes) -> MedianWindow:
        """Return a new focus of this window."""
        return cls(*window_of("median_window", sizes))

    def read(self, reading: Reading) -> AttentionOutput:
        """Return the output, the weights and the next state, which is the last weights."""
        return reading.score.read_steps(reading, (self.left, self.right))

    def mask(self, previous: Float[Tensor, "#B S"]) -> Bool[Tensor, "#B 1 S"]:
        """Return the positions around the median; all of them where there are no previous weights."""
        return near_median(previous, self.left, self.right)

    def extra_repr(self) -> str:
        """Return the window, for printing."""
        return f"left={self.left}, right={self.right}"
