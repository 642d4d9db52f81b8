"""A recording of a run as what can be erased: stretches of sound."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from foci.probing.erasers import Cells
from foci.probing.subject import Source
from foci.viz.axis import Axis

STRETCH = 0.1
"""Seconds that are erased at a time, to the nearest number of positions: about a speech sound."""


def erasable_sound(features: Float[Tensor, "1 T F"], axis: Axis, factor: int) -> tuple[Source, NDArray[np.int64]]:
    """Return the stretches of a recording as the first argument of a model, and the stretch of each position.

    Args:
        features: of each frame.
        axis: the positions that the attention reads.
        factor: frames per position.
    """
    size = max(1, round(STRETCH / axis.seconds)) if axis.seconds else 1
    groups = np.arange(len(axis)) // size
    frames = torch.arange(features.shape[1], device=features.device) // (factor * size)
    owner = frames.clamp_max(int(groups[-1])).reshape(1, -1, 1)
    begins = [axis.moment(place) for place in range(0, len(axis) + size, size)]
    labels = tuple(f"{begin:.2f}–{end:.2f} s" for begin, end in pairwise(begins))
    source = Source(0, labels[: int(groups[-1]) + 1], eraser=Cells.with_mean(features, owner), unit="sound")
    return source, groups
