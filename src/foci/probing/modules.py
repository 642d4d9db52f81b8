"""Any PyTorch model as a subject: tokens are the ids of one of its inputs, attentions are what `foci.record` sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foci.errors import ConfigError, ShapeError
from foci.probing.erasers import Embedded, Inputs, Place
from foci.probing.subject import Attended, Source, Subject
from foci.recording import Recording, record


def of_module(
    model: nn.Module,
    inputs: Inputs | Sequence[Any],
    *,
    answer: Callable[[Any], Tensor] | None = None,
    source: Source | None = None,
    neutral: int | None = None,
    causal: bool = False,
    title: str = "",
) -> Subject:
    """Return one input of a model as what can be probed.

    Args:
        model: any module; it is probed as it is, so put it in evaluation mode.
        inputs: its arguments for this input, with a batch axis of 1: a mapping by name, or a sequence.
        answer: returns the probabilities ``(B, K)`` or ``(B, T, K)`` from what the model returns. Default: the softmax
            of its ``logits``, or of what it returns; of a language model's, that of the token that follows.
        source: which argument has the ids of the tokens ``(1, S)``, their labels, those that are never erased, and
            those that people marked as the reason; or that with the numbers of other parts, and how these are erased.
            Default: "input_ids", or else the only argument of whole numbers.
        neutral: the id whose vector takes the place of an erased one's, such as that of a mask token. Default: the
            mean of all vectors.
        causal: tokens see only those before them, so what the last one reads counts; else the mean over all rows.
        title: the input, for people.
    """
    if model.training:
        raise ConfigError("probe: the model is in training mode, in which answers are random. Call model.eval() first.")
    if not isinstance(inputs, Mapping | list | tuple):
        raise ConfigError(
            f"probe: an input is of type {type(inputs).__name__}, expected the arguments of one call, in a list or by "
            'name: inputs=[[ids], …] or [{"input_ids": ids}, …], with ids (1, tokens).'
        )
    given: Inputs = inputs if isinstance(inputs, Mapping) else dict(enumerate(inputs))
    place = _place_of_ids(given) if source is None else source.place
    ids, kind = given.get(place), "ids (1, tokens)" if source is None or source.unit == "words" else "numbers (1, …)"
    if not isinstance(ids, Tensor) or len(ids) != 1 or (kind.startswith("ids") and ids.dim() != 2):
        shape = tuple(getattr(ids, "shape", ()))
        raise ShapeError(f"probe: {place!r} has shape {shape}, expected the {kind} of one input.")
    source = source or Source(place, tuple(map(str, ids[0].tolist())))
    if neutral is not None:
        source = source._replace(eraser=Embedded(neutral))
    bare = Subject(model, given, {"tokens": source}, {}, answer or softmax_of_logits, title=title)
    with torch.no_grad(), record(model, detach=True) as tape:
        bare.answer()
    read = read_by_path(tape)
    attentions = {
        path: Attended("tokens", weights[:, -1] if causal else weights.mean(axis=1), (path,))
        for path, weights in read.items()
        if weights.shape[-1] == len(source.tokens)
    }
    notes = [f"{path}: reads something else than the tokens" for path in read if path not in attentions]
    notes += [f"{path}: not recorded, {reason}" for path, reason in tape.missed.items()]
    return replace(bare, attentions=attentions, notes=tuple(notes))


def read_by_path(tape: Recording) -> dict[str, NDArray[np.float64]]:
    """Return the weights ``(H, L, S)`` of the first entry of the batch for each path; calls of one path are its rows.

    Of calls with different sources, as of a growing cache, the last one counts.
    """
    found = {}
    for path in tape.paths:
        calls = [weights.dense()[0].detach().double() for weights in tape.calls(path)]
        calls = [one.reshape((1,) * (3 - one.dim()) + one.shape) for one in calls if one.dim() <= 3]
        same = [one for one in calls if one.shape[::2] == calls[-1].shape[::2]]
        if same:
            found[path] = np.asarray(torch.cat(same, dim=1).cpu().numpy())
    return found


def softmax_of_logits(output: Any) -> Tensor:
    """Return the softmax of a model's logits; of a language model's, that of the token that follows."""
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor) or logits.dim() not in (2, 3):
        raise ConfigError(
            f"probe: the model returns a {type(output).__name__}, expected logits. Say with answer=… how probabilities "
            "(batch, answers) are computed from it: answer=lambda output: output.scores.softmax(-1)."
        )
    last = logits[:, -1] if logits.dim() == 3 else logits
    return last.float().softmax(dim=-1)


def _place_of_ids(given: Inputs) -> Place:
    integer = [
        place
        for place, value in given.items()
        if isinstance(value, Tensor) and not (value.is_floating_point() or value.dtype == torch.bool)
    ]
    if "input_ids" in integer or len(integer) == 1:
        return "input_ids" if "input_ids" in integer else integer[0]
    if not integer:
        raise ConfigError(
            "probe: no argument is a tensor of whole numbers, expected the ids of the tokens (1, tokens), since tokens "
            "are erased where the model embeds them."
        )
    raise ConfigError(
        f"probe: {len(integer)} inputs are whole numbers, expected one. Name the one with the ids of the tokens: "
        "foci.probing.of_module(model, inputs, source=Source(name, tokens))."
    )
