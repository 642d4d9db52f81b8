"""The mask rule, and the helpers that make masks.

    A mask is boolean. True means: may be read. ``valid (batch, position)`` says which positions exist;
    ``mask (batch, query, key)`` says which query may attend to which key, and an axis of size 1 broadcasts.
    ``masks.keys(valid)`` turns the first into the second. Numbers added to scores are a ``bias``, never a
    mask. A query that may read nothing gets weights 0 and output 0, and every gradient stays finite.

Combine masks with ``&`` and ``|``. What a position holds that no query may read has no effect: numbers of any size,
infinities and NaN change no output, no weight and no gradient. A position that some queries may read must hold finite
numbers: the other queries' scores with it are also computed, before they are masked.

Example:
    >>> import torch
    >>> from foci import masks
    >>> valid = masks.lengths(torch.tensor([2, 3]), 3)
    >>> valid.int().tolist()
    [[1, 1, 0], [1, 1, 1]]
    >>> (masks.keys(valid) & masks.causal(3, 3))[0].int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 0]]
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from foci.checks import check_boolean, check_mask
from foci.errors import ShapeError
from foci.tracing import is_traced, is_watched


def lengths(lengths: Int[Tensor, " B"] | Sequence[int], size: int) -> Bool[Tensor, "B S"]:
    """``valid (B, size)`` for rows that fill their first ``lengths[b]`` positions. A length of 0 is fine."""
    counts = torch.as_tensor(lengths)
    if counts.dim() != 1 or counts.is_floating_point() or counts.dtype == torch.bool:
        raise ShapeError(
            f"masks.lengths: lengths has shape {tuple(counts.shape)} and dtype {counts.dtype}, expected whole "
            "numbers of shape (batch,). For a boolean valid (batch, position) use it as it is."
        )
    # On another device the check would synchronize with it, and inside a trace there are no values to check.
    if counts.device.type == "cpu" and not is_traced() and not is_watched(counts):
        outside = int(((counts < 0) | (counts > size)).sum())
        if outside:
            raise ShapeError(
                f"masks.lengths: {outside} of {counts.numel()} lengths lie outside, expected 0 to {size}. "
                "Pass the size of the padded axis, or cut the lengths with lengths.clamp(0, size)."
            )
    return torch.arange(size, device=counts.device) < counts.unsqueeze(-1)


def keys(valid: Bool[Tensor, "B S"] | Bool[Tensor, "B 1 S"]) -> Bool[Tensor, "B 1 S"]:
    """Return the mask that lets every query read the valid keys. A mask ``(B, 1, S)`` comes back unchanged."""
    check_boolean("masks.keys", "valid", valid, valid.device)
    if valid.dim() == 3 and valid.shape[1] == 1:
        return valid
    if valid.dim() != 2:
        raise ShapeError(
            f"masks.keys: valid has shape {tuple(valid.shape)}, expected (batch, key). "
            "Make it with masks.lengths(lengths, size)."
        )
    return valid.unsqueeze(1)


def causal(L: int, S: int | None = None, *, device: torch.device | str | None = None) -> Bool[Tensor, "1 L S"]:
    """Return a mask by which each query attends to the keys up to its own, aligned so that the last one has all."""
    return window(L, L if S is None else S, None, 0, device=device)


def window(
    L: int, S: int, left: int | None, right: int | None, *, device: torch.device | str | None = None
) -> Bool[Tensor, "1 L S"]:
    """Return a mask from ``left`` keys before a query's own key to ``right`` after it; ``None`` sets no bound.

    Aligned like `causal`: the last query's own key is the last key.
    """
    rows = torch.arange(L, device=device)
    return within(rows, S, left, right, offset=S - L).unsqueeze(0)


def within(rows: Int[Tensor, " L"], S: int, left: int | None, right: int | None, *, offset: int) -> Bool[Tensor, "L S"]:
    """Return the rows of a window mask for the queries numbered ``rows``; query 0's own key is ``offset``."""
    own = (rows + offset).unsqueeze(-1)
    columns = torch.arange(S, device=rows.device)
    mask = torch.ones(rows.shape[0], S, dtype=torch.bool, device=rows.device)
    if left is not None:
        mask = mask & (columns >= own - left)
    if right is not None:
        mask = mask & (columns <= own + right)
    return mask


def segments(ids: Int[Tensor, "B L"], key_ids: Int[Tensor, "B S"] | None = None) -> Bool[Tensor, "B L S"]:
    """Return a mask by which positions attend to their own segment, for several texts packed into one row."""
    other = ids if key_ids is None else key_ids
    if ids.dim() != 2 or other.dim() != 2:
        raise ShapeError(f"masks.segments: ids has shape {tuple(ids.shape)}, expected (batch, position).")
    return ids.unsqueeze(2) == other.unsqueeze(1)


def from_torch_padding(key_padding_mask: Bool[Tensor, "B S"]) -> Bool[Tensor, "B 1 S"]:
    """Return the mask of torch's ``key_padding_mask``, where True means the opposite: ignore."""
    check_boolean("masks.from_torch_padding", "key_padding_mask", key_padding_mask, key_padding_mask.device)
    return keys(~key_padding_mask)


def to_torch(mask: Bool[Tensor, "B L S"], *, num_heads: int = 1) -> Bool[Tensor, "..."]:
    """Convert the mask to the form of `torch.nn.MultiheadAttention`, where True means: ignore.

    A mask over keys only ``(B, 1, S)`` becomes a ``key_padding_mask (B, S)``; one for every row of the batch
    ``(1, L, S)`` an ``attn_mask (L, S)``; any other an ``attn_mask (B * num_heads, L, S)``.
    `torch.nn.functional.scaled_dot_product_attention` needs no conversion: it has the same polarity as foci.
    """
    check_boolean("masks.to_torch", "mask", mask, mask.device)
    if mask.dim() != 3:
        raise ShapeError(f"masks.to_torch: mask has shape {tuple(mask.shape)}, expected (batch, query, key).")
    ignored = ~mask
    if mask.shape[1] == 1:
        return ignored.squeeze(1)
    if mask.shape[0] == 1:
        return ignored.squeeze(0)
    return ignored.repeat_interleave(num_heads, dim=0)


def clear_unreadable(source: Float[Tensor, "... S D"], mask: Bool[Tensor, "..."] | None) -> Float[Tensor, "... S D"]:
    """Return the source with zeros where no query may read, so that no NaN or infinity of the padding enters a sum.

    ``mask (…, L, S)`` has the rank of the scores. Cells shared by several of its rows or heads are cleared where none
    of them may read. With a key/value cache the mask covers more positions; these are the last ones.

    Example:
        >>> import torch
        >>> source = torch.tensor([[[1.0], [torch.nan]]])
        >>> clear_unreadable(source, torch.tensor([[[True, False]]])).tolist()
        [[[1.0], [0.0]]]
    """
    if mask is None:
        return source
    readable = mask.squeeze(-2) if mask.shape[-2] == 1 else mask.any(dim=-2)
    while readable.dim() >= source.dim():
        readable = readable.any(dim=0)
    while readable.dim() < source.dim() - 1:
        readable = readable.unsqueeze(0)
    if readable.shape[-1] not in (1, source.shape[-2]):
        readable = readable[..., readable.shape[-1] - source.shape[-2] :]
    for axis, size in enumerate(source.shape[:-2]):
        if readable.shape[axis] not in (1, size):  # this source is shared by several rows of the mask
            readable = readable.any(dim=axis, keepdim=True)
    return source.masked_fill(~readable.unsqueeze(-1), 0.0)


def clear_source(
    key: Float[Tensor, "#B S D"], value: Float[Tensor, "#B S V"], mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return key and value with zeros where no query may read; one tensor for both stays one.

    A mask of a wrong shape is passed on: the mechanism's `read`, which has the queries, reports it.
    """
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.device != key.device:
        return key, value
    if mask.dim() not in (3, 4) or not (mask.shape[-1] == 1 or mask.shape[-1] >= key.shape[1]):
        return key, value
    readers = mask.any(dim=1) if mask.dim() == 4 else mask  # a position that any head may read
    cleared = clear_unreadable(key, readers)
    return cleared, cleared if value is key else clear_unreadable(value, readers)


def clear_query(query: Float[Tensor, "B L D"], mask: Tensor | None) -> Float[Tensor, "B L D"]:
    """Return the queries with zeros where they may read nothing; a mask of a wrong shape is reported elsewhere."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.device != query.device:
        return query
    if mask.dim() not in (3, 4) or mask.shape[-2] not in (1, query.shape[1]):
        return query
    reads = mask.any(dim=-1)
    reads = reads.any(dim=1) if mask.dim() == 4 else reads  # with any head
    return query.masked_fill(~reads.unsqueeze(-1), 0.0) if reads.shape[0] in (1, query.shape[0]) else query


def masked_softmax(scores: Float[Tensor, "... S"], mask: Bool[Tensor, "..."] | None = None) -> Float[Tensor, "... S"]:
    """Softmax over the positions that may be read; a row that may read nothing gets zeros, never NaN."""
    if mask is None:
        return torch.softmax(scores, dim=-1)
    mask = check_mask("softmax", mask, scores.shape, scores.device)
    dead = ~mask.any(dim=-1, keepdim=True)
    # A row of -inf only would give NaN, also in the gradient: such rows take the softmax of zeros and are then cleared.
    filled = scores.masked_fill(~mask, -torch.inf).masked_fill(dead, 0.0)
    return torch.softmax(filled, dim=-1).masked_fill(~mask, 0.0)


def softmax_with_sink(
    scores: Float[Tensor, "... S"], mask: Bool[Tensor, "..."] | None, sink: Float[Tensor, "..."]
) -> Float[Tensor, "... S"]:
    """Softmax over the positions that may be read and one more, with the score ``sink``, which holds nothing.

    A row sums to less than 1; one that may read nothing gets zeros. The sink broadcasts to ``(…, 1)``.
    """
    if mask is not None:
        scores = scores.masked_fill(~check_mask("softmax", mask, scores.shape, scores.device), -torch.inf)
    sinks = sink.to(scores.dtype).expand(*scores.shape[:-1], 1)
    return torch.softmax(torch.cat([scores, sinks], dim=-1), dim=-1)[..., :-1]


def masked_softmax_(scores: Float[Tensor, "... S"], mask: Bool[Tensor, "..."] | None = None) -> Float[Tensor, "... S"]:
    """Compute `masked_softmax` in the memory of the scores, with fewer passes over memory. It has no gradient."""
    if mask is None:
        return torch.softmax(scores, dim=-1, out=scores)
    mask = check_mask("softmax", mask, scores.shape, scores.device)
    closed = ~mask
    # A row that may attend to nothing becomes NaN, and is cleared whole.
    torch.softmax(scores.masked_fill_(closed, -torch.inf), dim=-1, out=scores)
    return scores.masked_fill_(closed, 0.0)
