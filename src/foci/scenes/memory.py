"""The scene of the Neural Turing Machine: writing, reading in order, and finding by content."""

from __future__ import annotations

import torch
from torch import Tensor

from foci.scenes.scene import Scene, build, set_parameter

SLOTS, SIZE, ITEMS = 9, 5, 6
SURE = 12.0
"""Large enough that a sigmoid or a softmax of it is all or nothing."""


def ntm() -> Scene:
    """Six items are written, read back in order, and two are looked up."""
    items = torch.randn(ITEMS, SIZE, generator=torch.Generator().manual_seed(0)).sign()
    steps = {f"write item {number + 1}": _orders(write=item) for number, item in enumerate(items)}
    steps |= {f"read item {number + 1}": _orders(read=_move(1)) for number in range(ITEMS)}
    steps |= {f"find item {number + 1}": _orders(read=_find(items[number])) for number in (3, 0)}

    memory = build("ntm", input_dim=len(_orders()), num_slots=SLOTS, slot_dim=SIZE)
    set_parameter(memory.commands.weight, torch.eye(memory.input_dim))  # the input is the orders themselves
    set_parameter(memory.commands.bias, 0.0)
    state, heads = None, []
    for orders in steps.values():
        _, state = memory(orders.unsqueeze(0), state)
        heads.append(torch.cat([state.write_weights[0], state.read_weights[0]]))
    return Scene(
        weights=torch.stack(heads, dim=1),
        rows=list(steps),
        columns=[str(slot) for slot in range(SLOTS)],
        panels=["writing head", "reading head"],
        row_axis="step",
        column_axis="slot",
        caption="A controller whose orders are given by hand. The writing head moves on by one slot a step and leaves "
        "an item there; then the reading head moves along the same slots; in the last two steps it jumps to the slot "
        "whose content is most like what it looks for.",
    )


def _orders(write: Tensor | None = None, read: Tensor | None = None) -> Tensor:
    """What the memory's ``commands`` should say: where to write and to read, then what to erase and to add."""
    where_to_read = _move(0) if read is None else read
    if write is None:
        return torch.cat([_move(0), where_to_read, torch.full((SIZE,), -SURE), torch.zeros(SIZE)])
    return torch.cat([_move(1), where_to_read, torch.full((SIZE,), SURE), SURE * write])


def _move(by: int) -> Tensor:
    """Address the slot ``by`` slots on from the last."""
    kernel = torch.full((3,), -SURE)
    kernel[1 + by] = SURE
    strength, gate, gamma = 0.0, -SURE, SURE
    return torch.cat([torch.zeros(SIZE), kernel, torch.tensor([strength, gate, gamma])])


def _find(item: Tensor) -> Tensor:
    """Address the slot whose content is most like ``item``."""
    strength, gate, gamma = SURE, SURE, SURE
    return torch.cat([SURE * item, torch.tensor([-SURE, SURE, -SURE, strength, gate, gamma])])
