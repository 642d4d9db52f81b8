"""Weights and optimizer states as plain named tensors, and back.

Of a sharded model (FSDP2) each process saves its part of a tensor: the rows after those of the process before it. It
loads whole tensors, one at a time, and takes its part of each, so that the number of processes may change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from foci.errors import CheckpointError

TRAINED = "trained"
"""What the weights are called among an optimizer's tensors where the model's file has their average."""


def own_part(tensor: Tensor) -> Tensor:
    """Return the tensor on the CPU and dense; of a sharded one, the part that this process has.

    A tensor that is so already is returned without a copy.
    """
    if is_sharded_tensor(tensor):
        tensor = tensor.to_local()  # type: ignore[attr-defined]
    return tensor.detach().cpu().contiguous()


def like(value: Tensor, model: Tensor) -> Tensor:
    """Return ``value`` distributed as ``model`` is: a copy of this process's part of it if that one is sharded."""
    if is_sharded_tensor(model) and value.shape == model.shape:
        from torch.distributed.tensor import DTensor, distribute_tensor

        model = cast("DTensor", model)
        # src_data_rank=None: each process has read the same file, so nothing needs to be sent
        return distribute_tensor(
            value.to(model.device), model.device_mesh, model.placements, src_data_rank=None
        ).clone()  # fmt: skip
    return value


def is_sharded_tensor(tensor: Tensor) -> bool:
    """Return whether it is a DTensor, without importing its module, which takes a second."""
    return hasattr(tensor, "full_tensor")


def weights(module: nn.Module, rank: int = 0) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return parameters and buffers by name, and which further names are tied to one of them.

    These are the parts of the process of this rank; what is not sharded belongs to the first one.
    """
    kept: dict[str, Tensor] = {}
    ties: dict[str, str] = {}
    first: dict[int, str] = {}
    places: set[int] = set()
    for name, tensor in module.state_dict(keep_vars=True).items():
        if not isinstance(tensor, Tensor):
            raise CheckpointError(
                f"{type(module).__name__}: {name} is a {type(tensor).__name__}; only tensors can be saved, since "
                "nothing is pickled. Keep it as a buffer, or in the configuration."
            )
        if id(tensor) in first:
            ties[name] = first[id(tensor)]
            continue
        first[id(tensor)] = name
        if rank > 0 and not is_sharded_tensor(tensor):
            continue
        value = own_part(tensor)
        # A part of another tensor, or the same memory with another shape, is saved as a separate tensor.
        shared = value.untyped_storage().data_ptr() in places or value.untyped_storage().nbytes() > value.nbytes
        places.add(value.untyped_storage().data_ptr())
        kept[name] = value.clone() if shared else value
    return kept, ties


def check_weights(module: nn.Module, shapes: Mapping[str, Sequence[int]], origin: Path) -> None:
    """Raise unless weights of these names and shapes fit the module; tied names need only one of them.

    Args:
        module: what they are for; its own weights may be on the device "meta".
        shapes: of the weights, by name.
        origin: where they come from, for messages.
    """
    own = module.state_dict(keep_vars=True)
    by_tensor = _names_by_tensor(own)
    missing = [names[0] for names in by_tensor if not any(name in shapes for name in names)]
    unknown = sorted(name for name in shapes if name not in own)
    if missing or unknown:
        raise CheckpointError(
            f"{origin}: does not fit {type(module).__name__}: {_some('missing', missing)}{_some('unknown', unknown)}"
            "Build the model with the configuration of the run that wrote it."
        )
    for name, shape in shapes.items():
        if tuple(own[name].shape) != tuple(shape):
            raise CheckpointError(
                f"{origin}: {name} has shape {tuple(shape)}, but the model's has {tuple(own[name].shape)}. "
                "Build the model with the configuration of the run that wrote it."
            )


def put_weights(module: nn.Module, values: Mapping[str, Tensor], origin: Path) -> None:
    """Copy named tensors into the module; tied names need only one of them. ``origin`` is for messages."""
    check_weights(module, {name: value.shape for name, value in values.items()}, origin)
    own = module.state_dict(keep_vars=True)
    for name, value in values.items():
        if value.dtype != own[name].dtype:
            have, expected = (str(one.dtype).removeprefix("torch.") for one in (value, own[name]))
            raise CheckpointError(
                f"{origin}: {name} has type {have}, but the model's has {expected}. Restore the file: foci "
                "saves weights as they are."
            )
    with torch.no_grad():
        for names in _names_by_tensor(own):
            name = next(name for name in names if name in values)
            own[name].copy_(like(values[name], own[name]))


def _names_by_tensor(own: Mapping[str, Tensor]) -> list[list[str]]:
    """Return the names of each tensor, which are several where weights are tied."""
    names: dict[int, list[str]] = {}
    for name, tensor in own.items():
        names.setdefault(id(tensor), []).append(name)
    return list(names.values())


def optimizer_tensors(module: nn.Module, optimizer: torch.optim.Optimizer, rank: int = 0) -> dict[str, Tensor]:
    """Return the optimizer's state, each tensor named ``what/parameter``; the parts of this rank, as in `weights`."""
    names = {parameter: name for name, parameter in module.named_parameters()}
    return {
        f"{what}/{names[parameter]}": own_part(value)
        for group in optimizer.param_groups
        for parameter in group["params"]
        for what, value in optimizer.state[parameter].items()
        if rank == 0 or is_sharded_tensor(value)
    }


def put_optimizer_tensors(
    module: nn.Module, optimizer: torch.optim.Optimizer, values: Mapping[str, Tensor], origin: Path
) -> None:
    """Load the state from `optimizer_tensors` into the optimizer; rates and decays stay unchanged."""
    names = {parameter: name for name, parameter in module.named_parameters()}
    state: dict[str, list[tuple[str, str]]] = {}
    for key in values:
        what, _, name = key.partition("/")
        if what != TRAINED:
            state.setdefault(name, []).append((what, key))
    learning = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    unknown = state.keys() - {names[parameter] for parameter in learning}
    if unknown:
        raise CheckpointError(
            f"{origin}: holds states of parameters that do not learn in this model: {_some('unknown', sorted(unknown))}"
            "Build the model with the configuration of the run that wrote it."
        )
    packed = optimizer.state_dict()
    packed["state"] = {
        index: {what: like(values[key], parameter) for what, key in state[names[parameter]]}
        for index, parameter in enumerate(learning)
        if names[parameter] in state
    }
    optimizer.load_state_dict(packed)


def _some(word: str, names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{word} {', '.join(names[:3])}{more}. "
