"""What captions are compared with: that of the training image which looks most alike.

Images are compared by the cosine of their descriptors: of a frozen encoder's features their mean over the regions, of
pixels an image of 8 × 8 without its mean.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch.nn import functional as F

from foci.data.images.features import ImageFeatures
from foci.data.images.files import Images
from foci.errors import CheckpointError

_MOST = 10_000
"""Training images that are kept, the first ones."""
_SMALL = 8
"""Height and width of the images that are compared by their pixels."""
_TOGETHER = 64
_STEPS = 127
"""A number from -1 to 1 is kept in as many steps on each side."""


def keep_neighbors(images: Images | ImageFeatures, captions: Sequence[str]) -> dict[str, Any]:
    """Return training images, each with its caption, as plain JSON."""
    rows = np.rint(_descriptors(images, _MOST) * _STEPS).astype(np.int8)
    return {"captions": list(captions[: len(rows)]), "images": base64.b64encode(rows.tobytes()).decode()}


def nearest_captions(images: Images | ImageFeatures, kept: Mapping[str, Any]) -> list[str]:
    """Return for each image the caption of the training image that is most alike; ``kept`` is of `keep_neighbors`.

    Raises:
        CheckpointError: what was kept is damaged.
    """
    try:
        captions = [str(one) for one in kept["captions"]]
        rows = np.frombuffer(base64.b64decode(kept["images"]), np.int8).reshape(len(captions), -1)
        found = _descriptors(images) @ rows.astype(np.float32).T
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"the captions to compare with are not what foci wrote ({error}).") from error
    return [captions[place] for place in found.argmax(axis=1)]


def _descriptors(images: Images | ImageFeatures, most: int | None = None) -> Float[NDArray[np.float32], "N D"]:
    found = []
    for start in range(0, min(len(images), most or len(images)), _TOGETHER):
        grids = images.grids(np.arange(start, min(start + _TOGETHER, len(images)))).float()
        if isinstance(images, Images):
            rows = F.adaptive_avg_pool2d(grids, _SMALL).flatten(1)
            rows = rows - rows.mean(dim=1, keepdim=True)
        else:
            rows = grids.mean(dim=(1, 2))
        found.append(F.normalize(rows, dim=1).numpy())
    every: Float[NDArray[np.float32], "N D"] = np.concatenate(found)[:most]
    return every
