"""Each ``foci::`` operator in plain torch operators, for programs that run where foci is not installed.

`decompositions` goes to ``ExportedProgram.run_decompositions``; `torch.onnx.export` takes the program that comes back.
Sizes that were exported as dynamic stay dynamic. Torch's own table of decompositions does not have them: where the
environment variable CI is set, inductor refuses to call an operator that it finds there.

The plain form gives the same numbers to rounding, without what the kernel saves: additive scores build the B×L×S×A
tensor, and windows in long sequences are masks of L×S.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_PLAIN: dict[torch._ops.OpOverload, Callable[..., Any]] = {}


def decompose(name: str, plain: Callable[..., Any]) -> None:
    """Register what ``foci::name`` computes in plain torch operators, without operations in place."""
    _PLAIN[getattr(torch.ops.foci, name).default] = plain


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
