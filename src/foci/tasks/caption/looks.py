"""Where the words of a caption look: how far from word to word and, for drawn scenes, at what they name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from foci.data.images.drawn import LANGUAGES, PREFIX, Mention, caption, find_scene, mentions
from foci.metrics.boxes import Box, area, points_at, share_inside
from foci.tasks.caption.reader import CaptionedImage
from foci.tasks.frame.task import Table
from foci.viz.regions import smooth

_FINER = 8
"""Points along a region's side at which its smoothed weights are compared with a box."""


class Looks(NamedTuple):
    """How far each image's maps move from word to word, and where words look that name a shape."""

    moves: list[float]
    words: list[Look]


class Look(NamedTuple):
    """Whether a word looked at what it names, with which share of its weights, and the share that chance gives."""

    shape: tuple[int, int]
    """The number of its image, and that of the shape in it."""
    what: str
    pointing: bool
    inside: float
    chance: float


def look(weights: Float[NDArray[np.float32], "R S"], box: Box, shape: tuple[int, int], what: str) -> Look:
    """Compare the map of a word with the box of the shape that it names."""
    spread = smooth(weights, _FINER * weights.shape[0], _FINER * weights.shape[1])
    return Look(shape, what, points_at(spread, box), share_inside(spread, box), area(box))


def named_boxes(one: CaptionedImage) -> list[tuple[Mention, Box]]:
    """Return the words of a drawn scene's caption that name a shape, each with its box; none for other images."""
    if not one.image.startswith(PREFIX):
        return []
    scene = find_scene(one.image)
    for language in LANGUAGES:
        if caption(scene, language) == one.captions[0]:
            return [(mention, scene.shapes[mention.shape].box) for mention in mentions(scene, language)]
    return []


def table_of_looks(looked: Sequence[Look]) -> Table:
    """Return a row for each kind of word, and one for all."""
    rows: list[tuple[Any, ...]] = []
    for name, kinds in (("color", {"color"}), ("shape", {"kind"}), ("all", {"color", "kind"})):
        some = [(one.pointing, one.inside, one.chance) for one in looked if one.what in kinds]
        rows.append((name, len(some), *(np.mean(some, axis=0).tolist() if some else [0.0] * 3)))
    return Table(("word", "number", "pointing", "inside", "by chance"), tuple(rows))


def shapes_pointed_at(looked: Sequence[Look]) -> float:
    """Return the share of shapes that one of the words that name them points at."""
    return len({one.shape for one in looked if one.pointing}) / len({one.shape for one in looked})
