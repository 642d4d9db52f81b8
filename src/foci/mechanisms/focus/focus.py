"""What the focuses of `foci.Attention` share: their base class, and the module around a focus of one's own."""

from __future__ import annotations

from torch import nn

from foci.functional.own_parts import check_takes, name_of, own_limits
from foci.mechanisms.parts import Focus, Reading
from foci.outputs import AttentionOutput


class FocusModule(nn.Module):
    """The base of focuses that read in their own way: a subclass has `read`.

    Attributes:
        gathers: it gathers other keys for every query, so that nothing is prepared from all keys.
        remembers: a read depends on the state that the previous one returned.
        takes_steps: it reads query by query with a score that depends on the previous weights.
        takes_bias: it adds `Reading.bias` to the scores.
        sees_key: it looks at the key before the projection, `Memory.source`.

    Example:
        >>> import torch
        >>> from foci import Weights
        >>> class First(FocusModule):
        ...     def read(self, reading):
        ...         value = reading.memory.value
        ...         weights = torch.zeros(*reading.query.shape[:2], value.shape[1])
        ...         weights[..., 0] = 1.0
        ...         return AttentionOutput(weights @ value, Weights.from_tensor(weights))
    """

    gathers: bool = False
    remembers: bool = False
    takes_steps: bool = False
    takes_bias: bool = False
    sees_key: bool = False

    def read(self, reading: Reading) -> AttentionOutput:
        """Return the output, the weights and the next state."""
        raise NotImplementedError(f"{type(self).__name__} has no read(reading).")


class FocusFunction(FocusModule):
    """A focus of one's own, a function or a module: ``(query, key) -> mask or bias``.

    Example:
        >>> FocusFunction(lambda query, key: foci.masks.causal(query.shape[1], key.shape[1]))
        FocusFunction(<lambda>)
    """

    takes_steps = True
    takes_bias = True
    sees_key = True

    def __init__(self, function: Focus) -> None:
        super().__init__()
        check_takes("focus", function, "query", "key")
        self.function = function

    def read(self, reading: Reading) -> AttentionOutput:
        """Return the output and the weights, and the weights as the state of a score that remembers them."""
        limits = own_limits(self.function, reading.query, reading.memory.source)  # type: ignore[arg-type]
        reading = reading.limited(*limits, owner=f"focus {name_of(self.function)}")
        return reading.score.read_steps(reading, None) if reading.score.remembers else reading.attend()

    def extra_repr(self) -> str:
        """Return the function where it is no module, for printing."""
        return "" if isinstance(self.function, nn.Module) else name_of(self.function)
