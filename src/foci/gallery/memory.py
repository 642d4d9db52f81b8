"""The scene of the Neural Turing Machine: writing, reading in order, and finding by content."""

from __future__ import annotations

import torch
from torch import Tensor

from foci.gallery.scene import Scene, build, set_parameter

SLOTS, SIZE, ITEMS = 9, 5, 6
SURE = 12.0
"""Large enough to saturate a sigmoid or a softmax."""


def ntm() -> Scene:
    """Six items are written, read back in order, and two are looked up."""
    items = torch.randn(ITEMS, SIZE, generator=torch.Generator().manual_seed(0)).sign()
    steps = {f"write item {number + 1}": _commands(write=item) for number, item in enumerate(items)}
    steps |= {f"read item {number + 1}": _commands(read=_move(1)) for number in range(ITEMS)}
    steps |= {f"find item {number + 1}": _commands(read=_find(items[number])) for number in (3, 0)}

    memory = build("ntm", input_dim=len(_commands()), num_slots=SLOTS, slot_dim=SIZE)
    set_parameter(memory.commands.weight, torch.eye(memory.input_dim))  # the input is the commands themselves
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
        caption="The commands are set by hand. The writing head moves by one slot per step and writes an item; then "
        "the reading head moves along the same slots; in the last two steps it addresses the slot whose content is "
        "most similar to its key.",
    )


def _commands(write: Tensor | None = None, read: Tensor | None = None) -> Tensor:
    """Return the memory's ``commands``: where to write and to read, then what to erase and to add."""
    where_to_read = _move(0) if read is None else read
    if write is None:
        return torch.cat([_move(0), where_to_read, torch.full((SIZE,), -SURE), torch.zeros(SIZE)])
    return torch.cat([_move(1), where_to_read, torch.full((SIZE,), SURE), SURE * write])


def _move(by: int) -> Tensor:
    """Address the slot ``by`` slots after the last."""
    kernel = torch.full((3,), -SURE)
    kernel[1 + by] = SURE
    strength, gate, gamma = 0.0, -SURE, SURE
    return torch.cat([torch.zeros(SIZE), kernel, torch.tensor([strength, gate, gamma])])


def _find(item: Tensor) -> Tensor:
    """Address the slot whose content is most similar to ``item``."""
    strength, gate, gamma = SURE, SURE, SURE
    return torch.cat([SURE * item, torch.tensor([-SURE, SURE, -SURE, strength, gate, gamma])])
