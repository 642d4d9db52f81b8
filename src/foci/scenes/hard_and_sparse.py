"""Scenes of the normalisers: the same scores with normalisers other than the softmax."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from foci.scenes.scene import Scene, build, set_parameter
from foci.scenes.sentence import ENGLISH, GERMAN, SIZE, english, german


def hard() -> Scene:
    """Samples, and the best cell."""
    return _sampled(
        "hard",
        "In training each query attends to one cell, sampled by the probabilities of the first panel; REINFORCE uses "
        "the log-probability of the sample. In eval() it attends to the best cell.",
    )


def gumbel() -> Scene:
    """The same samples with a gradient."""
    return _sampled(
        "gumbel",
        "In the forward pass these are one-hot samples like those of `hard`. The gradient is that of a softmax of the "
        "same noisy scores, so no REINFORCE is needed.",
    )


def sparsemax() -> Scene:
    """Exact zeros."""
    return _compared("sparsemax", "Cells with low scores get exactly 0: most rows attend to one to three cells only.")


def entmax() -> Scene:
    """Between softmax and sparsemax."""
    return _compared("entmax", "Between softmax and sparsemax: exact zeros too, but fewer of them.")


def _sampled(name: str, caption: str) -> Scene:
    torch.manual_seed(0)
    softmax, sampler = (_scoring(mechanism, 0.35) for mechanism in ("general", name))
    sampler.train()
    weights = [reader(german(), english()).weights.dense() for reader in (softmax, sampler, sampler)]
    weights.append(sampler.eval()(german(), english()).weights.dense())
    return _panels(weights, ["probabilities (softmax)", "a sample", "another sample", "eval(): the best cell"], caption)


def _compared(name: str, caption: str) -> Scene:
    query, key = german(noise=0.3), english(noise=0.3)
    weights = [_scoring(mechanism, 0.25)(query, key).weights.dense() for mechanism in ("general", name)]
    return _panels(weights, ["softmax of the same scores", name], caption)


def _scoring(name: str, strength: float) -> Any:
    attention = build(name, query_dim=SIZE, key_dim=SIZE)
    set_parameter(attention.score.weight, strength * torch.eye(SIZE))
    return attention


def _panels(weights: list[Tensor], titles: list[str], caption: str) -> Scene:
    return Scene(
        weights=torch.cat(weights),
        rows=GERMAN,
        columns=ENGLISH,
        panels=titles,
        row_axis="query",
        column_axis="key",
        caption=f"{caption} Scores are those of `general`, with a small multiple of the identity as W.",
    )
