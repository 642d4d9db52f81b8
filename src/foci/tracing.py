"""Code that is traced by `torch.compile` and `torch.export` without fixing the sizes of its inputs."""

from __future__ import annotations

import torch


def known_true(condition: bool) -> bool:
    """Whether ``condition``, a comparison of sizes, holds; inside a trace, whether it holds for every size.

    A branch on a symbolic size makes the traced program valid on one side of the branch only: `torch.compile` compiles
    again for the other side, and `torch.export` refuses. Code that is right for both sides asks this instead.
    """
    if not torch.compiler.is_compiling():
        return condition
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)
