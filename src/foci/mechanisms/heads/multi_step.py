"""Multi-step attention: every decoder layer attends to the source, with its state and the previous word as query.

    d_i = W h_i + b + g_i,   a_ij = softmax_j(d_i · z_j),   c_i = Σ_j a_ij (z_j + e_j)

Paper: Convolutional Sequence to Sequence Learning (Gehring et al., 2017), eqs. 1-2, arXiv:1705.03122
Names: h_i = query, g_i = target, z_j = key, e_j = value, W = layer (W_d in the paper), c_i = output
Complexity: O(L · Dq · D + L · S · D) per layer
Differs: nothing; the rescaling by m · sqrt(1/m) of section 3.5 is an option, scale_by_length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from foci.checks import check_shape, check_together, expand_query, refuse_script
from foci.errors import ConfigError, check_sizes
from foci.functional.attend import attend_dots, close_by_bias, mask_and_bias
from foci.masks import clear_source
from foci.mechanisms.parts import Memory
from foci.outputs import AttentionOutput, called_as


class MultiStepAttention(nn.Module):
    """The attention of one ConvS2S decoder layer; the steps are the layers, each with its own.

    Args:
        query_dim: size of the decoder state h.
        key_dim: size of the encoder output z, of the embeddings e and g, and of the output.
        scale_by_length: multiply the output by ``m · sqrt(1/m)``, m the number of positions that may be read.

    The value is e, the embeddings of the source; the output is a mean of key + value, or of the key without a value.
    ``target`` is g, the embeddings of the words before each query.

    Example:
        >>> import torch
        >>> attention = MultiStepAttention(3, 5)
        >>> h, g, z, e = torch.zeros(2, 7, 3), torch.zeros(2, 7, 5), torch.zeros(2, 11, 5), torch.zeros(2, 11, 5)
        >>> attention(h, z, e, target=g).output.shape
        torch.Size([2, 7, 5])
    """

    __prepare_scriptable__ = refuse_script

    def __init__(self, query_dim: int, key_dim: int, *, scale_by_length: bool = False) -> None:
        super().__init__()
        check_sizes("MultiStepAttention", query_dim=query_dim, key_dim=key_dim)
        self.query_dim = query_dim
        self.key_dim = key_dim
        self.scale_by_length = scale_by_length
        self.layer = nn.Linear(query_dim, key_dim)

    def extra_repr(self) -> str:
        """Return the option, for printing."""
        return f"scale_by_length={self.scale_by_length}"

    def forward(
        self,
        query: Float[Tensor, "#B L Dq"],
        key: Float[Tensor, "#B S D"],
        value: Float[Tensor, "#B S D"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        state: None = None,
        *,
        target: Float[Tensor, "#B L D"] | None = None,
        bias: Float[Tensor, "..."] | None = None,
    ) -> AttentionOutput:
        """Attend to the source with the decoder's state and the embedding of the previous word.

        The bias, of the shape of a mask, is added to the scores.
        """
        mask, bias = close_by_bias("MultiStepAttention", query, key, mask, bias)
        return self.read(query, self.prepare(key, value, mask), state, target=target, bias=bias)

    if TYPE_CHECKING:

        @called_as(forward)
        def __call__(self) -> None:
            """Call `forward`, as torch does."""

    def prepare(
        self,
        key: Float[Tensor, "#B S D"],
        value: Float[Tensor, "#B S D"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Memory:
        """Sum key and value once, for many reads."""
        check_shape("MultiStepAttention", "key", key, "batch", "key", self.key_dim)
        if value is None:
            key, _ = clear_source(key, key, mask)
            return Memory(key, key, mask)
        check_shape("MultiStepAttention", "value", value, "batch", key.shape[1], self.key_dim)
        check_together("MultiStepAttention", key=key, value=value)
        key, value = clear_source(key, value, mask)
        return Memory(key, key + value, mask)

    def read(
        self,
        query: Float[Tensor, "#B L Dq"],
        memory: Memory,
        state: None = None,
        *,
        target: Float[Tensor, "#B L D"] | None = None,
        bias: Float[Tensor, "..."] | None = None,
    ) -> AttentionOutput:
        """Read a prepared source."""
        if state is not None:
            raise ConfigError("MultiStepAttention: it keeps no state, expected state=None.")
        check_shape("MultiStepAttention", "query", query, "batch", "query", self.query_dim)
        check_together("MultiStepAttention", query=query, key=memory.key, target=target)
        query, batch = expand_query("MultiStepAttention", query, memory.key, memory.value)
        summary = self.layer(query)
        if target is not None:
            check_shape("MultiStepAttention", "target", target, "batch", query.shape[1], self.key_dim)
            summary = summary + target
        shape = torch.Size((batch, query.shape[1], memory.key.shape[1]))
        mask, bias = mask_and_bias(memory.mask, bias, shape, query.device, owner="MultiStepAttention")
        read = attend_dots(summary, memory.key, memory.value, mask, scale=1.0, bias=bias)
        if not self.scale_by_length:
            return read
        positions = (
            torch.full((1, 1, 1), shape[-1], device=query.device) if mask is None else mask.sum(-1, keepdim=True)
        )
        return read._replace(output=read.output * positions.to(query.dtype).sqrt())  # m · sqrt(1/m) = sqrt(m)
