"""Neural Turing Machine

One step, writing and reading, of a memory of 128 slots of 20 numbers, against the paper's equations written out head
by head and row by row (no maintained package has the mechanism).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

import foci
from benchmarks.baselines import ntm_step
from benchmarks.harness import FORWARD, TRAIN, Call, Case, call, leaf
from foci.mechanisms.memory.ntm import MemoryState

SIZES = ((1, 1), (16, 1), (16, 4))
"""(batch, reading heads and as many writing heads)"""


def cases(peer: str, quick: bool) -> Iterator[Case]:
    """Inference and training at each size."""
    for batch, heads in SIZES[:2] if quick else SIZES:
        for measure in (FORWARD, TRAIN):
            yield _case(measure, batch, heads)


def _case(measure: str, batch: int, heads: int, slots: int = 128, size: int = 20) -> Case:
    def inputs() -> tuple[nn.Module, Tensor, MemoryState]:
        module = foci.build(
            "ntm", input_dim=100, num_slots=slots, slot_dim=size, num_read_heads=heads, num_write_heads=heads
        )
        weights = torch.softmax(torch.randn(2, batch, heads, slots), dim=-1)
        memory = torch.randn(batch, slots, size)
        return module, leaf(batch, 100), MemoryState(memory, weights[0], weights[1], weights[0] @ memory)

    def ours(module: Any, input: Tensor, state: MemoryState) -> Call:
        return call(measure, lambda: module(input, state)[0], (input,), list(module.parameters()))

    def theirs(module: Any, input: Tensor, state: MemoryState) -> Call:
        return call(measure, lambda: ntm_step(module, input, state)[0], (input,), list(module.parameters()))

    return Case(
        name=f"step, batch {batch}, {heads} + {heads} head{'s' if heads > 1 else ''}",
        against="the paper's equations, row by row",
        measure=measure,
        inputs=inputs,
        ours=ours,
        theirs=theirs,
        goal=1.0,
    )
