"""Options of the models with a memory: the Neural Turing Machine and the LSTM beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from foci.errors import ConfigError
from foci.options import Options


@dataclass(frozen=True, kw_only=True)
class NTMOptions(Options):
    """A controller with a memory that it writes and reads by attention."""

    kind: Literal["ntm"] = "ntm"
    """The Neural Turing Machine."""
    hidden_dim: int = 100
    """Size of the controller."""
    controller: Literal["lstm", "feed_forward"] = "lstm"
    """The controller; feed_forward has no state of its own."""
    num_slots: int = 128
    """Slots of the memory."""
    slot_dim: int = 20
    """Size of a slot."""
    num_read_heads: int = 1
    """Heads that read."""
    num_write_heads: int = 1
    """Heads that write."""
    shift_width: int = 3
    """Slots that a head may move by in one step, an odd number: 3 moves by −1, 0 or 1."""
    initial_memory: Literal["constant", "learned", "zero"] = "constant"
    """Contents of the memory before the first step: the same small number everywhere, learned, or 0."""
    gradient_bound: float | None = 1e4
    """Bound on each number of the gradient that a step passes back to the previous one, in training. A low bound slows
    training: up to 1,600 was measured (docs/memory.md)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shift_width % 2 == 0:
            raise ConfigError(f"{type(self).__name__}: shift_width is {self.shift_width}, expected an odd number.")


@dataclass(frozen=True, kw_only=True)
class RecurrentBaselineOptions(Options):
    """A plain LSTM."""

    kind: Literal["lstm"] = "lstm"
    """A plain LSTM."""
    hidden_dim: int = 256
    """Size of each layer."""
    num_layers: int = 3
    """Number of layers; the paper's baselines have three."""


MemoryModelOptions = NTMOptions | RecurrentBaselineOptions

MEMORY_MODEL_PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "ntm": {
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
    },
    "lstm": {"base": {}, "tiny": {"hidden_dim": 32, "num_layers": 1}},
}
"""Kind of model -> name -> options."""
