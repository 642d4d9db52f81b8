"""Cost against length, every mechanism

Each row of the catalog at growing length: queries and keys of an attention, cells of a pool, both sides of a pair,
slots of a memory, places of a feature map. Sizes 64, one batch row. Costs are relative to `scaled_dot` at the shortest
length. A curve ends where one call took too long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn

import foci
from benchmarks.harness import FORWARD, TRAIN, Call, Case, call
from foci.catalog import Card

LENGTHS = (64, 256, 1024, 4096)
QUICK_LENGTHS = (64, 256, 576)  # squares, for the feature maps

SIZES: Mapping[str, int | tuple[int, int]] = {
    "query_dim": 64,
    "key_dim": 64,
    "value_dim": 64,
    "model_dim": 64,
    "hidden_dim": 64,
    "input_dim": 64,
    "slot_dim": 64,
    "channels": 64,
    "num_heads": 4,
    "num_tags": 16,
    "radius": 10,
    "window": (32, 32),
}
"""Replacements of the catalog's example sizes; all others are those of the example."""


def cases(peer: str, quick: bool) -> Iterator[Case]:
    """Every row at every length; training in the full run only."""
    for measure in (FORWARD,) if quick else (FORWARD, TRAIN):
        for name, card in foci.list_mechanisms().items():
            for length in QUICK_LENGTHS if quick else LENGTHS:
                yield _case(measure, name, card, length)


def _case(measure: str, name: str, card: Card, length: int) -> Case:
    sizes = {key: SIZES.get(key, value) for key, value in card.example.items()}
    sizes |= {key: length for key in ("max_length", "num_slots") if key in sizes}

    def inputs() -> tuple[nn.Module, tuple[Tensor, ...]]:
        return card.builder(**sizes), _inputs(card, sizes, length)

    def ours(module: nn.Module, inputs: tuple[Tensor, ...]) -> Call:
        leaves = [tensor.requires_grad_() for tensor in inputs]
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        return call(measure, lambda: module(*inputs)[0], leaves, parameters)

    return Case(name=f"{name}, {length}", measure=measure, inputs=inputs, ours=ours, series=name, length=length)


def _inputs(card: Card, sizes: Mapping[str, Any], length: int) -> tuple[Tensor, ...]:
    def cells(*names: str) -> Tensor:
        size = next(sizes[name] for name in names if name in sizes)
        return torch.randn(1, length, size)

    if card.family == "attend":
        return cells("query_dim", "model_dim"), cells("key_dim", "model_dim")
    if card.family == "pool":
        return (cells("value_dim", "num_tags"),)
    if card.family == "pair":
        return cells("value_dim", "model_dim"), cells("value_dim", "model_dim")
    if card.family == "map":
        return (torch.randn(1, sizes.get("channels", 64), isqrt(length), isqrt(length)),)
    return (torch.randn(1, sizes["input_dim"]),)
