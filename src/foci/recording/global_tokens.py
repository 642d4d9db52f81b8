"""PEGASUS-X's attention: blocks of tokens that read themselves, and global tokens that read and are read by all.

    global tokens read  (global, all tokens)        block i reads  (global, block i)

Each of the two has a softmax of its own, and the columns of the second are read in two pieces. The positions are the
global tokens and then the others, of which every second layer begins with half a block of padding. A module that has
the method ``compute_local_attention_representations`` is known to be one.

Paper: Investigating Efficiently Extending Transformers for Long Input Summarization (Phang, Zhao and Liu, 2022),
section 4.2
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from foci.recording.joined import Joined, Pieces
from foci.weights import Weights

_METHOD = "compute_local_attention_representations"


def has_global_tokens(module: Any) -> bool:
    """Return whether the module attends as PEGASUS-X does."""
    return callable(getattr(module, _METHOD, None))


def of_global_tokens(module: Any, pieces: Pieces) -> Joined | None:
    """Return the attention of a call of the module, None where its softmaxes have another form.

    Those are ``(B, H, G, G + N)`` and ``(B, H, blocks, size, G + size)``.
    """
    given, call = [result for _, result in pieces.softmaxes], pieces.call
    if not pieces.have([4, 5], "token_hidden_states", "global_hidden_states", "attention_mask"):
        return None
    of_global, of_blocks = given
    count, length = of_global.shape[2:]

    def placed(of_global: Tensor, of_blocks: Tensor) -> Tensor:
        """Return the weights of all positions, ``(B, H, G + N, G + N)``."""
        near = torch.diag_embed(of_blocks[..., count:].movedim(2, -1), dim1=2, dim2=4).flatten(4).flatten(2, 3)
        of_tokens = torch.cat([of_blocks[..., :count].flatten(2, 3), near], dim=-1)
        return torch.cat([of_global, of_tokens], dim=2)

    def find_open() -> Tensor:
        blocks = of_blocks.new_ones(()).expand(of_blocks.shape)
        read = placed(of_global.new_ones(()).expand(of_global.shape), blocks) > 0.0
        closed = call["attention_mask"] < 0.0
        return read & ~torch.nn.functional.pad(closed, (length - closed.shape[1], 0))[:, None, None]

    def values() -> list[Tensor]:
        """Return the values of all positions; no call, which would be recorded again."""
        return [module.v_proj.forward(torch.cat([call["global_hidden_states"], call["token_hidden_states"]], dim=1))]

    def finish(read: Tensor, output: Any) -> Any:
        return module.out_proj.forward(read[:, count:]), module.out_proj.forward(read[:, :count]), *output[2:]

    pieces.are_read()
    return Joined(
        Weights.from_tensor(placed(of_global, of_blocks)),
        find_open,
        values,
        module.dropout if module.training else 0.0,
        finish=finish,
    )
