"""Multi-head attention with the parameters of torch's."""

from __future__ import annotations

import torch
from torch import nn

from foci.errors import ConfigError
from foci.mechanisms.heads.multi_head import MultiHeadAttention


def from_torch(module: nn.MultiheadAttention) -> MultiHeadAttention:
    """Return the same attention with the same parameters; foci's is always batch first."""
    if module.bias_k is not None or module.add_zero_attn:
        raise ConfigError(
            "MultiHeadAttention.from_torch: add_bias_kv and add_zero_attn are not supported. "
            "Build the torch module without them."
        )
    ours = MultiHeadAttention(
        module.embed_dim,
        module.num_heads,
        key_dim=module.kdim,
        value_dim=module.vdim,
        dropout=module.dropout,
        bias=module.in_proj_bias is not None,
    )
    if module._qkv_same_embed_dim:
        weights = module.in_proj_weight.chunk(3)
    else:
        weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    layers = (ours.query_layer, ours.key_layer, ours.value_layer)
    with torch.no_grad():
        for layer, weight in zip(layers, weights):
            layer.weight.copy_(weight)
        if module.in_proj_bias is not None:
            for layer, bias in zip(layers, module.in_proj_bias.chunk(3)):
                layer.bias.copy_(bias)
            ours.output_layer.bias.copy_(module.out_proj.bias)
        ours.output_layer.weight.copy_(module.out_proj.weight)
    reference = module.out_proj.weight
    return ours.to(device=reference.device, dtype=reference.dtype).train(module.training)
