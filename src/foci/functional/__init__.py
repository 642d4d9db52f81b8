"""Pure tensor functions: parameters are arguments, leading axes broadcast."""

from typing import TYPE_CHECKING

from foci.lazy import attach

__all__ = [
    "addressing",
    "attend",
    "boxes",
    "crf",
    "ctc",
    "kernels",
    "normalize",
    "pointer",
    "positions",
    "sample",
    "scores",
    "sparse",
    "stepwise",
    "windows",
]

if TYPE_CHECKING:
    from foci.functional import (
        addressing,
        attend,
        boxes,
        crf,
        ctc,
        kernels,
        normalize,
        pointer,
        positions,
        sample,
        scores,
        sparse,
        stepwise,
        windows,
    )
else:
    __getattr__, __dir__ = attach(__name__, dict.fromkeys(__all__, __name__))
