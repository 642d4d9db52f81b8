"""Fast paths: each equals its plain form in values and gradients, is chosen automatically, and may be missing.

`additive` is the score of additive attention without the B×L×S×A tensor; `prepare_key` does a decoder's part of
it that no step changes. `crf` has the sums and the best sequences of a linear chain, `window` local attention by dot
products, `ntm` a step of a Neural Turing Machine's memory, `softmax_rows` the largest weights and the entropy of dot
products, `word_by_word` all steps of that mechanism. `status` tells which C++ kernels are active, and why (not).
`decompositions` has every operator in plain torch, for programs that leave foci.
"""

from foci.functional.kernels import crf, ntm, softmax_rows, window, word_by_word
from foci.functional.kernels.additive import additive, prepare_key
from foci.functional.kernels.build import KernelStatus, status
from foci.functional.kernels.decomposition_table import decompositions

__all__ = [
    "KernelStatus",
    "additive",
    "crf",
    "decompositions",
    "ntm",
    "prepare_key",
    "softmax_rows",
    "status",
    "window",
    "word_by_word",
]
