"""foci: attention for PyTorch. Every mechanism of the literature, exact, mask-safe, and open to inspection.

    import foci
    attention = foci.build("additive", query_dim=64, key_dim=128, hidden_dim=96)
    output, weights, state = attention(query, key, mask=foci.masks.keys(valid))
    weights.topk(3)

Every name below stays stable; docs/design.md says how they fit together.
"""

from typing import TYPE_CHECKING, Any

from foci import masks
from foci.catalog import build, catalogue
from foci.functional.attend import attend
from foci.functional.kernels import decompositions
from foci.mechanisms.attention import Attention
from foci.recording import record
from foci.results import Weights

if TYPE_CHECKING:
    from foci.tasks import load
    from foci.viz.trace import Trace

__all__ = [
    "Attention",
    "Trace",
    "Weights",
    "attend",
    "build",
    "catalogue",
    "decompositions",
    "load",
    "masks",
    "record",
]


def __getattr__(name: str) -> Any:
    """`load` and `Trace` need more than the core does: they are imported when first asked for."""
    if name == "load":
        from foci.tasks import load

        return load
    if name == "Trace":
        from foci.viz.trace import Trace

        return Trace
    raise AttributeError(f"module 'foci' has no attribute {name!r}")
