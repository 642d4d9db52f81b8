"""Longformer's attention: a softmax over a band of near positions and some global ones, read from in pieces.

    row i:  weights (global positions, i − w … i + w)      a global query reads all positions, with a softmax of its own

The band is laid out in chunks before it meets the values, so that its axis cannot be followed. A module that has
``one_sided_attn_window_size``, w, is known to be one; what it is called with says which positions are global.

Paper: Longformer: The Long-Document Transformer (Beltagy, Peters and Cohan, 2020), section 3.1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foci.recording.changes import Attended
from foci.recording.written_out import Softmax
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


def of_bands(module: nn.Module, softmaxes: Sequence[tuple[Softmax, Tensor]], call: Mapping[str, Any]) -> Weights | None:
    """Return the weights of a call, None where its softmaxes have another form.

    Args:
        module: the attention.
        softmaxes: its softmaxes and what they gave: ``(B, L, H, G + 2w + 1)`` and, of global queries, ``(B·H, G, L)``.
        call: its keyword arguments.
    """
    window = int(getattr(module, _WINDOW))
    chosen, masked = call.get("is_index_global_attn"), call.get("is_index_masked")
    given = [result for _, result in softmaxes]
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
    for softmax, _ in softmaxes:
        softmax.was_read, softmax.is_partly_read = True, False
    return Weights(Bands(weights, columns, whole, window))


def attended_in_bands(name: str, weights: Weights, module: Any, call: Mapping[str, Any]) -> Attended:
    """Return the call of a module that attends in bands, for those who edit it."""
    window = int(getattr(module, _WINDOW))

    def find_open() -> Tensor:
        chosen, masked = call["is_index_global_attn"], call["is_index_masked"]
        places = torch.arange(weights.shape[-1], device=weights.device)
        near = (places - places.unsqueeze(-1)).abs() <= window
        exists = ~masked.unsqueeze(1) & ~masked.unsqueeze(2)
        open: Tensor = exists & (near | chosen.unsqueeze(1) | chosen.unsqueeze(2))
        return open.unsqueeze(1)

    return Attended(name, weights.shape, weights.device, weights.dense, find_open)


def read_bands(call: Attended, module: Any, hidden: Tensor, chosen: Tensor) -> Tensor:
    """Return what the module reads of ``hidden (B, L, D)`` with edited weights; global queries have other values."""
    weights = call.weights if call.kept is None else call.weights * call.kept
    weights = F.dropout(weights, module.dropout, module.training).to(hidden.dtype)

    def read(project: nn.Module) -> Tensor:
        values: Tensor = project.forward(hidden)  # no call, which would be recorded again
        output: Tensor = weights @ values.unflatten(-1, (weights.shape[1], -1)).transpose(1, 2)
        return output.transpose(1, 2).flatten(2)

    return torch.where(chosen.unsqueeze(-1), read(module.value_global), read(module.value))
