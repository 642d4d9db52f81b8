"""Tokens as vectors with their positions: the input of a Transformer's encoder and of its decoder.

    x_p = dropout(sqrt(D) · E[token_p] + PE[p])

Paper: Attention Is All You Need (Vaswani et al., 2017), sections 3.4, 3.5 and 5.4
Names: E = table.weight, PE = positions, d_model = model_dim
Complexity: O(L · D)
Differs: learned positions are an option, as in the paper's table 3 row E.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from foci.errors import ConfigError, ShapeError, unknown_name
from foci.layers.dropout import Dropout
from foci.layers.positions import LearnedPositions, SinusoidalPositions


class TokenEmbedding(nn.Module):
    """Look up the embeddings of tokens, scale them and add their positions.

    Args:
        table: the embeddings; give one table to several modules to share it.
        positions: "sinusoidal" (any length), "learned", or "none" where attention adds them itself.
        max_length: the number of learned positions.
        scale: multiply the embeddings by sqrt(D).
        dropout: share of the features dropped in training.

    Example:
        >>> import torch
        >>> TokenEmbedding(nn.Embedding(7, 4))(torch.tensor([[1, 5, 2]])).shape
        torch.Size([1, 3, 4])
    """

    def __init__(
        self,
        table: nn.Embedding,
        *,
        positions: str = "sinusoidal",
        max_length: int | None = None,
        scale: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        model_dim = table.embedding_dim
        self.table = table
        self.scale = math.sqrt(model_dim) if scale else 1.0
        self.dropout = Dropout(dropout)
        self.positions: SinusoidalPositions | LearnedPositions | None
        if positions == "none":
            self.positions = None
        elif positions == "sinusoidal":
            self.positions = SinusoidalPositions(model_dim)
        elif positions == "learned":
            if max_length is None:
                raise ConfigError("TokenEmbedding: learned positions are a table and need max_length.")
            self.positions = LearnedPositions(max_length, model_dim)
        else:
            raise unknown_name("kind of positions", positions, ("sinusoidal", "learned", "none"))

    @property
    def max_length(self) -> int | None:
        """The number of learned positions; None for the other kinds, which have no limit."""
        return self.positions.table.shape[0] if isinstance(self.positions, LearnedPositions) else None

    def forward(self, tokens: Int[Tensor, "B L"], start: int = 0) -> Float[Tensor, "B L D"]:
        """Return the embedded tokens; ``start`` is the number of tokens before them (while decoding)."""
        if tokens.dim() != 2 or tokens.is_floating_point():
            raise ShapeError(
                f"TokenEmbedding: tokens has shape {tuple(tokens.shape)} and dtype {tokens.dtype}, expected whole "
                "numbers of shape (batch, position)."
            )
        embedded = self.table(tokens) * self.scale
        if self.positions is not None:
            embedded = self.positions(embedded, start)
        dropped: Tensor = self.dropout(embedded)
        return dropped


def normal_table(vocabulary: int, dim: int, *, std: float, padding: int | None = None) -> nn.Embedding:
    """Return new embeddings, initialized normal with this deviation; that of ``padding`` is 0 and stays so."""
    table = nn.Embedding(vocabulary, dim, padding)
    nn.init.normal_(table.weight, std=std)
    return _without_padding(table)


BOUND = 0.1
"""Of new embeddings, as in Luong et al. (2015)."""


def uniform_table(vocabulary: int, dim: int, *, bound: float = BOUND, padding: int | None = None) -> nn.Embedding:
    """Return new embeddings, initialized uniform within ± ``bound``; that of ``padding`` is 0 and stays so."""
    table = nn.Embedding(vocabulary, dim, padding)
    nn.init.uniform_(table.weight, -bound, bound)
    return _without_padding(table)


def _without_padding(table: nn.Embedding) -> nn.Embedding:
    if table.padding_idx is not None:
        with torch.no_grad():
            table.weight[table.padding_idx] = 0.0
    return table
