"""Addressing a memory of slots: the steps of a Neural Turing Machine's heads (Graves 2014).

    content      w(i) = softmax_i(β cos(k, M(i)))                 eq. 5, 6
    interpolate  w(i) = g c(i) + (1 - g) p(i)                     eq. 7
    shift        w'(i) = Σ_j w(i - j mod N) s(j)                  eq. 8
    sharpen      w'(i) = w(i)^γ / Σ_j w(j)^γ                      eq. 9
    read         r = Σ_i w(i) M(i)                                eq. 2
    write        M'(i) = M(i) (1 - w(i) e) + w(i) a               eq. 3, 4
    step         all of them for all heads, from a linear layer's output

``memory (…, N, M)`` is N slots of M numbers, ``weights (…, N)`` one weight per slot. A vector of a slot's length is
``(…, M)``; a number per head (strength, gate, gamma) has only the leading axes ``(…)``. Leading axes
broadcast: several heads read one memory as ``memory.unsqueeze(1)``.
"""

from __future__ import annotations

from functools import reduce
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from foci.checks import check_shape
from foci.errors import ShapeError
from foci.masks import masked_softmax

_SHORTEST = 1e-2
"""The lower bound that `content` puts on the length of a key or slot."""

_MOST_ROLLS = 5
"""Up to this width `shift` adds whole rolled rows; wider kernels multiply all windows of slots at once."""


def content(
    key: Float[Tensor, "... M"], memory: Float[Tensor, "... N M"], strength: Float[Tensor, "..."]
) -> Float[Tensor, "... N"]:
    """Return the softmax over the slots of ``strength · cosine(key, slot)``.

    A key or slot of zeros scores 0 with everything.
    """
    check_shape("content", "key", key, "…", "size")
    check_shape("content", "memory", memory, "…", "slots", key.shape[-1], fix="A slot is as long as the key.")
    check_shape("content", "strength", strength, "…")
    _check_leading("content", strength=(strength, 0), key=(key, 1), memory=(memory, 2))
    # einsum rather than matmul, which would copy the memory once for each head.
    dots = torch.einsum("...m,...nm->...n", key, memory)
    scores = dots * _inverse_length(memory) * (strength * _inverse_length(key)).unsqueeze(-1)
    return torch.softmax(scores, dim=-1)


def interpolate(
    content: Float[Tensor, "... N"], previous: Float[Tensor, "... N"], gate: Float[Tensor, "..."]
) -> Float[Tensor, "... N"]:
    """Return ``gate · content + (1 - gate) · previous``: at gate 0 the head keeps its weights."""
    check_shape("interpolate", "content", content, "…", "slots")
    check_shape("interpolate", "previous", previous, "…", content.shape[-1], fix="Both have one weight per slot.")
    check_shape("interpolate", "gate", gate, "…")
    _check_leading("interpolate", gate=(gate, 0), content=(content, 1), previous=(previous, 1))
    gate = gate.unsqueeze(-1)
    return gate * content + (1 - gate) * previous


def shift(weights: Float[Tensor, "... N"], kernel: Float[Tensor, "... W"]) -> Float[Tensor, "... N"]:
    """Return the circular convolution: ``kernel[..., c + j]``, c the center, is the share that moves by +j slots.

    The kernel's width is odd, and may be more than the number of slots.
    """
    check_shape("shift", "weights", weights, "…", "slots")
    check_shape("shift", "kernel", kernel, "…", "width")
    width = kernel.shape[-1]
    if width % 2 == 0:
        raise ShapeError(
            f"shift: kernel has shape {tuple(kernel.shape)}, expected (…, width) with an odd width. An even one has no "
            f"center to stand for staying: use width {width + 1}."
        )
    _check_leading("shift", kernel=(kernel, 1), weights=(weights, 1))
    # Both ways only add products: an FFT, faster at width 127, would round empty slots to small negative weights.
    if width <= _MOST_ROLLS:
        moves = range(-(width // 2), width // 2 + 1)
        shares = kernel.split(1, dim=-1)
        shifted: Tensor = reduce(torch.add, (torch.roll(weights, j, -1) * s for j, s in zip(moves, shares)))
        return shifted
    slots = weights.shape[-1]
    circle = torch.arange(-(width // 2), slots + width // 2, device=weights.device) % slots
    return (weights[..., circle].unfold(-1, width, 1) * kernel.flip(-1).unsqueeze(-2)).sum(dim=-1)


def sharpen(weights: Float[Tensor, "... N"], gamma: Float[Tensor, "..."]) -> Float[Tensor, "... N"]:
    """Return ``weights^gamma``, normalized to sum 1, gamma ≥ 1. A weight of 0 stays 0, also where all are 0."""
    check_shape("sharpen", "weights", weights, "…", "slots")
    check_shape("sharpen", "gamma", gamma, "…")
    _check_leading("sharpen", gamma=(gamma, 0), weights=(weights, 1))
    # The softmax of gamma · log w, because the power itself underflows, for all slots at once. Empty slots are
    # masked: neither the logarithm nor its gradient is finite there.
    filled = weights > 0
    logs = weights.masked_fill(~filled, 1.0).log()
    return masked_softmax(gamma.unsqueeze(-1) * logs, filled)


def read(memory: Float[Tensor, "... N M"], weights: Float[Tensor, "... N"]) -> Float[Tensor, "... M"]:
    """Return the weighted sum of the slots."""
    _check_slots("read", memory, weights)
    _check_leading("read", weights=(weights, 1), memory=(memory, 2))
    return torch.einsum("...n,...nm->...m", weights, memory)


def write(
    memory: Float[Tensor, "... N M"],
    weights: Float[Tensor, "... N"],
    erase: Float[Tensor, "... M"],
    add: Float[Tensor, "... M"],
) -> Float[Tensor, "... N M"]:
    """Return the memory after one head has erased and then added, in each slot by its weight."""
    _check_slots("write", memory, weights)
    check_shape("write", "erase", erase, "…", memory.shape[-1], fix="It is as long as a slot.")
    check_shape("write", "add", add, "…", memory.shape[-1], fix="It is as long as a slot.")
    _check_leading("write", weights=(weights, 1), erase=(erase, 1), add=(add, 1), memory=(memory, 2))
    share = weights.unsqueeze(-1)
    return memory * (1 - share * erase.unsqueeze(-2)) + share * add.unsqueeze(-2)


def step(
    commands: Float[Tensor, "B C"],
    memory: Float[Tensor, "B N M"],
    read_weights: Float[Tensor, "B R N"],
    write_weights: Float[Tensor, "B W N"],
    shift_width: int,
) -> tuple[Float[Tensor, "B N M"], Float[Tensor, "B R N"], Float[Tensor, "B W N"], Float[Tensor, "B R M"]]:
    """Run one step of all heads, which write and then read; return the new memory, both weights, and the reads.

    ``commands`` holds unbounded numbers in this order: for each writing head, then each reading head, key,
    kernel, strength, gate and gamma; then for each writing head erase and add.
    """
    where_to_write, _, _ = _split(commands, memory, read_weights, write_weights, shift_width)
    write_weights = _address(memory, write_weights, where_to_write, shift_width)
    memory = write_step(commands, memory, read_weights, write_weights, shift_width)
    read_weights, reads = read_step(commands, memory, read_weights, write_weights, shift_width)
    return memory, read_weights, write_weights, reads


def write_step(
    commands: Float[Tensor, "B C"],
    memory: Float[Tensor, "B N M"],
    read_weights: Float[Tensor, "B R N"],
    write_weights: Float[Tensor, "B W N"],
    shift_width: int,
) -> Float[Tensor, "B N M"]:
    """Return the memory after the first half of a `step`, whose new write weights these are."""
    _, _, what_to_write = _split(commands, memory, read_weights, write_weights, shift_width)
    return _write_all(memory, write_weights, what_to_write)


def read_step(
    commands: Float[Tensor, "B C"],
    memory: Float[Tensor, "B N M"],
    read_weights: Float[Tensor, "B R N"],
    write_weights: Float[Tensor, "B W N"],
    shift_width: int,
) -> tuple[Float[Tensor, "B R N"], Float[Tensor, "B R M"]]:
    """Return the new read weights and the reads of the second half of a `step`, after which this is the memory."""
    _, where_to_read, _ = _split(commands, memory, read_weights, write_weights, shift_width)
    read_weights = _address(memory, read_weights, where_to_read, shift_width)
    return read_weights, read(memory.unsqueeze(1), read_weights)


def _split(
    commands: Tensor, memory: Tensor, read_weights: Tensor, write_weights: Tensor, shift_width: int
) -> tuple[Tensor, ...]:
    """Return where the commands say to write, where to read, and what to write."""
    readers, writers, size = read_weights.shape[1], write_weights.shape[1], memory.shape[-1]
    place = size + shift_width + 3
    sizes = [writers * place, readers * place, writers * 2 * size]
    check_shape("step", "commands", commands, memory.shape[0], sum(sizes), fix="That is for these weights and memory.")
    parts: tuple[Tensor, ...] = commands.split(sizes, dim=-1)
    return parts


def _address(memory: Tensor, previous: Tensor, commands: Tensor, shift_width: int) -> Tensor:
    """Return the new weights of the heads, ``(B, H, N)``."""
    size = memory.shape[-1]
    commands = commands.unflatten(-1, (previous.shape[1], size + shift_width + 3))
    key, kernel, numbers = commands.split([size, shift_width, 3], dim=-1)
    strength, gate, gamma = numbers.unbind(dim=-1)
    weights = content(torch.tanh(key), memory.unsqueeze(1), softplus(strength))
    weights = interpolate(weights, previous, torch.sigmoid(gate))
    weights = shift(weights, torch.softmax(kernel, dim=-1))
    return sharpen(weights, 1 + softplus(gamma))


def _write_all(memory: Tensor, weights: Tensor, commands: Tensor) -> Tensor:
    """Do the `write` of several heads at once: all erase, then all add."""
    writers = weights.shape[1]
    erase, add = commands.unflatten(-1, (writers, 2, memory.shape[-1])).unbind(dim=2)
    kept = 1 - weights.unsqueeze(-1) * torch.sigmoid(erase).unsqueeze(-2)
    # The product over a single head is that head itself; prod would make the backward pass much slower.
    kept_by_all = kept.squeeze(1) if writers == 1 else kept.prod(dim=1)
    return memory * kept_by_all + weights.mT @ torch.tanh(add)


def _inverse_length(vectors: Tensor) -> Tensor:
    # The cosine's gradient grows like 1 / length, without bound at an empty slot. The floor keeps it below
    # 1 / _SHORTEST; unlike an eps that is added to the length, it leaves the cosine of longer vectors exact.
    return vectors.square().sum(dim=-1).clamp_min(_SHORTEST**2).rsqrt()


def _check_slots(owner: str, memory: Tensor, weights: Tensor) -> None:
    check_shape(owner, "memory", memory, "…", "slots", "size")
    check_shape(owner, "weights", weights, "…", memory.shape[-2], fix="It has one weight per slot.")


def _check_leading(owner: str, **tensors: tuple[Tensor, int]) -> None:
    """Raise unless the leading axes of the tensors, those before each one's given number of last axes, broadcast."""
    leading = {name: tuple(tensor.shape[: tensor.dim() - own]) for name, (tensor, own) in tensors.items()}
    rank = max(len(leading[name]) for name, (_, own) in tensors.items() if own > 0)
    for name, axes in leading.items():
        if len(axes) > rank:  # a number per head with an extra axis, which would broadcast by accident
            raise ShapeError(
                f"{owner}: {name} has shape {axes}, expected no more than the {rank} leading axes of "
                f"{_shapes(tensors, but=name)}. Drop a last axis of size 1 with {name}.squeeze(-1)."
            )
    for (name, axes), (_, others) in combinations(leading.items(), 2):
        if any(have != want and 1 not in (have, want) for have, want in zip(axes[::-1], others[::-1])):
            raise ShapeError(
                f"{owner}: {name} has shape {tuple(tensors[name][0].shape)}, expected leading axes {others} or 1, "
                f"to broadcast with {_shapes(tensors, but=name)}. Several heads share a tensor as tensor.unsqueeze(1)."
            )


def _shapes(tensors: dict[str, tuple[Tensor, int]], *, but: str) -> str:
    return ", ".join(f"{name} {tuple(tensor.shape)}" for name, (tensor, _) in tensors.items() if name != but)
