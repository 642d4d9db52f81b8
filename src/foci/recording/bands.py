"""Longformer's attention: a softmax over a band of near positions and some global ones, read from in pieces.

    row i:  weights (global positions, i − w … i + w)      a global query reads all positions, with a softmax of its own

The band is laid out in chunks before it meets the values, so that its axis cannot be followed. A module that has
``one_sided_attn_window_size``, w, is known to be one; what it is called with says which positions are global.

Paper: Longformer: The Long-Document Transformer (Beltagy, Peters and Cohan, 2020), section 3.1
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from foci.recording.joined import Joined, Pieces
from foci.tracing import exportable
from foci.weights import Weights
from foci.weights.sources import ByWeights, MeanHeads, Rows

_WINDOW = "one_sided_attn_window_size"


@exportable
@dataclass(eq=False)
class Bands(ByWeights):
    """Weights of global positions and of a band, ``(B, H, L, G + 2w + 1)``.

    ``columns (B, G)`` are the global positions, -1 where an entry has fewer; ``whole_rows (B, H, G, L)`` are the
    weights of the queries there.
    """

    parts = ("weights", "columns", "whole_rows")
    held = "bands"
    weights: Tensor
    columns: Tensor
    whole_rows: Tensor
    window: int

    @property
    def shape(self) -> torch.Size:
        """The shape of the weights."""
        return torch.Size((*self.weights.shape[:3], self.weights.shape[2]))

    def rows(self, index: Rows) -> Tensor:
        """Return the weights of these rows."""
        count, size = self.columns.shape[1], self.weights.shape[2]
        numbers = torch.arange(size, device=self.device)[index]
        weights = self.weights[:, :, index]
        places = numbers.unsqueeze(-1) + torch.arange(-self.window, self.window + 1, device=self.device)
        band = weights[..., count:].masked_fill((places < 0) | (places >= size), 0.0)
        dense = weights.new_zeros(*weights.shape[:3], size)
        dense = dense.scatter_add(-1, places.clamp(0, size - 1).expand(band.shape), band)
        if not count:
            return dense
        columns = self.columns[:, None, None, :].expand(*weights.shape[:3], count)
        dense = dense.scatter_add(-1, columns.clamp_min(0), weights[..., :count].masked_fill(columns < 0, 0.0))
        same = self.columns.unsqueeze(-1) == numbers  # (B, G, rows)
        number = same.int().argmax(dim=1)[:, None, :, None].expand(dense.shape)
        return torch.where(same.any(dim=1)[:, None, :, None], self.whole_rows.gather(2, number), dense)

    def entries(self, index: slice) -> Bands:
        """Return the source of some entries of the batch only."""
        parts = {part: getattr(self, part)[index] for part in self.parts}
        return replace(self, **parts, versions=None)

    def heads(self, index: int | slice | Tensor) -> Bands | MeanHeads:
        """Return the source of some heads only."""
        if isinstance(index, int):
            return MeanHeads(self.heads(slice(index, index + 1)))  # of this head alone
        return replace(self, weights=self.weights[:, index], whole_rows=self.whole_rows[:, index], versions=None)


def has_bands(module: nn.Module) -> bool:
    """Return whether the module attends as Longformer does."""
    return isinstance(getattr(module, _WINDOW, None), int)


def of_bands(module: Any, pieces: Pieces) -> Joined | None:
    """Return the attention of a call of the module, None where its softmaxes have another form.

    Those are ``(B, L, H, G + 2w + 1)`` and, of global queries, ``(B·H, G, L)``.
    """
    window, call = int(getattr(module, _WINDOW)), pieces.call
    chosen, masked = call.get("is_index_global_attn"), call.get("is_index_masked")
    given = [result for _, result in pieces.softmaxes]
    if given[0].dim() != 4 or chosen is None or masked is None:
        return None
    weights = given[0].transpose(1, 2).masked_fill(masked[:, None, :, None], 0.0)
    batch, heads, length, width = weights.shape
    count = width - 2 * window - 1
    columns = torch.full((batch, max(count, 0)), -1, device=weights.device)
    whole = weights.new_zeros(batch, heads, max(count, 0), length)
    if count < 0 or (count > 0) != (len(given) == 2):
        return None
    if count:
        for row, positions in zip(columns, chosen):
            found = positions.nonzero().squeeze(-1)
            row[: len(found)] = found
        whole = given[1].reshape(whole.shape).masked_fill(masked[:, None, None, :], 0.0)

    def find_open() -> Tensor:
        places = torch.arange(length, device=weights.device)
        near = (places - places.unsqueeze(-1)).abs() <= window
        exists = ~masked.unsqueeze(1) & ~masked.unsqueeze(2)
        open: Tensor = exists & (near | chosen.unsqueeze(1) | chosen.unsqueeze(2))
        return open.unsqueeze(1)

    def values() -> list[Tensor]:
        """Return those of global queries and of the others; no calls, which would be recorded again."""
        return [project.forward(call["hidden_states"]) for project in (module.value_global, module.value)]

    pieces.are_read()
    dropout = module.dropout if module.training else 0.0
    return Joined(Weights(Bands(weights, columns, whole, window)), find_open, values, dropout, chosen)
