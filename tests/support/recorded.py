"""Small models and numbers for the tests of `foci.record`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foci.functional.attend import attend
from foci.outputs import AttentionOutput

L, S, D = 3, 7, 5
"""queries, keys, features"""


class Caller(nn.Module):
    """Calls `scaled_dot_product_attention` with its arguments."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return F.scaled_dot_product_attention(*args, **kwargs)


class Layers(nn.Module):
    """Three layers of self-attention on one mask."""

    def __init__(self, size: int = 5) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(size, 3 * size) for _ in range(3))
        self.calls = nn.ModuleList(Caller() for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for layer, call in zip(self.layers, self.calls):
            query, key, value = layer(x).chunk(3, dim=-1)
            x = x + call(query, key, value, mask)
        return x


def randn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def close(got: Tensor, want: Tensor) -> bool:
    return got.shape == want.shape and torch.allclose(got, want.to(got.dtype), atol=1e-6)


class Reader(nn.Module):
    """A mechanism as foci writes them: forward is read(prepare(…)), by the fused kernel."""

    def prepare(self, key: Tensor) -> Tensor:
        return key

    def read(self, query: Tensor, memory: Tensor, state: Tensor | None = None) -> AttentionOutput:
        return attend(query, memory, memory)

    def forward(self, query: Tensor, key: Tensor) -> AttentionOutput:
        return self.read(query, self.prepare(key))


class Decoder(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, queries: Tensor, key: Tensor) -> Tensor:
        memory = self.attention.prepare(key)
        return torch.cat([self.attention.read(query, memory).output for query in queries.split(1, dim=1)], dim=1)
