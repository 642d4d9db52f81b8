"""How much of the attention to a document each sentence has: for all views of documents."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foci.errors import ShapeError
from foci.viz.trace import Trace, TracedAttention


def shares_of_sentences(
    trace: Trace, attention: TracedAttention, weights: NDArray[np.float32], name: str | None = None, row: int = 0
) -> NDArray[np.float32]:
    """Each sentence's share: its weight in an attention over "sentences", or else what its words have together."""
    lengths = trace.axes[attention.source].sentence_lengths
    fitting = [
        other
        for other in trace.attentions.values()
        if other.source == "sentences" and other.target == attention.target and other.shape[2] == len(lengths)
    ]
    if name is not None:
        fitting = [trace.attention(name)]
        if fitting[0].shape[2] != len(lengths):
            raise ShapeError(
                f"{name!r} has {fitting[0].shape[2]} columns, but the document has {len(lengths)} sentences."
            )
    if fitting:
        shares: NDArray[np.float32] = fitting[0].dense()[row]
        return shares
    ends = np.cumsum(lengths)
    return np.array([weights[end - length : end].sum() for end, length in zip(ends, lengths)], dtype=np.float32)
