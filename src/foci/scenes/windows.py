"""Scenes of the focus: which cells a query may read at all."""

from __future__ import annotations

import torch
from torch import Tensor

from foci.scenes.scene import Scene, build, fit, set_parameter
from foci.scenes.sentence import ALIGNED, ENGLISH, GERMAN, SIZE, english, german, with_positions

RADIUS = 2


def local_m() -> Scene:
    """A window that goes straight on."""
    attention = build("local_m", query_dim=SIZE, key_dim=SIZE, radius=RADIUS)
    set_parameter(attention.score.weight, torch.eye(SIZE))
    return _band(
        attention(german(), english()).weights.dense(),
        GERMAN,
        f"Query t reads the cells t - {RADIUS} to t + {RADIUS} and no others. Equal words far away no longer disturb, "
        "but `liest` cannot reach `reads`, which stands elsewhere in the sentence. W is the identity.",
    )


def local_p() -> Scene:
    """A window that is put where it is needed."""
    torch.manual_seed(0)
    query, key = with_positions(german()), english()
    size = query.shape[-1]
    attention = build("local_p", query_dim=size, key_dim=SIZE, hidden_dim=16, radius=RADIUS)
    set_parameter(attention.score.weight, torch.eye(size, SIZE))
    wanted, length = torch.tensor([ALIGNED]), torch.tensor([[len(ENGLISH)]])
    fit(attention.focus, lambda: (attention.focus.centre(query, length, None)[0] - wanted).square().mean())
    return _band(
        attention(query, key).weights.dense(),
        GERMAN,
        "The query predicts the middle of its window, so `liest` reaches `reads`. A Gaussian around the middle fades "
        "what is far, which is why rows sum to less than 1. The prediction was fitted to this sentence in 100 steps; W "
        "is set by hand.",
    )


def sliding_window() -> Scene:
    """A sentence reads itself."""
    words = english(noise=0.3)
    attention = build("sliding_window", query_dim=SIZE, key_dim=SIZE, reach=(2, 1))
    return _band(
        attention(words, words).weights.dense(),
        ENGLISH,
        "A sentence reads itself: each word its own cell, the two before it and the one after it. All others have a "
        "weight of exactly 0. There are no parameters.",
    )


def _band(weights: Tensor, rows: list[str], caption: str) -> Scene:
    return Scene(weights=weights[0], rows=rows, columns=ENGLISH, row_axis="query", column_axis="key", caption=caption)
