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

from typing import Any, Literal, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.checks import check_shape
from foci.errors import ShapeError, check_positive, unknown_name
from foci.layers.recurrent import Recurrence, State
from foci.mechanisms.memory.ntm import InitialMemory, MemoryState, NeuralTuringMemory
from foci.tracing import exportable
from foci.weights import Weights

Controller = Literal["lstm", "feed_forward"]

PRESETS: dict[str, dict[str, Any]] = {
    "base": {},
    # The tight bound: with 10⁴, the gradient exploded at 56,000 sequences of `copy` and the loss rose again.
    "feed_forward": {"controller": "feed_forward", "gradient_bound": 10.0},
    "many_heads": {"num_read_heads": 4, "num_write_heads": 4},
    "feed_forward_many_heads": {
        "controller": "feed_forward",
        "hidden_dim": 256,
        "num_read_heads": 4,
        "num_write_heads": 4,
    },
    "tiny": {"hidden_dim": 32, "num_slots": 24, "slot_dim": 10},
}
BASELINE_PRESETS: dict[str, dict[str, Any]] = {
    "base": {},
    "tiny": {"hidden_dim": 32, "num_layers": 1},
}


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
        hidden_dim: size of the controller.
        controller: "lstm" or "feed_forward", which has no state of its own.
        num_slots, slot_dim, num_read_heads, num_write_heads, shift_width, initial_memory: as in
            `foci.mechanisms.memory.NeuralTuringMemory`.
        gradient_bound: the bound on each number of the gradient that a step passes back to the previous one, in
            training mode; None sets no bound. A low bound slows training: up to 1,600 was measured (docs/memory.md).

    `torch.compile` unrolls the steps: one graph for each length.

    Example:
        >>> import torch
        >>> machine = NeuralTuringMachine(5, 3, hidden_dim=7, num_slots=11, slot_dim=2, num_read_heads=2)
        >>> logits, attentions, state = machine(torch.zeros(1, 4, 5))
        >>> logits.shape, attentions["read"].shape, attentions["write"].shape
        (torch.Size([1, 4, 3]), torch.Size([1, 2, 4, 11]), torch.Size([1, 1, 4, 11]))
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        *,
        hidden_dim: int = 100,
        controller: Controller = "lstm",
        num_slots: int = 128,
        slot_dim: int = 20,
        num_read_heads: int = 1,
        num_write_heads: int = 1,
        shift_width: int = 3,
        initial_memory: InitialMemory = "constant",
        gradient_bound: float | None = 1e4,
    ) -> None:
        super().__init__()
        check_positive(type(self).__name__, input_dim=input_dim, output_dim=output_dim, hidden_dim=hidden_dim)
        if gradient_bound is not None:
            check_positive(type(self).__name__, gradient_bound=gradient_bound)
        if controller not in get_args(Controller):
            raise unknown_name("controller", controller, get_args(Controller))
        self.input_dim, self.output_dim, self.hidden_dim = input_dim, output_dim, hidden_dim
        self.gradient_bound = gradient_bound
        self.memory = NeuralTuringMemory(
            hidden_dim,
            num_slots=num_slots,
            slot_dim=slot_dim,
            num_read_heads=num_read_heads,
            num_write_heads=num_write_heads,
            shift_width=shift_width,
            initial_memory=initial_memory,
        )
        reads_dim = num_read_heads * slot_dim
        self.controller = (nn.LSTMCell if controller == "lstm" else nn.Linear)(input_dim + reads_dim, hidden_dim)
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
        hidden_dim: size of each layer.
        num_layers: number of layers; the paper's baselines have three.

    Example:
        >>> import torch
        >>> logits, attentions, state = RecurrentBaseline(5, 3, hidden_dim=7)(torch.zeros(1, 4, 5))
        >>> logits.shape, attentions
        (torch.Size([1, 4, 3]), {})
    """

    def __init__(self, input_dim: int, output_dim: int, *, hidden_dim: int = 256, num_layers: int = 3) -> None:
        super().__init__()
        check_positive(type(self).__name__, input_dim=input_dim, output_dim=output_dim)
        self.input_dim, self.output_dim = input_dim, output_dim
        self.recurrence = Recurrence(input_dim, hidden_dim, num_layers=num_layers)
        self.output = nn.Linear(hidden_dim, output_dim)

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
