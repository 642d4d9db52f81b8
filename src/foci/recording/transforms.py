"""Weights that were recorded inside of `torch.func.vmap`, read after it has returned.

Inside, a tensor stands for one entry of the batch, and its transform is over when the tape is read. What it wraps
remains: the entries of all, with an axis for each `vmap`. The weights are computed from it, mapped in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from foci import torch_private
from foci.weights import Weights


def after_transforms(weights: Weights) -> Weights:
    """Return the handle, or where its `vmap` is over one on all weights: axis 0 is the mapped one, first the outer.

    The weights of a `vmap` that still runs are those of one entry, and part of its graph.
    """
    leaves, structure = tree_flatten(weights)
    running = torch_private.transform_level()
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    plain, axes = zip(*(_plain(leaves[place], running) for place in places))
    mapped = sorted({level for of_tensor in axes for level in of_tensor})
    if not mapped:
        return weights

    def compute(*tensors: Tensor) -> dict[str, Tensor]:
        filled: list[Any] = list(leaves)
        for place, tensor in zip(places, tensors):
            filled[place] = tensor
        one: Weights = tree_unflatten(filled, structure)
        one.renew_versions()
        behind = None if one.drawn_from is None else one.probabilities.dense()
        found = {"weights": one.dense(), "log_prob": one.log_prob, "probabilities": behind}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    function: Callable[..., dict[str, Tensor]] = compute
    for level in reversed(mapped):
        function = torch.func.vmap(function, in_dims=tuple(0 if level in of_tensor else None for of_tensor in axes))
    return Weights.from_tensor(**function(*plain))


def _plain(tensor: Tensor, running: int) -> tuple[Tensor, Sequence[int]]:
    """Return the tensor outside of all transforms that are over, and the levels of its leading, mapped axes."""
    found = []
    while (level := torch_private.level_of(tensor)) is not None and (level > running or level < 0):
        tensor, axis = torch_private.without_transform(tensor)
        if axis is not None:
            found.append((level, axis))
    for done, (_, axis) in enumerate(reversed(found)):  # an axis is counted without those of the outer levels
        tensor = tensor.movedim(axis + done, done)
    return tensor, [level for level, _ in reversed(found)]
