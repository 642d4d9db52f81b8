"""What a `foci.weights.Weights` handle computes its weights from: query and key, windows, or weights kept as such."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor

from foci.errors import ShapeError, StaleWeightsError
from foci.masks import masked_softmax, masked_softmax_, softmax_with_sink, within
from foci.tracing import exportable, is_traced, is_watched
from foci.weights.copies import Copied
from foci.weights.reductions import entropy_of_scores, entropy_of_weights, largest_weights

Entries = TypeVar("Entries", bound="ByWeights")
Rows = slice | Tensor
"""Which query rows: a slice, or whole numbers of shape ``(n,)``."""


@runtime_checkable
class Source(Protocol):
    """What a `Weights` handle computes its weights from."""

    @property
    def shape(self) -> torch.Size: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def held(self) -> str:
        """What is kept of the weights, in words."""
        ...

    def rows(self, index: Rows) -> Tensor:
        """Return the weights of these rows of the second last axis, ``(…, rows, S)``."""
        ...

    def entries(self, index: slice) -> Source:
        """Return the source of some entries of the batch only (axis 0); an axis of size 1 counts for all."""
        ...

    def heads(self, index: int | slice | Tensor) -> Source:
        """Return the source of some heads only (axis 1)."""
        ...

    def largest(self, index: Rows, k: int) -> tuple[Tensor, Tensor]:
        """Return the k largest weights of these rows and their positions, ``(…, rows, k)``."""
        ...

    def entropy(self, index: Rows) -> Tensor:
        """Return the entropy of these rows, ``(…, rows, 1)``."""
        ...

    def mass(self, index: Rows, chosen: Tensor) -> Tensor:
        """Return the total weight of these rows on the positions that are ``chosen`` for them, ``(…, rows, 1)``."""
        ...

    def check_unchanged(self) -> None:
        """Raise `StaleWeightsError` if a tensor that the weights are computed from was changed in place."""
        ...

    @property
    def requires_grad(self) -> bool:
        """Whether a tensor that the weights are computed from requires a gradient."""
        ...


@dataclass(eq=False)
class ByWeights(Copied):
    """The base of all sources: reductions by weights, and the check that their tensors are unchanged.

    A source refers to tensors that may belong to the caller. ``versions`` are torch's counters of in-place changes at
    the time the source was made, one per name in ``parts``; -1 where there is no tensor or torch has no counter. Inside
    a trace there are no counters (None): there `attend_dots` copies the caller's tensors.
    """

    parts: ClassVar[tuple[str, ...]] = ()  # the first is never None
    versions: tuple[int, ...] | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if self.versions is None and not torch.compiler.is_compiling():
            self.versions = self._versions_now()

    def _versions_now(self) -> tuple[int, ...]:
        found = []  # a loop: this runs at every attention
        for part in self.parts:
            tensor = getattr(self, part)
            # Torch has no counters in inference mode.
            found.append(-1 if tensor is None or tensor.is_inference() else tensor._version)
        return tuple(found)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self._first.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self._first.dtype

    @property
    def held(self) -> str:
        """What is kept of the weights, in words."""
        return " and ".join(self.parts) if self.parts else self._inner[0].held

    @property
    def _first(self) -> Tensor | Source:
        first: Tensor | Source = getattr(self, self.parts[0]) if self.parts else self._inner[0]
        return first

    def renew_versions(self) -> None:
        self.versions = self._versions_now()
        for source in self._inner:
            if isinstance(source, ByWeights):
                source.renew_versions()

    @property
    def requires_grad(self) -> bool:
        tensors = (getattr(self, part) for part in self.parts)
        return any(tensor is not None and tensor.requires_grad for tensor in tensors) or any(
            source.requires_grad for source in self._inner
        )

    @property
    def _inner(self) -> Sequence[Source]:
        """The sources that this one is made of: its field ``of``, one or several."""
        inner = getattr(self, "of", ())
        return inner if isinstance(inner, list | tuple) else (inner,)

    def check_unchanged(self) -> None:
        for source in self._inner:
            source.check_unchanged()
        if self.versions is None or torch.compiler.is_compiling():
            return
        for part, version in zip(self.parts, self.versions):
            if version != -1 and getattr(self, part)._version != version:
                raise StaleWeightsError(
                    f"Weights: the {part} that these weights are computed from was changed in place after the "
                    "attention, expected it unchanged. Ask for the weights before the change, or change a copy "
                    "(x = x + output instead of x += output). foci.record keeps copies of a module's inputs."
                )

    def entries(self: Entries, index: slice) -> Entries:
        rank = len(cast(Source, self).shape)
        taken: dict[str, Any] = {}
        for part in self.parts:
            tensor = getattr(self, part)
            if tensor is not None and tensor.dim() == rank and tensor.shape[0] != 1:
                taken[part] = tensor[index]
        if self._inner:
            inner = [source.entries(index) for source in self._inner]
            taken["of"] = inner if isinstance(getattr(self, "of"), list) else inner[0]  # noqa: B009
        return replace(self, **taken, versions=None)  # of the tensors just made

    def largest(self: Source, index: Rows, k: int) -> tuple[Tensor, Tensor]:
        return largest_weights(self.rows(index), k)

    def entropy(self: Source, index: Rows) -> Tensor:
        return entropy_of_weights(self.rows(index))

    def mass(self: Source, index: Rows, chosen: Tensor) -> Tensor:
        return (self.rows(index) * chosen).sum(dim=-1, keepdim=True)


@exportable
@dataclass(eq=False)
class Dense(ByWeights):
    """Weights that were already computed."""

    parts = ("weights",)
    held = "all weights"
    weights: Tensor

    @property
    def shape(self) -> torch.Size:
        return self.weights.shape

    def rows(self, index: Rows) -> Tensor:
        return self.weights[..., index, :]

    def heads(self, index: int | slice | Tensor) -> Dense:
        return Dense(self.weights[:, index])


@exportable
@dataclass(eq=False)
class DotSoftmax(ByWeights):
    """softmax(scale · query · keyᵀ + bias) over the positions that mask and window leave: what a fused kernel computes.

    Leading axes broadcast. With grouped heads the key has fewer heads than the query, and consecutive heads of the
    query share one of the key. ``window`` is ``(left, right)`` as in `foci.masks.window`; query 0's own key is
    ``offset``, by default S − L, so that the last query's own key is the last. ``slopes``, one per head, add ALiBi's
    −slope · |distance| to the scores. ``score_cap`` c makes the scaled dot products c · tanh(products / c) before the
    bias is added. ``sink``, one per head, is the score of a position that holds nothing: rows sum to less than 1.
    ``lse (…, L)`` are the logarithms of what the exponentials of each row are divided by, where a kernel gave them.
    """

    parts = ("query", "key", "mask", "bias", "slopes", "sink", "lse")
    held = "query and key"
    query: Tensor
    key: Tensor
    scale: float
    mask: Tensor | None = None
    bias: Tensor | None = None
    window: tuple[int | None, int | None] | None = None
    offset: int | None = None
    slopes: Tensor | None = None
    score_cap: float | None = None
    sink: Tensor | None = None
    lse: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        return scores_shape(self.query, self.key)

    @property
    def grouped(self) -> bool:
        """Whether several heads of the query share one of the key."""
        return has_groups(self.query, self.key)

    def rows(self, index: Rows) -> Tensor:
        scores, mask = self.scores(index)
        if self.lse is not None:
            weights = torch.exp(scores - take_rows(self.lse.unsqueeze(-1), index))
            return weights if mask is None else weights.masked_fill(~mask, 0.0)
        if self.sink is not None:
            return softmax_with_sink(scores, mask, self.sink[..., None, None])
        if scores.requires_grad or is_traced() or is_watched(scores):
            return masked_softmax(scores, mask)
        return masked_softmax_(scores, mask)  # these scores are not shared

    def scores(self, index: Rows) -> tuple[Tensor, Tensor | None]:
        """Return the scores that the softmax is taken of, and the mask of its positions."""
        whole = isinstance(index, slice) and index == slice(None)
        query, key = self.query if whole else self.query[..., index, :], self.key
        if self.grouped:
            batch, heads, rows, size = query.shape
            grouped = query.reshape(batch, key.shape[1], heads // key.shape[1] * rows, size)  # heads become more rows
            scores = scaled_products(grouped, key, self.scale)
            scores = scores.reshape(scores.shape[0], heads, rows, key.shape[-2])
        else:
            scores = scaled_products(query, key, self.scale)
        if self.score_cap is not None:
            scores = capped(scores, self.score_cap)
        mask = None if self.mask is None else take_rows(self.mask, index)
        if self.bias is not None:
            scores = scores + take_rows(self.bias, index)
            finite = scores != -torch.inf  # a bias of -inf closes a position, as a mask does
            mask = finite if mask is None else mask & finite
        if self.slopes is None and self.window is None:
            return scores, mask
        numbers = torch.arange(self.query.shape[-2], device=query.device)[index]
        offset = key.shape[-2] - self.query.shape[-2] if self.offset is None else self.offset
        if self.slopes is not None:
            distance = (numbers.unsqueeze(-1) + offset - torch.arange(key.shape[-2], device=query.device)).abs()
            scores = scores - (self.slopes.unsqueeze(-1).unsqueeze(-1) * distance).to(scores.dtype)
        if self.window is not None:
            near = within(numbers, key.shape[-2], *self.window, offset=offset)
            near = near.reshape((1,) * (scores.dim() - 2) + near.shape)
            mask = near if mask is None else mask & near
        return scores, mask

    def entropy(self, index: Rows) -> Tensor:
        if self.sink is not None or self.lse is not None:
            return super().entropy(index)
        scores, mask = self.scores(index)
        return (
            entropy_of_weights(masked_softmax(scores, mask))
            if scores.requires_grad
            else entropy_of_scores(scores, mask)
        )

    def heads(self, index: int | slice | Tensor) -> DotSoftmax:
        key = self.key
        if self.grouped:
            key = key.repeat_interleave(self.query.shape[1] // key.shape[1], dim=1)
        return replace(
            self,
            query=take_heads(self.query, index),
            key=take_heads(key, index),
            mask=None if self.mask is None else take_heads(self.mask, index),
            bias=None if self.bias is None else take_heads(self.bias, index),
            slopes=None if self.slopes is None else self.slopes[index],
            sink=None if self.sink is None else self.sink[index],
            lse=None if self.lse is None else take_heads(self.lse, index),
            versions=None,  # of the tensors just made
        )


@exportable
@dataclass(eq=False)
class Windowed(ByWeights):
    """Weights of a few adjacent positions per query: ``weights (…, L, W)``, the first one at ``start (…, L)``."""

    parts = ("weights", "start")
    held = "windows"
    weights: Tensor
    start: Tensor
    size: int

    @property
    def shape(self) -> torch.Size:
        return torch.Size((*self.weights.shape[:-1], self.size))

    def rows(self, index: Rows) -> Tensor:
        weights, positions = self._window(index)
        dense = weights.new_zeros(*weights.shape[:-1], self.size)
        return dense.scatter_add(-1, positions, weights) if self.size else dense

    def largest(self, index: Rows, k: int) -> tuple[Tensor, Tensor]:
        # A window at least k wide, moved inside the row, holds every position with a weight.
        weights, start = self.weights[..., index, :], self.start[..., index].unsqueeze(-1)
        width = min(max(weights.shape[-1], k), self.size)
        first = start.clamp(0, self.size - width)
        place = first - start + torch.arange(width, device=self.device)
        held = (place >= 0) & (place < weights.shape[-1])
        moved = weights.gather(-1, place.clamp(0, weights.shape[-1] - 1)).masked_fill(~held, 0.0)
        values, indices = largest_weights(moved, k)
        return values, indices + first

    def entropy(self, index: Rows) -> Tensor:
        return entropy_of_weights(self._window(index)[0])

    def mass(self, index: Rows, chosen: Tensor) -> Tensor:
        weights, positions = self._window(index)
        if self.size == 0:
            return weights.new_zeros(*weights.shape[:-1], 1)
        here = chosen.expand(*weights.shape[:-1], self.size).gather(-1, positions)
        return (weights * here).sum(dim=-1, keepdim=True)

    def _window(self, index: Rows) -> tuple[Tensor, Tensor]:
        """Return the weights of these rows, 0 for positions outside the row, and the positions, clamped to the row."""
        weights = self.weights[..., index, :]
        positions = self.start[..., index].unsqueeze(-1) + torch.arange(weights.shape[-1], device=weights.device)
        outside = (positions < 0) | (positions >= self.size)
        return weights.masked_fill(outside, 0.0), positions.clamp(0, max(self.size - 1, 0))

    def entries(self, index: slice) -> Windowed:
        return Windowed(self.weights[index], self.start[index], self.size)

    def heads(self, index: int | slice | Tensor) -> Windowed:
        return Windowed(self.weights[:, index], self.start[:, index], self.size)


@exportable
@dataclass(eq=False)
class MeanHeads(ByWeights):
    """The mean over axis 1 of another source."""

    of: Source

    @property
    def shape(self) -> torch.Size:
        batch, _, *rest = self.of.shape
        return torch.Size((batch, *rest))

    def rows(self, index: Rows) -> Tensor:
        return self.of.rows(index).mean(dim=1)

    def heads(self, index: int | slice | Tensor) -> Source:
        raise ShapeError("Weights.heads: these weights are a mean over heads; take heads before the mean.")


def scores_shape(query: Tensor, key: Tensor) -> torch.Size:
    """Return the shape ``(…, L, S)`` of the scores; leading axes broadcast, and the key may have fewer heads."""
    *leading, length, _ = query.shape
    *others, size, _ = key.shape
    if leading != others:
        if has_groups(query, key):
            others[1] = leading[1]
        leading = list(torch.broadcast_shapes(leading, others))
    return torch.Size((*leading, length, size))


def scaled_products(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """Return ``scale · query · keyᵀ``; where both have the same batch and heads, as one product that scales."""
    if is_traced() or query.dim() != 4 or query.shape[:2] != key.shape[:2]:
        return (query * scale) @ key.mT  # a compiler fuses the two
    products = torch.baddbmm(query.new_empty(()), query.flatten(0, 1), key.flatten(0, 1).mT, beta=0.0, alpha=scale)
    return products.view(*query.shape[:3], key.shape[2])


def capped(scores: Tensor, cap: float) -> Tensor:
    """Return the scores kept between −cap and cap by a tanh."""
    return cap * torch.tanh(scores / cap)


def has_groups(query: Tensor, key: Tensor) -> bool:
    """Return whether several heads of the query share one of the key."""
    return query.dim() == 4 and 1 < key.shape[1] < query.shape[1]


def take_rows(tensor: Tensor, index: Rows) -> Tensor:
    """Return rows of the second last axis, where size 1 broadcasts."""
    return tensor if tensor.shape[-2] == 1 else tensor[..., index, :]


def take_heads(tensor: Tensor, index: int | slice | Tensor) -> Tensor:
    """Return heads of axis 1, where size 1 broadcasts."""
    if tensor.shape[1] != 1:
        return tensor[:, index]
    return tensor[:, 0] if isinstance(index, int) else tensor
