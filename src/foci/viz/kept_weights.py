"""What a trace keeps of weights: all of them up to a budget, or else the largest of each row.

Beyond the budget a row's other weights are kept as their sum, and its exact entropy beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from foci.errors import ConfigError, DataError, ShapeError
from foci.metrics.attention import row_entropy
from foci.weights import Weights

BUDGET = 1 << 22
"""How many numbers of one attention are kept: 16 MB. 2,000 × 2,000 cells with 8 heads keep the 131 largest per row."""

_UNSEEN = 1e-6
"""So little missing weight is rounding."""
CUT = 1e-3
"""A row that has more weight than this on positions without a label was given too few labels."""
_CHUNK = 1 << 20
"""How many weights are computed at a time."""
_NUMBER = re.compile(r"(?:^|[._])(\d+)(?=$|[._:#])")


class TopWeights(NamedTuple):
    """Of each row of weights the ``k`` largest, largest first, and what is needed of the others."""

    values: NDArray[np.float32]
    """``(H, L, k)``"""
    indices: NDArray[np.int32]
    """The positions they belong to, ``(H, L, k)``."""
    rest: NDArray[np.float32]
    """How much weight the others have together, ``(H, L)``."""
    entropy: NDArray[np.float32]
    """The entropy of the whole rows in nats, ``(H, L)``."""
    size: int
    """The number of all positions, S."""

    def part(self, heads: Any = slice(None), rows: slice = slice(None)) -> TopWeights:
        """Return some heads and rows."""
        parts: Any = [part[heads][:, rows] for part in self[:4]]
        return TopWeights._make([*parts, self.size])


@dataclass(frozen=True, eq=False)
class TracedAttention:
    """The weights of one attention: what each position of ``target`` read of each of ``source``.

    Args:
        name: for example "decoder.3.cross"; the number in it is the `layer`, the last word the `kind`.
        source: the key, in `Trace.axes`, of what is read (columns).
        target: the key of who reads (rows).
        weights: all of them, ``(H, L, S)``, or the `TopWeights`.
        selected: which heads of the model these are, if not all; see `Trace.select`.
        extras: further maps ``(L, S)`` by name, such as "gradient" for attention × gradient.
        derived: whether it was computed from a prediction, as the alignment of CTC is, and not by the model itself.
        hidden: the share of each row that lay on positions since hidden, ``(H, L)``; see `Trace.hide`.
        points: of deformable attention, where in the image each row read: ``(H, L, P, 3)``, with the distance from the
            left and from the top as shares of the image, and the weight.
    """

    name: str
    source: str
    target: str
    weights: NDArray[np.float32] | TopWeights
    selected: tuple[int, ...] | None = None
    extras: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    derived: bool = False
    hidden: NDArray[np.float32] | None = None
    points: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        kept = self.weights.values if isinstance(self.weights, TopWeights) else self.weights
        if kept.ndim != 3 or kept.dtype != np.float32:
            raise ShapeError(
                f"TracedAttention: the weights of {self.name!r} have shape {kept.shape} and dtype {kept.dtype}, "
                "expected (head, row, column) of float32."
            )
        if self.selected is not None and len(self.selected) != self.heads:
            raise ShapeError(
                f"TracedAttention: selected names {len(self.selected)} heads, but {self.name!r} has {self.heads}."
            )
        if self.hidden is not None and self.hidden.shape != self.shape[:2]:
            raise ShapeError(
                f"TracedAttention: hidden of {self.name!r} has shape {self.hidden.shape}, expected {self.shape[:2]}."
            )
        points = self.points
        if points is not None and (points.ndim != 4 or (*points.shape[:2], points.shape[3]) != (*self.shape[:2], 3)):
            raise ShapeError(
                f"TracedAttention: points of {self.name!r} has shape {points.shape}, expected {self.shape[:2]} and "
                "then the points, each with its place from the left and from the top, and its weight."
            )
        for name, extra in self.extras.items():
            if extra.shape != self.shape[1:] or extra.dtype != np.float32:
                raise ShapeError(
                    f"TracedAttention: {name!r} of {self.name!r} has shape {extra.shape} and dtype {extra.dtype}, "
                    f"expected {self.shape[1:]} of float32."
                )

    @property
    def heads(self) -> int:
        """The number of heads, H; 1 for a mechanism without."""
        return self.shape[0]

    @property
    def shape(self) -> tuple[int, int, int]:
        """``(H, L, S)``."""
        if isinstance(self.weights, TopWeights):
            heads, rows, _ = self.weights.values.shape
            return heads, rows, self.weights.size
        heads, rows, columns = self.weights.shape
        return heads, rows, columns

    @property
    def layer(self) -> int | None:
        """The first number in the name."""
        found = _NUMBER.search(self.name)
        return int(found[1]) if found else None

    @property
    def stack(self) -> str:
        """The name with "*" for the number of the layer: the same for all layers of one stack."""
        if self.layer is None:
            return self.name
        return re.sub(rf"(^|[._])0*{self.layer}(?=$|[._:#])", r"\1*", self.name, count=1)

    @property
    def head_numbers(self) -> tuple[int, ...]:
        """What the heads are called."""
        return tuple(range(self.heads)) if self.selected is None else self.selected

    @property
    def kind(self) -> str:
        """The last word of the name, numbers left out."""
        words = [word for word in re.split(r"[.:#]", self.name) if word and not word.isdecimal()]
        return words[-1] if words else self.name

    @property
    def is_exact(self) -> bool:
        """Whether no weight was left out."""
        return not isinstance(self.weights, TopWeights) or not (self.weights.rest > _UNSEEN).any()

    def dense(self, head: int | None = None) -> NDArray[np.float32]:
        """The weights ``(L, S)`` of one head, or their mean over heads. A weight that was not kept reads 0."""
        if head is not None and not -self.heads <= head < self.heads:
            raise ConfigError(f"TracedAttention.dense: head is {head}, but {self.name!r} has {self.heads} (from 0).")
        if not isinstance(self.weights, TopWeights):
            mean: NDArray[np.float32] = self.weights.mean(axis=0) if head is None else self.weights[head]
            return mean
        chosen = range(self.heads) if head is None else [head % self.heads]
        total = np.zeros(self.shape[1:], dtype=np.float32)
        rows = np.arange(self.shape[1])[:, None]
        for number in chosen:  # the positions of one row of one head are distinct
            total[rows, self.weights.indices[number]] += self.weights.values[number]
        total /= max(len(chosen), 1)
        return total

    def rows(self, rows: Sequence[int]) -> NDArray[np.float32]:
        """Some rows of each head, ``(H, n, S)``."""
        return np.stack([self.dense(head)[list(rows)] for head in range(self.heads)])

    def entropy(self) -> NDArray[np.float32]:
        """The entropy of each head's rows in nats, ``(H, L)``; exact, also where weights were left out."""
        if isinstance(self.weights, TopWeights):
            return self.weights.entropy
        entropy: NDArray[np.float32] = row_entropy(self.weights)
        return entropy

    def of_heads(self, heads: Sequence[int]) -> TracedAttention:
        """Return the attention with these heads alone, by their numbers; those that it does not have are left out."""
        places = [place for place, number in enumerate(self.head_numbers) if number in heads]
        weights = self.weights
        kept = weights.part(places) if isinstance(weights, TopWeights) else weights[places]
        hidden = None if self.hidden is None else self.hidden[places]
        points = None if self.points is None else self.points[places]
        selected = tuple(self.head_numbers[place] for place in places)
        return replace(self, weights=kept, selected=selected, hidden=hidden, points=points)


def compact(
    name: str, handle: Weights, target: tuple[str, int], source: tuple[str, int], budget: int
) -> NDArray[np.float32] | TopWeights:
    """What is kept of a handle ``([1, H,] L, S)``: its first rows and columns, as many as there are labels."""
    for what, (side, labels), size in zip(("rows", "columns"), (target, source), handle.shape[-2:]):
        if labels > size:
            raise ShapeError(f"Trace: {side!r} has {labels} labels, but {name!r} has {size} {what}.")
    heads = handle.shape[1] if len(handle.shape) == 4 else 1
    rows, columns = target[1], source[1]
    k = columns if heads * rows * columns <= budget else max(1, min(columns, budget // (2 * heads * rows)))
    values = np.zeros((heads, rows, k), dtype=np.float32)
    indices = np.zeros((heads, rows, k if k < columns else 0), dtype=np.int32)
    rest, entropy = (np.zeros((heads, rows), dtype=np.float32) for _ in range(2))
    step = max(1, _CHUNK // max(heads * handle.shape[-1], 1))
    for start in range(0, rows, step):
        some = slice(start, min(start + step, rows))
        with torch.no_grad():
            piece = handle.rows(some).detach().float().cpu().reshape(heads, some.stop - some.start, handle.shape[-1])
        if piece.numel() and float(piece.min()) < -_UNSEEN:
            raise DataError(
                f"Trace: {name!r} has weights below 0, which share nothing out, expected weights of a normalizer. Of a "
                "difference of two softmaxes leave it out, or draw its numbers with foci.viz.heatmap."
            )
        beyond = float(piece[..., columns:].sum(-1).max()) if columns < piece.shape[-1] else 0.0
        if beyond > CUT:
            raise ShapeError(
                f"Trace: {source[0]!r} has {columns} labels, but {name!r} has {piece.shape[-1]} columns, and up to "
                f"{beyond:.0%} of a row's weight lies on those without a label. Label every position that can be read."
            )
        piece = piece[..., :columns]
        if k == columns:
            values[:, some] = piece.numpy()
            continue
        largest = piece.topk(k, dim=-1)
        values[:, some], indices[:, some] = largest.values.numpy(), largest.indices.numpy()
        rest[:, some] = (piece.sum(-1) - largest.values.sum(-1)).clamp_min(0.0).numpy()
        entropy[:, some] = row_entropy(piece.numpy())
    return values if k == columns else TopWeights(values, indices, rest, entropy, columns)
