"""Attention × gradient: which of the weights mattered for a score.

    map_ij = mean over heads of max(0, w_hij · ∂score/∂w_hij)

Paper: Generic Attention-model Explainability for Interpreting Bi-Modal and Encoder-Decoder Transformers (Chefer, Gur,
Wolf, 2021): its relevance of one layer
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foci.viz.given_weights import entry
from foci.weights import Weights

if TYPE_CHECKING:
    from foci.recording import Recording
    from foci.viz.trace import Trace


def with_gradients(trace: Trace, tape: Recording, row: int = 0) -> Trace:
    """Return the trace with a further map "gradient" for each attention of which the tape has one.

    Args:
        trace: made of the tape.
        tape: recorded with ``gradients=True``, `backward` called on a score since.
        row: the entry of the batch that the trace is of.
    """
    attentions = {}
    for name, attention in trace.attentions.items():
        gradient = tape.gradient(name) if len(tape.calls(name)) == 1 else None
        if gradient is not None:
            _, rows, columns = attention.shape
            of_batch = Weights.from_tensor(tape[name].dense().detach() * gradient)
            product = entry(name, of_batch, row, trace.axes).dense()[0]
            product = product.reshape((1,) * (3 - product.dim()) + product.shape)  # also without heads
            kept = product.clamp_min(0.0).mean(dim=0)[:rows, :columns].float().cpu().numpy()
            attention = replace(attention, extras={**attention.extras, "gradient": np.ascontiguousarray(kept)})
        attentions[name] = attention
    return replace(trace, attentions=attentions)
