"""Weights of `torch.nn.attention.flex_attention`: a softmax of scores that functions of the user change and mask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from foci import torch_private
from foci.masks import masked_softmax
from foci.tracing import exportable
from foci.weights.sources import ByWeights, MeanHeads, Rows, scores_shape


@exportable
@dataclass(eq=False)
class FlexSoftmax(ByWeights):
    """softmax(score_mod(scale · query · keyᵀ)) over the positions that mask_mod leaves; the key has all heads.

    ``batch`` and ``head`` are the numbers of the entries and heads, which both functions are called with.
    """

    parts = ("query", "key", "batch", "head")
    held = "query and key"
    query: Tensor
    key: Tensor
    batch: Tensor
    head: Tensor
    scale: float
    score_mod: Callable[..., Tensor]
    mask_mod: Callable[..., Tensor]
    buffers: tuple[tuple[Any, ...], tuple[Any, ...]]

    @property
    def shape(self) -> torch.Size:
        """The shape of the weights."""
        return scores_shape(self.query, self.key)

    def rows(self, index: Rows) -> Tensor:
        """Return the weights of these rows."""
        precision = torch.promote_types(self.query.dtype, torch.float32)
        scores = self.query[..., index, :].to(precision) @ self.key.to(precision).mT * self.scale
        query = torch.arange(self.query.shape[-2], device=self.device)[index]
        places = self.batch, self.head, query, torch.arange(self.key.shape[-2], device=self.device)
        of_score, of_mask = self.buffers
        changed = torch_private.by_position(self.score_mod, (scores,), places, of_score)
        mask = torch_private.by_position(self.mask_mod, (), places, of_mask)
        return masked_softmax(changed, mask.expand(changed.shape)).to(self.query.dtype)

    def entries(self, index: slice) -> FlexSoftmax:
        """Return the source of some entries of the batch only."""
        return replace(self, query=self.query[index], key=self.key[index], batch=self.batch[index], versions=None)

    def heads(self, index: int | slice | Tensor) -> FlexSoftmax | MeanHeads:
        """Return the source of some heads only."""
        if isinstance(index, int):
            return MeanHeads(self.heads(slice(index, index + 1)))  # of this head alone
        query, key = self.query[:, index], self.key[:, index]
        return replace(self, query=query, key=key, head=self.head[index], versions=None)
