"""Which keys the queries of a multi-head attention may read: masks, windows and what a cache holds."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from foci.checks import check_mask
from foci.errors import ConfigError, ShapeError
from foci.functional.attend import Limits, Window, combine, limited_by, mask_and_bias, reads_own_key
from foci.functional.own_parts import OwnFocus, name_of
from foci.masks import clear_source
from foci.mechanisms.heads.cache import AnyCache, KeyValueCache, PreallocatedCache, SlidingCache
from foci.mechanisms.heads.relative import Distances
from foci.weights.sources import scores_shape


class Readable(NamedTuple):
    """What of the scores counts, and what is added to them.

    Attributes:
        mask: which query may read which key, with the rank of the scores; None for all.
        window: keys before and after a query's own, where the last query's own key is the last.
        bias: numbers to add to the scores.
        reach: the distances, where the last query's own key is not the last.
    """

    mask: Bool[Tensor, "..."] | None
    window: Window | None
    bias: Float[Tensor, "..."] | None
    reach: Distances | None


def readable(
    query: Float[Tensor, "#B H L K"],
    key: Float[Tensor, "#B G S K"],
    mask: Bool[Tensor, "..."] | None,
    bias: Float[Tensor, "..."] | None,
    window: Window | None,
    *,
    slots: Bool[Tensor, "#B 1 1 S"] | None = None,
    distance: Int[Tensor, "#B L S"] | None = None,
    cached: int = 0,
) -> Readable:
    """Return what the queries may read, from what the user, the window and the cache say.

    Args:
        query: the queries by head.
        key: the cached and the new keys by head.
        mask: the user's mask.
        bias: the user's bias.
        window: keys before and after a query's own.
        slots: as in `foci.mechanisms.heads.cache.Extended`.
        distance: likewise.
        cached: how many of the keys are the cache's.
    """
    L, S = query.shape[2], key.shape[2]
    if mask is None and S == 0:
        mask = torch.ones(1, 1, 1, 0, dtype=torch.bool, device=query.device)
    reach = None
    if distance is not None:  # not the last query's own slot is the last
        slots, window = _near(slots, distance, window), None
        reach = Distances(distance, 1 - S, S - 1)
    # Only with a mask or a window can a query have nothing to read.
    if (
        mask is not None
        or slots is not None
        or bias is not None
        or (window is not None and not reads_own_key(window, L, S))
    ):
        shape = scores_shape(query, key)
        if mask is not None:
            mask = _fit(mask, shape, query.device, cached)
        if slots is not None:
            mask = slots if mask is None else mask & slots
        if bias is not None:
            mask, bias = mask_and_bias(mask, for_every_head(bias), shape, query.device)
        mask, window = combine(mask, window, shape, query.device), None
    return Readable(mask, window, bias, reach)


def for_every_head(bias: Float[Tensor, "..."] | None) -> Float[Tensor, "..."] | None:
    """Return a bias ``(B, L, S)`` with an axis of heads, and any other as it is."""
    return bias.unsqueeze(1) if isinstance(bias, Tensor) and bias.dim() == 3 else bias


def focused(
    focus: OwnFocus,
    query: Float[Tensor, "B L D"],
    source: Float[Tensor, "#B S Dk"] | None,
    mask: Bool[Tensor, "..."] | None,
    bias: Float[Tensor, "..."] | None,
    state: AnyCache | None,
    shape: torch.Size,
) -> Limits:
    """Return mask and bias along with those of a focus of one's own, which sees query and key before projections."""
    if source is None or state is not None:
        raise ConfigError(
            f"MultiHeadAttention: focus is {name_of(focus)} with a cache, which holds projected keys alone, expected "
            "none. Pass what the focus returns as mask=… or bias=… of the call instead."
        )
    if mask is not None:
        mask = check_mask("MultiHeadAttention", mask, shape, query.device)
    mask, bias = mask_and_bias(mask, for_every_head(bias), shape, query.device, owner="MultiHeadAttention")
    return limited_by(focus, query, source, mask, bias, shape)


def clear_new(state: AnyCache, key: Tensor, value: Tensor | None, mask: Any) -> tuple[Tensor, Tensor | None]:
    """Return the new keys and values of a cache without the NaN and infinities that these queries may not read.

    Numbers stay, since later queries may read what these may not. What is no mask is reported by later checks.
    """
    is_mask = isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.dim() in (3, 4)
    sources = [one for one in (key, value) if one is not None]
    fit = all(isinstance(one, Tensor) and one.dim() == 3 and one.shape[1] == key.shape[1] for one in sources)
    if not is_mask or not fit or not hasattr(state, "covering"):
        return key, value
    cleared = clear_source(key, sources[-1], state.covering(mask, key.shape[1]))
    key, last = (torch.where(one.isfinite(), one, zeroed) for one, zeroed in zip((key, sources[-1]), cleared))
    return key, None if value is None else last


def start_of(state: AnyCache, key: Tensor) -> int | Tensor:
    """Return the position of the next key, or raise if the cache is of another batch or another attention."""
    if not isinstance(state, KeyValueCache | PreallocatedCache | SlidingCache):
        raise ShapeError(
            f"MultiHeadAttention: state is a {type(state).__name__}, expected a cache. Begin with "
            "attention.empty_cache(batch), and pass on the state of the last result."
        )
    cached = state.key
    if cached.shape[0] != key.shape[0]:
        raise ShapeError(
            f"MultiHeadAttention: the cache has batch size {cached.shape[0]}, but the new keys have {key.shape[0]}. "
            "Choose or repeat the cache's rows with state.select(index), or begin with empty_cache."
        )
    if (cached.shape[1], cached.shape[3]) != (key.shape[1], key.shape[3]):
        raise ShapeError(
            f"MultiHeadAttention: the cache has {cached.shape[1]} key heads of {cached.shape[3]} features, expected "
            f"{key.shape[1]} of {key.shape[3]}. It is that of another attention: each has a cache of its own."
        )
    if cached.device != key.device:
        raise ShapeError(f"MultiHeadAttention: the cache is on {cached.device}, but the new keys are on {key.device}.")
    if cached.dtype != key.dtype and not torch.is_autocast_enabled(key.device.type):
        raise ShapeError(
            f"MultiHeadAttention: the cache has dtype {cached.dtype}, but the new keys have {key.dtype}. Begin with "
            "attention.empty_cache(batch) after the module was converted."
        )
    return state.start


def _near(slots: Tensor | None, distance: Tensor, window: Window | None) -> Tensor | None:
    """Return the slots that each query may reach, from where the queries are."""
    left, right = (None, None) if window is None else window
    if left is not None:
        near = (distance >= -left).unsqueeze(1)
        slots = near if slots is None else slots & near
    if right is not None:
        near = (distance <= right).unsqueeze(1)
        slots = near if slots is None else slots & near
    return slots


def _fit(mask: Tensor, shape: torch.Size, device: torch.device, cached: int) -> Tensor:
    """Return the mask with the rank of the scores."""
    if cached and isinstance(mask, Tensor) and mask.dim() in (3, 4) and mask.shape[-1] not in (1, shape[-1]):
        raise ShapeError(
            f"MultiHeadAttention: mask has {mask.shape[-1]} keys, expected {shape[-1]}: {cached} in the cache and "
            f"{shape[-1] - cached} new ones. A mask covers them all: masks.keys(valid[:, :{shape[-1]}])."
        )
    return check_mask("MultiHeadAttention", mask, shape, device)
