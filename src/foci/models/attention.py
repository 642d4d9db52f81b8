"""The attention that a model's options describe."""

from __future__ import annotations

from typing import Any

from foci.functional.own_parts import own_copy
from foci.layers.several_heads import HEAD_OPTIONS
from foci.mechanisms.attention import Attention
from foci.mechanisms.heads import MultiHeadAttention
from foci.mechanisms.sampled import SampledAttention
from foci.mechanisms.scores import LocationAware
from foci.models.options.attention import AttentionOptions
from foci.options import check_default


def build_attention(query_dim: int, key_dim: int, options: AttentionOptions) -> Attention | MultiHeadAttention:
    """Return a new attention of a decoder's state to a source.

    Args:
        query_dim: size of the state; of all heads together with several heads.
        key_dim: size of the source's positions.
        options: score, normalizer, focus and heads.

    Example:
        >>> build_attention(3, 5, AttentionOptions(focus="local_p", radius=2)).focus.radius
        2
    """
    if options.num_heads is None:
        return build_one_head(query_dim, key_dim, options)
    options.check_heads(query_dim, options.num_heads)
    parts = {
        "score": options.head_score,
        "normalize": options.normalize,
        "focus": options.head_focus,
        "after": options.after,
    }
    own: dict[str, Any] = {name: own_copy(part) for name, part in parts.items()}
    return MultiHeadAttention(query_dim, options.num_heads, key_dim=key_dim, **own, **options.head_arguments)


def build_one_head(query_dim: int, key_dim: int, options: AttentionOptions) -> Attention:
    """Return a new attention of one head; the arguments are those of `build_attention`."""
    check_default("AttentionOptions", options, *HEAD_OPTIONS, reason="One head has none of it. Set num_heads.")
    further: dict[str, Any] = {
        "score": own_copy(options.score) or "general",
        "focus": own_copy(options.focus),
        "after": own_copy(options.after),
        "sharpening": 1.0 if options.normalize == "hard" else options.sharpening,  # a preset sets it for any normalizer
        "radius": options.radius,
        "window": options.window,
        "max_length": options.max_length,
    }
    has_hidden_layer = options.score in ("additive", "concat") or options.focus == "local_p"
    sizes = (query_dim, key_dim, options.hidden_dim if has_hidden_layer else None)  # a preset sets it for any score
    if options.score == "location_aware":
        further["score"] = LocationAware(
            query_dim, key_dim, options.hidden_dim, num_filters=options.num_filters, kernel_size=options.kernel_size
        )
    if options.expectation_share is not None:
        return SampledAttention(*sizes, expectation_share=options.expectation_share, **further)
    return Attention(*sizes, normalize=own_copy(options.normalize), **further)
