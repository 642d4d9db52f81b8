"""Multi-head attention with the parameters of an attention layer of Hugging Face's transformers.

A family differs from the next in where its layers keep projections, norms and settings. Nothing of transformers is
imported: the layer and its configuration are read as they are. What foci does not have is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from foci.errors import ConfigError, unknown_name
from foci.functional.rotary_options import Rotary
from foci.mechanisms.heads.multi_head import MultiHeadAttention
from foci.mechanisms.heads.relative import BucketBias


class _Converted(NamedTuple):
    """The options of a `MultiHeadAttention` and its parameters by name."""

    options: dict[str, Any]
    parameters: dict[str, Tensor]


def from_huggingface(layer: nn.Module) -> MultiHeadAttention:
    """Return the same attention as that of a layer of transformers, with the same parameters.

    Args:
        layer: the attention of a layer, such as ``model.model.layers[0].self_attn``.
    """
    family = type(layer).__name__
    if family not in FAMILIES:
        raise unknown_name("attention layer of transformers", family, FAMILIES)
    try:
        options, parameters = FAMILIES[family](layer)
    except AttributeError as error:
        raise ConfigError(
            f"MultiHeadAttention.from_huggingface: a {family} that cannot be read ({error}), expected one of "
            "transformers 5. Update it: pip install 'transformers>=5'."
        ) from error
    ours = MultiHeadAttention(**options)
    first = next(iter(parameters.values()))
    ours.to(device=first.device, dtype=first.dtype)
    ours.load_state_dict(parameters)
    return ours.train(layer.training)


def _decoder(layer: Any) -> _Converted:
    """Convert a layer with q_proj, k_proj, v_proj, o_proj and half-split rotary positions."""
    projections = {"query": layer.q_proj, "key": layer.k_proj, "value": layer.v_proj, "output": layer.o_proj}
    parameters = {
        f"{name}_layer.{part}": tensor
        for name, projection in projections.items()
        for part, tensor in projection.state_dict().items()
    }
    heads, size = layer.q_proj.out_features // layer.head_dim, layer.head_dim
    options = {
        "model_dim": layer.q_proj.in_features,
        "num_heads": heads,
        "head_dim": size,
        "num_key_heads": layer.k_proj.out_features // size,
        "scale": layer.scaling,
        "bias": layer.q_proj.bias is not None,
        "output_bias": layer.o_proj.bias is not None,
        **_causal(layer),
    }
    if hasattr(layer, "sinks"):
        options["sink"] = "learned"
        parameters["sink"] = layer.sinks.detach()
    if hasattr(layer, "q_norm"):
        options["qk_norm"] = "rms"
        options["norm_epsilon"] = getattr(layer.q_norm, "eps", None) or layer.q_norm.variance_epsilon
        parameters |= {"query_norm.weight": layer.q_norm.weight, "key_norm.weight": layer.k_norm.weight}
    return _Converted(options, parameters)


def _causal(layer: Any) -> dict[str, Any]:
    """Return the options of a causal layer with rotary positions and, in some layers, a window."""
    config = layer.config
    window = layer.sliding_window if hasattr(layer, "sliding_window") else getattr(config, "sliding_window", None)
    return {
        "causal": True,
        "window": None if window is None else (window - 1, 0),  # theirs counts the query's own position
        "rotary": _rotary(config, layer.head_dim, getattr(layer, "layer_type", None)),
        "dropout": config.attention_dropout,
    }


def _unit_offset(layer: Any) -> _Converted:
    """Convert a layer whose norms hold the gain minus 1."""
    options, parameters = _decoder(layer)
    for name in ("query_norm.weight", "key_norm.weight"):
        if name in parameters:
            parameters[name] = 1.0 + parameters[name]
    return _Converted(options, parameters)


def _gemma(layer: Any) -> _Converted:
    options, parameters = _unit_offset(layer)
    if not layer.is_causal:
        raise ConfigError(
            f"MultiHeadAttention.from_huggingface: {type(layer).__name__} with use_bidirectional_attention, expected a "
            "causal layer."
        )
    if type(layer).__name__ == "Gemma2Attention":
        options["score_cap"] = layer.attn_logit_softcapping
    return _Converted(options, parameters)


def _qwen3_next(layer: Any) -> _Converted:
    """Convert a layer whose q_proj holds the query and the gate of each head in turn."""
    size, joined = layer.head_dim, layer.q_proj
    heads = joined.out_features // (2 * size)
    options, parameters = _unit_offset(layer)
    options |= {"num_heads": heads, "gate": "elementwise"}
    for part, tensor in joined.state_dict().items():
        query, gate = tensor.unflatten(0, (heads, 2, size)).unbind(1)
        parameters[f"query_layer.{part}"], parameters[f"gate_layer.{part}"] = query.flatten(0, 1), gate.flatten(0, 1)
    return _Converted(options, parameters)


def _phi3(layer: Any) -> _Converted:
    """Convert a layer with one projection for query, key and value."""
    size, config = layer.head_dim, layer.config
    heads, key_heads = config.num_attention_heads, config.num_key_value_heads
    joined = layer.qkv_proj.weight.split([heads * size, key_heads * size, key_heads * size])
    parameters = {f"{name}_layer.weight": part for name, part in zip(("query", "key", "value"), joined, strict=True)}
    options = {
        "model_dim": layer.qkv_proj.in_features,
        "num_heads": heads,
        "head_dim": size,
        "num_key_heads": key_heads,
        "scale": layer.scaling,
        "bias": False,
        **_causal(layer),
    }
    return _Converted(options, parameters | {"output_layer.weight": layer.o_proj.weight})


def _t5(layer: Any) -> _Converted:
    """Convert a layer of T5; only the first of a stack has the bias by distance, which the others are passed."""
    causal = layer.is_causal
    options = {
        "model_dim": layer.d_model,
        "num_heads": layer.n_heads,
        "head_dim": layer.key_value_proj_dim,
        "scale": 1.0,
        "causal": causal,
        "bias": False,
        "dropout": layer.dropout,
    }
    projections = {"query": layer.q, "key": layer.k, "value": layer.v, "output": layer.o}
    parameters = {f"{name}_layer.weight": projection.weight for name, projection in projections.items()}
    if layer.has_relative_attention_bias:
        options["relative"] = BucketBias(
            layer.n_heads,
            num_buckets=layer.relative_attention_num_buckets,
            max_distance=layer.relative_attention_max_distance,
            both_sides=not causal,
        )
        parameters["relative.table"] = layer.relative_attention_bias.weight
    return _Converted(options, parameters)


def _gpt2(layer: Any) -> _Converted:
    """Convert a layer of GPT-2, whose projections are one and stored transposed."""
    if layer.is_cross_attention:
        query, (key, value) = layer.q_attn, _thirds(layer.c_attn, 2)
        first = (query.weight.mT, query.bias)
    else:
        first, key, value = _thirds(layer.c_attn, 3)
    joined = {"query": first, "key": key, "value": value, "output": (layer.c_proj.weight.mT, layer.c_proj.bias)}
    parameters: dict[str, Tensor] = {}
    for name, (weight, bias) in joined.items():
        parameters |= {f"{name}_layer.weight": weight, f"{name}_layer.bias": bias}
    options = {
        "model_dim": layer.embed_dim,
        "num_heads": layer.num_heads,
        "scale": layer.scaling,
        "causal": not layer.is_cross_attention,
        "dropout": layer.attn_dropout.p,
    }
    return _Converted(options, parameters)


def _thirds(joined: Any, count: int) -> list[tuple[Tensor, Tensor]]:
    return list(zip(joined.weight.mT.chunk(count), joined.bias.chunk(count), strict=True))


def _bert(layer: Any) -> _Converted:
    """Convert the attention of a layer of BERT, without the residual connection and norm that follow it."""
    itself = layer.self
    projections = {"query": itself.query, "key": itself.key, "value": itself.value, "output": layer.output.dense}
    parameters = {
        f"{name}_layer.{part}": tensor
        for name, projection in projections.items()
        for part, tensor in projection.state_dict().items()
    }
    options = {
        "model_dim": itself.query.in_features,
        "num_heads": itself.num_attention_heads,
        "causal": itself.is_causal,
        "dropout": itself.dropout.p,
    }
    return _Converted(options, parameters)


def _rotary(config: Any, head_dim: int, layer_type: str | None) -> Rotary:
    """Return the rotary positions of a configuration."""
    given = config.rope_parameters
    given = given.get(layer_type, given)
    kind, share = given["rope_type"], given.get("partial_rotary_factor", 1.0)
    turned = int(head_dim * share)
    plain: dict[str, Any] = {
        "base": float(given["rope_theta"]),
        "layout": "half",
        "rotated_dim": None if turned == head_dim else turned,
    }
    if kind == "default":
        return Rotary(**plain)
    if kind not in ("linear", "yarn", "llama3"):
        raise ConfigError(
            f"MultiHeadAttention.from_huggingface: rope_type is {kind!r}, expected default, linear, yarn or llama3: "
            "rates that change with the length of the text do not fit a cache of rotated keys."
        )
    plain |= {"scaling": kind, "factor": given["factor"]}
    if kind == "linear":
        return Rotary(**plain)
    plain["original_length"] = given["original_max_position_embeddings"]
    if kind == "llama3":
        return Rotary(**plain, **{name: given[name] for name in ("low_freq_factor", "high_freq_factor")})
    if given.get("mscale") and given.get("mscale_all_dim") and given.get("attention_factor") is None:
        both = (Rotary(**plain, attention_factor=None).magnitude - 1.0, given["mscale"], given["mscale_all_dim"])
        plain["attention_factor"] = (1.0 + both[0] * both[1]) / (1.0 + both[0] * both[2])
    else:
        plain["attention_factor"] = given.get("attention_factor")
    plain |= {name: given.get(name) for name in ("beta_fast", "beta_slow")}
    return Rotary(**plain, truncate=given.get("truncate", True))


FAMILIES: Mapping[str, Callable[[Any], _Converted]] = {
    "BertAttention": _bert,
    "GPT2Attention": _gpt2,
    "Gemma2Attention": _gemma,
    "Gemma3Attention": _gemma,
    "GptOssAttention": _decoder,
    "LlamaAttention": _decoder,
    "MistralAttention": _decoder,
    "Phi3Attention": _phi3,
    "Qwen2Attention": _decoder,
    "Qwen3Attention": _decoder,
    "Qwen3NextAttention": _qwen3_next,
    "T5Attention": _t5,
}
"""Name of the class of a layer -> how it is converted."""
