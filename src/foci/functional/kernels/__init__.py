"""Fast paths: each equals its plain form in values and gradients, is chosen automatically, and may be missing.

`additive` has the score of additive attention without the B×L×S×A tensor and `prepare_key`, the part of it that is the
same at every step of a decoder. `crf` has the sums and the best sequences of a linear chain, `window` local attention
by dot products, `ntm` a step of a Neural Turing Machine's memory, `softmax_rows` the largest weights and the entropy
of dot products, `word_by_word` all steps of that mechanism, `decoder_step` a step of a Transformer's decoder. `status`
returns which C++ kernels are active, and why (not). `decompositions` has every operator in plain torch, for programs
that run without foci.
"""

from foci.functional.kernels import additive, crf, decoder_step, ntm, softmax_rows, window, word_by_word
from foci.functional.kernels.build import KernelStatus, status
from foci.functional.kernels.decomposition_table import decompositions

__all__ = [
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
