"""The table of kernels: what each serves, its operators and its plain form.

`foci doctor`, `foci build-kernels`, the docs and the tests are derived from it. A kernel has its source in ``cpp/``; a
fast path without one is made of torch's own operations.
"""

from __future__ import annotations

from typing import NamedTuple

from foci.functional.kernels import additive, crf, decoder_step, location_aware, ntm, softmax_rows, window, word_by_word
from foci.functional.kernels.kernel import Kernel, KernelStatus


class KernelRow(NamedTuple):
    """One fast path.

    Attributes:
        name: that of its module and, with ``.cpp``, of its source.
        kernel: loads and checks it; None for torch's own operations.
        serves: what uses it.
        plain: what computes the same where it does not serve.
        operators: the ``foci::`` operators it is called by; none where tracers see the plain form.
    """

    name: str
    kernel: Kernel | None
    serves: str
    plain: str
    operators: tuple[str, ...] = ()


def _with_backward(*names: str) -> tuple[str, ...]:
    return tuple(operator for name in names for operator in (name, f"{name}_backward"))


KERNELS = (
    KernelRow(
        "additive",
        additive._KERNEL,
        "scores of additive and concat attention",
        "tanh(query + key) @ vector",
        (*_with_backward("additive"), "additive_prepare"),
    ),
    KernelRow(
        "crf",
        crf._KERNEL,
        "log-likelihood, marginals, k best sequences and spans of a linear-chain CRF",
        "foci.functional.crf.chain_plain",
        _with_backward("crf_total", "crf_marginals", "crf_best"),
    ),
    KernelRow(
        "decoder_step",
        decoder_step._KERNEL,
        "a step of a Transformer's decoder in greedy and beam search",
        "foci.layers.transformer.DecoderLayer.step",
    ),
    KernelRow(
        "location_aware",
        location_aware._KERNEL,
        "steps of location-aware attention",
        "foci.functional.stepwise",
    ),
    KernelRow(
        "ntm",
        ntm._KERNEL,
        "a step of a Neural Turing Machine's memory",
        "foci.functional.addressing.step",
        _with_backward("ntm_step"),
    ),
    KernelRow(
        "softmax_rows",
        softmax_rows._KERNEL,
        "the largest weights and the entropy of dot-product attention",
        "foci.weights.sources.DotSoftmax",
    ),
    KernelRow(
        "window",
        window._KERNEL,
        "local attention by dot products: local_m and local_p",
        "foci.functional.window_plain",
        _with_backward("window"),
    ),
    KernelRow(
        "word_by_word",
        word_by_word._KERNEL,
        "all steps of word-by-word attention",
        "foci.functional.stepwise",
    ),
    KernelRow(
        "banded",
        None,
        "sliding windows in long sequences",
        "a mask of all L×S scores",
        _with_backward("attend_band"),
    ),
    KernelRow(
        "steps",
        None,
        "sequential attention under torch.compile, as one operator for every number of steps",
        "the loop of foci.functional.stepwise",
        _with_backward("steps"),
    ),
    KernelRow(
        "sdpa", None, "dot-product scores with a softmax, by torch's scaled_dot_product_attention", "the equations"
    ),
    KernelRow(
        "alibi", None, "ALiBi on a CPU without a mask, by one row of biases per head", "a bias of all L×S scores"
    ),
)


def status() -> list[KernelStatus]:
    """Return every compiled kernel, whether it is active, and why; build the library if necessary."""
    return [row.kernel.status for row in KERNELS if row.kernel is not None]
