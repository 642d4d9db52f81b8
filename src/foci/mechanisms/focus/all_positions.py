"""Global attention: each query reads all positions.

    output_i = Σ_j α_ij v_j,   over all j that the mask allows

Paper: Effective Approaches to Attention-based Neural Machine Translation (Luong, Pham, Manning, 2015),
    section 3.1 "global", arXiv:1508.04025
Names: i = query, j = key
Complexity: O(L · S · D)
Differs: nothing.
"""

from __future__ import annotations

from torch import nn

from foci.mechanisms.focus.sliding_window import read_at_once
from foci.mechanisms.parts import Reading, Sizes
from foci.outputs import AttentionOutput


class Global(nn.Module):
    """Attend to all positions.

    Example:
        >>> Global()
        Global()
    """

    gathers = False
    remembers = False
    takes_steps = True

    @classmethod
    def build(cls, sizes: Sizes) -> Global:
        """Return a new focus."""
        return cls()

    def read(self, reading: Reading) -> AttentionOutput:
        """Return the output and the weights, and the weights as the state of a score that remembers them."""
        return reading.score.read_steps(reading, None) if reading.score.remembers else read_at_once(reading, None)
