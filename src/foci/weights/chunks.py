"""Reductions over all weights in pieces: a piece is computed, reduced and freed, so no L×S numbers are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils._pytree import TreeSpec, tree_unflatten

from foci.weights.sources import Source

Piece = tuple[slice, slice]
"""Some heads (all of them where there is no such axis) and some rows."""

Reduce = Callable[[Source, Piece], tuple[Tensor, ...]]
"""Reduce these rows, of a source that has the piece's heads only, to tensors ``(…, rows, n)``."""


def reduce_pieces(source: Source, reduce: Reduce, pieces: list[Piece]) -> tuple[Tensor, ...]:
    """Return the results of ``reduce`` for every piece, concatenated over heads and rows."""
    # The results are allocated first: allocated piece by piece, they would fragment the memory that pieces free,
    # and every new piece would need new memory.
    outputs: tuple[Tensor, ...] = ()
    for heads, rows in pieces:
        whole = heads == slice(None)
        parts = reduce(source if whole else source.heads(heads), (heads, rows))
        if not outputs:
            leading = source.shape[:-2] if not whole else parts[0].shape[:-2]
            outputs = tuple(part.new_empty(*leading, source.shape[-2], part.shape[-1]) for part in parts)
        for output, part in zip(outputs, parts):
            (output if whole else output[:, heads])[..., rows, :] = part
    return outputs


class RecomputedPieces(torch.autograd.Function):
    """Compute the pieces again in the backward pass: otherwise autograd would keep all of them, L×S numbers."""

    @staticmethod
    def forward(ctx: Any, reduce: Reduce, pieces: list[Piece], structure: TreeSpec, *leaves: Any) -> Any:
        """Reduce, keeping only the tensors of the source."""
        ctx.reduce, ctx.pieces, ctx.structure = reduce, pieces, structure
        ctx.others = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        ctx.places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        ctx.save_for_backward(*(leaves[place] for place in ctx.places))
        outputs = reduce_pieces(tree_unflatten(leaves, structure), reduce, pieces)
        ctx.mark_non_differentiable(*(output for output in outputs if not output.is_floating_point()))
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Compute each piece again and add up its gradients."""
        leaves: list[Any] = list(ctx.others)
        for place, tensor in zip(ctx.places, ctx.saved_tensors):
            leaves[place] = tensor.detach().requires_grad_(ctx.needs_input_grad[3 + place])
        wanted = [place for place in ctx.places if leaves[place].requires_grad]
        totals: list[Tensor | None] = [None] * len(leaves)
        for piece in ctx.pieces:
            with torch.enable_grad():
                parts = ctx.reduce(tree_unflatten(leaves, ctx.structure), piece)
            pairs = [(part, grad[..., piece[1], :]) for part, grad in zip(parts, grads) if part.requires_grad]
            found = torch.autograd.grad(
                [part for part, _ in pairs],
                [leaves[place] for place in wanted],
                [grad for _, grad in pairs],
                allow_unused=True,
            )
            for place, grad in zip(wanted, found):
                total = totals[place]
                if grad is not None:
                    totals[place] = grad if total is None else total.add_(grad)
        return (None, None, None, *totals)
