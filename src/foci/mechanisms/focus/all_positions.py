"""Global attention: each query reads all positions.

    output_i = Σ_j α_ij v_j,   over all j that the mask allows

Paper: Effective Approaches to Attention-based Neural Machine Translation (Luong, Pham, Manning, 2015),
    section 3.1 "global", arXiv:1508.04025
Names: i = query, j = key
Complexity: O(L · S · D)
Differs: nothing.
"""

from __future__ import annotations

from foci.mechanisms.focus.focus import FocusModule
from foci.mechanisms.parts import Reading, Sizes
from foci.outputs import AttentionOutput


class Global(FocusModule):
    """Attend to all positions.

    Example:
        >>> Global()
        Global()
    """

    takes_steps = True
    takes_bias = True

    @classmethod
    def build(cls, sizes: Sizes) -> Global:
        """Return a new focus."""
        return cls()

    def read(self, reading: Reading) -> AttentionOutput:
        """Return the output and the weights, and the weights as the state of a score that remembers them."""
        return reading.score.read_steps(reading, None) if reading.score.remembers else reading.attend()
