"""The Neural Turing Machine: a controller network with a memory that it writes and reads by attention.

    h_t = controller([x_t; r_{t−1}], h_{t−1})         LSTM, or feed-forward: h_t = tanh(W [x_t; r_{t−1}])
    w_t, M_t, r_t = memory(h_t, w_{t−1}, M_{t−1})      see `foci.mechanisms.memory.ntm`
    y_t = V [h_t; r_t]

Paper: Neural Turing Machines (Graves, Wayne, Danihelka, 2014), section 3 (eqs. 2-9) and section 4.6
Names: x = inputs, r = reads, h = hidden, w = read_weights and write_weights, M = memory, y = logits
Complexity: O(T (hidden_dim² + N (slot_dim + shift_width) heads)) time; training keeps O(T N slot_dim) numbers per row
Differs: the paper leaves the feed-forward controller's function open (tanh here), and whether the output sees h_t,
    r_t or both (both here). The LSTM is torch's, of one layer, and starts from zeros; before the first step the heads
    read slot 0. Outputs are logits; the paper's sigmoid is part of the loss. The paper clips every number of the
    gradient to ±10, which is left to the training. Over some hundred steps it can overflow, so the gradient that a
    step passes back to the previous one is clipped here, at ±10⁴.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.checks import check_shape
from foci.errors import ShapeError, check_positive
from foci.layers.recurrent import Recurrence, State
from foci.mechanisms.memory.ntm import MemoryState, NeuralTuringMemory
from foci.models.options.memory import NTMOptions, RecurrentBaselineOptions
from foci.tracing import exportable
from foci.weights import Weights


@exportable
class MachineState(NamedTuple):
    """The state between two steps: the memory with its heads, and the LSTM's ``(hidden, cell)``, each ``(B, D)``.

    A feed-forward controller has no state: its ``controller`` is empty.
    """

    memory: MemoryState
    controller: tuple[Tensor, ...]


class NTMOutput(NamedTuple):
    """The result of a pass.

    Attributes:
        logits: ``(B, T, output_dim)``.
        attentions: the weights of the heads by name, ``(B, heads, T, N)``.
        state: the state after the last step.
    """

    logits: Tensor
    attentions: dict[str, Weights]
    state: Any


class NeuralTuringMachine(nn.Module):
    """Maps a sequence ``(B, T, input_dim)`` to logits ``(B, T, output_dim)`` with an external memory.

    ``attentions`` has "read" ``(B, num_read_heads, T, num_slots)`` and "write". The state that is returned can be
    passed in again: a sequence in two parts gives what it gives in one.

    Args:
        input_dim: size of the inputs.
        output_dim: size of the outputs.
        options: sizes and options of controller and memory.

    `torch.compile` unrolls the steps: one graph for each length.

    Example:
        >>> import torch
        >>> options = NTMOptions(hidden_dim=7, num_slots=11, slot_dim=2, num_read_heads=2)
        >>> machine = NeuralTuringMachine(5, 3, options)
        >>> logits, attentions, state = machine(torch.zeros(1, 4, 5))
        >>> logits.shape, attentions["read"].shape, attentions["write"].shape
        (torch.Size([1, 4, 3]), torch.Size([1, 2, 4, 11]), torch.Size([1, 1, 4, 11]))
    """

    def __init__(self, input_dim: int, output_dim: int, options: NTMOptions) -> None:
        super().__init__()
        check_positive(type(self).__name__, input_dim=input_dim, output_dim=output_dim)
        hidden_dim = options.hidden_dim
        self.input_dim, self.output_dim, self.hidden_dim = input_dim, output_dim, hidden_dim
        self.gradient_bound = options.gradient_bound
        self.memory = NeuralTuringMemory(
            hidden_dim,
            num_slots=options.num_slots,
            slot_dim=options.slot_dim,
            num_read_heads=options.num_read_heads,
            num_write_heads=options.num_write_heads,
            shift_width=options.shift_width,
            initial_memory=options.initial_memory,
        )
        reads_dim = options.num_read_heads * options.slot_dim
        kind = nn.LSTMCell if options.controller == "lstm" else nn.Linear
        self.controller = kind(input_dim + reads_dim, hidden_dim)
        self.output = nn.Linear(hidden_dim + reads_dim, output_dim)

    def forward(self, inputs: Float[Tensor, "B T I"], state: MachineState | None = None) -> NTMOutput:
        """Run all steps, from ``initial_state`` unless a ``state`` is given."""
        check_shape(type(self).__name__, "inputs", inputs, "batch", "time", self.input_dim)
        state = self.initial_state(inputs.shape[0]) if state is None else self._checked(state, inputs.shape[0])
        memory, kept = state
        reads = memory.reads.flatten(1)
        seen, read_weights, write_weights = [], [], []
        for step in inputs.unbind(dim=1):
            hidden, kept = self._control(torch.cat([step, reads], dim=-1), kept)
            reads, memory = self.memory(hidden, memory)
            seen.append(torch.cat([hidden, reads], dim=-1))
            read_weights.append(memory.read_weights)
            write_weights.append(memory.write_weights)
            if self.gradient_bound is not None and self.training and torch.is_grad_enabled():
                *parts, reads = _Bounded.apply(self.gradient_bound, *memory, *kept, reads)  # type: ignore[no-untyped-call]
                memory, kept = MemoryState(*parts[:4]), tuple(parts[4:])
        attentions = {
            "read": Weights.from_tensor(_over_time(read_weights, memory.read_weights)),
            "write": Weights.from_tensor(_over_time(write_weights, memory.write_weights)),
        }
        # The output layer is applied to all steps in one product.
        together = torch.stack(seen, dim=1) if seen else inputs.new_zeros(len(inputs), 0, self.output.in_features)
        return NTMOutput(self.output(together), attentions, MachineState(memory, kept))

    def initial_state(self, batch_size: int) -> MachineState:
        """Return the state before the first step."""
        zeros = self.output.weight.new_zeros(batch_size, self.hidden_dim)
        kept = (zeros, zeros) if isinstance(self.controller, nn.LSTMCell) else ()
        return MachineState(self.memory.initial_state(batch_size), kept)

    def _control(self, seen: Tensor, kept: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        if isinstance(self.controller, nn.LSTMCell):
            hidden, cell = self.controller(seen, (kept[0], kept[1]))
            return hidden, (hidden, cell)
        return torch.tanh(self.controller(seen)), ()

    def _checked(self, state: MachineState, batch: int) -> MachineState:
        owner, fix = type(self).__name__, f"Start from initial_state({batch})."
        reads = (batch, self.memory.num_read_heads, self.memory.slot_dim)
        check_shape(owner, "state.memory.reads", state.memory.reads, *reads, fix=fix)
        expected = 2 if isinstance(self.controller, nn.LSTMCell) else 0
        if len(state.controller) != expected:
            raise ShapeError(
                f"{owner}: state.controller has {len(state.controller)} tensors, expected {expected}; it is of another "
                f"kind of controller. {fix}"
            )
        for number, part in enumerate(state.controller):
            check_shape(owner, f"state.controller[{number}]", part, batch, self.hidden_dim, fix=fix)
        return state


class _Bounded(torch.autograd.Function):
    """The identity with gradients clipped to ± ``bound`` per number; NaN stays NaN."""

    generate_vmap_rule = True

    @staticmethod
    def forward(bound: float, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.bound = inputs[0]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, *(None if grad is None else grad.clamp(-ctx.bound, ctx.bound) for grad in grads)


class RecurrentBaseline(nn.Module):
    """A plain LSTM with the interface of `NeuralTuringMachine`.

    Args:
        input_dim: size of the inputs.
        output_dim: size of the outputs.
        options: sizes.

    Example:
        >>> import torch
        >>> model = RecurrentBaseline(5, 3, RecurrentBaselineOptions(hidden_dim=7))
        >>> logits, attentions, state = model(torch.zeros(1, 4, 5))
        >>> logits.shape, attentions
        (torch.Size([1, 4, 3]), {})
    """

    def __init__(self, input_dim: int, output_dim: int, options: RecurrentBaselineOptions) -> None:
        super().__init__()
        check_positive(type(self).__name__, input_dim=input_dim, output_dim=output_dim)
        self.input_dim, self.output_dim = input_dim, output_dim
        self.recurrence = Recurrence(input_dim, options.hidden_dim, num_layers=options.num_layers)
        self.output = nn.Linear(options.hidden_dim, output_dim)

    def forward(self, inputs: Float[Tensor, "B T I"], state: State | None = None) -> NTMOutput:
        """Run all steps, from ``initial_state`` unless a ``state`` is given."""
        check_shape(type(self).__name__, "inputs", inputs, "batch", "time", self.input_dim)
        state = self.initial_state(inputs.shape[0]) if state is None else state
        if 0 in inputs.shape[:2]:  # torch's LSTM refuses a sequence without steps
            return NTMOutput(inputs.new_zeros(*inputs.shape[:2], self.output_dim), {}, state)
        hidden, state = self.recurrence(inputs, state)
        return NTMOutput(self.output(hidden), {}, state)

    def initial_state(self, batch_size: int) -> State:
        """Return the state before the first step: zeros ``(B, layers, D)``."""
        layers = self.recurrence.layers
        zeros = self.output.weight.new_zeros(batch_size, layers.num_layers, layers.hidden_size)
        return zeros, zeros


def _over_time(weights: list[Tensor], like: Tensor) -> Tensor:
    """Stack T weights ``(B, heads, N)`` to ``(B, heads, T, N)``."""
    return torch.stack(weights, dim=2) if weights else like.unsqueeze(2)[:, :, :0]
