"""Positions added to embeddings: fixed sinusoids, or one learned vector per position.

    x_p + PE[p],   PE the sinusoids of the paper, or a learned table

Paper: Attention Is All You Need (Vaswani et al., 2017), section 3.5; Convolutional Sequence to Sequence Learning
    (Gehring et al., 2017), section 3.1
Names: PE = table, pos = position
Complexity: O(L · D)
Differs: nothing.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.checks import check_shape
from foci.errors import ShapeError
from foci.functional.positions import sinusoid


class SinusoidalPositions(nn.Module):
    """Add the sinusoids of positions ``start, start + 1, …``; any length.

    Example:
        >>> import torch
        >>> SinusoidalPositions(4)(torch.zeros(1, 2, 4))[0, 0]
        tensor([0., 1., 0., 1.])
    """

    def __init__(self, model_dim: int) -> None:
        super().__init__()
        self.model_dim = model_dim

    def forward(self, embedded: Float[Tensor, "B L D"], start: int = 0) -> Float[Tensor, "B L D"]:
        """Return the embeddings with their positions; ``start`` positions came before (while decoding)."""
        check_shape("SinusoidalPositions", "embedded", embedded, "batch", "position", self.model_dim)
        table = sinusoid(embedded.shape[1], self.model_dim, start=start, device=embedded.device, dtype=embedded.dtype)
        return embedded + table


class LearnedPositions(nn.Module):
    """Add a learned vector for each of at most ``max_length`` positions.

    Args:
        max_length: the number of positions.
        model_dim: size of the embeddings.
        std: the deviation of the initial vectors. Default: 1 / sqrt(model_dim).

    Example:
        >>> import torch
        >>> LearnedPositions(7, 4)(torch.zeros(1, 2, 4)).shape
        torch.Size([1, 2, 4])
    """

    def __init__(self, max_length: int, model_dim: int, *, std: float | None = None) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, model_dim))
        nn.init.normal_(self.table, std=model_dim**-0.5 if std is None else std)

    def forward(self, embedded: Float[Tensor, "B L D"], start: int = 0) -> Float[Tensor, "B L D"]:
        """Return the embeddings with their positions; ``start`` positions came before (while decoding)."""
        check_shape("LearnedPositions", "embedded", embedded, "batch", "position", self.table.shape[1])
        end = start + embedded.shape[1]
        if end > self.table.shape[0]:
            raise ShapeError(
                f"LearnedPositions: embedded reaches position {end}, expected at most {self.table.shape[0]}. "
                f"Build it with max_length={end} or more, or use SinusoidalPositions, which has no limit."
            )
        return embedded + self.table[start:end]
