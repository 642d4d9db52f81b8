"""A Neural Turing Machine learns to copy: it reads some vectors of bits, and then writes them down without input."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import foci

BITS, STEPS = 4, 2


class Machine(nn.Module):
    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.controller = nn.Linear(BITS + 1 + 8, dim)
        self.memory = foci.NeuralTuringMemory(dim, num_slots=8, slot_dim=8)
        self.output = nn.Linear(dim + 8, BITS)

    def forward(self, inputs: Tensor) -> tuple[Tensor, list[foci.MemoryState]]:
        state = self.memory.initial_state(len(inputs))
        outputs, states = [], []
        for step in inputs.unbind(dim=1):
            command = torch.tanh(self.controller(torch.cat([step, state.reads.flatten(1)], dim=-1)))
            read, state = self.memory(command, state)
            outputs.append(self.output(torch.cat([command, read], dim=-1)))
            states.append(state)
        return torch.stack(outputs, dim=1), states


def sequences(rows: int) -> tuple[Tensor, Tensor]:
    """The bits with a mark at their end and room to answer, and the bits."""
    bits = torch.randint(2, (rows, STEPS, BITS)).float()
    inputs = torch.zeros(rows, 2 * STEPS + 1, BITS + 1)
    inputs[:, :STEPS, :BITS], inputs[:, STEPS, BITS] = bits, 1.0
    return inputs, bits


def main() -> None:
    torch.manual_seed(0)
    model = Machine()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(500):
        inputs, bits = sequences(32)
        outputs, _ = model(inputs)
        loss = F.binary_cross_entropy_with_logits(outputs[:, -STEPS:], bits)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
    inputs, bits = sequences(100)
    with torch.no_grad():
        outputs, states = model.eval()(inputs)
    right = ((outputs[:, -STEPS:] > 0) == bits.bool()).float().mean()
    print(f"bits copied: {right:.3f}")
    assert right > 0.95
    axes = {"slots": [str(slot) for slot in range(8)], "steps": [str(step) for step in range(len(states))]}
    trace = foci.Trace.from_handles({"ntm": states}, axes, {"ntm:*": ("steps", "slots")})
    assert list(trace.attentions) == ["ntm:read", "ntm:write"]


if __name__ == "__main__":
    main()
