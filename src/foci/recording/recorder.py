"""Record what any PyTorch model attends to, without changing what it computes.

    with foci.record(model) as tape:
        model(inputs)
    tape["encoder.layers.0.self_attn"].dense()      # (B, H, L, S)

Recorded are the mechanisms of foci, `torch.nn.MultiheadAttention`, every call of `foci.attend`, `flex_attention`,
`torch.nn.functional.scaled_dot_product_attention` or `multi_head_attention_forward`, and attention that the model's own
code writes out: a softmax whose result is multiplied with values (`foci.recording.written_out`). The tape holds handles
(`foci.weights.Weights`): of fused calls queries, keys and masks are kept, and weights are computed on request; of the
others the weights that the model computed. They are the weights before dropout.

What looks like attention and was not recorded is in `Recording.missed`, with the reason: recurrent states, TorchScript,
kernels of other packages.

Within `torch.func.vmap` the weights on the tape are those of one entry; after it has returned, those of all entries,
with the mapped axis first.

The model's results are unchanged bit for bit, torch's fused inference paths included. Only modules compiled by
`torch.compile` run eagerly in the block: their results are equal to rounding.

How: see `foci.recording.watching`. The model itself is not modified, so it can be copied or
saved in the block.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from foci.recording.projections import Projections
from foci.recording.tape import Recording
from foci.recording.watching import Session, paths_of, watching


@contextmanager
def record(
    model: nn.Module, *, detach: bool = False, gradients: bool = False, values: bool = False
) -> Iterator[Recording]:
    """Record every attention that runs inside ``model`` during the with-block; the `Recording` stays usable after it.

    Args:
        model: any module, in training or evaluation, on any device. A compiled model runs eagerly in the block, and
            has the paths of the model it was made from.
        detach: detach the weights from the graph. Otherwise weights recorded with gradients on are part of it: a
            penalty on their entropy can be added to the loss, but the graph is kept as long as the tape.
        gradients: keep what `Recording.gradient` needs of calls that are part of a graph: those that compute their
            weights, and those of `scaled_dot_product_attention` and `torch.nn.MultiheadAttention`.
        values: keep what `Recording.projected` needs: what linear layers were given and returned; those of the whole
            model until the block ends.

    With gradients or values the fused inference paths of torch's layers, which have neither, are not taken.

    Recorded is this thread; a block of the main thread records every other thread that has no block of its own too: let
    these end before the block does.
    Blocks may be nested or overlap, on one model or several; each has its own tape. What activation checkpointing
    computes a second time, in the backward pass, is not recorded a second time. A block that recorded nothing warns
    when it ends.

    Example:
        >>> import torch
        >>> from foci.recording import record
        >>> model = torch.nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, batch_first=True)
        >>> with record(model, detach=True) as tape:
        ...     output = model(torch.zeros(1, 3, 8))
        >>> tape
        Recording of 1 attention
          self_attn  (1, 2, 3, 3)
        >>> tape["self_attn"].heads(0).rows(2)
        tensor([[0.3333, 0.3333, 0.3333]])
    """
    tape = Recording()
    session = Session(paths_of("record", model), tape._watched, tape, detach=detach, gradients=gradients)
    if values:
        tape._projections = Projections(session.paths)
    try:
        with watching(session):
            yield tape
    finally:
        if tape._projections is not None:
            tape._projections.forget_others(tape.paths)
    if not tape:
        warnings.warn(f"record: {tape.why_empty}", stacklevel=3)
