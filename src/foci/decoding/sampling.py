"""Sampling: draw each token from the model's distribution, sharpened and cut off below.

    p'(v) ∝ p(v)^(1/t)  for v among the top_k likeliest, or in the smallest set whose probabilities reach top_p, or with
    at least min_p of the likeliest token's probability; tokens that occur already count as p(v)^θ

Paper: top-k: Hierarchical Neural Story Generation (Fan et al., 2018), section 5; top-p: The Curious Case of Neural
    Text Degeneration (Holtzman et al., 2020), eqs. 2-3; min-p: Turning Up the Heat (Nguyen et al., 2024), section 3;
    repetition penalty: CTRL (Keskar et al., 2019), section 4.1
Names: V^(p) = nucleus, t = temperature, p_base = min_p, θ = repetition_penalty
Complexity: O(V log V) per token with top_p, O(V) otherwise
Differs: the repetition penalty comes first, then the temperature, top-k, top-p of what is left, and min-p of that. CTRL
    divides logits by θ; their offset is arbitrary, so here θ multiplies log-probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from foci.decoding.constraints import GenerationConstraints
from foci.decoding.inputs import DecoderInputs
from foci.decoding.search_state import Choose, Ends, Hypothesis, generate
from foci.errors import ConfigError, check_positive
from foci.layers.interfaces import StepDecoder


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """How a token is drawn.

    Args:
        temperature: below 1 prefers likely tokens, above 1 unlikely ones; 0 takes the likeliest.
        top_k: draw among the k likeliest tokens.
        top_p: draw among the fewest likeliest tokens whose probabilities add up to this.
        min_p: draw among the tokens with at least this share of the likeliest token's probability.
        repetition_penalty: log-probabilities of tokens that occur already are multiplied by this; 1 changes nothing.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        check_positive("sample", repetition_penalty=self.repetition_penalty)
        if not self.temperature >= 0:
            raise ConfigError(f"sample: temperature is {self.temperature}, expected 0 or more.")
        if self.top_k is not None:
            check_positive("sample", top_k=self.top_k)
        if not 0.0 < self.top_p <= 1.0:
            raise ConfigError(f"sample: top_p is {self.top_p}, expected above 0 and at most 1.")
        if not 0.0 <= self.min_p <= 1.0:
            raise ConfigError(f"sample: min_p is {self.min_p}, expected from 0 to 1.")

    def chooser(self, generator: torch.Generator | None = None, prompts: Int[Tensor, "B P"] | None = None) -> Choose:
        """Return the function that draws the next token of each row.

        Args:
            generator: the source of randomness; the same seed gives the same tokens.
            prompts: tokens of each source that count as repeated, beside those that were produced.
        """

        def choose(logs: Tensor, tokens: Tensor, sources: Sequence[int]) -> Tensor:
            if self.repetition_penalty != 1.0:
                seen = tokens
                if prompts is not None:
                    each = logs.shape[0] // max(1, len(sources))
                    seen = torch.cat([prompts[list(sources)].repeat_interleave(each, dim=0), tokens], dim=1)
                logs = penalize(logs, seen, self.repetition_penalty)
            if self.temperature == 0:
                return logs.argmax(dim=-1)
            cut = truncate(logs / self.temperature, self.top_k, self.top_p, self.min_p)
            return torch.multinomial(cut.softmax(dim=-1), 1, generator=generator).squeeze(1)

        return choose


def sample(
    decoder: StepDecoder,
    inputs: DecoderInputs,
    sampler: Sampler | None = None,
    *,
    samples: int = 1,
    generator: torch.Generator | None = None,
    constraints: GenerationConstraints | None = None,
    ends_here: Ends | None = None,
) -> list[list[Hypothesis]]:
    """Draw independent samples for each source.

    Args:
        decoder: in ``eval()``.
        inputs: the decoder's memory and first state.
        sampler: how a token is drawn, with a temperature above 0. Default: from the model's own distribution.
        samples: number of samples per source.
        generator: the source of randomness; the same seed gives the same samples.
        constraints: allowed lengths and tokens.
        ends_here: ends further rows; see `foci.decoding.search_state.iterate`.

    Returns:
        The samples of each source, in the order drawn; score and log_prob are the model's own.
    """
    sampler = sampler or Sampler()
    check_positive("sample", samples=samples, temperature=sampler.temperature)
    choose = sampler.chooser(generator)
    return generate(decoder, inputs, constraints or GenerationConstraints(), choose, samples, ends_here)


def truncate(logs: Float[Tensor, "N V"], top_k: int | None, top_p: float, min_p: float = 0.0) -> Float[Tensor, "N V"]:
    """Write −∞ over all but the ``top_k`` likeliest, the nucleus ``top_p`` of those, and what ``min_p`` leaves of it.

    Ties are kept.
    """
    if top_k is not None and top_k < logs.shape[-1]:
        least = logs.topk(top_k, dim=-1).values[:, -1:]
        logs = logs.masked_fill(logs < least, -torch.inf)
    if top_p < 1.0:
        ordered = logs.softmax(dim=-1).sort(dim=-1, descending=True)
        before = ordered.values.cumsum(dim=-1) - ordered.values
        outside = torch.zeros_like(before, dtype=torch.bool).scatter(-1, ordered.indices, before >= top_p)
        logs = logs.masked_fill(outside, -torch.inf)
    if min_p > 0.0:
        probabilities = logs.softmax(dim=-1)
        logs = logs.masked_fill(probabilities < min_p * probabilities.amax(dim=-1, keepdim=True), -torch.inf)
    return logs


def penalize(logs: Float[Tensor, "N V"], tokens: Int[Tensor, "N t"], penalty: float) -> Float[Tensor, "N V"]:
    """Return the log-probabilities, those of the tokens that occur in each row multiplied by ``penalty``."""
    if tokens.shape[1] == 0:
        return logs
    return logs.scatter(1, tokens, logs.gather(1, tokens) * penalty)
