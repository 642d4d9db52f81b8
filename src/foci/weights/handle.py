"""`Weights`, the handle on exact attention weights.

A fused kernel does not return its weights, and L×S numbers are mostly too many to keep. So a mechanism returns
a handle that holds what the weights are computed from (projected query and key, mask, bias), and computes
them on request, exactly, a few rows at a time, within a fixed budget of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten
from torch.utils.checkpoint import checkpoint

from foci import torch_private
from foci.checks import check_mask
from foci.errors import ConfigError, ShapeError
from foci.tracing import exportable
from foci.weights.chunks import Piece, RecomputedPieces, Reduce, reduce_pieces
from foci.weights.copies import Copied
from foci.weights.indexing import Place, take
from foci.weights.sources import Dense, DotSoftmax, MeanHeads, Source, scores_shape, take_heads, take_rows

_CHUNK = 1 << 19
"""How many weights are computed at a time: 2 MB in float32, small enough to stay in a processor's cache."""


@exportable
@dataclass(eq=False)
class Weights(Copied):
    """A handle on exact attention weights; nothing of size L×S is computed before it is requested.

    It is indexed as a tensor is, by whole numbers and slices, and copied, pickled and saved; `dense` gives all weights.

    Args:
        source: what the weights are computed from.
        log_prob: for sampled (hard) attention, the log-probability of what was sampled, ``(…, L)``.
        drawn_from: for sampled attention, what `probabilities` are computed from.
        start: with a sliding cache, whose slots are the columns, the position of the first one in each row of the batch
            ``(B,)``; below 0 where the first slots hold none.

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
    drawn_from: Source | None = None
    start: Tensor | None = None

    @staticmethod
    def from_tensor(weights: Tensor, log_prob: Tensor | None = None, probabilities: Tensor | None = None) -> Weights:
        """Return a handle on weights that were already computed, and on what they were sampled from."""
        return Weights(Dense(weights), log_prob, None if probabilities is None else Dense(probabilities))

    @staticmethod
    def from_lse(
        query: Float[Tensor, "... L K"],
        key: Float[Tensor, "... S K"],
        lse: Float[Tensor, "... L"],
        *,
        scale: float | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = False,
    ) -> Weights:
        """Return the handle on the weights of a kernel that returns its log-sum-exp: exp(scale · query · keyᵀ − lse).

        Args:
            query: the queries, with heads before positions.
            key: the keys, likewise; with fewer heads, each is shared by several of the queries.
            lse: the natural logarithm of the sum of the exponentials of each row's scores.
            scale: factor of the products. Default: 1 / sqrt(K).
            mask: which positions the kernel read.
            causal: whether it read up to each query's own position, the last query's being the last key.

        Raises:
            ShapeError: if the sizes do not fit.
            ConfigError: if a row would sum to more than 1, so that the numbers are of another call, scale or mask.
        """
        shape = scores_shape(query, key)
        if lse.shape != shape[:-1]:
            raise ShapeError(
                f"Weights.from_lse: lse has shape {tuple(lse.shape)}, expected {tuple(shape[:-1])}: one number for "
                "each row of weights. Kernels with positions before heads: query.transpose(1, 2), key.transpose(1, 2)."
            )
        mask = None if mask is None else check_mask("Weights.from_lse", mask, shape, query.device)
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        weights = Weights(DotSoftmax(query, key, scale, mask, window=(None, 0) if causal else None, lse=lse))
        if shape.numel() and not torch_private.is_transformed() and not torch.compiler.is_compiling():
            most = float(weights.rows(shape[-2] - 1).detach().sum(-1).max())
            if not most < 1.01:
                raise ConfigError(
                    f"Weights.from_lse: a row sums to {most:.4g}, expected at most 1. The lse is that of another "
                    "scale, mask or call, or its logarithm is not the natural one."
                )
        return weights

    @property
    def shape(self) -> torch.Size:
        """``(…, L, S)``: the shape of `dense`."""
        return self.source.shape

    @property
    def probabilities(self) -> Weights:
        """The handle on the probabilities by which positions were sampled; of any other attention, its weights."""
        return self if self.drawn_from is None else Weights(self.drawn_from)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.source.dtype

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.source.device

    def __repr__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        held = self.source.held + ("" if self.drawn_from is None else ", sampled")
        return f"Weights(shape={tuple(self.shape)}, dtype={dtype}, device={self.device}, held={held!r})"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Show itself in a notebook: as a heat map, with text where that cannot be shown."""
        from foci.viz.page.notebook import of_handle

        return of_handle(self, include, exclude)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Place | tuple[Place, ...]) -> Tensor:
        """Return ``dense()[index]``, computing these entries, heads and rows only."""
        self.source.check_unchanged()
        return take(self.source, index)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[number] for number in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all weights, on the CPU and out of the graph; NumPy has no bfloat16, which becomes float32."""
        if copy is False:
            raise ValueError("Weights: an array of a handle's weights is always a copy. Use np.asarray(weights).")
        weights = self.dense().detach().cpu()
        array = (weights.float() if weights.dtype == torch.bfloat16 else weights).numpy()
        return np.array(array, dtype)

    def __float__(self) -> float:
        if self.shape.numel() != 1:
            raise ShapeError(f"Weights: float of {self.shape.numel()} weights, expected 1: float(weights[0, 0, 0]).")
        return float(self.dense())

    if not TYPE_CHECKING:  # type checkers know that there are no other attributes

        def __getattr__(self, name: str) -> NoReturn:
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if hasattr(Tensor, name) and not name.startswith("_"):
                message += f": it is a handle on weights. Compute them first: weights.dense().{name}"
            raise AttributeError(message, name=name, obj=self)

        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
            raise _no_tensor(f"{getattr(function, '__name__', function)} got")

    def detach(self) -> Weights:
        """Return the handle without the graph."""
        return self._with_tensors(Tensor.detach)

    def to(self, device: torch.device | str | int) -> Weights:
        """Return the handle on another device."""
        if not isinstance(device, torch.device | str | int):
            raise ConfigError(
                f"Weights.to: device is a {type(device).__name__}, expected a device. Use weights.dense().to(…)."
            )
        return self._with_tensors(lambda tensor: tensor.to(device))

    def cpu(self) -> Weights:
        """Return the handle on the CPU."""
        return self.to("cpu")

    def dense(self) -> Float[Tensor, "..."]:
        """Return all weights as one tensor."""
        source = self.source
        source.check_unchanged()
        if isinstance(source, Dense):
            return source.weights
        # The mean over heads is computed in pieces, since the weights of all heads are several times as large. Pieces
        # would fix the sizes of a trace.
        if not isinstance(source, MeanHeads) or torch.compiler.is_compiling() or self._is_differentiated():
            return source.rows(slice(None))
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
        """Return the ``k`` largest weights of each row, largest first, and their positions."""
        if not 0 <= k <= self.shape[-1]:
            raise ConfigError(f"Weights.topk: k is {k}, expected 0 to {self.shape[-1]} (the number of positions).")
        values, indices = self._by_pieces(lambda source, piece: source.largest(piece[1], k))
        return values, indices

    def argmax(self) -> Int[Tensor, "..."]:
        """Return the position of each row's largest weight, the first of equal ones; 0 where nothing is read."""
        if self.shape[-1] == 0:
            return torch.zeros(self.shape[:-1], dtype=torch.long, device=self.source.device)
        weights, positions = self._by_pieces(lambda source, piece: source.largest(piece[1], 1))
        return positions.masked_fill(weights == 0.0, 0).squeeze(-1)

    def entropy(self) -> Float[Tensor, "..."]:
        """Return the entropy of each row in nats: 0 if it attends to one position only, log S if to all equally.

        Of sampled attention it is that of the `probabilities`.
        """
        (entropy,) = self.probabilities._by_pieces(lambda source, piece: (source.entropy(piece[1]),))
        return entropy.squeeze(-1)

    def mass(self, mask: Bool[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return how much of each row's weight falls on the positions where ``mask`` (as in `foci.masks`) is True."""
        chosen = check_mask("Weights.mass", mask, self.shape, self.source.device)

        def on_chosen(source: Source, piece: Piece) -> tuple[Tensor]:
            heads, rows = piece
            here = take_rows(chosen if heads == slice(None) else take_heads(chosen, heads), rows)
            return (source.mass(rows, here),)

        (mass,) = self._by_pieces(on_chosen)
        return mass.squeeze(-1)

    def column_sums(self) -> Float[Tensor, "... S"]:
        """Return how much each position is read by all queries together: ``dense().sum(-2)``."""
        self.source.check_unchanged()
        if torch.compiler.is_compiling() or torch_private.is_transformed():
            return self.source.rows(slice(None)).sum(dim=-2)
        total = self.source.rows(slice(0, 0)).sum(dim=-2)
        for _, rows in self._pieces(by_head=False):
            if self._is_differentiated():  # otherwise autograd would keep all pieces
                total = total + checkpoint(self._sum_rows, rows, use_reentrant=False)
            else:
                total = total + self._sum_rows(rows)
        return total

    def _sum_rows(self, rows: slice) -> Tensor:
        return self.source.rows(rows).sum(dim=-2)

    def heads(self, index: int | slice | Int[Tensor, "..."]) -> Weights:
        """Return the handle ``(B, L, S)`` of one head, or ``(B, n, L, S)`` of several."""
        self._need_heads("heads")
        self.source.check_unchanged()
        if isinstance(index, Tensor) and index.dim() == 0:
            index = int(index)
        log_prob = None if self.log_prob is None else self.log_prob[:, index]
        drawn_from = None if self.drawn_from is None else self.drawn_from.heads(index)
        return Weights(self.source.heads(index), log_prob, drawn_from, self.start)

    def mean_heads(self) -> Weights:
        """Return the handle ``(B, L, S)`` of the mean over heads."""
        self._need_heads("mean_heads")
        drawn_from = None if self.drawn_from is None else MeanHeads(self.drawn_from)
        return Weights(MeanHeads(self.source), None, drawn_from, self.start)

    def check_unchanged(self) -> None:
        """Raise `StaleWeightsError` if a tensor that the weights are computed from was changed in place."""
        for part in self._parts():
            part.check_unchanged()

    def renew_versions(self) -> None:
        """Record the current state of the tensors as the unchanged one."""
        for part in self._parts():
            part.renew_versions()

    def _parts(self) -> list[Copied]:
        return [part for part in vars(self).values() if isinstance(part, Copied)]

    def _with_tensors(self, function: Callable[[Tensor], Tensor]) -> Weights:
        self.check_unchanged()
        found: Weights = tree_map_only(Tensor, function, self)
        found.renew_versions()
        return found

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
        # The number of pieces would fix the sizes of a trace, and transforms cannot map an autograd function.
        if torch.compiler.is_compiling() or torch_private.is_transformed():
            return reduce(self.source, (slice(None), slice(None)))
        self.source.check_unchanged()
        if self._is_differentiated():
            leaves, structure = tree_flatten(self.source)
            pieces = self._pieces(by_head=False)  # the gradient of each piece is as large as query and key
            outputs: tuple[Tensor, ...] = RecomputedPieces.apply(reduce, pieces, structure, *leaves)  # type: ignore[no-untyped-call]
            return outputs
        source = self.source
        # A product of more rows of fewer heads is faster.
        by_head = isinstance(source, DotSoftmax) and len(source.shape) == 4 and not source.grouped
        return reduce_pieces(source, reduce, self._pieces(by_head and source.shape.numel() > _CHUNK))


def _no_tensor(what: str) -> ShapeError:
    return ShapeError(f"Weights: {what} a handle on weights, expected a tensor. Compute them first: weights.dense().")


def _operator(symbol: str) -> Callable[..., NoReturn]:
    def operator(weights: Weights, *others: object) -> NoReturn:
        raise _no_tensor(f"{symbol} got")

    return operator


for _symbol, _names in {
    "+": "add radd",
    "-": "sub rsub neg",
    "*": "mul rmul",
    "/": "truediv rtruediv",
    "@": "matmul rmatmul",
    "**": "pow rpow",
    ">": "gt",
    ">=": "ge",
    "<": "lt",
    "<=": "le",
}.items():
    for _name in _names.split():
        setattr(Weights, f"__{_name}__", _operator(_symbol))


def independent(weights: Weights, inputs: object) -> Weights:
    """Return the handle with copies of those of its tensors that share memory with a tensor in ``inputs``.

    The handle stays valid if the caller changes ``inputs`` in place afterwards. Copies are part of the graph.
    """
    shared = {_storage(leaf) for leaf in tree_flatten(inputs)[0] if isinstance(leaf, Tensor)} - {None}
    leaves, structure = tree_flatten(weights)
    copies = [leaf.clone() if isinstance(leaf, Tensor) and _storage(leaf) in shared else leaf for leaf in leaves]
    if all(copy is leaf for copy, leaf in zip(copies, leaves)):
        return weights
    copied: Weights = tree_unflatten(copies, structure)
    copied.renew_versions()
    return copied


def _storage(tensor: Tensor) -> int | None:
    """Return the address of the tensor's memory; None where it has none of its own (meta, nested, other layouts)."""
    while torch_private.level_of(tensor) is not None:  # inside of a transform of torch.func
        tensor, _ = torch_private.without_transform(tensor)
    if tensor.layout != torch.strided or tensor.device.type == "meta" or tensor.is_nested:
        return None
    return tensor.untyped_storage().data_ptr() or None
