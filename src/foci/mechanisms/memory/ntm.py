"""The memory of the Neural Turing Machine: heads address its slots by content and by location, write and read.

    c_t(i) = softmax_i(β_t cos(k_t, M(i)))            M = M_{t-1} for a writing head, M_t for a reading one
    v_t(i) = g_t c_t(i) + (1 - g_t) w_{t-1}(i)
    u_t(i) = Σ_j v_t(i - j mod N) s_t(j)
    w_t(i) = u_t(i)^γ_t / Σ_j u_t(j)^γ_t
    M_t(i) = M_{t-1}(i) Π_h (1 - w_t^h(i) e_t^h) + Σ_h w_t^h(i) a_t^h
    r_t    = Σ_i w_t(i) M_t(i)

Paper: Neural Turing Machines (Graves, Wayne, Danihelka, 2014), eqs. 2-9, arXiv:1410.5401
Names: M = memory, N = num_slots, w = read_weights and write_weights, r = reads, k = key, β = strength, g = gate,
    s = kernel, γ = gamma, e = erase, a = add.
Complexity: O(B N (slot_dim + shift_width)) time per head and step; training keeps O(B N slot_dim) numbers per step.
Differs: the paper leaves the following open. Bounds: tanh for key and add (a head adds at most 1 per step),
    softplus for strength, sigmoid for gate and erase, softmax for kernel, 1 + softplus for gamma. Order: the
    writing heads go first, and the reading heads address and read the memory after writing, as in the paper's indices
    (r_t is read from M_t); a writing head addresses the content of M_{t-1}. Several writing heads: all erase before
    any adds, so their order has no effect. Start: every head on slot 0; the memory holds 1e-6 everywhere, zeros or
    learned values. In the cosine a key or slot shorter than 0.01 counts as that long, which bounds the gradient.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.checks import check_shape, refuse_script
from foci.errors import ConfigError, check_odd, check_sizes, unknown_name
from foci.functional import addressing
from foci.functional.kernels import ntm
from foci.outputs import AttentionOutput, called_as
from foci.recording.changes import Writing
from foci.recording.rereading import Reread
from foci.recording.watching import editable
from foci.tracing import exportable
from foci.weights import Weights

InitialMemory = Literal["constant", "learned", "zero"]


@exportable
class MemoryState(NamedTuple):
    """The memory between two steps, the weights of its heads, and what was read: ``reads`` by ``read_weights``."""

    memory: Float[Tensor, "B N M"]
    read_weights: Float[Tensor, "B R N"]
    write_weights: Float[Tensor, "B W N"]
    reads: Float[Tensor, "B R M"]


def _rewritten(commands: Tensor, state: MemoryState, shift_width: int) -> Reread:
    """Return how a step goes on from the weights that it writes with, for `foci.edit`."""

    memory, before, _, _ = state

    def write(weights: Tensor) -> Tensor:
        return addressing.write_step(commands, memory, before, weights, shift_width)

    def go_on(weights: Tensor, written: Tensor) -> MemoryState:
        read_weights, reads = addressing.read_step(commands, written, before, weights, shift_width)
        return MemoryState(written, read_weights, weights, reads)

    return Reread(write, lambda: None, None, next_state=go_on, kind=Writing, has_queries=False)


@editable(_rewritten, ":write")
def _step(commands: Tensor, state: MemoryState, shift_width: int) -> AttentionOutput:
    """Write and read: the new memory, the weights that it was written with, and the next state."""
    stepped = MemoryState(*ntm.step(commands, *state[:3], shift_width))
    return AttentionOutput(stepped.memory, Weights.from_tensor(stepped.write_weights), stepped)


def _reread(written: MemoryState) -> Reread:
    """Return how a memory is read, for `foci.edit`."""
    memory = written.memory.unsqueeze(1)
    return Reread(lambda weights: addressing.read(memory, weights), lambda: None, None, has_queries=False)


@editable(_reread, ":read")
def _read(written: MemoryState) -> AttentionOutput:
    """Return what was read after writing."""
    return AttentionOutput(written.reads, Weights.from_tensor(written.read_weights))


class NeuralTuringMemory(nn.Module):
    """A memory of ``num_slots`` vectors, written and read by attention: one call is one step.

    The input ``(B, input_dim)`` is the output of the controller, any network, in this step; one linear layer maps it
    to the commands of all heads. The output ``(B, num_read_heads * slot_dim)`` is what the heads read. Most controllers
    also get what was read in the previous step: ``state.reads``.

    Args:
        input_dim: size of the controller's output.
        num_slots: number of vectors in the memory.
        slot_dim: size of each.
        num_read_heads: number of heads that read.
        num_write_heads: number of heads that erase and add.
        shift_width: number of shifts that a head can make in a step, odd: 3 are one back, none, one forward.
        initial_memory: "constant" (1e-6 everywhere), "learned" (a parameter) or "zero".

    Example:
        >>> import torch
        >>> memory = NeuralTuringMemory(5, num_slots=7, slot_dim=3, num_read_heads=2)
        >>> output, state = memory(torch.ones(1, 5))
        >>> output, state = memory(torch.ones(1, 5), state)
        >>> output.shape, state.memory.shape, state.read_weights.shape
        (torch.Size([1, 6]), torch.Size([1, 7, 3]), torch.Size([1, 2, 7]))
    """

    __prepare_scriptable__ = refuse_script

    def __init__(
        self,
        input_dim: int,
        *,
        num_slots: int = 128,
        slot_dim: int = 20,
        num_read_heads: int = 1,
        num_write_heads: int = 1,
        shift_width: int = 3,
        initial_memory: InitialMemory = "constant",
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        check_sizes(owner, input_dim=input_dim, num_slots=num_slots, slot_dim=slot_dim)
        check_sizes(owner, num_read_heads=num_read_heads, num_write_heads=num_write_heads)
        check_odd(owner, shift_width=shift_width)
        if initial_memory not in get_args(InitialMemory):
            raise unknown_name("initial_memory", initial_memory, get_args(InitialMemory))
        self.input_dim, self.num_slots, self.slot_dim = input_dim, num_slots, slot_dim
        self.num_read_heads, self.num_write_heads = num_read_heads, num_write_heads
        self.shift_width, self.initial_memory = shift_width, initial_memory

        # One layer for all heads: key, kernel, strength, gate and gamma for each, erase and add for those that write.
        # `addressing.step` documents their order.
        place_dim = slot_dim + shift_width + 3
        self.commands = nn.Linear(
            input_dim, (num_write_heads + num_read_heads) * place_dim + num_write_heads * 2 * slot_dim
        )
        if initial_memory == "learned":
            bound = 1 / math.sqrt(num_slots + slot_dim)
            self.first_memory = nn.Parameter(torch.empty(num_slots, slot_dim).uniform_(-bound, bound))

    def extra_repr(self) -> str:
        """Return the arguments it was made with, for printing."""
        return (
            f"num_slots={self.num_slots}, slot_dim={self.slot_dim}, num_read_heads={self.num_read_heads}, "
            f"num_write_heads={self.num_write_heads}, shift_width={self.shift_width}, "
            f"initial_memory={self.initial_memory!r}"
        )

    def forward(
        self, input: Float[Tensor, "B D"], state: MemoryState | None = None
    ) -> tuple[Float[Tensor, "B RM"], MemoryState]:
        """Write, then read. Without a ``state`` this is the first step."""
        check_shape(type(self).__name__, "input", input, "batch", self.input_dim)
        state = self.initial_state(input.shape[0]) if state is None else self._checked(state, input.shape[0])
        written = _step(self.commands(input), state, self.shift_width).state
        read = _read(written)
        stepped = written._replace(read_weights=read.weights.dense(), reads=read.output)
        return stepped.reads.flatten(1), stepped

    if TYPE_CHECKING:

        @called_as(forward)
        def __call__(self) -> None:
            """Call `forward`, as torch does."""

    def initial_state(self, batch_size: int) -> MemoryState:
        """Return the state before the first step: the initial memory, every head on slot 0 and what it reads there."""
        like = self.commands.weight
        if self.initial_memory == "learned":
            memory = self.first_memory.repeat(batch_size, 1, 1)
        else:
            start = 1e-6 if self.initial_memory == "constant" else 0.0
            memory = like.new_full((batch_size, self.num_slots, self.slot_dim), start)
        read_weights = like.new_zeros(batch_size, self.num_read_heads, self.num_slots)
        write_weights = like.new_zeros(batch_size, self.num_write_heads, self.num_slots)
        read_weights[..., 0] = 1.0
        write_weights[..., 0] = 1.0
        return MemoryState(memory, read_weights, write_weights, addressing.read(memory.unsqueeze(1), read_weights))

    def _checked(self, state: MemoryState, batch: int) -> MemoryState:
        owner, fix = type(self).__name__, f"Start from initial_state({batch})."
        if not isinstance(state, MemoryState):
            raise ConfigError(f"{owner}: state is a {type(state).__name__}, expected a foci.MemoryState. {fix}")
        slots, size = self.num_slots, self.slot_dim
        check_shape(owner, "state.memory", state.memory, batch, slots, size, fix=fix)
        check_shape(owner, "state.read_weights", state.read_weights, batch, self.num_read_heads, slots, fix=fix)
        check_shape(owner, "state.write_weights", state.write_weights, batch, self.num_write_heads, slots, fix=fix)
        return state
