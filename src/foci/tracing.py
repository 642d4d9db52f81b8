"""Code that is traced by `torch.compile` and `torch.export` without fixing the sizes of its inputs."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch.export import register_dataclass
from torch.utils._pytree import _register_namedtuple

Kind = TypeVar("Kind")


def known_true(condition: bool) -> bool:
    """Whether ``condition``, a comparison of sizes, holds; inside a trace, whether it holds for every size.

    A branch on a symbolic size makes the traced program valid on one side of the branch only: `torch.compile` compiles
    again for the other side, and `torch.export` refuses. Code that is right for both sides asks this instead.
    """
    if not torch.compiler.is_compiling():
        return condition
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)


def exportable(kind: type[Kind]) -> type[Kind]:
    """Let `torch.export` pass a dataclass or NamedTuple of tensors through, and save it."""
    name = f"foci.{kind.__name__}"
    if issubclass(kind, tuple):
        _register_namedtuple(kind, serialized_type_name=name)
    else:
        register_dataclass(kind, serialized_type_name=name)
    return kind
