"""Scenes of the focus: which positions a query may attend to."""

from __future__ import annotations

import torch

from foci.gallery.scene import Scene, build, fit, set_parameter
from foci.gallery.sentence import ALIGNED, ENGLISH, SIZE, english, german, sentence_scene, with_positions

RADIUS = 2


def local_m() -> Scene:
    """A window that moves by one position per query."""
    attention = build("local_m", query_dim=SIZE, key_dim=SIZE, radius=RADIUS)
    set_parameter(attention.score.weight, torch.eye(SIZE))
    return sentence_scene(
        attention(german(), english()).weights.dense()[0],
        f"Query t attends to the positions t - {RADIUS} to t + {RADIUS} only. Equal words farther away get no weight, "
        "but neither does `reads` for `liest`, since it is outside the window. W is the identity.",
    )


def local_p() -> Scene:
    """A window with a predicted center."""
    torch.manual_seed(0)
    query, key = with_positions(german()), english()
    size = query.shape[-1]
    attention = build("local_p", query_dim=size, key_dim=SIZE, hidden_dim=16, radius=RADIUS)
    set_parameter(attention.score.weight, torch.eye(size, SIZE))
    wanted, length = torch.tensor([ALIGNED]), torch.tensor([[len(ENGLISH)]])
    fit(attention.focus, lambda: (attention.focus.center(query, length, None)[0] - wanted).square().mean())
    return sentence_scene(
        attention(query, key).weights.dense()[0],
        "The query predicts the center of its window, so `liest` attends to `reads`. Weights are multiplied by a "
        "Gaussian around the center, so rows sum to less than 1. The prediction was fitted to this sentence in 100 "
        "steps; W is set by hand.",
    )


def sliding_window() -> Scene:
    """Self-attention in a window."""
    words = english(noise=0.3)
    attention = build("sliding_window", query_dim=SIZE, key_dim=SIZE, window=(2, 1))
    return sentence_scene(
        attention(words, words).weights.dense()[0],
        "Self-attention: each word attends to its own position, the two before it and the one after it. All others "
        "have weight exactly 0. There are no parameters.",
        rows=ENGLISH,
    )
