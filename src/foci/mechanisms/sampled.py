"""Hard attention around any soft one: a sampled position is read, or, for some rows, the weighted sum of all.

    α_t = attention(query_t, key),   s_t ~ α_t,   output_t = value_{s_t}   or, with probability q,   Σ_i α_ti value_i

Paper: Show, Attend and Tell (Xu et al., 2015), section 4.1 and the end of it, arXiv:1502.03044
Names: α_t = probabilities, s_t = chosen, q = expectation_share
Complexity: that of the attention, plus O(S) per row
Differs: outside of training the likeliest position is read, and nothing is sampled; the paper does not say what is read
    then. Which rows read the sum is drawn once, at the first read, and kept in the state: in the paper it is a property
    of the image.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from foci.errors import ConfigError, check_share
from foci.functional.sample import best, categorical
from foci.mechanisms.attention import Attention
from foci.mechanisms.parts import Memory
from foci.outputs import AttentionOutput
from foci.tracing import exportable
from foci.weights import Weights


@exportable
class SampledState(NamedTuple):
    """The state of the attention, and which rows read the weighted sum; in evaluation none does."""

    reading: Tensor | None
    expects: Bool[Tensor, " N"] | None


class SampledAttention(Attention):
    """Reads one position instead of the weighted sum: a sampled one in training, the likeliest one in ``eval()``.

    The handle's ``log_prob`` is 0 where the weighted sum was read, so that `foci.functional.sample.reinforce` takes no
    account of these rows; `probabilities_of` returns the probabilities that the positions were sampled by. The
    parameters have the names of those of `foci.Attention`, so that it can start from the weights of a soft one.

    Args:
        query_dim, key_dim, hidden_dim, options: as in `foci.Attention`, which gives the probabilities; its normalizer
            is "softmax".
        expectation_share: the probability with which a row reads the weighted sum in training.

    Example:
        >>> import torch
        >>> attention = SampledAttention(3, 5, score="general", expectation_share=0.0)
        >>> output, weights, _ = attention(torch.zeros(2, 1, 3), torch.ones(2, 7, 5))
        >>> weights.dense().sum().item(), weights.log_prob.exp()
        (2.0, tensor([[0.1429],
                [0.1429]], grad_fn=<ExpBackward0>))
    """

    def __init__(
        self,
        query_dim: int | None = None,
        key_dim: int | None = None,
        hidden_dim: int | None = None,
        *,
        expectation_share: float = 0.5,
        **options: Any,
    ) -> None:
        check_share("SampledAttention", expectation_share=expectation_share)
        for name in ("dropout", "after"):
            if options.get(name):
                raise ConfigError(
                    f"SampledAttention: {name} is {options[name]!r} and has no effect here, expected it to be left "
                    "out. It reads one position, by the weights before dropout and before a stage after reading."
                )
        super().__init__(query_dim, key_dim, hidden_dim, normalize="softmax", **options)
        self.expectation_share = expectation_share

    def state_from_weights(self, weights: Float[Tensor, "B S"]) -> SampledState:
        """Return the state after weights that were given."""
        return SampledState(weights, None)

    def read(
        self,
        query: Float[Tensor, "#B L Dq"],
        memory: Memory,
        state: Any = None,
        *,
        bias: Float[Tensor, "..."] | None = None,
    ) -> AttentionOutput:
        """Read a prepared source; the state is what the previous call returned, None at first."""
        if not isinstance(state, SampledState | None):
            raise ConfigError(
                f"SampledAttention: state is a {type(state).__name__}, expected what the previous call returned."
            )
        attended = super().read(query, memory, None if state is None else state.reading, bias=bias)
        probabilities = attended.weights.dense()
        # A position of probability 0 is closed: the smallest number in its place would be sampled once in a long while.
        readable = probabilities > 0
        scores = probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()
        if not self.training:
            chosen, log_prob = best(scores, readable)
            weights = Weights.from_tensor(chosen, log_prob, probabilities)
            return AttentionOutput(chosen @ memory.value, weights, SampledState(attended.state, None))
        chosen, log_prob = categorical(scores, readable)
        expects = None if state is None else state.expects
        if expects is None:
            expects = torch.rand(probabilities.shape[:-1].numel(), device=query.device) < self.expectation_share
        rows = expects.view(probabilities.shape[:-1])
        read = torch.where(rows.unsqueeze(-1), probabilities, chosen)
        weights = Weights.from_tensor(read, log_prob.masked_fill(rows, 0.0), probabilities)
        return AttentionOutput(read @ memory.value, weights, SampledState(attended.state, expects))


def probabilities_of(weights: Weights) -> Float[Tensor, "..."]:
    """Return the probabilities that positions were sampled by; of any other attention, its weights.

    Example:
        >>> import torch
        >>> attention = SampledAttention(3, 5, score="general").eval()
        >>> weights = attention(torch.zeros(1, 1, 3), torch.ones(1, 2, 5)).weights
        >>> weights.dense().tolist(), probabilities_of(weights).tolist()
        ([[[1.0, 0.0]]], [[[0.5, 0.5]]])
    """
    return weights.probabilities.dense()
