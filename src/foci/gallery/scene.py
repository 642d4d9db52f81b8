"""The type of a scene, and the short training that some of them need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from foci import builders

build: Callable[..., Any] = builders.build
"""`foci.build` for scenes that set parameters by name, which the type of a module does not have."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Weights, the labels to draw them with (see `foci.viz.heatmap`), and a caption."""

    weights: Tensor
    caption: str
    rows: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    panels: Sequence[str] | None = None
    texts: Sequence[Sequence[str]] | None = None
    row_axis: str = ""
    column_axis: str = ""
    scale: str | Sequence[str] = "weight"
    across: int | None = None


def fit(module: nn.Module, loss: Callable[[], Tensor], *, steps: int = 100, rate: float = 0.05) -> None:
    """Minimize the loss."""
    optimizer = torch.optim.Adam(module.parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def set_parameter(parameter: Tensor, value: Tensor | float) -> None:
    """Set a parameter by hand."""
    with torch.no_grad():
        parameter.copy_(torch.as_tensor(value))
