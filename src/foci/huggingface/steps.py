"""What was attended to while tokens were generated: the calls of each layer, put together row by row.

With a cache, a layer is called once for the prompt and then once for each further token. Of several hypotheses each row
is that of the hypothesis that won in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from foci.huggingface.options import ReadOptions
from foci.viz.given_weights import entry
from foci.weights import Weights


class Generated(NamedTuple):
    """What a search gave.

    Attributes:
        ids: prompt and answer, or of a decoder its start and the answer, ``(P + N)``.
        rows: of each step, the row of the batch whose scores gave the token that was kept.
        passes: how often the model was called.
    """

    ids: Tensor
    rows: list[int]
    passes: int


def generate(model: Any, inputs: dict[str, Tensor], options: ReadOptions, most: int) -> Generated:
    """Generate at most this many tokens; without a temperature or beams, the likeliest ones."""
    settings: dict[str, Any] = {"max_new_tokens": most, "do_sample": options.temperature is not None, "use_cache": True}
    if options.temperature is not None:  # the model's own file may have a top_k that nobody asked for
        settings |= {"temperature": options.temperature, "top_k": options.top_k or 0, "top_p": options.top_p}
        settings |= {"num_beams": 1}
    if options.beam_size is not None:
        settings["num_beams"] = options.beam_size
    with torch.random.fork_rng(devices=[]), _counted(model) as count:
        torch.manual_seed(options.seed or 0)
        found = model.generate(**inputs, **settings, return_dict_in_generate=True, output_scores=True)
    beams = getattr(found, "beam_indices", None)
    steps = len(found.scores)
    rows = [0] * steps if beams is None else [int(row) for row in beams[0].tolist() if row >= 0]
    first = found.sequences.shape[1] - (steps if beams is None else beams.shape[1])
    return Generated(found.sequences[0, : first + len(rows)], rows, count())


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


def steps_together(name: str, calls: Sequence[Weights], rows: Sequence[int], *, of_itself: bool) -> Weights:
    """Return the calls of a layer as one attention, ``(1, H, L, S)``, a row for each position that was read.

    Args:
        name: of the attention, for messages.
        calls: of the layer, one a step.
        rows: of each step, the row of the batch that was kept.
        of_itself: whether the text reads itself. A cache may keep the last positions alone: then the keys of a step
            end at its last row.
    """
    pieces: list[Tensor] = []
    end = 0
    for step, (call, row) in enumerate(zip(calls, rows)):
        new = call.shape[-2] if step == 0 else 1  # a model without a cache computes all rows again
        one = entry(name, call, row, {})
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
