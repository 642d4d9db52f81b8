"""Position encodings: sinusoids, rotations, and linear biases.

    sinusoid   PE[p, 2i] = sin(p / 10000^(2i/D)),  PE[p, 2i+1] = cos(p / 10000^(2i/D))
    rotary     each pair (x_2i, x_2i+1), or (x_i, x_i+D/2), is turned by the angle p / base^(2i/D)
    alibi      bias[h, i, j] = −m_h · |i − j|,  m_h = 2^(−8h/H)

Paper: Attention Is All You Need (Vaswani et al., 2017), section 3.5; RoFormer (Su et al., 2021), eqs. 15 and 34;
    Train Short, Test Long (Press, Smith, Lewis, 2022), section 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from foci.errors import check_positive
from foci.functional.rotary_options import Rotary
from foci.tracing import is_traced, is_watched

PLAIN = Rotary()
"""RoFormer's rotation: base 10000, neighboring features."""


def sinusoid(
    length: int,
    dim: int,
    *,
    start: int = 0,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "L D"]:
    """Return the table ``(length, dim)`` of positions from ``start`` on; sine at even features, cosine at odd ones."""
    check_positive("positions", dim=dim)
    angles = _angles(length, PLAIN.rates(dim), start, device)
    table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
    return table[:, :dim].to(dtype)


def place_code(places: Float[Tensor, "... N"], dim: int, *, fastest: float = 16.0) -> Float[Tensor, "... M"]:
    """Return sine and cosine of each of N numbers from 0 to 1 at ``dim / 4`` frequencies, ``N · dim / 2`` in all.

    The frequencies are evenly spaced, as ratios, from half a period over the picture to ``fastest``. The slower the
    fastest, the farther apart two places may be whose codes have a large product; 16 tells places apart that are two
    pixels of a picture of 64 from each other.

    Example:
        >>> place_code(torch.tensor([[0.5, 0.25]]), 64).shape
        torch.Size([1, 64])
    """
    check_positive("place_code", dim=dim, fastest=fastest)
    places = places.to(torch.promote_types(places.dtype, torch.float32))
    most = math.log2(fastest)
    periods = torch.logspace(-1.0, most, max(dim // 4, 1), base=2.0, device=places.device, dtype=places.dtype)
    angles = places.unsqueeze(-1) * (2 * math.pi * periods)
    return torch.cat([angles.sin(), angles.cos()], dim=-1).flatten(-2)


def rotary(
    vectors: Float[Tensor, "... L D"], *, start: int | Int[Tensor, "..."] = 0, how: Rotary = PLAIN
) -> Float[Tensor, "... L D"]:
    """Return the vectors turned by their position, so that dot products depend on distance only.

    Args:
        vectors: queries or keys; their second last axis is the position.
        start: the first position; a tensor has the leading axes of the vectors, or axes of size 1.
        how: base, layout and scaling.
    """
    size = vectors.shape[-1]
    dim = how.turned_dim(size)
    if dim < size:
        turned, rest = vectors.split([dim, size - dim], dim=-1)
        return torch.cat([_turned(turned, start, how), rest], dim=-1)
    return _turned(vectors, start, how)


def _turned(vectors: Tensor, start: int | Tensor, how: Rotary) -> Tensor:
    """Turn all features: on a CPU in as few passes over memory as possible."""
    *_, length, dim = vectors.shape
    dtype, device = vectors.dtype, vectors.device
    if device.type == "cpu" and not (is_traced() or is_watched(vectors)):
        few = isinstance(start, int) and length * dim <= _KEPT
        turns = (_kept_turns if few else _turns)(how, dim, length, start, dtype)
        if how.layout == "interleaved":
            return _turned_pairs(vectors, *turns)
        turned: Tensor = _TurnedHalves.apply(vectors, *turns)  # type: ignore[no-untyped-call]
        return turned
    cos, sin = _cos_and_sin(how, dim, length, start, dtype, device)
    if how.layout == "half":
        first, second = vectors.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    even, odd = vectors[..., 0::2], vectors[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


def _cos_and_sin(
    how: Rotary, dim: int, length: int, start: int | Tensor, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    angles = _angles(length, _rates(how, dim), start, device)
    return (how.magnitude * angles.cos()).to(dtype), (how.magnitude * angles.sin()).to(dtype)


def _turns(how: Rotary, dim: int, length: int, start: int | Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return the rotations on a CPU, as `_turned_pairs` or `_TurnedHalves` takes them."""
    cpu = torch.device("cpu")
    if how.layout == "half":
        cos, sin = _cos_and_sin(how, dim, length, start, dtype, cpu)
        return torch.cat([cos, cos], dim=-1), sin
    angles = _angles(length, _rates(how, dim), start, cpu)
    wide = torch.promote_types(dtype, torch.complex64)
    return (torch.polar(torch.full_like(angles, how.magnitude), angles).to(wide),)


def _rates(how: Rotary, dim: int) -> tuple[float, ...]:
    # The compiler warns of a cache, and needs none.
    return how.rates(dim) if is_traced() else _kept_rates(how, dim)


@cache
def _kept_rates(how: Rotary, dim: int) -> tuple[float, ...]:
    return how.rates(dim)


_KEPT = 1 << 19
"""Numbers of a rotation up to which it is kept: the layers of a model and their queries and keys share it."""


@lru_cache(maxsize=8)
def _kept_turns(how: Rotary, dim: int, length: int, start: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    with torch.inference_mode(mode=False):  # what inference mode makes cannot be used in training
        return _turns(how, dim, length, start, dtype)


def _turned_pairs(vectors: Tensor, turn: Tensor) -> Tensor:
    """Turn neighboring features by one product of complex numbers, which reads and writes the vectors once."""
    wide = torch.promote_types(vectors.dtype, torch.float32)
    pairs = vectors.to(wide).unflatten(-1, (-1, 2))
    if pairs.stride(-1) != 1 or any(stride % 2 for stride in pairs.stride()[:-1]) or pairs.storage_offset() % 2:
        pairs = pairs.clone(memory_format=torch.contiguous_format)  # contiguous() would leave an odd offset as it is
    return torch.view_as_real(torch.view_as_complex(pairs) * turn).flatten(-2).to(vectors.dtype)


class _TurnedHalves(torch.autograd.Function):
    """`_turn_halves` with the backward pass written out: the rotation by −angle."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turn_halves(vectors, cos, sin)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turn_halves(gradient, cos, -sin), None, None


def _turn_halves(vectors: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each feature of the first half with its own of the second, in two passes over memory."""
    half = sin.shape[-1]
    first, second = vectors[..., :half], vectors[..., half:]
    turned = vectors * cos
    turned[..., :half].addcmul_(second, sin, value=-1.0)
    turned[..., half:].addcmul_(first, sin)
    return turned


def alibi_slopes(
    num_heads: int, *, device: torch.device | str | None = None, dtype: torch.dtype = torch.float32
) -> Float[Tensor, " H"]:
    """Return one slope per head: ``2^(−8/H), 2^(−16/H), …``; between powers of two, every second slope of the next."""
    check_positive("alibi_slopes", num_heads=num_heads)
    whole = 2 ** math.floor(math.log2(num_heads))
    slopes = [2.0 ** (-8.0 * (h + 1) / whole) for h in range(whole)]
    slopes += [2.0 ** (-4.0 * (2 * h + 1) / whole) for h in range(num_heads - whole)]
    return torch.tensor(slopes, device=device, dtype=dtype)


def alibi(
    num_heads: int, L: int, S: int, *, device: torch.device | str | None = None, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "1 H L S"]:
    """Return the bias ``−slope · |distance|`` of every head."""
    return alibi_bias(alibi_slopes(num_heads, device=device, dtype=torch.float64), L, S).to(dtype)


def alibi_bias(slopes: Float[Tensor, " H"], L: int, S: int) -> Float[Tensor, "1 H L S"]:
    """Return the bias of these slopes, aligned like `foci.masks.causal`: last query and last key coincide."""
    own = torch.arange(L, device=slopes.device).unsqueeze(-1) + (S - L)
    distance = (own - torch.arange(S, device=slopes.device)).abs()
    # Half precision cannot represent most distances above 256 (bfloat16) or 2048, so only the product is rounded.
    wide = slopes.to(torch.promote_types(slopes.dtype, torch.float32))
    return (-wide.view(1, -1, 1, 1) * distance).to(slopes.dtype)


def _angles(
    length: int, rates: Sequence[float], start: int | Tensor, device: torch.device | str | None
) -> Float[Tensor, "... L pairs"]:
    # Angles are computed in float64 where available: at position 60,000 float32 is off in the third decimal.
    dtype = torch.float32 if str(device).startswith("mps") else torch.float64
    positions: Tensor
    if isinstance(start, Tensor):
        positions = (start.unsqueeze(-1) + torch.arange(length, device=device)).to(dtype)
    else:
        positions = torch.arange(start, start + length, device=device, dtype=dtype)
    return positions.unsqueeze(-1) * torch.tensor(rates, device=device, dtype=dtype)
