"""What `foci.check` tries: a part of attention inside of `foci.Attention`, or a mechanism, and inputs of its family.

A part is called like its protocol of `foci.mechanisms.parts`, a mechanism like one of the five families
(docs/design.md). The sizes of the inputs are small distinct primes, so that a mixed-up axis is seen.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from foci import masks
from foci.errors import ConfigError, unknown_name
from foci.functional.own_parts import name_of
from foci.mechanisms.attention import Attention
from foci.mechanisms.focus import FocusModule
from foci.mechanisms.scores import ScoreModule
from foci.names import Family
from foci.outputs import AttentionOutput, PairOutput
from foci.weights import Weights

Kind = Literal["score", "normalizer", "focus", "stage", "attend", "pool", "pair", "memory", "map"]
"""The parts of attention, and the families of mechanisms."""

Sizes = dict[str, int]

B, L, S, R = 3, 5, 7, 11
"""Rows, queries, positions, and positions of the right side of a pair."""

_PARTS = {"score": "score", "normalizer": "normalize", "focus": "focus", "stage": "after"}
"""The parts, each with the argument of `foci.Attention` that takes it."""

_MASKS: Mapping[Family, tuple[str, ...]] = {"attend": ("mask",), "pool": ("mask",), "pair": ("left_mask", "right_mask")}


@dataclass(frozen=True)
class Inputs:
    """Inputs of a mechanism: those to pass in order, the masks by name, and of each padded input what exists."""

    tensors: tuple[Tensor, ...]
    masks: Mapping[str, Tensor]
    valid: Mapping[int, Tensor]

    def filled(self, number: float) -> Inputs:
        """Return the same inputs with this number in all padding."""
        filled = tuple(
            tensor.masked_fill(~self.valid[place].unsqueeze(-1), number) if place in self.valid else tensor
            for place, tensor in enumerate(self.tensors)
        )
        return Inputs(filled, self.masks, self.valid)

    def leaves(self) -> Inputs:
        """Return copies that gradients are collected in."""
        return Inputs(tuple(one.detach().clone().requires_grad_() for one in self.tensors), self.masks, self.valid)


@dataclass(frozen=True)
class Subject:
    """A mechanism to try.

    Attributes:
        title: what it is, for the report.
        kind: what was passed.
        part: what was passed.
        module: the mechanism, or `foci.Attention` with the part.
        sizes: sizes of the inputs' features.
    """

    title: str
    kind: Kind
    part: Any
    module: nn.Module
    sizes: Sizes

    @property
    def family(self) -> Family:
        """How the module is called."""
        return "attend" if self.kind in _PARTS else self.kind  # type: ignore[return-value]

    @property
    def takes_masks(self) -> bool:
        """Whether mechanisms of its family do."""
        return self.family in _MASKS

    def make(self, dtype: torch.dtype = torch.float32, *, training: bool = False) -> nn.Module:
        """Return a copy of the module."""
        return copy.deepcopy(self.module).to(dtype).train(training)

    def inputs(
        self, dtype: torch.dtype = torch.float32, *, rows: int = B, queries: int = L, positions: int = S
    ) -> Inputs:
        """Return inputs of which one row is padded, one has no position, and the last has all of them."""
        generator, size = torch.Generator().manual_seed(11), self.sizes
        shapes = {
            "attend": ((queries, size["query_dim"]), (positions, size["key_dim"]), (positions, size["value_dim"])),
            "pool": ((positions, size["value_dim"]),),
            "pair": ((positions, size["value_dim"]), (positions + R - S, size["value_dim"])),
            "memory": ((size["input_dim"],),),
            "map": ((size["channels"], 5, 7),),
        }[self.family]
        tensors = tuple(torch.randn(rows, *shape, generator=generator, dtype=torch.float64) for shape in shapes)
        padded = {"attend": (1, 2), "pool": (0,), "pair": (0, 1)}.get(self.family, ())
        valid = {place: _valid(rows, tensors[place].shape[1]) for place in padded}
        given = [masks.keys(valid[1])] if self.family == "attend" else [*valid.values()]
        return Inputs(tuple(one.to(dtype) for one in tensors), dict(zip(_MASKS.get(self.family, ()), given)), valid)

    @cached_property
    def samples(self) -> bool:
        """Whether it gives other results each time, or reads by a sample."""
        module, inputs = self.make(), self.inputs()
        first, second = (module(*inputs.tensors, **inputs.masks) for _ in range(2))
        if getattr(getattr(first, "weights", None), "log_prob", None) is not None:
            return True
        return any(not torch.equal(*both) for both in zip(numbers(first), numbers(second)))


def _valid(rows: int, size: int) -> Tensor:
    lengths = [max(0, size - 3), 0, size]
    return masks.lengths([lengths[row % 3] for row in range(rows)], size)


def subject_of(part: Any, kind: Kind | None, given: Mapping[str, int | None]) -> Subject:
    """Return what is to be tried: the part in `foci.Attention`, or the mechanism itself."""
    if kind is None:
        kind = _kind_of(part)
    elif kind not in get_args(Kind):
        raise unknown_name("kind", kind, get_args(Kind))
    sizes = _sizes_of(part, given)
    if kind not in _PARTS:
        if not isinstance(part, nn.Module):
            raise ConfigError(f"check: a {kind} mechanism is a {type(part).__name__}, expected a torch.nn.Module.")
        return Subject(f"{type(part).__name__}, of the family {kind}", kind, part, part, sizes)
    options: dict[str, Any] = {"score": "scaled_dot" if sizes["query_dim"] == sizes["key_dim"] else "general"}
    options[_PARTS[kind]] = part
    attention = Attention(sizes["query_dim"], sizes["key_dim"], **options)
    title = f"{name_of(part)}, a {kind}, in foci.Attention({sizes['query_dim']}, {sizes['key_dim']})"
    return Subject(title, kind, part, attention, sizes)


def _sizes_of(part: Any, given: Mapping[str, int | None]) -> Sizes:
    """Return the sizes that are given, else those that the part has as attributes, else 6."""
    own = {name: getattr(part, name, None) for name in ("model_dim", *given)}
    known = {name: value for name, value in own.items() if isinstance(value, int)}
    known |= {name: value for name, value in given.items() if value is not None}
    known.setdefault("query_dim", known.get("model_dim", known.get("key_dim", 6)))
    known.setdefault("key_dim", known["query_dim"])
    known.setdefault("value_dim", known.get("model_dim", known["key_dim"]))
    return {"input_dim": 6, "channels": 6, **known}


_BY_ARGUMENTS: Mapping[tuple[str, ...], Kind] = {
    ("scores", "mask"): "normalizer",
    ("query", "attended"): "stage",
    ("query", "key", "value"): "attend",
    ("value",): "pool",
    ("left", "right"): "pair",
    ("input",): "memory",
    ("features",): "map",
}
"""How the arguments of a part or a mechanism begin; a score and a focus begin alike."""


def _kind_of(part: Any) -> Kind:
    if isinstance(part, ScoreModule | FocusModule):
        return "score" if isinstance(part, ScoreModule) else "focus"
    function: Callable[..., Any] = part.forward if isinstance(part, nn.Module) else part
    try:
        names = tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        names = ()
    for begin, kind in _BY_ARGUMENTS.items():
        if names[: len(begin)] == begin:
            return kind
    if names[:2] == ("query", "key"):
        return "score"
    shown = f"its arguments are ({', '.join(names)})" if names else f"it is a {type(part).__name__}"
    raise ConfigError(
        f"check: {name_of(part)} is of an unknown kind, {shown}, expected kind=… to be one of "
        f"{', '.join(get_args(Kind))}. A focus has the arguments of a score, as which it is tried without kind."
    )


def tensors_of(result: Any) -> list[Tensor]:
    """Return every tensor of a result, handles made dense."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, Weights):
        return [result.dense()]
    if isinstance(result, tuple):
        return [tensor for part in result for tensor in tensors_of(part)]
    return []


def numbers(result: Any) -> list[Tensor]:
    """Return every tensor of a result that has a gradient or could have one."""
    return [tensor for tensor in tensors_of(result) if tensor.is_floating_point()]


def weights_of_result(result: Any) -> Tensor | None:
    """Return the weights of a result as a tensor; None for a family that has others."""
    return result.weights.dense() if isinstance(result, AttentionOutput | PairOutput) else None
