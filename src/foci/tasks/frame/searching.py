"""The search for outputs of encoder-decoders, by the options that `predict` and `evaluate` take."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated, cast
from weakref import WeakKeyDictionary

import torch
from annotated_types import Ge, Gt, Le
from jaxtyping import Bool
from torch import Tensor, nn

from foci.data import BOS, EOS, PAD, UNK
from foci.decoding import DecoderInputs, GenerationConstraints, Hypothesis, Sampler, beam, encode_source, greedy, sample
from foci.errors import ConfigError
from foci.layers.copying import CopySource
from foci.layers.incremental.quantized_linear import quantize
from foci.layers.interfaces import StepDecoder
from foci.models.encoder_decoder import EncoderDecoder
from foci.settings import settings


@settings
class SearchOptions:
    """How outputs are searched for."""

    beam: Annotated[int, Ge(1)] = 5
    """Number of hypotheses of the beam search; 1 is greedy search."""
    n_best: Annotated[int, Ge(1)] = 1
    """Number of outputs per input, each with its score."""
    length_penalty: float = 0.6
    """Above 0 favors longer outputs."""
    coverage_penalty: Annotated[float, Ge(0)] = 0.0
    """Above 0 favors outputs that have attended to all of the source."""
    no_repeat_ngram: Annotated[int, Ge(0)] = 0
    """No sequence of this many tokens occurs twice; 0 sets no limit."""
    min_length: Annotated[int, Ge(0)] = 0
    """Shortest output in tokens."""
    max_length: Annotated[int, Ge(1)] | None = None
    """Longest output in tokens. Default: twice the source and 20 more."""
    temperature: Annotated[float, Gt(0)] | None = None
    """Sample instead of searching: 1 draws from the model's distribution, lower values prefer likely tokens."""
    top_k: Annotated[int, Ge(1)] | None = None
    """Sample among this many likeliest tokens; needs a temperature."""
    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    """Sample among the fewest tokens whose probabilities add up to this; needs a temperature."""
    seed: Annotated[int, Ge(0)] = 0
    """Seed of the sampling."""
    prefix: str | None = None
    """Text that every output begins with."""
    int8: bool = False
    """Use 8-bit integers in large layers: faster on a CPU, slightly less exact."""
    batch_tokens: Annotated[int, Ge(1)] = 2048
    """Tokens per batch, padding included."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigError(f"{name} is {value}, expected a finite number.")
        for name in ("beam", "n_best"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected at least 1.")
        if self.temperature is None and self.n_best > self.beam:
            raise ConfigError(f"n_best is {self.n_best}, expected at most beam={self.beam}. Raise the beam.")
        if self.temperature is None and (self.top_k is not None or self.top_p != 1.0):
            raise ConfigError("top_k and top_p choose what is sampled, so they need a temperature, such as 1.0.")


def search(
    model: nn.Module,
    source: Tensor | CopySource,
    valid: Bool[Tensor, "B S"],
    options: SearchOptions,
    prefix: list[int] | None = None,
    *,
    unknown: bool = True,
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each source, best first.

    ``unknown`` allows ``<unk>``; a model that copies never produces it.
    """
    decoder = cast("EncoderDecoder", model)
    start = encode_source(decoder, source, valid)
    return search_from(decoder, start, options, prefix, unknown=unknown and not isinstance(source, CopySource))


def search_from(
    decoder: StepDecoder, start: DecoderInputs, options: SearchOptions, prefix: list[int] | None, *, unknown: bool
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each row of a start, best first; arguments as in `search`."""
    constraints = GenerationConstraints(
        max_length=options.max_length,
        min_length=options.min_length,
        no_repeat_ngram=options.no_repeat_ngram,
        prefix=None if prefix is None else [prefix] * start.rows,
        bos=BOS,
        eos=EOS,
        banned=(PAD, BOS) if unknown else (PAD, BOS, UNK),
    )
    if options.temperature is not None:
        return sample(
            decoder,
            start,
            Sampler(temperature=options.temperature, top_k=options.top_k, top_p=options.top_p),
            samples=options.n_best,
            generator=torch.Generator(start.device).manual_seed(options.seed),
            constraints=constraints,
        )
    if options.beam == 1:
        return greedy(decoder, start, constraints=constraints)
    return beam(
        decoder,
        start,
        size=options.beam,
        n_best=options.n_best,
        length_penalty=options.length_penalty,
        coverage_penalty=options.coverage_penalty,
        constraints=constraints,
    )


_QUANTIZED: WeakKeyDictionary[nn.Module, nn.Module] = WeakKeyDictionary()


def quantized(model: nn.Module) -> nn.Module:
    """Return the model with large linear layers in 8-bit integers, made once."""
    if model not in _QUANTIZED:
        _QUANTIZED[model] = quantize(model).eval()
    return _QUANTIZED[model]
