"""Neural Turing Machine

A memory of 128 slots of 20 numbers, against the paper's equations written out head by head and row by row (no
maintained package has the mechanism): one step, writing and reading, and the training of the paper's copy task, 20
vectors of 8 bits, with an LSTM of 100 units as the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import foci
from benchmarks.baselines import ntm_step
from benchmarks.harness import FORWARD, TRAIN, Call, Case, call, leaf
from foci.mechanisms.memory.ntm import MemoryState

SIZES = ((1, 1, 2.0, 2.0), (16, 1, 20.0, 20.0), (16, 4, 20.0, 20.0))
"""(batch, reading heads and as many writing heads, goal of inference, goal of training)"""

COPIES = ((1, None), (16, 7.0))
"""(batch, goal) of the copy task."""

BITS, LENGTH = 8, 20

Step = Callable[[Any, Tensor, MemoryState], tuple[Tensor, MemoryState]]


def cases(peer: str, quick: bool) -> Iterator[Case]:
    """Inference and training of a step at each size; the copy task."""
    for batch, heads, forward_goal, train_goal in SIZES[:2] if quick else SIZES:
        yield _step(FORWARD, batch, heads, forward_goal)
        yield _step(TRAIN, batch, heads, train_goal)
    for batch, goal in COPIES[1:] if quick else COPIES:
        yield _copy(batch, goal)


def _step(measure: str, batch: int, heads: int, goal: float, slots: int = 128, size: int = 20) -> Case:
    def inputs() -> tuple[nn.Module, Tensor, MemoryState]:
        module = foci.build(
            "ntm", input_dim=100, num_slots=slots, slot_dim=size, num_read_heads=heads, num_write_heads=heads
        )
        weights = torch.softmax(torch.randn(2, batch, heads, slots), dim=-1)
        memory = torch.randn(batch, slots, size)
        return module, leaf(batch, 100), MemoryState(memory, weights[0], weights[1], weights[0] @ memory)

    def side(step: Step) -> Callable[..., Call]:
        def prepare(module: Any, input: Tensor, state: MemoryState) -> Call:
            return call(measure, lambda: step(module, input, state)[0], (input,), list(module.parameters()))

        return prepare

    return Case(
        name=f"step, batch {batch}, {heads} + {heads} head{'s' if heads > 1 else ''}",
        against="the paper's equations, row by row",
        measure=measure,
        inputs=inputs,
        ours=side(_ours),
        theirs=side(ntm_step),
        goal=goal,
    )


class Copier(nn.Module):
    """An LSTM cell and a memory: reads vectors and a delimiter, then has to output the vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: Any = foci.build("ntm", input_dim=100, num_slots=128, slot_dim=20, initial_memory="learned")
        self.cell = nn.LSTMCell(BITS + 1 + 20, 100)
        self.answer = nn.Linear(100 + 20, BITS)

    def forward(self, vectors: Tensor, step: Step) -> Tensor:
        """Return the loss of a batch ``(length, batch, BITS)``."""
        length, batch, _ = vectors.shape
        inputs = vectors.new_zeros(2 * length + 1, batch, BITS + 1)
        inputs[:length, :, :BITS] = vectors
        inputs[length, :, BITS] = 1.0
        state = self.memory.initial_state(batch)
        hidden: tuple[Tensor, Tensor] | None = None
        answers = []
        for input in inputs:
            hidden = self.cell(torch.cat([input, state.reads.flatten(1)], dim=-1), hidden)
            read, state = step(self.memory, hidden[0], state)
            answers.append(self.answer(torch.cat([hidden[0], read], dim=-1)))
        return binary_cross_entropy_with_logits(torch.stack(answers[length + 1 :]), vectors)


def _copy(batch: int, goal: float | None) -> Case:
    def inputs() -> tuple[Copier, Tensor]:
        return Copier(), torch.randint(2, (LENGTH, batch, BITS)).float().requires_grad_()

    def side(step: Step) -> Callable[..., Call]:
        def prepare(model: Copier, vectors: Tensor) -> Call:
            return call(TRAIN, lambda: model(vectors, step), (vectors,), list(model.parameters()))

        return prepare

    return Case(
        name=f"copy task, {LENGTH} vectors of {BITS} bits, LSTM of 100, batch {batch}",
        against="the same with the paper's equations, row by row",
        measure=TRAIN,
        inputs=inputs,
        ours=side(_ours),
        theirs=side(ntm_step),
        tolerance=1e-3,
        goal=goal,
    )


def _ours(module: Any, input: Tensor, state: MemoryState) -> tuple[Tensor, MemoryState]:
    stepped: tuple[Tensor, MemoryState] = module(input, state)
    return stepped
