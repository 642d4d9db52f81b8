"""Weights on demand

Attention at (1, 8, 4096, 64), batch, heads, length, head size, and of its exact weights the 8 largest of each row and
the entropy of each row. Against the fused kernel alone, which shows no weights (the goal is at most 2.5 times its
time, a ratio of 0.4), and against keeping the whole matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import foci
from benchmarks.harness import Call, Case, call

SHAPE = (1, 8, 4096, 64)
QUICK = (1, 4, 1024, 64)
MEASURE = "output, topk(8), entropy"


def cases(peer: str, quick: bool) -> Iterator[Case]:
    """The two comparisons."""
    shape = QUICK if quick else SHAPE
    name = f"attention {shape}"
    common: dict[str, Any] = {"name": name, "measure": MEASURE, "inputs": partial(_inputs, shape), "ours": _ours}
    yield Case(**common, against="fused kernel, no weights", theirs=_fused, goal=None if quick else 0.4)
    yield Case(**common, against="whole weights in memory", theirs=_whole, goal=1.0, memory_limit=64.0)


def _inputs(shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(shape), torch.randn(shape), torch.randn(shape)


def _ours(query: Tensor, key: Tensor, value: Tensor) -> Call:
    def read() -> tuple[Tensor, ...]:
        output, weights, _ = foci.attend(query, key, value)
        return output, weights.topk(8)[0], weights.entropy()

    return call(MEASURE, read)


def _fused(query: Tensor, key: Tensor, value: Tensor) -> Call:
    return call(MEASURE, lambda: F.scaled_dot_product_attention(query, key, value))


def _whole(query: Tensor, key: Tensor, value: Tensor) -> Call:
    def read() -> tuple[Tensor, ...]:
        weights = torch.softmax(query @ key.mT * query.shape[-1] ** -0.5, dim=-1)
        entropy = torch.special.entr(weights).sum(dim=-1)
        return weights @ value, weights.topk(8).values, entropy

    return call(MEASURE, read)
