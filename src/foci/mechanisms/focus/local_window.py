"""What Luong's two local windows share: only the window around a center is read."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from foci.errors import ConfigError, check_sizes
from foci.functional.windows import local, row_lengths
from foci.mechanisms.focus.focus import FocusModule
from foci.mechanisms.parts import Reading, Sizes
from foci.outputs import AttentionOutput


class LocalWindow(FocusModule):
    """A window of 2 · radius + 1 positions around a center, which a subclass chooses for each query."""

    gathers = True
    takes_bias = True
    sigma: float | None = None
    """Deviation of a Gaussian around the center; None without one."""

    def __init__(self, radius: int) -> None:
        super().__init__()
        check_sizes(type(self).__name__, radius=radius)
        self.radius = radius

    def center(self, query: Tensor, lengths: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return the center of each query's window, and the next state."""
        raise NotImplementedError

    def read(self, reading: Reading) -> AttentionOutput:
        """Return the output, the weights and the next state."""
        key, value = reading.memory.key, reading.memory.value
        center, state = self.center(reading.query, row_lengths(reading.mask, key), reading.state)
        where = (reading.projected, key, value, center, reading.mask)
        window: dict[str, Any] = {"radius": self.radius, "sigma": self.sigma, "dropout": reading.dropout}
        window["bias"] = reading.bias
        scale = reading.fused_scale
        if scale is not None:
            read = local(*where, scale=scale, **window)
        else:
            read = local(*where, score=reading.compare, normalize=reading.normalize, **window)
        return read._replace(state=state)

    def extra_repr(self) -> str:
        """Return the radius, for printing."""
        return f"radius={self.radius}"


def radius_of(name: str, sizes: Sizes) -> int:
    """Return the radius, or raise if it was not given."""
    if sizes.radius is None:
        raise ConfigError(f"Attention: focus {name!r} needs radius, the D of its 2D+1 positions.")
    return sizes.radius
