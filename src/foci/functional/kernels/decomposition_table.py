"""Each ``foci::`` operator in plain torch operators, for programs that run where foci is not installed.

`torch.onnx.export(…, dynamo=True)` looks into torch's own table of decompositions and finds these there. Others hand
`decompositions` to ``ExportedProgram.run_decompositions``. Sizes that were exported as dynamic stay dynamic.

The plain form gives the same numbers to rounding, without what the kernel saves: additive scores build the B×L×S×A
tensor, and windows in long sequences are masks of L×S.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from foci.torch_private import register_plain_form

_PLAIN: dict[torch._ops.OpOverload, Callable[..., Any]] = {}


def decompose(name: str, plain: Callable[..., Any]) -> None:
    """Register what ``foci::name`` computes in plain torch operators, without operations in place."""
    operator = getattr(torch.ops.foci, name).default
    _PLAIN[operator] = plain
    register_plain_form(operator, plain)


def decompositions() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """Return torch's default table of decompositions, with those of foci's operators.

    Returns:
        A table for ``ExportedProgram.run_decompositions``. The program that comes back has no operator of foci.

    Example:
        >>> import torch, foci
        >>> attention = foci.build("additive", query_dim=3, key_dim=5, hidden_dim=7)
        >>> program = torch.export.export(attention, (torch.zeros(2, 4, 3), torch.zeros(2, 6, 5)))
        >>> program = program.run_decompositions(foci.decompositions())
        >>> any("foci" in str(node.target) for node in program.graph.nodes)
        False
    """
    table = torch.export.default_decompositions()
    table.update(_PLAIN)
    return table
