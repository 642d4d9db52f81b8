"""`attend`: score, normalize, read, by the fastest path that gives the same result.

    output = normalize(score(query, key) + bias, mask) · value

Scores that are dot products (dot, scaled_dot, cosine and, in `foci.mechanisms`, general and location) with a
softmax go to torch's fused `scaled_dot_product_attention`; all others are computed plainly. The weights are
exact on both paths: the fused one returns a handle that recomputes them when asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from foci import masks
from foci.checks import check_mask, check_shape, check_together, expand_query
from foci.errors import ConfigError, ShapeError, check_flags, check_share, check_window, unknown_name
from foci.functional import scores as score_functions
from foci.functional.kernels.banded import attend_band
from foci.functional.kernels.softmax_rows import FusedSoftmax
from foci.functional.normalize import sigmoid, softmax
from foci.functional.own_parts import (
    OwnFocus,
    OwnNormalizer,
    OwnScore,
    OwnStage,
    name_of,
    own_limits,
    own_scores,
    own_stage,
    own_weights,
)
from foci.functional.positions import alibi_bias
from foci.functional.sample import Drawn, best, categorical, gumbel, hard
from foci.functional.sparse import entmax15, sparsemax
from foci.masks import clear_unreadable
from foci.names import NORMALIZER_ALIASES, SCORE_ALIASES, DotScoreName, NormalizerName, settled
from foci.outputs import AttentionOutput
from foci.recording.rereading import Reread
from foci.recording.watching import editable, recordable
from foci.tracing import is_traced, is_watched, known_true
from foci.weights import Weights
from foci.weights.sources import scores_shape

Window = tuple[int | None, int | None]
"""``(left, right)``: how many keys before and after its own a query attends to; None sets no bound."""

Normalizer = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor | None] | Drawn]
"""``(scores, mask) -> (weights, log-probability of what was sampled, or None)``; one that samples may give `Drawn`."""

NORMALIZERS: dict[str, Normalizer] = {
    "softmax": lambda scores, mask: (softmax(scores, mask), None),
    "sigmoid": lambda scores, mask: (sigmoid(scores, mask), None),
    "sparsemax": lambda scores, mask: (sparsemax(scores, mask), None),
    "entmax15": lambda scores, mask: (entmax15(scores, mask), None),
    "hard": lambda scores, mask: (hard(scores, mask), None),
    "sample": lambda scores, mask: Drawn(*categorical(scores, mask), softmax(scores, mask)),
    "gumbel": lambda scores, mask: Drawn(gumbel(scores, mask), None, softmax(scores, mask)),
}

WITHOUT_CHANCE: dict[str, Normalizer] = {
    "best": lambda scores, mask: Drawn(*best(scores, mask), softmax(scores, mask)),
    "mode": lambda scores, mask: Drawn(hard(scores, mask), None, softmax(scores, mask)),
}
"""What "sample" and "gumbel" are outside of training: the best position is read."""

_SHORT = 64 * 64
"""Scores, L · S, up to which training on a CPU with several threads is faster without the fused kernel: by 1.2 at
length 64, by 1.9 at 16 (measured with two threads)."""

_SHORT_ALONE = 16 * 16
"""The same with one thread: by 1.3 at length 16, level from 32 on."""

_SMALL_MASK = 1 << 14
"""Size up to which a mask is copied into the handle: decoders change one mask in place at every step."""

_BY_DISTANCE = 512 * 512
"""Scores from which ALiBi's biases by distance are faster than all of them (measured: benchmarks/alibi)."""

_PARAMETRIC = ("general", "additive", "concat", "location", "location_aware")


@recordable
def attend(
    query: Float[Tensor, "... L D"],
    key: Float[Tensor, "... S Dk"],
    value: Float[Tensor, "... S V"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    bias: Float[Tensor, "..."] | None = None,
    causal: bool = False,
    score: DotScoreName | OwnScore = "scaled_dot",
    normalize: NormalizerName | OwnNormalizer = "softmax",
    focus: OwnFocus | None = None,
    after: OwnStage | None = None,
    window: Window | None = None,
    dropout: float = 0.0,
) -> AttentionOutput:
    """Return the mean of ``value`` by the weights of ``query`` over ``key``.

    Leading axes broadcast, those of the value too; weights and masks have all of them. Of four axes, (batch, head,
    position, feature), query heads may also be a multiple of the key's, in dot products with a softmax.

    Args:
        mask: which query may attend to which key (see `foci.masks`).
        bias: numbers added to the scores, of their rank, each axis of their size or 1.
        causal: each query attends to the keys up to its own; the last query's own key is the last key.
        score: "dot", "scaled_dot", "cosine", or a function or module ``(query, key) -> scores (…, L, S)``.
        normalize: "softmax", "sigmoid", "sparsemax", "entmax15", "hard", "sample" or "gumbel", or a function or module
            ``(scores, mask) -> weights`` (or `foci.functional.sample.Drawn`).
        focus: a function or module ``(query, key) -> mask or bias``, which holds along with both.
        after: a function or module ``(query, attended) -> attended``, a stage after reading.
        window: attend to at most ``(left, right)`` keys before and after a query's own.
        dropout: the share of weights dropped; pass 0 outside of training. The handle has the weights before dropout.

    Example:
        >>> import torch
        >>> query, key, value = torch.zeros(2, 3, 5), torch.zeros(2, 7, 5), torch.ones(2, 7, 11)
        >>> attend(query, key, value).output.shape
        torch.Size([2, 3, 11])
    """
    if window is not None:
        check_window("attend", window, lowest=None)
    if causal is not False:
        check_flags("attend", causal=causal)
    if dropout:
        check_share("attend", dropout=dropout)
    query, key, value = _broadcast(query, key, value)
    score, normalize = settled(score, SCORE_ALIASES), settled(normalize, NORMALIZER_ALIASES)
    if causal:
        window = causal_window(window)
    mask, bias = mask_and_bias(mask, bias, scores_shape(query, key), query.device)
    cleared = clear_unreadable(key, mask)
    key, value = cleared, cleared if value is key else clear_unreadable(value, mask)
    if focus is not None:
        mask, bias = limited_by(focus, query, key, mask, bias, scores_shape(query, key))
    dots = _as_dots(score, query, key)
    if dots is not None and normalize == "softmax":
        attended = attend_dots(*dots[:2], value, mask, scale=dots[2], bias=bias, window=window, dropout=dropout)
    else:
        scores = own_scores(score, query, key) if dots is None else score_functions.scaled_dot(*dots)  # type: ignore[arg-type]
        how = normalizer(normalize)
        attended = attend_scores(scores, value, mask, bias=bias, window=window, normalize=how, dropout=dropout)
    if after is None:
        return attended
    allowed = combine(mask, window, attended.weights.shape, query.device)
    dead = None if allowed is None else ~allowed.any(dim=-1, keepdim=True)
    return own_stage("attend", after, query, attended, dead)


def _scores_reread(
    scores: Float[Tensor, "... L S"],
    value: Float[Tensor, "... S V"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    bias: Float[Tensor, "..."] | None = None,
    window: Window | None = None,
    normalize: Normalizer = NORMALIZERS["softmax"],
    read_also: Callable[[Tensor], Tensor] | None = None,
    dropout: float = 0.0,
) -> Reread:
    """Return how a call of `attend_scores` reads, for `foci.edit`."""
    mask, bias = mask_and_bias(mask, bias, scores.shape, scores.device)

    def limited(open: Tensor) -> AttentionOutput:
        closed = open if mask is None else open & mask
        return attend_scores(scores, value, closed, bias=bias, window=window, normalize=normalize)

    return Reread(
        lambda weights: _read_with(weights, value, read_also, dropout),
        lambda: combine(mask, window, scores.shape, scores.device),
        limited,
    )


@editable(_scores_reread)
def attend_scores(
    scores: Float[Tensor, "... L S"],
    value: Float[Tensor, "... S V"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    bias: Float[Tensor, "..."] | None = None,
    window: Window | None = None,
    normalize: Normalizer = NORMALIZERS["softmax"],
    read_also: Callable[[Tensor], Tensor] | None = None,
    dropout: float = 0.0,
) -> AttentionOutput:
    """Normalize these scores and read, without a fused kernel; ``read_also`` is as in `attend_dots`."""
    if mask is not None or bias is not None or window is not None:  # steps are too short to look in vain
        mask, bias = mask_and_bias(mask, bias, scores.shape, scores.device)
        if bias is not None:
            scores = scores + bias
        mask = combine(mask, window, scores.shape, scores.device)
    weights, *sampled = normalize(scores, mask)
    return AttentionOutput(_read_with(weights, value, read_also, dropout), Weights.from_tensor(weights, *sampled))


def _read_with(weights: Tensor, value: Tensor, read_also: Callable[[Tensor], Tensor] | None, dropout: float) -> Tensor:
    """Return what the weights read, after dropout."""
    dropped = F.dropout(weights, dropout) if dropout else weights
    output = _weighted_sum(dropped, value)
    return output if read_also is None else output + read_also(dropped)


def _weighted_sum(weights: Tensor, value: Tensor) -> Tensor:
    """Return ``weights @ value``, in a short step in a third of the time."""
    one_by_one = weights.dim() == 3 and value.dim() == 3 and known_true(weights.shape[0] == value.shape[0])
    return torch.bmm(weights, value) if one_by_one else weights @ value


def _dots_reread(
    query: Float[Tensor, "... L D"],
    key: Float[Tensor, "... S D"],
    value: Float[Tensor, "... S V"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    bias: Float[Tensor, "..."] | None = None,
    window: Window | None = None,
    read_also: Callable[[Tensor], Tensor] | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> Reread:
    """Return how a call of `attend_dots` reads, for `foci.edit`."""
    shape = scores_shape(query, key)
    mask, bias = mask_and_bias(mask, bias, shape, query.device)

    def limited(open: Tensor) -> AttentionOutput:
        closed = open if mask is None else open & mask
        return attend_dots(query, key, value, closed, bias=bias, window=window, **options)

    heads = value if value.dim() < 4 or value.shape[1] in (1, shape[1]) else _repeated(value, shape[1])
    return Reread(
        lambda weights: _read_with(weights, heads, read_also, dropout),
        lambda: combine(mask, window, shape, query.device),
        limited,
    )


@editable(_dots_reread)
def attend_dots(
    query: Float[Tensor, "... L D"],
    key: Float[Tensor, "... S D"],
    value: Float[Tensor, "... S V"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    scale: float,
    bias: Float[Tensor, "..."] | None = None,
    window: Window | None = None,
    slopes: Float[Tensor, " H"] | None = None,
    score_cap: float | None = None,
    sink: Float[Tensor, " H"] | None = None,
    read_also: Callable[[Tensor], Tensor] | None = None,
    dropout: float = 0.0,
    keep_weights: bool = False,
    own: bool = False,
) -> AttentionOutput:
    """Read by the fused path, a softmax over ``scale · q · k``. Grouped heads: key and value may have fewer of them.

    Args:
        query: the queries; key, value and mask are as in `attend`.
        key: the keys.
        value: the values.
        mask: which query may attend to which key.
        scale: the factor of the products.
        bias: numbers added to the scores.
        window: as in `attend`.
        slopes: one per head; they add ALiBi's −slope · |distance| and exclude a bias.
        score_cap: keeps the scaled products between −score_cap and score_cap by a tanh.
        sink: one per head, the score of one more position, which holds nothing: rows sum to less than 1.
        read_also: what else is read: it maps the weights ``(…, L, S)``, after dropout, to numbers that are added to the
            output.
        dropout: the share of weights dropped.
        keep_weights: compute all weights and read with them, which is less work than the fused kernel and all weights
            afterwards.
        own: the calling mechanism made query and key itself, so that the caller cannot change them in place.
    """
    if mask is not None or bias is not None:
        mask, bias = mask_and_bias(mask, bias, scores_shape(query, key), query.device)
    # Under a transform torch does not see that a bias wants a gradient, which its fused kernel does not have.
    without_kernel = bias is not None and is_watched(bias) and not is_traced()
    if score_cap is not None or sink is not None or read_also is not None or without_kernel:
        source = FusedSoftmax(
            query if own else _lasting(query),
            key if own else _lasting(key),
            scale,
            None if mask is None else _lasting(mask, copy_up_to=_SMALL_MASK),
            None if bias is None else _lasting(bias),
            window,
            slopes=slopes,
            score_cap=score_cap,
            sink=sink,
        )
        return _read_by_weights(source, value, read_also, dropout, keep_weights)
    if keep_weights or _plain_is_faster(query, key, value):
        source = FusedSoftmax(query, key, scale, mask, bias, window, slopes=slopes, versions=())  # not kept
        weights = source.rows(slice(None))
        if source.grouped:
            value = _repeated(value, query.shape[1])
        dropped = F.dropout(weights, dropout) if dropout else weights
        return AttentionOutput(dropped @ value, Weights.from_tensor(weights))
    shape = scores_shape(query, key)
    source = FusedSoftmax(
        query if own else _lasting(query),
        key if own else _lasting(key),
        scale,
        None if mask is None else _lasting(mask, copy_up_to=_SMALL_MASK),
        None if bias is None else _lasting(bias),
        window,
        slopes=slopes,
    )
    if slopes is not None:
        by_distance = shape[-2] * shape[-1] >= _BY_DISTANCE and query.device.type == "cpu"
        if mask is None and by_distance and not torch.compiler.is_compiling():
            return AttentionOutput(
                _sdpa_by_distance(query, key, value, slopes, window, scale, dropout, shape), Weights(source)
            )
        bias = alibi_bias(slopes, shape[-2], shape[-1]).to(query.dtype)
    if window is not None and bias is None and dropout == 0.0 and _worth_a_band(query, key, value, mask, window, shape):
        return AttentionOutput(_banded(query, key, value, mask, window, scale, shape), Weights(source))
    plainly_causal = False
    if window == (None, 0):
        L, S = shape[-2:]
        plainly_causal = mask is None and bias is None and known_true(L == S)
        if known_true(L == 1) and known_true(S > 0):
            window = None  # the last query attends to every key
    allowed = None
    if not plainly_causal and (mask is not None or window is not None):
        allowed = combine(mask, window, shape, query.device)
    alive = None
    if allowed is not None:
        alive = allowed.any(dim=-1, keepdim=True)
        allowed = allowed | ~alive  # a row without positions would be NaN in some kernels: it gets all, and is cleared
        if mask is not None and mask.shape[-2] != 1 and alive.dim() == query.dim():
            # The scores of such a query must not overflow: 0 · NaN would reach every gradient.
            unread = ~(alive if alive.shape[1] in (1, query.shape[1]) else alive.any(dim=1, keepdim=True))
            query = query.masked_fill(unread, 0.0)
    if bias is not None:
        allowed = bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)
        allowed = allowed.to(query.dtype)
    output = _sdpa(query, key, value, allowed, plainly_causal, scale, dropout, shape)
    if alive is not None:
        output = output.masked_fill(~alive, 0.0)
    return AttentionOutput(output, Weights(source))


_ROWS_AT_ONCE = 1 << 22
"""Weights that are computed at a time where no kernel reads without them."""


def _read_by_weights(
    source: FusedSoftmax, value: Tensor, read_also: Callable[[Tensor], Tensor] | None, dropout: float, keep: bool
) -> AttentionOutput:
    """Read with the weights themselves: some rows at a time where nothing needs all of them."""
    if source.grouped:
        value = _repeated(value, source.query.shape[1])
    *leading, L, S = source.shape
    rows = max(1, _ROWS_AT_ONCE // max(1, math.prod(leading) * S))
    wanted = keep or read_also is not None or torch.is_grad_enabled()
    if not wanted and not is_traced() and rows < L:
        parts = [source.rows(slice(first, first + rows)) @ value for first in range(0, L, rows)]
        return AttentionOutput(torch.cat(parts, dim=-2), Weights(source))
    weights = source.rows(slice(None))
    output = _read_with(weights, value, read_also, dropout)
    return AttentionOutput(output, Weights.from_tensor(weights) if wanted else Weights(source))


def _repeated(value: Tensor, heads: int) -> Tensor:
    """Return the values with one for each head of the query, of which several share one."""
    return value.repeat_interleave(heads // value.shape[1], dim=1)


def causal_window(window: Window | None) -> Window:
    """Return the window without the keys after a query's own."""
    left, right = (None, None) if window is None else window
    return left, 0 if right is None else min(right, 0)


def reads_own_key(window: Window, L: int, S: int) -> bool:
    """Return whether every query has its own key within the window, so that no row is empty."""
    left, right = window
    return (left is None or left >= 0) and (right is None or right >= 0) and known_true(L <= S)


def mask_and_bias(
    mask: Tensor | None, bias: Tensor | None, shape: torch.Size, device: torch.device, *, owner: str = "attend"
) -> tuple[Tensor | None, Tensor | None]:
    """Return mask and bias, both of the scores' rank; a bias of −∞ becomes a part of the mask."""
    if mask is not None:
        mask = check_mask(owner, mask, shape, device)
    if bias is None:
        return mask, None
    closed = check_bias(bias, shape, owner) == -torch.inf
    return ~closed if mask is None else mask & ~closed, bias.masked_fill(closed, 0.0)


Limits = tuple[Tensor | None, Tensor | None]
"""A mask and a bias, of the scores' rank; None for what there is not."""


def both_limits(these: Limits, those: Limits) -> Limits:
    """Return the mask and the bias of both."""
    (mask, bias), (other_mask, other_bias) = these, those
    if mask is not None and other_mask is not None:
        mask = mask & other_mask
    if bias is not None and other_bias is not None:
        bias = bias + other_bias
    return other_mask if mask is None else mask, other_bias if bias is None else bias


def limited_by(
    focus: OwnFocus, query: Tensor, key: Tensor, mask: Tensor | None, bias: Tensor | None, shape: torch.Size
) -> Limits:
    """Return mask and bias, both of the scores' rank, along with those of a focus of one's own."""
    found, more = own_limits(focus, query, key)
    if more is not None:
        more = more.to(query.dtype)
        more = more.unsqueeze(1) if len(shape) == 4 and more.dim() == 3 else more
    owner = f"focus {name_of(focus)}"
    return both_limits(mask_and_bias(found, more, shape, query.device, owner=owner), (mask, bias))


def close_by_bias(
    owner: str, query: Tensor, key: Tensor, mask: Tensor | None, bias: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Return mask and bias as `mask_and_bias` does, before a mechanism clears what nobody may read."""
    if bias is None:
        return mask, None
    check_shape(owner, "query", query, "batch", "query", "feature")
    check_shape(owner, "key", key, "batch", "key", "feature")
    _, batch = expand_query(owner, query, key, key)
    shape = torch.Size((batch, query.shape[1], key.shape[1]))
    return mask_and_bias(mask, bias, shape, query.device, owner=owner)


def combine(mask: Tensor | None, window: Window | None, shape: torch.Size, device: torch.device) -> Tensor | None:
    """Return mask and window as one mask with the rank of the scores, or None when all may be read."""
    if mask is not None:
        mask = check_mask("attend", mask, shape, device)
    if window is None or window == (None, None):
        return mask
    near = masks.window(shape[-2], shape[-1], *window, device=device)
    near = near.reshape((1,) * (len(shape) - 2) + tuple(near.shape[-2:]))
    return near if mask is None else mask & near


def normalizer(given: NormalizerName | OwnNormalizer) -> Normalizer:
    """Return the normalizer of this name, or one of one's own as kernels and modules use it."""
    if not isinstance(given, str):
        return partial(own_weights, given)
    if given not in NORMALIZERS:
        raise unknown_name("normalizer", given, NORMALIZERS)
    return NORMALIZERS[given]


def check_bias(bias: Tensor, shape: torch.Size, owner: str = "attend") -> Tensor:
    """Return the bias, or raise an error that says what is wrong with it."""
    if not isinstance(bias, Tensor):
        raise ShapeError(f"{owner}: bias is a {type(bias).__name__}, expected a torch.Tensor of shape {tuple(shape)}.")
    if not bias.is_floating_point():
        raise ShapeError(
            f"{owner}: bias has dtype {bias.dtype}, expected floating-point numbers to add to the scores. Pass a "
            "boolean mask as mask=…, and whole numbers as bias.float()."
        )
    # Not "in (1, want)", which fixes the sizes of a trace.
    if bias.dim() != len(shape) or not all(have == 1 or have == want for have, want in zip(bias.shape, shape)):
        raise ShapeError(
            f"{owner}: bias has shape {tuple(bias.shape)}, expected {tuple(shape)}, where an axis of size 1 "
            "broadcasts. Add the missing axes with bias.unsqueeze(…)."
        )
    return bias


def _lasting(tensor: Tensor, copy_up_to: int = 0) -> Tensor:
    """Return the tensor, or a copy where an in-place change by the caller could not be detected or is to be allowed.

    A change is detected by torch's version counters (`foci.weights.sources.ByWeights`), which neither a trace nor
    inference mode has.
    """
    if torch.compiler.is_compiling() or tensor.is_inference() or tensor.numel() <= copy_up_to:
        return tensor.clone()
    return tensor


def _plain_is_faster(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Return whether this is training on sequences for which plain products are faster than the fused kernel."""
    # The first checks decide most calls: inference, and long sequences.
    if not (query.requires_grad or key.requires_grad or value.requires_grad) or torch.compiler.is_compiling():
        return False
    count = query.shape[-2] * key.shape[-2]
    if count > _SHORT or query.device.type != "cpu" or not torch.is_grad_enabled():
        return False
    if count > _SHORT_ALONE and torch.get_num_threads() == 1:
        return False
    # In half precision the fused kernel is more precise.
    return query.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled("cpu")


def _worth_a_band(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, window: Window, shape: torch.Size
) -> bool:
    """Return whether the banded kernel applies and is faster than masking all scores (measured: benchmarks/window)."""
    if window[0] is None or window[1] is None or len(shape) not in (3, 4):
        return False
    if mask is not None and any(size != 1 for size in mask.shape[1:-1]):
        return False
    if not query.dtype == key.dtype == value.dtype:
        return False
    # A compiled or exported program must not depend on the length of its inputs: the band is correct at every length.
    return torch.compiler.is_compiling() or shape[-1] >= max(512, 2 * (window[0] + window[1] + 64))


def _banded(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    window: Window,
    scale: float,
    shape: torch.Size,
) -> Tensor:
    left, right = window
    valid = None if mask is None else mask.reshape(mask.shape[0], shape[-1]).expand(shape[0], -1)
    query, key, value = (t.unsqueeze(1) if len(shape) == 3 else t for t in (query, key, value))
    query, key, value = (t.expand(shape[0], -1, -1, -1) for t in (query, key, value))
    return attend_band(query, key, value, valid, left, right, scale).reshape(*shape[:-1], value.shape[-1])  # type: ignore[arg-type]


def _sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor | None,
    causal: bool,
    scale: float,
    dropout: float,
    shape: torch.Size,
) -> Tensor:
    if _trains_in_half(query, key, value):
        # On a CPU the fused kernel takes 2.5 times as long in bfloat16 as in float32 (length 128, one thread).
        bias = allowed if allowed is None or allowed.dtype == torch.bool else allowed.float()
        with torch.autocast("cpu", enabled=False):
            output = _sdpa(query.float(), key.float(), value.float(), bias, causal, scale, dropout, shape)
        return output.to(query.dtype)
    # The fast CPU kernels need exactly four axes: (batch, head, position, feature).
    leading = shape[:-2]
    if len(leading) == 2:
        if not query.shape[0] == key.shape[0] == value.shape[0]:
            query, key, value = (t.expand(leading[0], -1, -1, -1) for t in (query, key, value))
    else:
        heads = leading[-1] if len(leading) > 2 else 1
        flat = (math.prod(leading) // max(heads, 1), heads)
        query, key, value = (_flatten(t, leading, flat) for t in (query, key, value))
        allowed = None if allowed is None else _flatten(allowed, leading, flat)
    grouped = key.shape[1] != query.shape[1]
    output = F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=allowed,
        dropout_p=dropout,
        is_causal=causal,
        scale=scale,
        enable_gqa=grouped,
    )
    return output if len(leading) == 2 else output.reshape(*leading, *output.shape[-2:])


def _trains_in_half(*tensors: Tensor) -> bool:
    """Whether gradients in half precision are wanted on a CPU."""
    if tensors[0].device.type != "cpu" or not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    half = tensors[0].dtype in (torch.bfloat16, torch.float16)
    return half and any(tensor.requires_grad for tensor in tensors)


def _sdpa_by_distance(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    slopes: Tensor,
    window: Window | None,
    scale: float,
    dropout: float,
    shape: torch.Size,
) -> Tensor:
    """Read with one row of biases per head, shared by all queries: ALiBi and window depend on the distance alone.

    With the queries reversed, the bias of query i and key j is entry i + j of that row, so the L×S biases are
    a strided view of L + S − 1 numbers that stay in the cache.
    """
    L, S = shape[-2:]
    distance = torch.arange(L + S - 1, device=query.device) - (S - 1)
    biases = (-slopes.unsqueeze(-1) * distance.abs()).to(query.dtype)
    if window is not None:
        left, right = window
        far = (distance < (-distance.numel() if left is None else -left)) | (
            distance > (distance.numel() if right is None else right)
        )
        biases = biases.masked_fill(far, -torch.inf)
    view = biases.as_strided((1, shape[1], L, S), (0, L + S - 1, 1, 1))
    return _sdpa(query.flip(-2), key, value, view, False, scale, dropout, shape).flip(-2)


def _flatten(tensor: Tensor, leading: torch.Size, flat: tuple[int, int]) -> Tensor:
    return tensor.expand(*leading, -1, -1).reshape(*flat, *tensor.shape[-2:])


def _as_dots(score: str | OwnScore, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float] | None:
    """Return query, key and scale whose dot products are the scores; None for a score of one's own."""
    if not isinstance(score, str):
        return None
    if score == "scaled_dot":
        return query, key, score_functions.default_scale(query)
    if score == "dot":
        return query, key, 1.0
    if score == "cosine":
        return score_functions.unit(query), score_functions.unit(key), 1.0
    if score in _PARAMETRIC:
        raise ConfigError(
            f"attend: score {score!r} has learned parameters. Use foci.Attention(…, score={score!r}), or pass a "
            "function, for example functools.partial(foci.functional.scores.general, weight=…)."
        )
    raise unknown_name("score", score, ("dot", "scaled_dot", "cosine"))


def _broadcast(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the three with as many axes each, key and value with the same leading ones, the query with all heads."""
    check_shape("attend", "query", query, "…", "query", "feature")
    check_shape("attend", "key", key, "…", "key", "feature")
    check_shape(
        "attend", "value", value, "…", key.shape[-2], "feature", fix="Key and value have one entry per position."
    )
    check_together("attend", query=query, key=key, value=value)
    leading = query.shape[:-2]
    if leading == key.shape[:-2] == value.shape[:-2]:
        return query, key, value
    rank = max(query.dim(), key.dim(), value.dim())
    try:
        sources = torch.broadcast_shapes(key.shape[:-2], value.shape[:-2], (1,) * (rank - 2))
        grouped = query.dim() == rank == 4 and 1 < sources[1] < leading[1] and leading[1] % sources[1] == 0
        together = (sources[0], leading[1]) if grouped else sources
        together = torch.broadcast_shapes(leading, together)
    except RuntimeError as error:
        raise ShapeError(
            f"attend: query has shape {tuple(query.shape)}, key {tuple(key.shape)} and value {tuple(value.shape)}, "
            "expected leading axes that are equal or 1. Repeat the smaller tensor, for beams with "
            "key.repeat_interleave(beams, dim=0)."
        ) from error
    same = value is key
    key = key.expand(*sources, -1, -1)
    value = key if same else value.expand(*sources, -1, -1)
    return query.expand(*together, -1, -1), key, value
