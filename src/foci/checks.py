"""Checks of the shapes, dtypes and devices of tensors.

No message shows the contents of a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch
from torch import Tensor, nn

from foci.errors import ConfigError, ShapeError


def check_shape(owner: str, name: str, tensor: Tensor, *expected: str | int, fix: str = "") -> None:
    """Raise unless ``tensor`` is a floating tensor of the expected shape.

    Each entry of ``expected`` is an exact size, or the name of an axis that may have any size;
    a leading ``"…"`` stands for any number of axes.
    """
    if not isinstance(tensor, Tensor):
        raise ShapeError(f"{owner}: {name} is a {type(tensor).__name__}, expected a torch.Tensor.")
    if not tensor.is_floating_point():
        raise ShapeError(
            f"{owner}: {name} has dtype {tensor.dtype}, expected a floating dtype. "
            f"Embed integer ids first, or convert with {name}.float()."
        )
    shape: Sequence[object] = tensor.shape
    if shape and isinstance(shape[-1], Tensor):  # in a trace of torch.jit, which would fix what sizes decide
        raise _no_torchscript(owner)
    open_ended = expected[0] == "…"
    axes = expected[1:] if open_ended else expected
    missing = len(shape) - len(axes)
    if missing == 0 or (missing > 0 and open_ended):
        for have, want in zip(shape[missing:], axes):
            if not isinstance(want, str) and have != want:
                break
        else:
            return
    wanted = ", ".join(str(axis) for axis in expected)
    raise ShapeError(f"{owner}: {name} has shape {tuple(tensor.shape)}, expected ({wanted}). {fix}".rstrip())


def is_sequence(tensor: Tensor, size: int | str | None) -> bool:
    """Return whether `check_shape` would find ``(batch, position, size)``; it takes a third of the time."""
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        return False
    shape: Sequence[object] = tensor.shape
    return len(shape) == 3 and not isinstance(shape[2], Tensor) and shape[2] == size


def are_together(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Return whether `check_together` and `expand_query` would find one device, dtype and batch size."""
    if query.dtype != value.dtype or query.device != value.device:
        return False
    return bool(query.shape[0] == key.shape[0] == value.shape[0])


def refuse_script(module: nn.Module) -> NoReturn:
    """Raise for a module that `torch.jit.script` prepares: the ``__prepare_scriptable__`` of every mechanism."""
    raise _no_torchscript(type(module).__name__)


def _no_torchscript(owner: str) -> ConfigError:
    return ConfigError(
        f"{owner}: it is compiled to TorchScript, which torch has deprecated, expected torch.compile or torch.export. "
        "docs/compile-export.md has both, and ONNX."
    )


def check_together(owner: str, **tensors: Tensor | None) -> None:
    """Raise unless all tensors are on one device and, outside autocast, have one dtype."""
    first: Tensor | None = None
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if first is None:
            first, first_name = tensor, name
            continue
        if tensor.device != first.device:
            raise ShapeError(
                f"{owner}: {name} is on {tensor.device}, but {first_name} is on {first.device}. "
                f"Move it with {name}.to({first_name}.device)."
            )
        if tensor.dtype != first.dtype and not torch.is_autocast_enabled(first.device.type):
            raise ShapeError(
                f"{owner}: {name} has dtype {tensor.dtype}, but {first_name} has {first.dtype}. "
                f"Convert with {name}.to({first_name}.dtype)."
            )


def expand_query(owner: str, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, int]:
    """Return the query and the batch size of all three, where a batch of 1 broadcasts; raise if they differ otherwise.

    Where the value alone has several rows, the query is expanded to them: weights and masks have the rows of query and
    key.
    """
    rows, sources, values = query.shape[0], key.shape[0], value.shape[0]
    if rows != sources and 1 not in (rows, sources):
        raise ShapeError(
            f"{owner}: query has batch size {rows}, but the key has {sources}. Repeat the smaller one, for beams with "
            "key.repeat_interleave(beams, dim=0)."
        )
    batch = rows if sources == 1 else sources
    if values == batch or values == 1:
        return query, batch
    if batch == 1:
        return query.expand(values, *query.shape[1:]), values
    raise ShapeError(
        f"{owner}: value has batch size {values}, but query and key have {batch}. Pass one value for each key, or one "
        "for all of them."
    )


def check_mask(owner: str, mask: Tensor, scores_shape: torch.Size, device: torch.device) -> Tensor:
    """Return ``mask`` with the rank of the scores, or raise an error that says what is wrong with it.

    The mask rule (see `foci.masks`) requires: boolean, the scores' rank, each axis of the scores' size
    or 1. Scores with heads ``(B, H, L, S)`` also take a mask ``(B, L, S)``, which applies to every head.
    """
    check_boolean(owner, "mask", mask, device)
    rank = len(scores_shape)
    fitted = mask.unsqueeze(1) if rank == 4 and mask.dim() == 3 else mask
    if fitted.dim() == rank and all(have == 1 or have == want for have, want in zip(fitted.shape, scores_shape)):
        return fitted
    expected = "(batch, query, key)" if rank > 2 else "(batch, key)"
    sizes = tuple(scores_shape) if rank != 4 else (scores_shape[0], *scores_shape[2:])
    raise ShapeError(
        f"{owner}: mask has shape {tuple(mask.shape)}, expected {expected} = {sizes}, where an axis of size 1 "
        f"broadcasts. {_mask_helper(mask, rank)}"
    )


def check_boolean(owner: str, name: str, mask: Tensor, device: torch.device) -> None:
    """Raise unless ``mask`` is a boolean tensor on ``device``."""
    if not isinstance(mask, Tensor):
        raise ShapeError(f"{owner}: {name} is a {type(mask).__name__}, expected a boolean torch.Tensor.")
    if mask.dtype != torch.bool:
        raise ShapeError(
            f"{owner}: {name} has dtype {mask.dtype}, expected torch.bool with True = may be read. "
            f"Numbers added to the scores (0 and -inf) are a bias: pass them as bias=…, or use {name} == 0; a 0/1 mask "
            f"with 1 = may be read becomes {name}.bool(); torch's padding mask (True = ignore) becomes "
            f"masks.from_torch_padding({name}.bool())."
        )
    if mask.device != device:
        raise ShapeError(
            f"{owner}: {name} is on {mask.device}, but the scores are on {device}. Move it with {name}.to(device)."
        )


def check_valid(owner: str, name: str, valid: Tensor, batch: int, size: int, device: torch.device) -> None:
    """Raise unless ``valid`` is a boolean ``(batch, position)`` tensor of these sizes."""
    check_boolean(owner, name, valid, device)
    if valid.dim() != 2 or valid.shape[0] != batch or valid.shape[1] != size:
        raise ShapeError(
            f"{owner}: {name} has shape {tuple(valid.shape)}, expected (batch, position) = ({batch}, {size}). "
            f"Make it from lengths with masks.lengths(lengths, {size})."
        )


def check_ids(owner: str, name: str, ids: Tensor, *expected: str | int) -> None:
    """Raise unless ``ids`` is a tensor of whole numbers; ``expected`` has names and sizes as in `check_shape`."""
    if not isinstance(ids, Tensor):
        raise ShapeError(f"{owner}: {name} is a {type(ids).__name__}, expected a torch.Tensor.")
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise ShapeError(
            f"{owner}: {name} has dtype {ids.dtype}, expected whole numbers (token ids). Convert with {name}.long()."
        )
    fits = (have == want or isinstance(want, str) for have, want in zip(ids.shape, expected))
    if ids.dim() != len(expected) or not all(fits):
        wanted = ", ".join(str(axis) for axis in expected)
        raise ShapeError(f"{owner}: {name} has shape {tuple(ids.shape)}, expected ({wanted}).")


def _mask_helper(mask: Tensor, rank: int) -> str:
    if mask.dim() == 2 and rank > 2:
        return (
            "A two-axis mask is never guessed at: masks.keys(valid) turns valid (batch, key) into a mask, "
            "masks.causal(L, S) makes a causal one, and mask.unsqueeze(0) lifts your own (query, key)."
        )
    return "Make it with masks.keys(valid), masks.causal(L, S) or masks.window(L, S, left, right)."
