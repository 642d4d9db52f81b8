"""Attention functions that are registered with transformers, such as kernels of flash-attn: read from their arguments.

A model of transformers calls the function whose name its configuration has. For the time of a block each of them is
wrapped: it is called as always, and where nothing of torch was seen in it, the weights are read from its arguments.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor

from foci.recording.torch_calls import Copies, of_dot_products
from foci.weights import Weights
from foci.weights.sources import DotSoftmax


def wrap_registered(observe: Callable[[Callable[..., Any]], Callable[..., Any]]) -> list[Callable[[], object]]:
    """Wrap the functions that are registered now; return what undoes it. Nothing if transformers is not in use."""
    library = sys.modules.get("transformers.modeling_utils")
    if library is None:
        return []
    functions: dict[str, Callable[..., Any]] = library.AttentionInterface._global_mapping
    undo: list[Callable[[], object]] = []
    for name, function in list(functions.items()):
        functions[name] = observe(function)
        undo.append(functools.partial(functions.__setitem__, name, function))
    return undo


def of_registered(
    masks: Copies,
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> Weights:
    """Return the weights of this call of an attention function, which are those before dropout.

    Args:
        masks: copies of masks.
        module: the attention that calls it.
        query: the queries.
        key: the keys, perhaps of fewer heads.
        value: the values.
        attention_mask: that of scaled_dot_product_attention, or as for kernels ``(B, S)``, 1 where there is a token.
        options: of them count scaling, is_causal, sliding_window, softcap and s_aux, a score of nothing for each head.
    """
    window, sink = options.get("sliding_window"), options.get("s_aux")
    causal = options.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    flat = attention_mask is not None and attention_mask.dim() == 2
    if flat and attention_mask is not None:
        attention_mask = attention_mask.bool()[:, None, None, :]
    weights = of_dot_products(masks, query, key, value, attention_mask, scale=options.get("scaling"), enable_gqa=True)
    source = weights.source
    if isinstance(source, DotSoftmax):
        if (flat or attention_mask is None) and (causal or window is not None):
            source.window = None if window is None else window - 1, 0 if causal else None
        source.score_cap = options.get("softcap")
        source.sink = None if sink is None else sink.detach().clone()
        source.renew_versions()
    return weights
