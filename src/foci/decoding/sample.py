"""Sampling: tokens drawn from the model's distribution, sharpened or cut off.

    P(token) ∝ exp(log p / temperature)  over the k likeliest, or the fewest whose probabilities reach p together

Paper: top-k: Hierarchical Neural Story Generation (Fan et al., 2018), section 5; top-p: The Curious Case of Neural
    Text Degeneration (Holtzman et al., 2020), eqs. 2-3
Names: V^(p) = nucleus, t = temperature
Complexity: O(V log V) a token with top_p, O(V) otherwise
Differs: nothing; the temperature comes first, then top-k, then top-p of what is left.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from foci.decoding.limits import Limits
from foci.decoding.search import Hypothesis, follow
from foci.errors import ConfigError, check_positive
from foci.layers.seq2seq import Seq2Seq


def sample(
    model: Seq2Seq,
    source: Int[Tensor, "B S"],
    source_valid: Bool[Tensor, "B S"],
    *,
    samples: int = 1,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
    limits: Limits | None = None,
) -> list[list[Hypothesis]]:
    """Independent samples for each source, in the order drawn; score and log_prob are the model's own.

    Arguments:
        samples: how many of each source.
        temperature: below 1 prefers likely tokens, above 1 unlikely ones.
        top_k: draw among so many likeliest tokens.
        top_p: draw among the fewest likeliest tokens whose probabilities add up to this.
        generator: where chance comes from; the same seed gives the same samples.
        limits: lengths and tokens that are allowed.
    """
    check_positive("sample", samples=samples, temperature=temperature)
    if top_k is not None:
        check_positive("sample", top_k=top_k)
    if not 0.0 < top_p <= 1.0:
        raise ConfigError(f"sample: top_p is {top_p}, expected above 0 and at most 1.")

    def choose(logs: Tensor) -> Tensor:
        cut = truncate(logs / temperature, top_k, top_p)
        return torch.multinomial(cut.softmax(dim=-1), 1, generator=generator).squeeze(1)

    return follow(model, source, source_valid, limits or Limits(), choose, samples)


def truncate(logs: Float[Tensor, "N V"], top_k: int | None, top_p: float) -> Float[Tensor, "N V"]:
    """−∞ for all but the ``top_k`` likeliest, and of those all but the nucleus ``top_p``; ties at the edge stay."""
    if top_k is not None and top_k < logs.shape[-1]:
        least = logs.topk(top_k, dim=-1).values[:, -1:]
        logs = logs.masked_fill(logs < least, -torch.inf)
    if top_p < 1.0:
        ordered = logs.softmax(dim=-1).sort(dim=-1, descending=True)
        before = ordered.values.cumsum(dim=-1) - ordered.values
        outside = torch.zeros_like(before, dtype=torch.bool).scatter(-1, ordered.indices, before >= top_p)
        logs = logs.masked_fill(outside, -torch.inf)
    return logs
