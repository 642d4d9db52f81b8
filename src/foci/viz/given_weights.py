"""What mechanisms give, as the attentions of a trace: handles, outputs, states, and lists of them, which are steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from foci.errors import ConfigError, ShapeError
from foci.mechanisms.pool.hierarchical import HierarchicalWeights
from foci.outputs import weights_of
from foci.viz.axis import Axis
from foci.viz.kept_weights import CUT
from foci.weights import Weights

Given = Weights | tuple[Any, ...] | Sequence[Weights | tuple[Any, ...]]
"""A handle, what a mechanism returned, the state of a memory, or a list of one of these, one a step."""


def by_name(attentions: Mapping[str, Given]) -> dict[str, Weights]:
    """Return the handles; of what has several, each with its suffix, as on a tape: ``"memory:read"``."""
    found: dict[str, list[Weights]] = {}
    for name, given in attentions.items():
        several = isinstance(given, list | tuple) and not hasattr(given, "_fields") and not weights_of(given)
        if several and not given:
            raise ConfigError(f"Trace: {name!r} has no steps, expected at least one.")
        for step in given if several else [given]:
            for suffix, handle in _handles(name, step).items():
                found.setdefault(name + suffix, []).append(handle)
    return {name: joined(name, steps) for name, steps in found.items()}


def _handles(name: str, given: Any) -> dict[str, Weights]:
    if isinstance(given, Weights):
        return {"": given}
    handles = weights_of(given) or weights_of((None, given))
    if not handles:
        raise ShapeError(
            f"Trace: {name!r} has a {type(given).__name__}, expected Weights, what a mechanism returned, or a list of "
            "these. For arrays: from_arrays."
        )
    return handles


def joined(path: str, calls: list[Weights]) -> Weights:
    """The calls of one module as one attention: a row for each row of each call."""
    calls = [_at_positions(call) for call in calls]
    of_memory = path.endswith((":read", ":write")) and len(calls[0].shape) == 3  # (B, heads, slots), one step a call
    if len(calls) == 1 and not of_memory:
        return calls[0]
    width = max(call.shape[-1] for call in calls)
    pieces = []
    for call in calls:
        weights = call.dense().detach()
        if of_memory or weights.dim() == 2:
            weights = weights.unsqueeze(-2)
        pieces.append(torch.nn.functional.pad(weights, (0, width - weights.shape[-1])))
    if len({(piece.shape[:-2]) for piece in pieces}) > 1:
        shapes = " and ".join(sorted({str(tuple(call.shape)) for call in calls}))
        raise ShapeError(
            f"Trace: the calls of {path!r} have shapes {shapes}, which are not steps of one batch. "
            f"Choose calls yourself: Trace.from_handles({{{path!r}: tape[{path!r}, 0]}}, …)."
        )
    return Weights.from_tensor(torch.cat(pieces, dim=-2))


def _at_positions(handle: Weights) -> Weights:
    """Return the handle whose columns are positions, where they are the slots of a sliding cache."""
    if handle.start is None:
        return handle
    placed = [
        torch.nn.functional.pad(weights[..., max(0, -first) :], (max(0, first), 0))
        for weights, first in zip(handle.dense().detach(), handle.start.tolist())
    ]
    width = max(one.shape[-1] for one in placed)
    return Weights.from_tensor(
        torch.stack([torch.nn.functional.pad(one, (0, width - one.shape[-1])) for one in placed])
    )


def entry(name: str, handle: Weights, row: int, axes: Mapping[str, Axis]) -> Weights:
    """The handle ``(1, L, S)`` or ``(1, H, L, S)`` of one entry of the batch, computing no other.

    A document's words are those of its sentences, without padding; the places of a map are the columns, its channels
    the rows, or the columns where it has no places.
    """
    shape = handle.shape
    if len(shape) not in (2, 3, 4):
        raise ShapeError(
            f"Trace: {name!r} has shape {tuple(shape)}, expected (batch, row, column), (batch, head, row, column) or "
            "(batch, column)."
        )
    if not -shape[0] <= row < shape[0]:
        raise ConfigError(f"Trace: row is {row}, but {name!r} has a batch of {shape[0]}.")
    if isinstance(handle, HierarchicalWeights):
        return Weights.from_tensor(_words(name, handle.words.shape[1:], handle[row], axes).reshape(1, 1, -1))
    if is_map(shape, axes):
        of_channels = handle[row].flatten(1)
        return Weights.from_tensor((of_channels.mT if shape[2:] == (1, 1) else of_channels).unsqueeze(0))
    if len(shape) == 2:
        return Weights.from_tensor(handle.dense()[row].reshape(1, 1, -1))
    handle.source.check_unchanged()
    return Weights(handle.source.entries(slice(row % shape[0], row % shape[0] + 1)))


def is_map(shape: Sequence[int], axes: Mapping[str, Axis]) -> bool:
    """Return whether ``(B, C, H, W)`` are weights of channels and places: there is an image of this grid.

    Or they have no places, and there is an image or an axis of channels.
    """
    if len(shape) != 4:
        return False
    if tuple(shape[2:]) == (1, 1):
        return any(
            axis.kind == "regions" or (axis.kind == "channels" and len(axis) == shape[1]) for axis in axes.values()
        )
    return any(axis.grid == tuple(shape[2:]) and (shape[2] > 1 or shape[1] == 1) for axis in axes.values())


def axes_of_map(shape: Sequence[int], axes: Mapping[str, Axis]) -> dict[str, Axis]:
    """Return the axes that a map needs and that have nothing but numbers: its channels, and that there is one map."""
    found = {}
    if shape[1] > 1 and not any(len(axis) == shape[1] for axis in axes.values()):
        found["channels"] = Axis.numbered("channels", shape[1])
    if 1 in (shape[1], shape[2] * shape[3]) and not any(len(axis) == 1 for axis in axes.values()):
        found["maps"] = Axis.from_tokens(["weight"], "maps")
    return found


def _words(name: str, sentences: Sequence[int], words: Tensor, axes: Mapping[str, Axis]) -> Tensor:
    """Return the weights of the words of the only document that fits N sentences of T; of all if there is none."""
    count, longest = sentences
    fitting = [
        axis.sentences
        for axis in axes.values()
        if axis.sentences and len(axis.sentences) <= count and max(axis.sentences) <= longest
    ]
    if len(fitting) != 1:
        return words
    exists = torch.zeros(count, longest, dtype=torch.bool, device=words.device)
    for number, length in enumerate(fitting[0]):
        exists[number, :length] = True
    beyond = float(words[~exists.flatten()].sum())
    if beyond > CUT:
        raise ShapeError(
            f"Trace: {beyond:.0%} of the weight of {name!r} lies on words that the document, with sentences of "
            f"{list(fitting[0])} words, does not have. Label every word that can be read."
        )
    return words[exists.flatten()]


def axes_by_size(name: str, shape: Sequence[int], axes: Mapping[str, Axis]) -> tuple[str, str]:
    """Return the keys (target, source) of the only axes with as many labels as there are rows and columns."""
    rows, columns = shape[-2:]
    if len(axes) == 1:
        (only,) = axes
        if rows < len(axes[only]) <= columns:
            raise ConfigError(
                f"Trace: {name!r} has {rows} row{'s' * (rows > 1)} and {columns} columns, but {only!r}, the only axis, "
                f"has {len(axes[only])} labels: who reads needs labels too. Pass axes={{'source': {columns} labels of "
                f"what is read, 'target': {rows} of who reads}}."
            )
        return only, only
    targets = [key for key, axis in axes.items() if len(axis) == rows]
    sources = [key for key, axis in axes.items() if len(axis) == columns]
    if len(targets) == 1 and len(sources) == 1:
        return targets[0], sources[0]
    sizes = ", ".join(f"{key!r} ({len(axis)} labels)" for key, axis in axes.items())
    raise ConfigError(
        f"Trace: {name!r} has {rows} rows and {columns} columns, which fit several axes or none: {sizes}. "
        f"Pass axes_of={{{name!r}: (target, source)}}."
    )
