"""One sentence in two languages, with made-up word vectors: translations have the same direction."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from foci.gallery.scene import Scene

ENGLISH = ["in", "the", "morning", "the", "old", "man", "reads", "the", "paper", "in", "his", "garden"]
GERMAN = ["am", "Morgen", "liest", "der", "alte", "Mann", "die", "Zeitung", "in", "seinem", "Garten"]
ALIGNED = [0, 2, 6, 3, 4, 5, 7, 8, 9, 10, 11]
"""The English word of each German one."""

_MEANINGS = ["in", "the", "morning", "old", "man", "reads", "paper", "his", "garden"]
SIZE = len(_MEANINGS)


def english(noise: float = 0.1) -> Tensor:
    """Return the source ``(1, 12, SIZE)``: one direction per meaning. Both `in` are equal, and all three `the`."""
    return _vectors([[word] for word in ENGLISH], noise, seed=1)


def german(noise: float = 0.1) -> Tensor:
    """Return the target ``(1, 11, SIZE)``, in the same directions; `am` means both `in` and `the`."""
    meanings = [[ENGLISH[position]] for position in ALIGNED]
    meanings[0] = ["in", "the"]
    return _vectors(meanings, noise, seed=2)


def with_positions(words: Tensor) -> Tensor:
    """Return the words with appended features for their position, as in the states of a decoder."""
    batch, length, _ = words.shape
    return torch.cat([words, torch.eye(length).expand(batch, -1, -1)], dim=-1)


def sentence_scene(weights: Tensor, caption: str, rows: list[str] = GERMAN, **labels: Any) -> Scene:
    """Return the scene of queries, the German words by default, that attend to the English ones."""
    return Scene(
        weights=weights, rows=rows, columns=ENGLISH, row_axis="query", column_axis="key", caption=caption, **labels
    )


def _vectors(meanings: list[list[str]], noise: float, seed: int) -> Tensor:
    """Return vectors of length about 2.4: the dot product of a match is 5.8, which dominates a softmax."""
    vectors = torch.zeros(len(meanings), SIZE)
    for number, parts in enumerate(meanings):
        for part in parts:
            vectors[number, _MEANINGS.index(part)] = 2.4 * len(parts) ** -0.5
    generator = torch.Generator().manual_seed(seed)
    return (vectors + noise * torch.randn(vectors.shape, generator=generator)).unsqueeze(0)
