"""The search for outputs of encoder-decoders, by the options that `predict` and `evaluate` take."""

from __future__ import annotations

from typing import cast
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from foci.data import BOS, EOS, PAD, UNK
from foci.decoding import DecoderInputs, GenerationConstraints, Hypothesis, Sampler, beam, encode_source, greedy, sample
from foci.layers.copying import CopySource
from foci.layers.incremental.quantized_linear import quantize
from foci.layers.interfaces import StepDecoder
from foci.models.encoder_decoder import EncoderDecoder
from foci.tasks.frame.search_options import SearchOptions


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
