"""What torch's own attention returns for other weights: the second half of each function of `torch_calls`.

    scaled_dot_product_attention   multi_head_attention_forward   flex_attention   what transformers has registered

Dropout is applied to these weights as to the function's own, by random numbers of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from foci.recording.torch_calls import bind, pad_nested, values_of_multi_head


def read_dot_products(
    weights: Tensor,
    kept: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    *rest: Any,
    **options: Any,
) -> Tensor:
    """Return what a call of `scaled_dot_product_attention` reads with these weights."""
    if query.is_nested:
        return _nested_like(query, _read(weights, kept, pad_nested(value)[0], dropout_p))
    return _read(weights, kept, value, dropout_p)


def read_multi_head(weights: Tensor, kept: Tensor | None, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Return what a call of `multi_head_attention_forward` returns with these weights ``(B, H, L, S)``."""
    call = bind(F.multi_head_attention_forward, *args, **kwargs)
    batched = call["query"].dim() == 3
    value = call["value"] if batched else call["value"].unsqueeze(1)
    value = values_of_multi_head(value.transpose(0, 1), call)
    read = _read(weights, kept, value, call["dropout_p"] if call["training"] else 0.0)
    output = F.linear(read.permute(2, 0, 1, 3).flatten(2), call["out_proj_weight"], call["out_proj_bias"])
    returned = None
    if call["need_weights"]:
        returned = weights.mean(dim=1) if call["average_attn_weights"] else weights
    if not batched:
        output, returned = output.squeeze(1), None if returned is None else returned.squeeze(0)
    return output, returned


def read_flex(function: Callable[..., Any], weights: Tensor, kept: Tensor | None, *args: Any) -> tuple[Any, ...]:
    """Return what a call of the operator behind `flex_attention` returns with these weights; its sums are its own."""
    _, *rest = function(*args)
    return _read(weights, kept, args[2], 0.0), *rest


def read_registered(weights: Tensor, kept: Tensor | None, *args: Any, **kwargs: Any) -> Tensor:
    """Return what an attention function of transformers reads, ``(B, L, H, V)``."""
    value = args[3] if len(args) > 3 else kwargs["value"]
    return _read(weights, kept, value, kwargs.get("dropout", 0.0)).transpose(1, 2).contiguous()


FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    F.scaled_dot_product_attention: read_dot_products,
    F.multi_head_attention_forward: read_multi_head,
}
"""What each function that attends returns: ``FUNCTIONS[function](weights, kept, *args, **kwargs)``."""


def reader_with(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return how to read with other weights instead of calling this function, which attends."""
    return FUNCTIONS.get(function) or functools.partial(read_flex, function)


def _nested_like(query: Any, padded: Tensor) -> Tensor:
    """Return the rows ``(…, L, V)`` as a nested tensor of the lengths L of a query."""
    rows = [row[..., : one.shape[-2], :] for row, one in zip(padded, query.unbind())]
    if query.layout != torch.jagged:
        return torch.nested.as_nested_tensor(rows)
    joined = torch.cat([row.transpose(0, 1) for row in rows])  # torch reads (B, H, L, K) alone
    nested: Tensor = torch.nested.nested_tensor_from_jagged(joined, query.offsets()).transpose(1, 2)
    return nested


def _read(weights: Tensor, kept: Tensor | None, value: Tensor, dropout: float) -> Tensor:
    """Return the weights times the values, of which several heads may share one."""
    if value.dim() > 3 and value.shape[-3] not in (1, weights.shape[-3]):
        value = value.repeat_interleave(weights.shape[-3] // value.shape[-3], dim=-3)
    weights = weights if kept is None else weights * kept
    return F.dropout(weights, dropout) @ value.to(weights.dtype)
