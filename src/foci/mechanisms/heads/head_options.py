"""The options of multi-head attention: their checks, and the parts that they name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, get_args

import torch
from torch import Tensor, nn

from foci.errors import ConfigError, check_flags, unknown_name
from foci.functional.mean_square import EPSILON
from foci.functional.own_parts import check_named_or_takes, check_takes, name_of
from foci.functional.positions import PLAIN
from foci.functional.rotary_options import Rotary
from foci.mechanisms.heads.relative import BucketBias, RelativeBias, ShawBias, TransformerXLBias
from foci.names import DotScoreName, GateName, NormalizerName, RelativeName, ScoreName, SinkName

if TYPE_CHECKING:
    from foci.mechanisms.heads.multi_head import MultiHeadAttention

NORMS: dict[str, Callable[[int, float], nn.Module]] = {
    "rms": lambda size, epsilon: nn.RMSNorm(size, eps=epsilon),
    "layer": lambda size, epsilon: nn.LayerNorm(size, eps=epsilon),
}


def head_sizes(model_dim: int, num_heads: int, head_dim: int | None, num_key_heads: int | None) -> tuple[int, int]:
    """Return the features of a head and the number of heads of the keys, or raise if they do not fit."""
    if head_dim is None and model_dim % num_heads:
        raise ConfigError(
            f"MultiHeadAttention: model_dim is {model_dim} and num_heads is {num_heads}, expected a model_dim "
            "that num_heads divides, or a head_dim."
        )
    key_heads = num_heads if num_key_heads is None else num_key_heads
    if num_heads % key_heads:
        raise ConfigError(
            f"MultiHeadAttention: num_key_heads is {key_heads}, expected a divisor of num_heads={num_heads}."
        )
    return model_dim // num_heads if head_dim is None else head_dim, key_heads


def check_options(score: object, scale: float | None, normalize: object, sink: str | None, gate: str | None) -> None:
    """Raise for an unknown name, for what is no part, and for an option without an effect."""
    if isinstance(score, str) and score in get_args(ScoreName) and score not in get_args(DotScoreName):
        raise ConfigError(
            f"MultiHeadAttention: score is {score!r}, expected {', '.join(get_args(DotScoreName))}, or a module with "
            "parameters for the features of a head, such as foci.mechanisms.scores.Additive(head_dim, head_dim, 32)."
        )
    check_named_or_takes("score", score, get_args(DotScoreName), "query", "key")
    check_named_or_takes("normalizer", normalize, get_args(NormalizerName), "scores", "mask")
    for name, value, known in (("sink", sink, get_args(SinkName)), ("gate", gate, get_args(GateName))):
        if value is not None and value not in known:
            raise unknown_name(name, value, known)
    if sink is not None and not (normalize == "softmax" and isinstance(score, str)):
        raise ConfigError(
            f"MultiHeadAttention: sink is {sink!r} with score {name_of(score)!r} and normalize {name_of(normalize)!r}, "
            "expected normalize='softmax' and a score by its name."
        )
    if scale is not None and score != "scaled_dot":
        raise ConfigError(
            f"MultiHeadAttention: scale is {scale} with score {name_of(score)!r}, expected score='scaled_dot': the "
            "others have no factor."
        )


def check_limits_and_stage(focus: object, after: object) -> None:
    """Raise for what is no focus or no stage of one's own; those that have names are options of heads themselves."""
    if isinstance(focus, str):
        raise ConfigError(
            f"MultiHeadAttention: focus is {focus!r}, expected a function or module called as focus(query, key). Set "
            "causal=True or window=(left, right)."
        )
    for kind, part, arguments in (("focus", focus, ("query", "key")), ("after", after, ("query", "attended"))):
        if part is not None:
            check_takes(kind, part, *arguments)


def check_without_effect(
    score: object,
    scale: float | None,
    normalize: object,
    qk_norm: bool | str,
    score_cap: float | None,
    keep_weights: bool,
) -> None:
    """Raise for an option that changes neither output nor derivative beside the others."""
    if keep_weights and not (normalize == "softmax" and isinstance(score, str)):
        raise ConfigError(
            f"MultiHeadAttention: keep_weights is True with score {name_of(score)!r} and normalize "
            f"{name_of(normalize)!r}, expected it to be left out: without a fused kernel all weights are kept anyway."
        )
    for name, value in (("scale", scale), ("score_cap", score_cap)):
        if value is not None and normalize == "hard":
            raise ConfigError(
                f"MultiHeadAttention: {name} is {value} with normalize 'hard', expected it to be left out: the best "
                "position stays the best."
            )
    if qk_norm is True and score == "cosine":
        raise ConfigError(
            "MultiHeadAttention: qk_norm is True with score 'cosine', expected it to be left out: the cosine divides "
            "by the norms itself."
        )


def rotary_of(rotary: bool | Rotary, head_dim: int) -> Rotary | None:
    """Return how heads of this size are rotated; None for not at all."""
    if rotary is False:
        return None
    how = PLAIN if rotary is True else rotary
    if not isinstance(how, Rotary):
        raise ConfigError(
            f"MultiHeadAttention: rotary is {rotary!r}, expected True, False or a foci.mechanisms.heads.Rotary."
        )
    if how.rotated_dim is None and head_dim % 2:
        raise ConfigError(
            f"MultiHeadAttention: heads have {head_dim} features, expected an even number for rotary positions. Change "
            "model_dim or num_heads, or set rotated_dim."
        )
    how.turned_dim(head_dim)
    return how


def norm_of(qk_norm: bool | str, size: int, epsilon: float) -> nn.Module | None:
    """Return a norm with a learned gain, or None: without one it has no parameters."""
    if isinstance(qk_norm, str):
        if qk_norm not in NORMS:
            raise unknown_name("qk_norm", qk_norm, NORMS)
        return NORMS[qk_norm](size, epsilon)
    check_flags("MultiHeadAttention", qk_norm=qk_norm)
    if epsilon != EPSILON:
        raise ConfigError(
            f"MultiHeadAttention: norm_epsilon is {epsilon} with qk_norm {qk_norm}, expected qk_norm='rms' or 'layer'."
        )
    return None


def sink_of(sink: str | None, num_heads: int) -> Tensor | None:
    """Return the score of each head's position that holds nothing; None without one."""
    if sink is None:
        return None
    zeros = torch.zeros(num_heads)
    return nn.Parameter(zeros) if sink == "learned" else nn.Buffer(zeros, persistent=False)


def relative_of(
    relative: str | RelativeBias | None, model_dim: int, num_heads: int, head_dim: int, *, causal: bool
) -> RelativeBias | None:
    """Return the bias by distance of this name; a module is taken as it is."""
    if relative == "t5":
        return BucketBias(num_heads, both_sides=not causal)
    if relative == "shaw":
        return ShawBias(head_dim)
    if relative == "transformer_xl":
        return TransformerXLBias(model_dim, num_heads, head_dim)
    if isinstance(relative, str):
        raise unknown_name("relative", relative, get_args(RelativeName))
    if relative is not None and not (isinstance(relative, nn.Module) and isinstance(relative, RelativeBias)):
        known = ", ".join(get_args(RelativeName))
        raise ConfigError(
            f"MultiHeadAttention: relative is a {type(relative).__name__}, expected {known}, or a module of the "
            "protocol foci.mechanisms.heads.relative.RelativeBias, with a reader(distance)."
        )
    return relative


def options_text(heads: MultiHeadAttention) -> str:
    """Return the options that differ from those of a plain multi-head attention, for printing."""
    plain = {
        "head_dim": heads.model_dim // heads.num_heads,
        "num_key_heads": heads.num_heads,
        "causal": False,
        "window": None,
        "rotary": None,
        "alibi": False,
        "qk_norm": False,
        "score": "scaled_dot",
        "scale": 1.0 / math.sqrt(heads.head_dim),
        "score_cap": None,
        "normalize": "softmax",
        "gate": None,
        "dropout": 0.0,
        "keep_weights": False,
        "focus": None,
        "after": None,
    }
    shown = [f"model_dim={heads.model_dim}", f"num_heads={heads.num_heads}"]
    for name, default in plain.items():
        value = getattr(heads, name)
        if value == default or isinstance(value, nn.Module):  # modules show themselves
            continue
        shown.append(name if value is True or value == PLAIN else f"{name}={_as_text(value)}")
    if heads.sink is not None:
        kind = "learned" if isinstance(heads.sink, nn.Parameter) else "zero"
        shown.append(f"sink={kind!r}")
    return ", ".join(shown)


def _as_text(value: object) -> str:
    return name_of(value) if callable(value) else repr(value)
