"""A baseline that no maintained package has: one step of a Neural Turing Machine by the paper's equations.

It computes one head and one row of the batch at a time, in plain torch, with the commands of foci's own layer.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from foci.mechanisms.memory.ntm import MemoryState, NeuralTuringMemory


def ntm_step(module: NeuralTuringMemory, input: Tensor, state: MemoryState) -> tuple[Tensor, MemoryState]:
    """Compute ``module(input, state)``, row by row and head by head."""
    size, width = module.slot_dim, module.shift_width
    writers, readers = module.num_write_heads, module.num_read_heads
    place = size + width + 3
    memories, read_weights, write_weights, reads = [], [], [], []
    for row, commands in enumerate(module.commands(input)):
        heads = list(commands[: (writers + readers) * place].split(place))
        contents = list(commands[(writers + readers) * place :].split(2 * size))
        memory = state.memory[row]
        wrote = [_address(memory, state.write_weights[row, h], heads[h], size, width) for h in range(writers)]
        for weights, content in zip(wrote, contents):
            memory = memory * (1 - torch.outer(weights, torch.sigmoid(content[:size])))  # eq. 3
        for weights, content in zip(wrote, contents):
            memory = memory + torch.outer(weights, torch.tanh(content[size:]))  # eq. 4
        saw = [_address(memory, state.read_weights[row, h], heads[writers + h], size, width) for h in range(readers)]
        memories.append(memory)
        write_weights.append(torch.stack(wrote))
        read_weights.append(torch.stack(saw))
        reads.append(torch.stack([weights @ memory for weights in saw]))  # eq. 2
    read = torch.stack(reads)
    return read.flatten(1), MemoryState(
        torch.stack(memories), torch.stack(read_weights), torch.stack(write_weights), read
    )


def _address(memory: Tensor, previous: Tensor, commands: Tensor, size: int, width: int) -> Tensor:
    key, kernel, (strength, gate, gamma) = commands.split([size, width, 3])
    likeness = torch.cosine_similarity(torch.tanh(key).unsqueeze(0), memory, dim=-1)  # eq. 6
    content = torch.softmax(softplus(strength) * likeness, dim=-1)  # eq. 5
    opened = torch.sigmoid(gate)
    mixed = opened * content + (1 - opened) * previous  # eq. 7
    shares = torch.softmax(kernel, dim=-1)
    moved = sum(torch.roll(mixed, j - width // 2) * shares[j] for j in range(width))  # eq. 8
    sharp = moved ** (1 + softplus(gamma))
    return sharp / sharp.sum()  # eq. 9
