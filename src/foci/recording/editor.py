"""Change what any PyTorch model reads, for the time of a block.

    with foci.edit(model) as e:
        e.knock_out("encoder.layers.3.self_attn", head=2)
        output = model(inputs)

All that `foci.record` records by the calls of its functions is edited there: the weights of the call are computed, the
edits applied, and the values read with what comes out. Only edited attentions leave torch's fused paths; where an edit
changes no weight, the result is that of the model, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from foci.recording.edits import Edits
from foci.recording.missed import Calls
from foci.recording.watching import Session, paths_of, watching


@contextmanager
def edit(model: nn.Module) -> Iterator[Edits]:
    """Change what the attentions of ``model`` read during the with-block; the model itself is not modified.

    Args:
        model: as for `foci.record`.

    Masks stay law: no edit opens a position that the model may not read. Blocks may be nested: the edits of the outer
    one are applied first. A `foci.record` in the block, or around it, records the edited weights. Gradients flow
    through edits; with activation checkpointing call `backward` in the block. Weights that a model of others returns
    beside its output are those before the edits.

    Raises:
        ConfigError: at the end of the block, if an edit had no effect; the message says why.

    Example:
        >>> import torch
        >>> from foci.recording import edit
        >>> model = torch.nn.MultiheadAttention(8, num_heads=2, batch_first=True)
        >>> x = torch.ones(1, 3, 8)
        >>> with edit(model) as e:
        ...     e.knock_out(".")
        ...     output, _ = model(x, x, x)
        >>> bool((output == model.out_proj.bias).all())
        True
    """
    paths, watched = paths_of("edit", model), Calls()
    edits = Edits(paths, watched)
    try:
        with watching(Session(paths, watched, edits=edits)):
            yield edits
    finally:
        edits._has_ended = True
    edits._check()
