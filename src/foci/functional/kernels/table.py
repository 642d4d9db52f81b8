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
        "scores of `additive` and `concat` attention without the B×L×S×A tensor, forward and backward",
        "torch on pieces that fit the cache",
        (*_with_backward("additive"), "additive_prepare"),
    ),
    KernelRow(
        "crf",
        crf._KERNEL,
        "`crf`: the log-likelihood with its gradients, marginals, the k best sequences, the probabilities of spans",
        "torch step by step, which also has the gradients of marginals and of the k best scores",
        _with_backward("crf_total", "crf_marginals", "crf_best"),
    ),
    KernelRow(
        "decoder_step",
        decoder_step._KERNEL,
        "a step of a Transformer's decoder, all layers in one call, in float32 for up to 256 hypotheses",
        "torch, also for 8-bit weights, float64, other scores and normalizers",
    ),
    KernelRow(
        "location_aware",
        location_aware._KERNEL,
        "`location_aware` with softmax or sigmoid in float32: all queries in one call, forward and backward; one call "
        "per query with a median window; the reading too where there is one query",
        "torch step by step",
    ),
    KernelRow(
        "ntm",
        ntm._KERNEL,
        "`ntm`: all heads address, write and read in one call, forward and backward",
        "torch",
        _with_backward("ntm_step"),
    ),
    KernelRow(
        "softmax_rows",
        softmax_rows._KERNEL,
        "`weights.topk`, `argmax` and `entropy` after dot products: one pass over each row of scores",
        "torch",
    ),
    KernelRow(
        "window",
        window._KERNEL,
        "`local_m` and `local_p` by dot products with a softmax: the 2D+1 positions of a window, read in place",
        "torch gathers them, also for other scores and normalizers",
        _with_backward("window"),
    ),
    KernelRow(
        "word_by_word",
        word_by_word._KERNEL,
        "`word_by_word` in float32: all steps of the hypothesis in one call, forward and backward",
        "torch step by step",
    ),
    KernelRow(
        "banded",
        None,
        "`sliding_window` and `multi_head(window=…)` from 512 keys: cost by window, not by length",
        "a mask of L×S",
        _with_backward("attend_band"),
    ),
    KernelRow(
        "points",
        None,
        "`deformable` on a CPU in float32 and float64: the positions around all points summed by torch's "
        "embedding_bag, forward and backward",
        "torch gathers every position, also where each query has a mask of its own",
    ),
    KernelRow(
        "steps",
        None,
        "`location_aware` and `word_by_word` under torch.compile: one operator for every number of steps",
        "a loop; in torch.export a scan",
        _with_backward("steps"),
    ),
    KernelRow(
        "sdpa",
        None,
        "torch's scaled_dot_product_attention for dot products with a softmax: `dot`, `scaled_dot`, `general`, "
        "`cosine`, `location`, `multi_head`, `multi_step`",
        "the equations, for other normalizers",
    ),
    KernelRow(
        "alibi",
        None,
        "`multi_head(alibi=True)` on a CPU without a mask from 512·512 scores: L + S − 1 biases per head",
        "a bias of L×S",
    ),
    KernelRow(
        "short",
        None,
        "training with up to 64·64 scores per head on a CPU (16·16 with one thread): plain products, which are faster "
        "there and keep the weights",
        "sdpa",
    ),
)


def markdown() -> str:
    """Return the table for the docs."""
    needs = {True: "torch", False: "a C++ compiler"}
    rows = [f"| `{row.name}` | {row.serves} | {needs[row.kernel is None]} | {row.plain} |" for row in KERNELS]
    return "\n".join(["| path | used for | needs | else |", "|---|---|---|---|", *rows]) + "\n"


def status() -> list[KernelStatus]:
    """Return every compiled kernel, whether it is active, and why; build the library if necessary."""
    return [row.kernel.status for row in KERNELS if row.kernel is not None]
