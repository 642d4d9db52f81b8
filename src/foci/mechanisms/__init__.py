"""The mechanisms as `torch.nn.Module`s, one per file."""

from typing import TYPE_CHECKING

from foci.lazy import attach

__all__ = [
    "attention",
    "focus",
    "heads",
    "memory",
    "normalizers",
    "pair",
    "parts",
    "pool",
    "sampled",
    "scores",
    "structured",
    "visual",
]

if TYPE_CHECKING:
    from foci.mechanisms import (
        attention,
        focus,
        heads,
        memory,
        normalizers,
        pair,
        parts,
        pool,
        sampled,
        scores,
        structured,
        visual,
    )
else:
    __getattr__, __dir__ = attach(__name__, dict.fromkeys(__all__, __name__))
