"""Fast paths: each equals its plain form in values and gradients, is chosen automatically, and may be missing.

`table.KERNELS` lists them. `status` returns which C++ kernels are active, and why (not). `decompositions` has every
operator in plain torch, for programs that run without foci.
"""

from foci.functional.kernels import additive, crf, decoder_step, ntm, softmax_rows, window, word_by_word
from foci.functional.kernels.kernel import KernelStatus
from foci.functional.kernels.operators import decompositions
from foci.functional.kernels.table import KERNELS, status

__all__ = [
    "KERNELS",
    "KernelStatus",
    "additive",
    "crf",
    "decoder_step",
    "decompositions",
    "ntm",
    "softmax_rows",
    "status",
    "window",
    "word_by_word",
]
