"""Deformable attention: a query reads a few points around its reference point, on several levels of a feature map.

    p_mlqk = φ_l(p̂_q) + Δp_mlqk                            around a point p̂_q
    p_mlqk = φ_l(c_q) + Δp_mlqk ∘ φ_l([w_q, h_q]) / (2 K)  in a box of center c_q, width w_q and height h_q
    A_mlqk = softmax_lk(W_A z_q)
    out_q  = Σ_m W_m Σ_l Σ_k A_mlqk · W'_m x^l(p_mlqk)
    x^l(p) = Σ_s max(0, 1 − |p_x − s_x|) · max(0, 1 − |p_y − s_y|) · x^l_s

Paper: Deformable DETR: Deformable Transformers for End-to-End Object Detection (Zhu et al., 2021), eqs. 1-3;
    boxes: appendix A.4, arXiv:2010.04159
Names: z_q = query, x^l = value (or the key; level after level), p̂_q or [c_q, w_q, h_q] = reference,
    Δp_mlqk = offset_layer, K = num_points, A_mlqk = weights.of_points, W_A = weight_layer, p_mlqk = weights.points,
    W'_m = value_layer, W_m = output_layer
Complexity: O(S · D² + L · D² + L · H · levels · points · D): no L×S tensor is built
Differs: offsets in a box are divided by 2 K, as in the authors' code; the paper has no such factor. Luong's local_p is
    the one-dimensional ancestor: there the query predicts the center of a window in its sentence, here every point in
    a picture; a sequence is a map of one row. φ_l counts from the readable part of
    each picture, as the authors' valid ratios do. A point outside of the map, or the share of a point that falls on a
    masked position, reads zero; its weight is not given to other points, so weights over positions may
    sum to less than 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from foci.checks import check_mask, check_shape, check_together, expand_query, is_sequence, refuse_script
from foci.errors import ConfigError, ShapeError, check_sizes
from foci.functional.points import Levels, cells_of_points, gather_cells, level_sizes, read_points
from foci.functional.windows import at_least_float32, one_past_last
from foci.masks import clear_source
from foci.mechanisms.parts import Memory
from foci.outputs import AttentionOutput, called_as
from foci.recording.rereading import Reread
from foci.recording.watching import editable
from foci.tracing import exportable, known_true
from foci.weights import Weights
from foci.weights.sources import ByWeights, Rows


@exportable
@dataclass(eq=False)
class PointWeights(ByWeights):
    """The weights of the cells around points, which are computed when asked for.

    ``of_points (…, L, levels, points)`` weigh the points at ``places``, as in `foci.functional.points`.
    """

    parts = ("of_points", "places", "mask")
    held = "points"
    of_points: Tensor
    places: Tensor
    mask: Tensor | None
    levels: Levels

    @property
    def shape(self) -> torch.Size:
        """``(…, L, S)``."""
        return torch.Size((*self.of_points.shape[:-2], sum(height * width for height, width in self.levels)))

    def rows(self, index: Rows) -> Tensor:
        """Return the weights of these rows, the shares of each cell summed."""
        shares, cells = cells_of_points(self.of_points[..., index, :, :], self.places[..., index, :, :, :], self.levels)
        dense = shares.new_zeros(*shares.shape[:-1], self.shape[-1])
        if known_true(self.shape[-1] == 0):
            return dense
        dense = dense.scatter_add(-1, cells, shares)
        return dense if self.mask is None else dense.masked_fill(~self.mask.expand(self.shape)[..., index, :], 0.0)

    def heads(self, index: int | slice | Tensor) -> PointWeights:
        """Return the source of some heads."""
        mask = None if self.mask is None else self.mask.expand(self.shape)[:, index]
        return PointWeights(self.of_points[:, index], self.places[:, index], mask, self.levels)


@exportable
@dataclass(eq=False, repr=False, kw_only=True)
class DeformableWeights(Weights):
    """The weights ``(B, H, L, S)`` over the positions of all levels, and the points that they come from.

    Args:
        points: ``(B, H, L, levels, points, 2)``: where each point lies, x and y as shares of the level's width and
            height; outside of 0 to 1 it reads nothing.
        of_points: ``(B, H, L, levels, points)``: the weight of each point; those of one query sum to 1, whether its
            points can be read or not.
    """

    points: Tensor
    of_points: Tensor


def _read(weights: Tensor, values: Tensor) -> Tensor:
    return weights @ values.transpose(1, 2)


def _reread(values: Tensor, of_points: Tensor, places: Tensor, levels: Levels, mask: Tensor | None) -> Reread:
    """Return how points read, for `foci.edit`."""

    def limited(open: Tensor) -> AttentionOutput:
        return _read_points(values, of_points, places, levels, open if mask is None else open & mask)

    return Reread(lambda weights: _read(weights, values), lambda: mask, limited)


@editable(_reread)
def _read_points(
    values: Float[Tensor, "B S H D"],
    of_points: Float[Tensor, "B L H N P"],
    places: Float[Tensor, "B L H N P 2"],
    levels: Levels,
    mask: Bool[Tensor, "#B #H #L #S"] | None,
) -> AttentionOutput:
    """Return the sum of what points read for each head and query, ``(B, H, L, D)``."""
    weights = Weights(PointWeights(of_points.transpose(1, 2), places.transpose(1, 2), mask, levels))
    size = values.shape[1]
    if known_true(size == 0):
        read = values.new_zeros(*of_points.shape[:3], values.shape[-1])
    elif mask is None or (mask.shape[1] == 1 and mask.shape[2] == 1):  # for all alike: there a closed cell holds zeros
        values = values if mask is None else values.masked_fill(~mask.view(-1, mask.shape[-1], 1, 1), 0.0)
        read = read_points(values, of_points, places, levels)
    else:
        shares, cells = cells_of_points(of_points, places, levels)
        batch, length, heads, _ = cells.shape
        open = mask.expand(batch, heads, length, size).transpose(1, 2).gather(-1, cells)
        read = gather_cells(values, shares * open, cells)
    return AttentionOutput(read.transpose(1, 2), weights)


class DeformableAttention(nn.Module):
    """Attention of several heads to a few points of a picture, or of several levels of it.

    The positions of all levels are passed as one sequence of keys, row by row and level after level; ``levels`` says
    how high and wide each one is. Without it the keys are a sequence: one level of one row. A query reads around
    ``reference``, x and y from 0 to 1 in the readable part of the picture. A reference of four numbers is a box, center
    x and y, width and height: then offsets are not in cells but grow with the box, and at the start the last point of
    each head lies on its edge. The query alone decides where it looks, not what a key holds: with a ``value`` of its
    own, the key only says how many positions there are. The weights are a `DeformableWeights`: points with their
    weights, and the map over positions on demand.

    Args:
        model_dim: size of the query and of the output.
        num_heads: number of heads.
        num_levels: levels of the feature map.
        num_points: points per head and level.
        key_dim: size of a position. Default: model_dim.

    Without a reference the query predicts it, as the decoder of the paper does (``reference_layer``, which is not used
    otherwise).

    Example:
        >>> import torch
        >>> attention = DeformableAttention(6, 2, num_levels=2, num_points=3)
        >>> query, cells = torch.zeros(1, 5, 6), torch.zeros(1, 4 * 6 + 2 * 3, 6)
        >>> output, weights, _ = attention(query, cells, levels=[(4, 6), (2, 3)])
        >>> output.shape, weights.shape, weights.points.shape
        (torch.Size([1, 5, 6]), torch.Size([1, 2, 5, 30]), torch.Size([1, 2, 5, 2, 3, 2]))
    """

    __prepare_scriptable__ = refuse_script

    def __init__(
        self, model_dim: int, num_heads: int, *, num_levels: int = 1, num_points: int = 4, key_dim: int | None = None
    ) -> None:
        super().__init__()
        key_dim = model_dim if key_dim is None else key_dim
        sizes = {"num_levels": num_levels, "num_points": num_points, "key_dim": key_dim}
        check_sizes("DeformableAttention", model_dim=model_dim, num_heads=num_heads, **sizes)
        if model_dim % num_heads:
            raise ConfigError(
                f"DeformableAttention: model_dim is {model_dim} with {num_heads} heads, expected a multiple. "
                "Change model_dim or num_heads."
            )
        self.model_dim = model_dim
        self.num_heads = num_heads
        self.num_levels = num_levels
        self.num_points = num_points
        self.key_dim = key_dim
        count = num_heads * num_levels * num_points
        self.reference_layer = nn.Linear(model_dim, 2)
        self.offset_layer = nn.Linear(model_dim, 2 * count)
        self.weight_layer = nn.Linear(model_dim, count)
        self.value_layer = nn.Linear(key_dim, model_dim)
        self.output_layer = nn.Linear(model_dim, model_dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize as the paper does: equal weights, and one direction per head, a cell farther with each point."""
        for layer in (self.reference_layer, self.value_layer, self.output_layer):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        for parameter in (self.offset_layer.weight, *self.weight_layer.parameters()):
            nn.init.zeros_(parameter)
        angles = torch.arange(self.num_heads) * (2 * math.pi / self.num_heads)
        directions = torch.stack([angles.cos(), angles.sin()], dim=-1)
        directions = directions / directions.abs().amax(dim=-1, keepdim=True)
        steps = torch.arange(1, self.num_points + 1).view(-1, 1)
        start = directions.view(-1, 1, 1, 2) * steps.expand(self.num_levels, -1, -1)
        with torch.no_grad():
            self.offset_layer.bias.copy_(start.flatten())

    def extra_repr(self) -> str:
        """Return the numbers that the layers do not show, for printing."""
        return f"num_heads={self.num_heads}, num_levels={self.num_levels}, num_points={self.num_points}"

    def forward(
        self,
        query: Float[Tensor, "#B L D"],
        key: Float[Tensor, "#B S Dk"],
        value: Float[Tensor, "#B S Dk"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        state: None = None,
        *,
        reference: Float[Tensor, "#B L 2"] | Float[Tensor, "#B L 4"] | None = None,
        levels: Levels | None = None,
    ) -> AttentionOutput:
        """Read the points of every query."""
        return self.read(query, self.prepare(key, value, mask), state, reference=reference, levels=levels)

    if TYPE_CHECKING:

        @called_as(forward)
        def __call__(self) -> None:
            """Call `forward`, as torch does."""

    def prepare(
        self,
        key: Float[Tensor, "#B S Dk"],
        value: Float[Tensor, "#B S Dk"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Memory:
        """Project the positions once, for many reads."""
        check_shape("DeformableAttention", "key", key, "batch", "key", self.key_dim)
        if value is not None:
            check_shape("DeformableAttention", "value", value, "batch", key.shape[1], self.key_dim)
        check_together("DeformableAttention", key=key, value=value)
        _, value = clear_source(key, key if value is None else value, mask)
        return Memory(key, self.value_layer(value), mask)

    def read(
        self,
        query: Float[Tensor, "#B L D"],
        memory: Memory,
        state: None = None,
        *,
        reference: Float[Tensor, "#B L 2"] | Float[Tensor, "#B L 4"] | None = None,
        levels: Levels | None = None,
    ) -> AttentionOutput:
        """Read a prepared source."""
        if state is not None:
            raise ConfigError("DeformableAttention: it keeps no state, expected state=None.")
        check_shape("DeformableAttention", "query", query, "batch", "query", self.model_dim)
        check_together("DeformableAttention", query=query, key=memory.key, reference=reference)
        query, batch = expand_query("DeformableAttention", query, memory.key, memory.value)
        length, size = query.shape[1], memory.key.shape[1]
        levels = self._checked_levels(levels, size)
        mask = memory.mask
        if mask is not None:
            shape = torch.Size((batch, self.num_heads, length, size))
            mask = check_mask("DeformableAttention", mask, shape, query.device)
        elif known_true(size == 0):  # without cells there is nothing to read, as where all are masked
            mask = torch.ones(1, 1, 1, 0, dtype=torch.bool, device=query.device)
        if reference is None:
            reference = torch.sigmoid(at_least_float32(self.reference_layer(query)))
        else:
            fix = f"A box has a width and a height too: (batch, {length}, 4)."
            sizes = 4 if is_sequence(reference, 4) else 2
            check_shape("DeformableAttention", "reference", reference, "batch", length, sizes, fix=fix)
        by_head = (*query.shape[:2], self.num_heads, self.num_levels, self.num_points)
        of_points = torch.softmax(self.weight_layer(query).view(*by_head[:3], math.prod(by_head[3:])), dim=-1).view(
            by_head
        )
        reference = at_least_float32(reference)
        of_levels = level_sizes(levels, reference)
        extents = of_levels if mask is None else _extents(mask, levels).to(reference.dtype)
        places = _places(reference, self.offset_layer(query).view(*by_head, 2), extents)
        values = memory.value.expand(batch, -1, -1).unflatten(-1, (self.num_heads, -1))
        of_all, of_all_places = (one.expand(batch, *one.shape[1:]) for one in (of_points.to(values.dtype), places))
        read = _read_points(values, of_all, of_all_places, levels, mask)
        output = self.output_layer(read.output.transpose(1, 2).flatten(2))
        if mask is not None:
            # By the mask rule a query that may read nothing gets output 0, not the projection's bias.
            output = output.masked_fill(~mask.any(dim=-1).any(dim=1).unsqueeze(-1), 0.0)
        weights = DeformableWeights(
            read.weights.source, points=(places / of_levels).transpose(1, 2), of_points=of_points.transpose(1, 2)
        )
        return AttentionOutput(output, weights)

    def _checked_levels(self, levels: Levels | None, size: int) -> Levels:
        if levels is None and self.num_levels == 1:
            return [(1, size)]
        if levels is None or len(levels) != self.num_levels:
            raise ConfigError(
                f"DeformableAttention: levels is {levels if levels is None else list(levels)}, expected num_levels = "
                f"{self.num_levels} sizes. Pass levels=[(height, width), …]."
            )
        if any(min(sizes) < 1 for sizes in levels) or sum(height * width for height, width in levels) != size:
            raise ShapeError(
                f"DeformableAttention: levels is {list(levels)}, expected sizes that make up the {size} positions "
                "of the key. Pass the height and width of every level, in the order of the positions."
            )
        return levels


def _extents(mask: Bool[Tensor, "B H L S"], levels: Levels) -> Int[Tensor, "B 1 1 N 1 2"]:
    """Return width and height of what any query may read of each level."""
    size = sum(height * width for height, width in levels)
    readable = mask.any(dim=1).any(dim=1)
    readable, extents, start = readable.expand(-1, size), [], 0
    for height, width in levels:
        level = readable[:, start : start + height * width].unflatten(1, (height, width))
        extents.append(torch.cat([one_past_last(level.any(dim=1)), one_past_last(level.any(dim=2))], dim=-1))
        start += height * width
    return torch.stack(extents, dim=1)[:, None, None, :, None]


def _places(reference: Tensor, offsets: Tensor, extents: Tensor) -> Float[Tensor, "B L H N P 2"]:
    """Return x and y of the points, in cells from the upper left corner of their level."""
    offsets = at_least_float32(offsets)
    reference = reference[:, :, None, None, None]
    if reference.shape[-1] > 2:  # from the center of a box to its edge in as many steps as there are points
        offsets = offsets * (reference[..., 2:] * extents * (0.5 / offsets.shape[-2]))
    return reference[..., :2] * extents + offsets
