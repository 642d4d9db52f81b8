"""Handles on the weights of torch's own attention: what a call computed, read from its arguments.

    scaled_dot_product_attention   multi_head_attention_forward   MultiheadAttention   a fused TransformerEncoderLayer

`foci.record` calls these functions right after the call itself. They keep queries and keys (those of a multi-head
attention after its projections), so no weight is computed before it is requested. Buffers are copied, so that a handle
stays valid when the model later writes into its cache of keys or its mask. A query that may read nothing has weights
0, even where torch gives NaN.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foci.masks import lengths
from foci.recording.flex import FlexSoftmax
from foci.torch_private import is_flex_attention, is_transformed
from foci.weights import Weights
from foci.weights.sources import DotSoftmax


class Copies:
    """Copies of masks. Layers mostly share one mask, so one copy is used for all of them until it is written to."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, bool], tuple[Tensor, Tensor]] = {}

    def of(self, mask: Tensor, *, invert: bool = False) -> Tensor:
        """Return a copy of the mask, or of its opposite; an axis along which it was expanded comes back with size 1."""
        if mask.is_inference():  # torch counts no writes to these
            return _copy(mask, invert)
        key = (id(mask), mask._version, invert)
        if key not in self._known:
            self._known[key] = (mask, _copy(mask, invert))  # keeping the mask alive keeps its id unique
        return self._known[key][1]

    def forget(self) -> None:
        """Drop the references to the masks; the handles keep their copies."""
        self._known.clear()


def of_dot_products(
    masks: Copies,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Weights:
    """Return the weights of this call of `scaled_dot_product_attention`, before dropout."""
    scale = query.size(-1) ** -0.5 if scale is None else scale  # a nested tensor has no .shape
    if query.is_nested:
        return _of_nested_dot_products(query, key, scale, is_causal)
    source = DotSoftmax(*_fit(_keep(query), _keep(key), enable_gqa), scale)
    if is_causal:
        source.window, source.offset = (None, 0), 0
    # torch.nn.attention.bias.CausalBias, by its attribute: its module takes seconds to import.
    variant = getattr(attn_mask, "variant", None)
    if variant is not None:
        source.window, source.offset = (None, 0), 0 if variant.name == "UPPER_LEFT" else None
    elif attn_mask is not None:
        copy = masks.of(attn_mask)
        copy = copy.reshape((1,) * (source.query.dim() - copy.dim()) + copy.shape)
        if copy.dtype == torch.bool:
            source.mask = copy
        else:
            source.bias = copy
    return Weights(source)


def of_multi_head_function(masks: Copies, *args: Any, **kwargs: Any) -> Weights:
    """Return the weights ``(B, H, L, S)`` of this call of `multi_head_attention_forward`, whose batch axis is 1."""
    call = bind(F.multi_head_attention_forward, *args, **kwargs)
    query, key = call["query"], call["key"]
    if query.dim() == 2:
        query, key = query.unsqueeze(1), key.unsqueeze(1)
    return Weights(_multi_head(masks, query.transpose(0, 1), key.transpose(0, 1), call))


def of_multi_head_module(
    masks: Copies, module: nn.MultiheadAttention, length: int, *args: Any, **kwargs: Any
) -> Weights:
    """Return the weights ``(B, H, L, S)`` of a call of the module; a nested tensor is padded to ``length`` or more."""
    call = multi_head_call(module, *args, **kwargs)
    query, key = call["query"], call["key"]
    if query.is_nested:  # only self-attention can be
        padded, valid = pad_nested(query, length)
        source = _multi_head(masks, padded, padded, call)
        source.mask = valid[:, None, :, None] & valid[:, None, None, :]
        return Weights(source)
    if query.dim() == 2:
        query, key = query.unsqueeze(0), key.unsqueeze(0)
    elif not module.batch_first:
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    return Weights(_multi_head(masks, query, key, call))


def multi_head_call(module: nn.MultiheadAttention, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the arguments of a call of the module, and its parameters as `multi_head_attention_forward` takes them."""
    call = bind(nn.MultiheadAttention.forward, module, *args, **kwargs)
    names = ("num_heads", "in_proj_weight", "in_proj_bias", "q_proj_weight", "k_proj_weight", "v_proj_weight")
    call |= {name: getattr(module, name) for name in (*names, "bias_k", "bias_v", "add_zero_attn")}
    return call | {"use_separate_proj_weight": module.in_proj_weight is None, "static_k": None, "static_v": None}


def values_of_multi_head(value: Tensor, call: Mapping[str, Any]) -> Tensor:
    """Return the projected values ``(B, H, S, K)`` of ``value (B, S, D)``; ``call`` has torch's arguments by name."""
    batch, heads = value.shape[0], call["num_heads"]
    if call["static_v"] is not None:
        value = call["static_v"].unflatten(0, (batch, heads))
    else:
        separate = call["use_separate_proj_weight"]
        weight = call["v_proj_weight"] if separate else call["in_proj_weight"].chunk(3)[2]
        value = F.linear(value, weight, None if call["in_proj_bias"] is None else call["in_proj_bias"].chunk(3)[2])
        if call["bias_v"] is not None:
            value = torch.cat([value, call["bias_v"].to(value.dtype).expand(batch, -1, -1)], dim=1)
        value = value.unflatten(-1, (heads, -1)).transpose(1, 2)
    return F.pad(value, (0, 0, 0, 1)) if call["add_zero_attn"] else value


def of_encoder_layer(
    masks: Copies, layer: nn.TransformerEncoderLayer, length: int, *args: Any, **kwargs: Any
) -> Weights:
    """Return the weights of the self-attention within this call of the layer, when it took its fused path."""
    call = bind(nn.TransformerEncoderLayer.forward, layer, *args, **kwargs)
    source = layer.norm1.forward(call["src"]) if layer.norm_first else call["src"]
    padding, mask = call["src_key_padding_mask"], call["src_mask"]
    return of_multi_head_module(masks, layer.self_attn, length, source, source, source, padding, attn_mask=mask)


def of_flex(masks: Copies, *args: Any) -> Weights:
    """Return the weights of this call of the operator behind `flex_attention`."""
    query, key, _, score_mod, block_mask, scale, _, *buffers = args
    query, key = _fit(_keep(query), _keep(key).repeat_interleave(query.shape[1] // key.shape[1], dim=1), False)
    batch, head = (torch.arange(size, device=query.device) for size in query.shape[:2])
    return Weights(FlexSoftmax(query, key, batch, head, scale, score_mod, block_mask[-1], tuple(buffers)))


FUNCTIONS: dict[Callable[..., Any], Callable[..., Weights]] = {
    F.scaled_dot_product_attention: of_dot_products,
    F.multi_head_attention_forward: of_multi_head_function,
}
"""How to read a call of each function that attends: ``FUNCTIONS[function](masks, *args, **kwargs)``."""


def reader_of(function: Callable[..., Any]) -> Callable[..., Weights] | None:
    """Return how to read a call of this function, None if it does not attend."""
    found = FUNCTIONS.get(function)
    return of_flex if found is None and is_flex_attention(function) else found


class Flow(NamedTuple):
    """What the gradient of a call's weights is computed from.

    Attributes:
        tensor: a tensor of the model's graph, which keeps its gradient: the output of a fused call, else the weights.
        values: the values of a fused call.
        arrange: how the gradient of the tensor becomes that of weights ``(…, L, S)`` or, of a fused call, that of their
            product with the values ``(B, H, L, K)``.
    """

    tensor: Tensor
    values: Tensor | None = None
    arrange: Callable[[Tensor], Tensor] | None = None

    def gradient(self) -> Tensor | None:
        """Return the gradient of the weights, None if `backward` has not reached the tensor."""
        reached = self.tensor.grad
        if reached is None:
            return None
        if self.arrange is not None:
            reached = self.arrange(reached)
        if self.values is None:
            return reached
        heads, values = reached.shape[-3], self.values
        if values.shape[-3] != heads:  # some heads share their values
            values = values.repeat_interleave(heads // values.shape[-3], dim=-3)
        gradient: Tensor = reached @ values.transpose(-2, -1)
        return gradient


def flow_of(function: Callable[..., Any], output: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Flow | None:
    """Return the flow of a call of a fused function that a gradient can reach, or None.

    None too if weights were dropped out: the output is then not the weights times the values.
    """
    if function is F.multi_head_attention_forward:
        return _flow_of_multi_head(output[0], bind(F.multi_head_attention_forward, *args, **kwargs))
    if function is not F.scaled_dot_product_attention or not isinstance(output, Tensor):
        return None
    value = args[2] if len(args) > 2 else kwargs["value"]
    dropout = args[4] if len(args) > 4 else kwargs.get("dropout_p", 0.0)
    if not output.requires_grad or output.is_nested or output.dim() != 4 or dropout > 0:
        return None
    return Flow(output, _keep(value).detach())


def _flow_of_multi_head(output: Tensor, call: Mapping[str, Any]) -> Flow | None:
    """Return the flow of `multi_head_attention_forward`, whose output ``(L, B, D)`` has gone through a projection."""
    if not output.requires_grad or (call["training"] and call["dropout_p"] > 0):
        return None
    value: Tensor = call["value"].detach()
    projection: Tensor = call["out_proj_weight"].detach()
    value = value.unsqueeze(1) if value.dim() == 2 else value

    def by_head(reached: Tensor) -> Tensor:
        reached = reached.unsqueeze(1) if reached.dim() == 2 else reached
        heads: Tensor = (reached @ projection).unflatten(-1, (call["num_heads"], -1)).permute(1, 2, 0, 3)
        return heads

    return Flow(output, values_of_multi_head(value.transpose(0, 1), call).detach(), by_head)


def _multi_head(masks: Copies, query: Tensor, key: Tensor, call: Mapping[str, Any]) -> DotSoftmax:
    """Return the source for ``query (B, L, D)`` and ``key (B, S, D)``; ``call`` has torch's arguments by name."""
    batch, size, heads = query.shape[0], key.shape[1], call["num_heads"]
    query_bias, key_bias = (None, None) if call["in_proj_bias"] is None else call["in_proj_bias"].chunk(3)[:2]
    if call["use_separate_proj_weight"]:
        query_weight, key_weight = call["q_proj_weight"], call["k_proj_weight"]
    else:
        query_weight, key_weight, _ = call["in_proj_weight"].chunk(3)
    query = F.linear(query, query_weight, query_bias).unflatten(-1, (heads, -1)).transpose(1, 2)
    if call["static_k"] is not None:
        key = _keep(call["static_k"]).unflatten(0, (batch, heads))
        size = key.shape[2]
    else:
        key = F.linear(key, key_weight, key_bias)
        if call["bias_k"] is not None:
            key = torch.cat([key, call["bias_k"].to(key.dtype).expand(batch, -1, -1)], dim=1)
        key = key.unflatten(-1, (heads, -1)).transpose(1, 2)
    if call["add_zero_attn"]:
        key = F.pad(key, (0, 0, 0, 1))
    source = DotSoftmax(query, key, query.shape[-1] ** -0.5)
    mask, padding = call["attn_mask"], call["key_padding_mask"]
    if call["is_causal"] and mask is not None and padding is None and not call["need_weights"]:
        source.window, source.offset = (None, 0), 0  # torch takes the hint and drops the mask
        mask = None
    if padding is not None:
        padding = padding.reshape(-1, 1, 1, size)
        # Torch's layers turn a boolean one into numbers; added to a bias it would fill (B, L, S). vmap cannot look.
        seen = padding.is_floating_point() and not is_transformed()
        if seen and bool(((padding == 0) | (padding == -torch.inf)).all()):
            padding = padding != 0
    for ignored in (padding, mask):
        if ignored is None:
            continue
        boolean = ignored.dtype == torch.bool
        copy = masks.of(ignored, invert=boolean)
        if copy.dim() == 3 and copy.shape[0] == batch * heads:
            copy = copy.unflatten(0, (batch, heads))
        copy = copy.reshape((1,) * (4 - copy.dim()) + copy.shape)
        if key.shape[2] > size:  # the positions that add_bias_kv and add_zero_attn append are never masked
            copy = F.pad(copy.expand(-1, -1, -1, size), (0, key.shape[2] - size), value=boolean)
        if boolean:
            source.mask = copy if source.mask is None else source.mask & copy
        else:
            source.bias = copy if source.bias is None else source.bias + copy
    return source


def _of_nested_dot_products(query: Tensor, key: Tensor, scale: float, causal: bool) -> Weights:
    """Return the weights of nested tensors ``(B, …, L, D)`` with an L of its own in each row, padded."""
    (query, query_valid), (key, key_valid) = pad_nested(query), pad_nested(key)
    valid = query_valid.unsqueeze(-1) & key_valid.unsqueeze(-2)
    mask = valid.reshape(valid.shape[0], *(1,) * (query.dim() - 3), *valid.shape[1:])
    return Weights(DotSoftmax(query, key, scale, mask, window=(None, 0) if causal else None, offset=0))


def pad_nested(nested: Tensor, length: int = 0) -> tuple[Tensor, Tensor]:
    """Return a nested tensor padded to its longest row, or to ``length``, and which positions ``(B, L)`` are real."""
    rows = nested.unbind()
    counts = torch.tensor([row.shape[-2] for row in rows], device=nested.device)
    size = max(length, *(row.shape[-2] for row in rows))
    return torch.stack([F.pad(row, (0, 0, 0, size - row.shape[-2])) for row in rows]), lengths(counts, size)


def _fit(query: Tensor, key: Tensor, grouped: bool) -> tuple[Tensor, Tensor]:
    """Return query and key with the same leading axes; a key with fewer heads keeps them where a source allows it."""
    if grouped and key.shape[-3] not in (1, query.shape[-3]):
        if query.dim() == key.dim() == 4:
            batch = torch.broadcast_shapes(query.shape[:1], key.shape[:1])
            return query.expand(*batch, -1, -1, -1), key.expand(*batch, -1, -1, -1)
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
    leading = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    return query.expand(*leading, -1, -1), key.expand(*leading, -1, -1)


def _keep(tensor: Tensor) -> Tensor:
    """Return the query or key in the kernel's dtype, copied where it may be written to later."""
    device = tensor.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device) and tensor.dtype != torch.float64:
        tensor = tensor.to(torch.get_autocast_dtype(device))
    # Without a graph it may be a cache of keys, written to at the next step; a graph's own tensors are not written to.
    return tensor.clone() if tensor.grad_fn is None else tensor


def _copy(mask: Tensor, invert: bool) -> Tensor:
    for axis, stride in enumerate(mask.stride()):
        if stride == 0:
            mask = mask.narrow(axis, 0, min(1, mask.shape[axis]))
    if invert:
        return ~mask
    return mask.clone() if mask.grad_fn is None else mask


def bind(function: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the arguments of a call by name, defaults included."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments
