"""The values that recorded weights were multiplied with, and the linear layer that the result went through.

    f_h(x) = v_h W_h^O,   Σ_j Σ_h a_hij f_h(x_j) + b^O = output_i

Models name these layers in many ways and lay heads out in several. So they are found by what they computed: the linear
layer whose input was the weights times the output of another one, for all heads side by side. Where there is none
(a gate or dropout between, values from a cache, layers of other kinds) that is an error with the path in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.errors import ConfigError
from foci.recording.torch_calls import multi_head_call, values_of_multi_head


class Projected(NamedTuple):
    """What an attention reads, by head, and what becomes of it.

    Attributes:
        values: what the weights are multiplied with.
        weight: the output projection of each head.
        bias: what the output projection adds, once for all heads.
    """

    values: Float[Tensor, "B H S K"]
    weight: Float[Tensor, "H K D"]
    bias: Float[Tensor, "D"]


@dataclass(eq=False)
class _Call:
    given: Tensor
    returned: Tensor


class Projections:
    """What the linear layers of a model were given and returned, in the order of their calls."""

    def __init__(self, paths: Mapping[nn.Module, str]) -> None:
        self._modules = {path: module for module, path in paths.items()}
        self._calls: dict[str, list[_Call]] = {}
        self._of_torch: dict[str, list[Projected | None]] = {}
        self._paths = paths

    def saw(self, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any) -> None:
        """Keep a call of a linear layer, or the values of an `nn.MultiheadAttention`, which calls none."""
        path = self._paths.get(module)
        if path is None:
            return
        if isinstance(module, nn.MultiheadAttention):
            self._of_torch.setdefault(path, []).append(_of_multi_head_module(module, *args, **kwargs))
        elif _is_linear(module) and isinstance(output, Tensor):
            given = next((one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)), None)
            if given is not None and given.is_floating_point() and given.shape[:-1] == output.shape[:-1]:
                self._calls.setdefault(path, []).append(_Call(given.detach(), output.detach()))

    def forget_others(self, paths: Iterable[str]) -> None:
        """Keep the calls inside of the modules that have these paths, and beside them."""
        around = [_parent(path) for path in paths]
        self._calls = {path: calls for path, calls in self._calls.items() if any(_inside(path, one) for one in around)}

    @torch.no_grad()
    def of(self, path: str, call: int, weights: Float[Tensor, "B H L S"]) -> Projected:
        """Return what a call of the attention at this path read.

        Raises:
            ConfigError: it cannot be known.
        """
        of_torch = self._of_torch[path][call] if path in self._of_torch else None
        if of_torch is not None:
            return of_torch
        for scope in (path, _parent(path)):
            inside = {one: calls for one, calls in self._calls.items() if _inside(one, scope) and len(calls) > call}
            for out, calls in inside.items():
                for values in _candidates(
                    calls[call].given, [each[call].returned for each in inside.values()], weights
                ):
                    return Projected(values, *_linear_map(self._modules[out], weights.shape[1], values))
        raise ConfigError(
            f"Recording.projected: of {path!r} values and output projection are not known: no linear layer in it or "
            "beside it was given its weights times the output of another. A gate, dropout, a bias of the values or a "
            "cache may stand between."
        )


def _is_linear(module: nn.Module) -> bool:
    weight = module._parameters.get("weight")
    return weight is not None and weight.dim() == 2 and not module._modules


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _inside(path: str, scope: str) -> bool:
    return scope in ("", ".") or path.startswith(f"{scope}.")


def _of_multi_head_module(module: nn.MultiheadAttention, *args: Any, **kwargs: Any) -> Projected | None:
    call = multi_head_call(module, *args, **kwargs)
    value = call["value"].detach()
    if value.is_nested:
        return None
    if value.dim() == 2:
        value = value.unsqueeze(0)
    elif not module.batch_first:
        value = value.transpose(0, 1)
    with torch.no_grad():
        values = values_of_multi_head(value, call)
        return Projected(values, *_linear_map(module.out_proj, module.num_heads, values))


def _linear_map(layer: nn.Module, heads: int, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weight of a linear layer by head, and its bias: by what it does, so however it is stored."""
    size = heads * values.shape[-1]
    basis = torch.eye(size, dtype=values.dtype, device=values.device)
    bias: Tensor = layer.forward(torch.zeros_like(basis[0]))
    weight: Tensor = layer.forward(basis) - bias
    return weight.unflatten(0, (heads, -1)), bias


def _candidates(given: Tensor, outputs: Sequence[Tensor], weights: Tensor) -> Iterator[Tensor]:
    """Yield the values ``(B, H, S, K)`` among these outputs that give, times the weights, what a layer was given."""
    B, H, L, S = weights.shape
    if given.dim() != 3 or given.shape[:2] != (B, L) or given.shape[-1] % H:
        return
    dim = given.shape[-1] // H
    near = max(1e-4, 16 * torch.finfo(given.dtype).eps) * max(float(given.abs().max()), 1e-12)
    for output in outputs:
        if output.dim() != 3 or output.shape[:2] != (B, S):
            continue
        for values in _layouts(output, H, dim):
            values = values.repeat_interleave(H // values.shape[1], dim=1)
            context = (weights.to(values.dtype) @ values).transpose(1, 2).flatten(2)
            if float((context - given).abs().max()) <= near:
                yield values


def _layouts(output: Tensor, heads: int, dim: int) -> Iterator[Tensor]:
    """Yield what may be the values ``(B, G, S, K)`` in the output of a layer that gives them alone or with others."""
    blocks, rest = divmod(output.shape[-1], dim)
    if rest:
        return
    split = output.unflatten(-1, (blocks, dim)).transpose(1, 2)
    for groups, parts in ((blocks, 1), (blocks // 2, 2), ((blocks - heads) // 2, heads + 2)):
        if groups < 1 or heads % groups:
            continue
        yield split[:, -groups:]  # queries, keys, values one after the other
        if parts > 1 and blocks % groups == 0:
            yield split[:, blocks // groups - 1 :: blocks // groups]  # each group's own
