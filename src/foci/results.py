"""What every mechanism returns: `Attended`, `Matched`, and `Weights`, the handle on exact weights.

A fused kernel never shows its weights, and L×S numbers are mostly too many to keep. So a mechanism returns
a handle that holds what the weights are computed from (projected query and key, mask, bias), and computes
them when asked, exactly, and only as many rows at a time as fit a small budget of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.export import register_dataclass
from torch.utils._pytree import TreeSpec, _register_namedtuple, tree_flatten, tree_unflatten

from foci.errors import ConfigError, ShapeError, StaleWeightsError, check_mask
from foci.masks import masked_softmax, within

Kind = TypeVar("Kind")

Rows = slice | Tensor
"""Which query rows: a slice, or whole numbers of shape ``(n,)``."""

Piece = tuple[slice, slice]
"""Some heads (all of them where there is no such axis) and some rows."""

Reduce = Callable[["Source", Piece], tuple[Tensor, ...]]
"""What is kept of these rows, tensors ``(…, rows, n)``, of a source that has the piece's heads only."""

_CHUNK = 1 << 19
"""How many weights are computed at a time: 2 MB in float32, small enough to stay in a processor's cache."""

_GROUPS = 512
"""In how many groups `_largest` looks at a long row."""


@runtime_checkable
class Source(Protocol):
    """What a `Weights` handle computes its weights from."""

    @property
    def shape(self) -> torch.Size: ...

    @property
    def device(self) -> torch.device: ...

    def rows(self, index: Rows) -> Tensor:
        """The weights of these rows of the second last axis, ``(…, rows, S)``."""
        ...

    def heads(self, index: int | slice | Tensor) -> Source:
        """The same, for some heads only (axis 1)."""
        ...

    def largest(self, index: Rows, k: int) -> tuple[Tensor, Tensor]:
        """The k largest weights of these rows and their cells, ``(…, rows, k)``."""
        ...

    def entropy(self, index: Rows) -> Tensor:
        """The entropy of these rows, ``(…, rows, 1)``."""
        ...

    def mass(self, index: Rows, chosen: Tensor) -> Tensor:
        """What these rows read of the cells that are ``chosen`` for them, ``(…, rows, 1)``."""
        ...

    def check_unchanged(self) -> None:
        """Raise `StaleWeightsError` if a tensor that the weights are computed from was changed in place."""
        ...

    @property
    def requires_grad(self) -> bool:
        """Whether a tensor that the weights are computed from requires a gradient."""
        ...


@dataclass(eq=False)
class ByWeights:
    """What all sources share: reductions by weights, and the check that their tensors are as they were.

    A source refers to tensors that may belong to the caller. ``versions`` are torch's counters of in-place changes at
    the time the source was made, one per name in ``parts``; -1 where there is no tensor or torch keeps no count. Inside
    a trace there are no counters (None): there `attend_dots` copies what belongs to the caller.
    """

    parts: ClassVar[tuple[str, ...]] = ()
    versions: tuple[int, ...] | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if self.versions is None and not torch.compiler.is_compiling():
            self.versions = tuple(_version(getattr(self, part)) for part in self.parts)

    @property
    def requires_grad(self) -> bool:
        tensors = (getattr(self, part) for part in self.parts)
        return any(tensor is not None and tensor.requires_grad for tensor in tensors)

    def check_unchanged(self) -> None:
        if self.versions is None or torch.compiler.is_compiling():
            return
        for part, version in zip(self.parts, self.versions):
            if version != -1 and getattr(self, part)._version != version:
                raise StaleWeightsError(
                    f"Weights: the {part} that these weights are computed from was changed in place after the "
                    "attention, expected it unchanged. Ask for the weights before the change, or change a copy "
                    "(x = x + output instead of x += output). foci.record keeps copies of a module's inputs."
                )

    def largest(self: Source, index: Rows, k: int) -> tuple[Tensor, Tensor]:
        return _largest(self.rows(index), k)

    def entropy(self: Source, index: Rows) -> Tensor:
        return _entropy(self.rows(index))

    def mass(self: Source, index: Rows, chosen: Tensor) -> Tensor:
        return (self.rows(index) * chosen).sum(dim=-1, keepdim=True)


@dataclass(eq=False)
class Dense(ByWeights):
    """Weights that were computed anyway."""

    parts = ("weights",)
    weights: Tensor

    @property
    def device(self) -> torch.device:
        return self.weights.device

    @property
    def shape(self) -> torch.Size:
        return self.weights.shape

    def rows(self, index: Rows) -> Tensor:
        return self.weights[..., index, :]

    def heads(self, index: int | slice | Tensor) -> Dense:
        return Dense(self.weights[:, index])


@dataclass(eq=False)
class DotSoftmax(ByWeights):
    """softmax(scale · query · keyᵀ + bias) over the cells that mask and window leave: what a fused kernel computes.

    Leading axes broadcast. With grouped heads the key has fewer heads than the query, and each serves
    several in turn. ``window`` is ``(left, right)`` as in `foci.masks.window`; query 0's own key is ``offset``,
    by default S − L, so that the last query's own key is the last. ``slopes``, one a head, add ALiBi's
    −slope · |distance| to the scores.
    """

    parts = ("query", "key", "mask", "bias", "slopes")
    query: Tensor
    key: Tensor
    scale: float
    mask: Tensor | None = None
    bias: Tensor | None = None
    window: tuple[int | None, int | None] | None = None
    offset: int | None = None
    slopes: Tensor | None = None

    @property
    def device(self) -> torch.device:
        return self.query.device

    @property
    def shape(self) -> torch.Size:
        return scores_shape(self.query, self.key)

    @property
    def grouped(self) -> bool:
        """Whether several heads of the query share one of the key."""
        return has_groups(self.query, self.key)

    def rows(self, index: Rows) -> Tensor:
        return masked_softmax(*self.scores(index))

    def scores(self, index: Rows) -> tuple[Tensor, Tensor | None]:
        """What the softmax is taken of, and over which cells."""
        query, key = self.query[..., index, :], self.key
        if self.grouped:
            batch, heads, rows, size = query.shape
            grouped = query.reshape(batch, key.shape[1], heads // key.shape[1] * rows, size)  # heads become more rows
            scores = grouped @ key.mT * self.scale
            scores = scores.reshape(scores.shape[0], heads, rows, key.shape[-2])
        else:
            scores = (query * self.scale) @ key.mT
        mask = None if self.mask is None else _take_rows(self.mask, index)
        if self.bias is not None:
            scores = scores + _take_rows(self.bias, index)
            finite = scores != -torch.inf  # a bias of -inf closes a cell, as a mask does
            mask = finite if mask is None else mask & finite
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
        scores, mask = self.scores(index)
        return _entropy(masked_softmax(scores, mask)) if scores.requires_grad else _entropy_of_scores(scores, mask)

    def heads(self, index: int | slice | Tensor) -> DotSoftmax:
        key = self.key
        if self.grouped:
            key = key.repeat_interleave(self.query.shape[1] // key.shape[1], dim=1)
        return replace(
            self,
            query=_take_heads(self.query, index),
            key=_take_heads(key, index),
            mask=None if self.mask is None else _take_heads(self.mask, index),
            bias=None if self.bias is None else _take_heads(self.bias, index),
            slopes=None if self.slopes is None else self.slopes[index],
            versions=None,  # of the tensors just made
        )


@dataclass(eq=False)
class Windowed(ByWeights):
    """Weights of a few neighbouring cells a query: ``weights (…, L, W)`` of the cells from ``start (…, L)`` on."""

    parts = ("weights", "start")
    weights: Tensor
    start: Tensor
    size: int

    @property
    def device(self) -> torch.device:
        return self.weights.device

    @property
    def shape(self) -> torch.Size:
        return torch.Size((*self.weights.shape[:-1], self.size))

    def rows(self, index: Rows) -> Tensor:
        weights, cells = self._window(index)
        dense = weights.new_zeros(*weights.shape[:-1], self.size)
        return dense.scatter_add(-1, cells, weights) if self.size else dense

    def largest(self, index: Rows, k: int) -> tuple[Tensor, Tensor]:
        # A window as wide as k at least, moved until it lies inside, holds every cell with a weight.
        weights, start = self.weights[..., index, :], self.start[..., index].unsqueeze(-1)
        width = min(max(weights.shape[-1], k), self.size)
        first = start.clamp(0, self.size - width)
        place = first - start + torch.arange(width, device=self.device)
        held = (place >= 0) & (place < weights.shape[-1])
        moved = weights.gather(-1, place.clamp(0, weights.shape[-1] - 1)).masked_fill(~held, 0.0)
        values, indices = _largest(moved, k)
        return values, indices + first

    def entropy(self, index: Rows) -> Tensor:
        return _entropy(self._window(index)[0])

    def mass(self, index: Rows, chosen: Tensor) -> Tensor:
        weights, cells = self._window(index)
        if self.size == 0:
            return weights.new_zeros(*weights.shape[:-1], 1)
        here = chosen.expand(*weights.shape[:-1], self.size).gather(-1, cells)
        return (weights * here).sum(dim=-1, keepdim=True)

    def _window(self, index: Rows) -> tuple[Tensor, Tensor]:
        """The weights of these rows, 0 for cells beyond the ends, and the cells, moved to the ends."""
        weights = self.weights[..., index, :]
        cells = self.start[..., index].unsqueeze(-1) + torch.arange(weights.shape[-1], device=weights.device)
        outside = (cells < 0) | (cells >= self.size)
        return weights.masked_fill(outside, 0.0), cells.clamp(0, max(self.size - 1, 0))

    def heads(self, index: int | slice | Tensor) -> Windowed:
        return Windowed(self.weights[:, index], self.start[:, index], self.size)


@dataclass(eq=False)
class MeanHeads(ByWeights):
    """The mean over axis 1 of another source."""

    of: Source

    @property
    def device(self) -> torch.device:
        return self.of.device

    @property
    def shape(self) -> torch.Size:
        batch, _, *rest = self.of.shape
        return torch.Size((batch, *rest))

    def check_unchanged(self) -> None:
        self.of.check_unchanged()

    @property
    def requires_grad(self) -> bool:
        return self.of.requires_grad

    def rows(self, index: Rows) -> Tensor:
        return self.of.rows(index).mean(dim=1)

    def heads(self, index: int | slice | Tensor) -> Source:
        raise ShapeError("Weights.heads: these weights are a mean over heads; take heads before the mean.")


@dataclass(eq=False)
class Weights:
    """A handle on exact attention weights; nothing of size L×S is computed until it is asked for.

    Arguments:
        source: what the weights are computed from.
        log_prob: for sampled (hard) attention, the log-probability of what was sampled, ``(…, L)``.

    Example:
        >>> import torch, foci
        >>> query, key = torch.ones(1, 2, 3), torch.zeros(1, 4, 3)
        >>> weights = foci.attend(query, key, key).weights
        >>> weights.shape
        torch.Size([1, 2, 4])
        >>> weights.rows(0)
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """

    source: Source
    log_prob: Tensor | None = None

    @staticmethod
    def of(weights: Tensor, log_prob: Tensor | None = None) -> Weights:
        """A handle on weights that are there already."""
        return Weights(Dense(weights), log_prob)

    @property
    def shape(self) -> torch.Size:
        """``(…, L, S)``: the shape of `dense`."""
        return self.source.shape

    def __repr__(self) -> str:
        return f"Weights(shape={tuple(self.shape)}, from={type(self.source).__name__})"

    def dense(self) -> Float[Tensor, "..."]:
        """All weights as one tensor."""
        self.source.check_unchanged()
        whole = isinstance(self.source, Dense) or torch.compiler.is_compiling()  # pieces would fix the sizes of a trace
        if whole or self.shape.numel() <= _CHUNK or self._is_differentiated():
            return self.source.rows(slice(None))
        # Written piece by piece, scores and softmax stay in the processor's cache.
        (weights,) = self._by_pieces(lambda source, piece: (source.rows(piece[1]),))
        return weights

    def rows(self, index: int | slice | Sequence[int] | Int[Tensor, " n"]) -> Float[Tensor, "..."]:
        """``dense()[..., index, :]``, computing those rows only."""
        self.source.check_unchanged()
        if isinstance(index, slice):
            return self.source.rows(index)
        numbers = torch.as_tensor(index, device=self.source.device)
        if numbers.numel() == 0:
            numbers = numbers.long()  # torch reads an empty list as float32
        if numbers.dim() == 0:
            return self.source.rows(numbers.unsqueeze(0)).squeeze(-2)
        return self.source.rows(numbers)

    def topk(self, k: int) -> tuple[Float[Tensor, "... k"], Int[Tensor, "... k"]]:
        """The ``k`` largest weights of each row, largest first, and the cells they belong to."""
        if not 0 <= k <= self.shape[-1]:
            raise ConfigError(f"Weights.topk: k is {k}, expected 0 to {self.shape[-1]} (the number of cells).")
        values, indices = self._by_pieces(lambda source, piece: source.largest(piece[1], k))
        return values, indices

    def argmax(self) -> Int[Tensor, "..."]:
        """The cell each row reads most of, the first of equal ones; cell 0 where nothing is read."""
        if self.shape[-1] == 0:
            return torch.zeros(self.shape[:-1], dtype=torch.long, device=self.source.device)
        weights, cells = self._by_pieces(lambda source, piece: source.largest(piece[1], 1))
        return cells.masked_fill(weights == 0.0, 0).squeeze(-1)

    def entropy(self) -> Float[Tensor, "..."]:
        """The entropy of each row in nats: 0 when it reads one cell only, log S when it reads all alike."""
        (entropy,) = self._by_pieces(lambda source, piece: (source.entropy(piece[1]),))
        return entropy.squeeze(-1)

    def mass(self, mask: Bool[Tensor, "..."]) -> Float[Tensor, "..."]:
        """How much of each row's weight falls on the cells where ``mask`` (as in `foci.masks`) is True."""
        chosen = check_mask("Weights.mass", mask, self.shape, self.source.device)

        def on_chosen(source: Source, piece: Piece) -> tuple[Tensor]:
            heads, rows = piece
            here = _take_rows(chosen if heads == slice(None) else _take_heads(chosen, heads), rows)
            return (source.mass(rows, here),)

        (mass,) = self._by_pieces(on_chosen)
        return mass.squeeze(-1)

    def heads(self, index: int | slice | Int[Tensor, " n"]) -> Weights:
        """The handle ``(B, L, S)`` of one head, or ``(B, n, L, S)`` of several."""
        self._need_heads("heads")
        self.source.check_unchanged()
        if isinstance(index, Tensor) and index.dim() == 0:
            index = int(index)
        log_prob = None if self.log_prob is None else self.log_prob[:, index]
        return Weights(self.source.heads(index), log_prob)

    def mean_heads(self) -> Weights:
        """The handle ``(B, L, S)`` of the mean over heads."""
        self._need_heads("mean_heads")
        return Weights(MeanHeads(self.source))

    def _need_heads(self, method: str) -> None:
        if len(self.shape) != 4:
            raise ShapeError(
                f"Weights.{method}: the weights have shape {tuple(self.shape)}, expected (batch, head, query, key). "
                "Only mechanisms with heads have a head axis."
            )

    def _is_differentiated(self) -> bool:
        return torch.is_grad_enabled() and self.source.requires_grad

    def _pieces(self, by_head: bool) -> list[Piece]:
        whole = self.source.of if isinstance(self.source, MeanHeads) else self.source
        length, heads = whole.shape[-2], whole.shape[1] if by_head else 1
        a_row = whole.shape.numel() // max(length * heads, 1)
        step = max(1, _CHUNK // max(a_row, 1))
        rows = [slice(start, start + step) for start in range(0, length, step)] or [slice(0, 0)]
        return [(slice(h, h + 1) if by_head else slice(None), some) for h in range(heads) for some in rows]

    def _by_pieces(self, reduce: Reduce) -> tuple[Tensor, ...]:
        if torch.compiler.is_compiling():  # the number of pieces would fix the sizes of a trace
            return reduce(self.source, (slice(None), slice(None)))
        self.source.check_unchanged()
        if self._is_differentiated():
            leaves, structure = tree_flatten(self.source)
            pieces = self._pieces(by_head=False)  # the gradient of each piece is as large as query and key
            outputs: tuple[Tensor, ...] = _Recomputed.apply(reduce, pieces, structure, *leaves)  # type: ignore[no-untyped-call]
            return outputs
        source = self.source
        # A product of more rows of fewer heads is the faster one.
        by_head = isinstance(source, DotSoftmax) and len(source.shape) == 4 and not source.grouped
        return _reduce_pieces(source, reduce, self._pieces(by_head and source.shape.numel() > _CHUNK))


def _reduce_pieces(source: Source, reduce: Reduce, pieces: list[Piece]) -> tuple[Tensor, ...]:
    # Room for the results is made first: made piece by piece, they would lie in the holes that pieces leave in memory,
    # and every new piece would have to go to a new place.
    outputs: tuple[Tensor, ...] = ()
    for heads, rows in pieces:
        whole = heads == slice(None)
        parts = reduce(source if whole else source.heads(heads), (heads, rows))
        if not outputs:
            leading = source.shape[:-2] if not whole else parts[0].shape[:-2]
            outputs = tuple(part.new_empty(*leading, source.shape[-2], part.shape[-1]) for part in parts)
        for output, part in zip(outputs, parts):
            (output if whole else output[:, heads])[..., rows, :] = part
    return outputs


class _Recomputed(torch.autograd.Function):
    """Piece by piece, again in the backward pass: otherwise autograd would keep every piece, L×S in all."""

    @staticmethod
    def forward(ctx: Any, reduce: Reduce, pieces: list[Piece], structure: TreeSpec, *leaves: Any) -> Any:
        ctx.reduce, ctx.pieces, ctx.structure = reduce, pieces, structure
        ctx.others = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        ctx.places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        ctx.save_for_backward(*(leaves[place] for place in ctx.places))
        outputs = _reduce_pieces(tree_unflatten(leaves, structure), reduce, pieces)
        ctx.mark_non_differentiable(*(output for output in outputs if not output.is_floating_point()))
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        leaves: list[Any] = list(ctx.others)
        for place, tensor in zip(ctx.places, ctx.saved_tensors):
            leaves[place] = tensor.detach().requires_grad_(ctx.needs_input_grad[3 + place])
        wanted = [place for place in ctx.places if leaves[place].requires_grad]
        totals: list[Tensor | None] = [None] * len(leaves)
        for piece in ctx.pieces:
            with torch.enable_grad():
                parts = ctx.reduce(tree_unflatten(leaves, ctx.structure), piece)
            pairs = [(part, grad[..., piece[1], :]) for part, grad in zip(parts, grads) if part.requires_grad]
            found = torch.autograd.grad(
                [part for part, _ in pairs],
                [leaves[place] for place in wanted],
                [grad for _, grad in pairs],
                allow_unused=True,
            )
            for place, grad in zip(wanted, found):
                total = totals[place]
                if grad is not None:
                    totals[place] = grad if total is None else total.add_(grad)
        return (None, None, None, *totals)


class Attended(NamedTuple):
    """What a mechanism read, the weights it read it with, and the state to pass to its next call."""

    output: Tensor
    weights: Weights
    state: Any = None


class Matched(NamedTuple):
    """What two sequences say of each other.

    ``output (B, D)`` is the pair as one vector; ``weights (B, R, S)`` what each right cell read of the left;
    ``left (B, S)`` and ``right (B, R)``, where the mechanism has them, the share of each cell in the whole.
    """

    output: Tensor
    weights: Weights
    left: Weights | None = None
    right: Weights | None = None


def exportable(kind: type[Kind]) -> type[Kind]:
    """Let `torch.export` pass a dataclass or NamedTuple of tensors through, and save it."""
    name = f"foci.{kind.__name__}"
    if issubclass(kind, tuple):
        _register_namedtuple(kind, serialized_type_name=name)
    else:
        register_dataclass(kind, serialized_type_name=name)
    return kind


_KINDS: tuple[type[Any], ...] = (Dense, DotSoftmax, Windowed, MeanHeads, Weights, Attended, Matched)
for _kind in _KINDS:
    exportable(_kind)


def scores_shape(query: Tensor, key: Tensor) -> torch.Size:
    """Return the shape ``(…, L, S)`` of the scores; leading axes broadcast, and the key may have fewer heads."""
    *leading, length, _ = query.shape
    *others, size, _ = key.shape
    if leading != others:
        if has_groups(query, key):
            others[1] = leading[1]
        leading = list(torch.broadcast_shapes(leading, others))
    return torch.Size((*leading, length, size))


def has_groups(query: Tensor, key: Tensor) -> bool:
    """Return whether several heads of the query share one of the key."""
    return query.dim() == 4 and key.shape[1] not in (1, query.shape[1])


def independent(weights: Weights, inputs: object) -> Weights:
    """Return the handle with copies of those of its tensors that share memory with a tensor in ``inputs``.

    A caller may change ``inputs`` in place afterwards; the handle stays right. Copies are part of the graph.
    """
    shared = {_storage(leaf) for leaf in tree_flatten(inputs)[0] if isinstance(leaf, Tensor)} - {None}
    leaves, structure = tree_flatten(weights)
    copies = [leaf.clone() if isinstance(leaf, Tensor) and _storage(leaf) in shared else leaf for leaf in leaves]
    if all(copy is leaf for copy, leaf in zip(copies, leaves)):
        return weights
    copied: Weights = tree_unflatten(copies, structure)
    if isinstance(copied.source, ByWeights):
        copied.source = replace(copied.source, versions=None)
    return copied


def _storage(tensor: Tensor) -> int | None:
    """The address of the tensor's memory; None where it has none of its own (meta, nested, other layouts)."""
    if tensor.layout != torch.strided or tensor.device.type == "meta" or tensor.is_nested:
        return None
    return tensor.untyped_storage().data_ptr() or None


def _version(tensor: Tensor | None) -> int:
    """Torch's count of in-place changes; -1 without a tensor, and in inference mode, where torch keeps none."""
    return -1 if tensor is None or tensor.is_inference() else tensor._version


def _take_rows(tensor: Tensor, index: Rows) -> Tensor:
    """Rows of the second last axis, where size 1 counts for all."""
    return tensor if tensor.shape[-2] == 1 else tensor[..., index, :]


def _take_heads(tensor: Tensor, index: int | slice | Tensor) -> Tensor:
    """Heads of axis 1, where size 1 counts for all."""
    if tensor.shape[1] != 1:
        return tensor[:, index]
    return tensor[:, 0] if isinstance(index, int) else tensor


def _entropy(weights: Tensor) -> Tensor:
    # The floor keeps log finite at weight 0, where the product and its gradient are 0.
    tiny = torch.finfo(weights.dtype).tiny
    return (weights * -weights.clamp_min(tiny).log()).sum(dim=-1, keepdim=True)


def _entropy_of_scores(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The same with one logarithm a row: −Σ w log w = −log max w − Σ w · (s − max s), two sums that cannot cancel."""
    weights = masked_softmax(scores, mask)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    below = scores - scores.amax(dim=-1, keepdim=True)
    if mask is not None:
        below = below.masked_fill(~mask, 0.0)
    highest = weights.amax(dim=-1, keepdim=True)
    entropy: Tensor = -highest.log() - torch.linalg.vecdot(weights, below).unsqueeze(-1)
    return entropy.masked_fill(highest == 0.0, 0.0)


def _largest(weights: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """torch.topk of the last axis. Of a long row, the k largest lie in the k groups with the largest maxima."""
    size = weights.shape[-1]
    if k == 1:
        return torch.max(weights, dim=-1, keepdim=True)  # the first of equal ones
    if weights.device.type != "cpu" or size < 4 * _GROUPS or 8 * k > _GROUPS:
        return torch.topk(weights, k, dim=-1)
    whole = size - size % _GROUPS
    groups = weights[..., :whole].unflatten(-1, (-1, _GROUPS))
    chosen = groups.amax(dim=-2).topk(k, dim=-1, sorted=False).indices
    firsts = torch.arange(0, whole, _GROUPS, device=weights.device)
    cells = (firsts.unsqueeze(-1) + chosen.unsqueeze(-2)).flatten(-2)
    if whole < size:
        rest = torch.arange(whole, size, device=weights.device)
        cells = torch.cat([cells, rest.expand(*cells.shape[:-1], -1)], dim=-1)
    values, places = weights.gather(-1, cells).topk(k, dim=-1)
    return values, cells.gather(-1, places)
