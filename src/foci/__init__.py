"""foci: attention for PyTorch. Every mechanism of the literature, exact, mask-safe, and open to inspection.

    import foci
    attention = foci.build("additive", query_dim=64, key_dim=128, hidden_dim=96)
    output, weights, state = attention(query, key, mask=foci.masks.keys(valid))
    weights.topk(3)

    foci.train("translate", {"data": {"source": "a.en", "target": "a.de"}}, out="runs/x")
    foci.load("runs/x").predict(["A man rides a bike."])

Every name below is stable; docs/design.md describes how they fit together. Each is imported on first use, so that
`import foci` and the help of the command line do not load torch.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foci import masks
    from foci.catalog import build, list_mechanisms
    from foci.functional.attend import attend
    from foci.functional.kernels import decompositions
    from foci.mechanisms.attention import Attention
    from foci.recording import record
    from foci.tasks.frame.predictor import load
    from foci.tasks.frame.train import train
    from foci.viz.trace import Trace
    from foci.weights import Weights

__all__ = [
    "Attention",
    "Trace",
    "Weights",
    "attend",
    "build",
    "decompositions",
    "list_mechanisms",
    "load",
    "masks",
    "record",
    "train",
]

_HOMES = {
    "Attention": "foci.mechanisms.attention",
    "Trace": "foci.viz.trace",
    "Weights": "foci.weights",
    "attend": "foci.functional.attend",
    "build": "foci.catalog",
    "list_mechanisms": "foci.catalog",
    "decompositions": "foci.functional.kernels",
    "load": "foci.tasks.frame.predictor",
    "record": "foci.recording",
    "train": "foci.tasks.frame.train",
}
"""Where each name is defined; `masks` is a module of its own."""

try:
    __version__ = version("foci")
except PackageNotFoundError:  # run from the source without being installed
    __version__ = "unknown"


def __getattr__(name: str) -> Any:
    if name == "masks":
        return import_module("foci.masks")
    if name not in _HOMES:
        raise AttributeError(f"module 'foci' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
