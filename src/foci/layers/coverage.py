"""Coverage: the keys include the sum of the previous weights of each position, and repeated attention adds to the loss.

    c_t = Σ_{t' < t} α_t',   e_ti = vᵀ tanh(W h_i + V s_t + w_c c_ti),   loss_t = Σ_i min(α_ti, c_ti)

Paper: Get To The Point: Summarization with Pointer-Generator Networks (See, Liu, Manning, 2017), eqs. 10-13
Names: c_t = covered, w_c = vector, α_t = weights, h_i = key, s_t = query
Complexity: O(S · A) per step
Differs: w_c c is added to the projected key of any score. With additive and concat that is the paper's equation; with a
    score by dot products q · k it adds c · (q · w_c).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.checks import check_shape
from foci.mechanisms.parts import Memory
from foci.weights import Weights


class Coverage(nn.Module):
    """Adds the coverage of its position to every prepared key; w_c is initialized to 0, which is no coverage.

    Args:
        key_dim: size of the projected key.

    Example:
        >>> import torch
        >>> memory = Memory(torch.zeros(2, 5, 3), torch.zeros(2, 5, 7), None)
        >>> Coverage(3)(memory, torch.ones(2, 5)).key.shape
        torch.Size([2, 5, 3])
    """

    def __init__(self, key_dim: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.zeros(key_dim))

    def forward(self, memory: Memory, covered: Float[Tensor, "N S"]) -> Memory:
        """Return the memory for the next query, one row per hypothesis."""
        check_shape("Coverage", "covered", covered, *memory.key.shape[:2], fix="Repeat the memory for hypotheses.")
        key = memory.key + covered.unsqueeze(-1) * self.vector
        return memory._replace(key=key, prepared=None)  # it was computed from the old keys


def coverage_loss(weights: Weights) -> Float[Tensor, "B T"]:
    """Return ``Σ_i min(α_ti, c_ti)`` of every step, the share of its attention on positions already covered.

    Takes the handle of a whole pass, ``model(…).attentions["decoder.cross"]``; the caller leaves out padded steps.

    Example:
        >>> import torch
        >>> coverage_loss(Weights.from_tensor(torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])))
        tensor([[0.0000, 0.5000]])
    """
    dense = weights.dense()
    covered = dense.cumsum(dim=-2) - dense
    return torch.minimum(dense, covered).sum(dim=-1)
