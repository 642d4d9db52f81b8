"""Generating, and what was attended to meanwhile: the calls of each layer, put together row by row.

With a cache, a layer is called once for the prompt and then once for each further token. A beam search runs first; then
the hypothesis that won is generated again, alone, and recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from foci.huggingface.options import ReadOptions
from foci.recording import Recording, record
from foci.viz.given_weights import entry
from foci.weights import Weights

_NO_TOKEN = -1
"""As the token that ends a text: none does."""


class Generated(NamedTuple):
    """What was generated.

    Attributes:
        ids: prompt and answer, or of a decoder its start and the answer, ``(P + N)``.
        tape: what was attended to.
        passes: how often the model was called.
    """

    ids: Tensor
    tape: Recording
    passes: int


class _Forced:
    """A processor of scores that leaves one token at each place: that of a text which is known."""

    def __init__(self, ids: Tensor) -> None:
        self.ids = ids

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        place = input_ids.shape[1]
        if place >= len(self.ids):
            return scores
        only = torch.full_like(scores, float("-inf"))
        only[:, self.ids[place]] = 0.0
        return only


class _OneMore:
    """Stops one token after the last: the model has then read the last one too.

    Args:
        size: of the whole text.
        begin: of the answer.
        ends: tokens that end it earlier.
    """

    def __init__(self, size: int, begin: int, ends: Sequence[int]) -> None:
        self.size, self.begin, self.ends = size, begin, ends

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        count = input_ids.shape[1]
        ended = count - 2 >= self.begin and int(input_ids[0, -2]) in self.ends
        return torch.full((len(input_ids),), count > self.size or ended, device=input_ids.device)


def generate(model: Any, inputs: dict[str, Tensor], options: ReadOptions, most: int) -> Generated:
    """Generate at most this many tokens; without a temperature or beams, the likeliest ones.

    A decoder alone reads its last token too, so that there is a row for each token; one that has an encoder has a row
    for each token that it produced.
    """
    settings: dict[str, Any] = {"max_new_tokens": most, "do_sample": options.temperature is not None, "use_cache": True}
    if options.temperature is not None:  # the model's own file may have a top_k that nobody asked for
        settings |= {"temperature": options.temperature, "top_k": options.top_k or 0, "top_p": options.top_p}
    beams = options.beam_size or (1 if options.temperature is not None else model.generation_config.num_beams or 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed or 0)
        if beams > 1:
            won = model.generate(**inputs, **settings, num_beams=beams)[0]
            settings["logits_processor"] = [_Forced(won)]
            settings["max_new_tokens"] = most = len(won) - _start(model, inputs)
        alone = not model.config.is_encoder_decoder
        if alone:
            settings |= {"max_new_tokens": most + 1, "eos_token_id": _NO_TOKEN, "pad_token_id": 0}
            begin = inputs["input_ids"].shape[1]
            settings["stopping_criteria"] = [_OneMore(begin + most, begin, _ends(model))]
        with record(model, detach=True) as tape, _counted(model) as count:
            ids = model.generate(**inputs, **settings, num_beams=1)[0]
    return Generated(ids[:-1] if alone else ids, tape, count())


def _start(model: Any, inputs: dict[str, Tensor]) -> int:
    """Return how many tokens there are before the first that is generated."""
    return 1 if model.config.is_encoder_decoder else int(inputs["input_ids"].shape[1])


def _ends(model: Any) -> list[int]:
    ends = model.generation_config.eos_token_id
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)


@contextmanager
def _counted(model: nn.Module) -> Iterator[Callable[[], int]]:
    """Count the calls of the model in the block."""
    calls = 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    handle = model.register_forward_pre_hook(count)
    try:
        yield lambda: calls
    finally:
        handle.remove()


def layers_of(calls: Sequence[Weights], passes: int) -> list[list[Weights]]:
    """Return the calls of one module by layer: where layers share a module, each pass calls it several times.

    Example:
        >>> layers_of(["first, layer 0", "first, layer 1", "second, layer 0", "second, layer 1"], passes=2)
        [['first, layer 0', 'second, layer 0'], ['first, layer 1', 'second, layer 1']]
    """
    layers = max(1, len(calls) // passes)
    return [list(calls[layer::layers]) for layer in range(layers)]


def steps_together(name: str, calls: Sequence[Weights], *, of_itself: bool) -> Weights:
    """Return the calls of a layer as one attention, ``(1, H, L, S)``, a row for each position that was read.

    Args:
        name: of the attention, for messages.
        calls: of the layer, one a step.
        of_itself: whether the text reads itself. A cache may keep the last positions alone: then the keys of a step
            end at its last row.
    """
    pieces: list[Tensor] = []
    end = 0
    for step, call in enumerate(calls):
        new = call.shape[-2] if step == 0 else 1  # a model without a cache computes all rows again
        one = entry(name, call, 0, {})
        weights = one.rows(slice(call.shape[-2] - new, call.shape[-2])).detach()
        end += new
        if of_itself:
            width = weights.shape[-1]
            weights = weights[..., :end] if width >= end else nn.functional.pad(weights, (end - width, 0))
        pieces.append(weights)
    longest = max(piece.shape[-1] for piece in pieces)
    return Weights.from_tensor(
        torch.cat([nn.functional.pad(piece, (0, longest - piece.shape[-1])) for piece in pieces], dim=-2)
    )
