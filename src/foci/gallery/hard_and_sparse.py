"""Scenes of the normalizers: the same scores with normalizers other than the softmax."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from foci.functional import sample as samplers
from foci.functional import scores as score_functions
from foci.gallery.scene import Scene, build, set_parameter
from foci.gallery.sentence import SIZE, english, german, sentence_scene

STRENGTH = 0.35
"""Of the scores: so weak that samples differ."""


def hard() -> Scene:
    """Samples, and the best position."""
    torch.manual_seed(0)
    softmax, sampler = (_scoring(mechanism, STRENGTH) for mechanism in ("general", "hard"))
    sampler.train()
    weights = [reader(german(), english()).weights.dense() for reader in (softmax, sampler, sampler)]
    weights.append(sampler.eval()(german(), english()).weights.dense())
    return _panels(
        weights,
        ["probabilities (softmax)", "a sample", "another sample", "eval(): the best position"],
        "In training each query attends to one position, sampled by the probabilities of the first panel; REINFORCE "
        "uses the log-probability of the sample. In eval() it attends to the best position.",
    )


def gumbel() -> Scene:
    """A sample, and its gradient with respect to the scores."""
    softmax, sampler = (_scoring(mechanism, STRENGTH) for mechanism in ("general", "gumbel"))
    sampler.train()
    query, key = german(), english()
    torch.manual_seed(0)
    sample = sampler(query, key).weights.dense()
    torch.manual_seed(0)  # the same noise once more, now with a gradient
    scores = score_functions.general(query, key, STRENGTH * torch.eye(SIZE)).requires_grad_()
    (reached,) = torch.autograd.grad((samplers.gumbel(scores) * sample.detach()).sum(), scores)
    return _panels(
        [softmax(query, key).weights.dense(), sample, reached.abs()],
        ["probabilities (softmax)", "forward: a sample", "backward: gradient of the sampled position's weight"],
        "In the forward pass each query attends to one sampled position, as with `hard`. The gradient is that of a "
        "softmax of the same noisy scores: it is not 0 for any position that could have been sampled (last panel, "
        "absolute values), so no REINFORCE is needed.",
        scale=["weight", "weight", "gradient"],
        across=3,
    )


def sparsemax() -> Scene:
    """Exact zeros."""
    return _compared(
        "sparsemax", "Positions with low scores get exactly 0: most rows attend to one to three positions only."
    )


def entmax() -> Scene:
    """Between softmax and sparsemax."""
    return _compared("entmax", "Between softmax and sparsemax: exact zeros too, but fewer of them.")


def _compared(name: str, caption: str) -> Scene:
    query, key = german(noise=0.3), english(noise=0.3)
    weights = [_scoring(mechanism, 0.25)(query, key).weights.dense() for mechanism in ("general", name)]
    return _panels(weights, ["softmax of the same scores", name], caption)


def _scoring(name: str, strength: float) -> Any:
    attention = build(name, query_dim=SIZE, key_dim=SIZE)
    set_parameter(attention.score.weight, strength * torch.eye(SIZE))
    return attention


def _panels(weights: list[Tensor], titles: list[str], caption: str, **labels: Any) -> Scene:
    caption = f"{caption} Scores are those of `general`, with a small multiple of the identity as W."
    return sentence_scene(torch.cat(weights), caption, panels=titles, **labels)
