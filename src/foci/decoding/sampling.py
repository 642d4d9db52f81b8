"""Sampling: tokens drawn from the model's distribution, with a temperature, top-k and top-p.

    P(token) ∝ exp(log p / temperature)  over the k likeliest, or the fewest whose probabilities reach p together

Paper: top-k: Hierarchical Neural Story Generation (Fan et al., 2018), section 5; top-p: The Curious Case of Neural
    Text Degeneration (Holtzman et al., 2020), eqs. 2-3
Names: V^(p) = nucleus, t = temperature
Complexity: O(V log V) per token with top_p, O(V) otherwise
Differs: nothing; the temperature comes first, then top-k, then top-p of what is left.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from foci.decoding.limits import Limits
from foci.decoding.search_state import Hypothesis, follow
from foci.decoding.start import SearchStart
from foci.errors import ConfigError, check_positive
from foci.layers.interfaces import StepDecoder


def sample(
    decoder: StepDecoder,
    start: SearchStart,
    *,
    samples: int = 1,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
    limits: Limits | None = None,
) -> list[list[Hypothesis]]:
    """Draw independent samples for each source.

    Args:
        decoder: in ``eval()``.
        start: the decoder's memory and first state.
        samples: number of samples per source.
        temperature: below 1 prefers likely tokens, above 1 unlikely ones.
        top_k: draw among the k likeliest tokens.
        top_p: draw among the fewest likeliest tokens whose probabilities add up to this.
        generator: the source of randomness; the same seed gives the same samples.
        limits: allowed lengths and tokens.

    Returns:
        The samples of each source, in the order drawn; score and log_prob are the model's own.
    """
    check_positive("sample", samples=samples, temperature=temperature)
    if top_k is not None:
        check_positive("sample", top_k=top_k)
    if not 0.0 < top_p <= 1.0:
        raise ConfigError(f"sample: top_p is {top_p}, expected above 0 and at most 1.")

    def choose(logs: Tensor) -> Tensor:
        cut = truncate(logs / temperature, top_k, top_p)
        return torch.multinomial(cut.softmax(dim=-1), 1, generator=generator).squeeze(1)

    return follow(decoder, start, limits or Limits(), choose, samples)


def truncate(logs: Float[Tensor, "N V"], top_k: int | None, top_p: float) -> Float[Tensor, "N V"]:
    """Write −∞ over all but the ``top_k`` likeliest and, of those, all but the nucleus ``top_p``; keep ties."""
    if top_k is not None and top_k < logs.shape[-1]:
        least = logs.topk(top_k, dim=-1).values[:, -1:]
        logs = logs.masked_fill(logs < least, -torch.inf)
    if top_p < 1.0:
        ordered = logs.softmax(dim=-1).sort(dim=-1, descending=True)
        before = ordered.values.cumsum(dim=-1) - ordered.values
        outside = torch.zeros_like(before, dtype=torch.bool).scatter(-1, ordered.indices, before >= top_p)
        logs = logs.masked_fill(outside, -torch.inf)
    return logs
