"""Settings that suit the training data: the size of pictures by that of the objects, queries by their number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foci.data.images.drawn import PREFIX, SIDE
from foci.data.images.files import sizes_of
from foci.tasks.detect.config import DetectConfig
from foci.tasks.detect.marked import MarkedImage
from foci.tasks.frame.task import Suited

_MEASURED = 500
"""Images whose size is looked up."""
_SMALL = 12.0
"""Pixels that nearly all objects should be wide and high on the canvas."""
_SIZES = (64, 96, 128, 192, 256, 384, 512)
"""Longer sides of a canvas."""
_FINE = 128
"""From this longer side on the small network has one more stage, so that its coarsest level stays small."""
_FEWEST, _MOST = 16, 300
"""Queries."""
_LEAST_STEPS = 1500


def suited(train: Sequence[MarkedImage], config: DetectConfig) -> dict[str, Suited]:
    """Return settings that suit these images, by their dotted paths, with the reasons."""
    chosen: dict[str, Suited] = {}
    longest = config.data.image_size
    if longest is None:
        chosen["data.image_size"] = _longest(train)
        longest = int(chosen["data.image_size"].value)
    most = max(len(trained_on(image)) for image in train)
    queries = min(_MOST, max(_FEWEST, math.ceil(1.5 * most)))
    chosen["model.num_queries"] = Suited(queries, f"images have up to {most} objects")
    model, encoder = config.model, config.model.encoder
    if longest > _FINE and model.preset == "base" and encoder.kind == "small":
        reason = f"images have {longest} px, and a stage more keeps the coarsest level of their map small"
        chosen["model.encoder.stages"] = Suited((*encoder.stages, 96), reason)
    return {**chosen, **_training(len(train), config)}


def _training(count: int, config: DetectConfig) -> dict[str, Suited]:
    training, size = config.training, config.data.batch_size
    chosen = {"training.schedule": Suited("cosine", "the learning rate falls to 0 until the training ends")}
    steps = training.max_steps
    if steps is None and training.time_limit is None:
        epoch = math.ceil(count / size)
        steps = max(_LEAST_STEPS, (training.max_epochs or 1) * epoch)
        about = f"{steps / epoch:.0f} epochs of {count:,} images, {size} per batch"
        chosen["training.max_steps"] = Suited(steps, about)
        chosen["training.max_epochs"] = Suited(None, "training.max_steps says when the training ends")
    if steps is not None and training.warmup > steps // 10:
        chosen["training.warmup"] = Suited(max(1, steps // 10), f"a tenth of training.max_steps = {steps:,}")
    return chosen


def _longest(train: Sequence[MarkedImage]) -> Suited:
    """Return the longer side on which nearly all objects are large enough."""
    if train[0].image.startswith(PREFIX):
        return Suited(SIDE, "the size of drawn scenes")
    shares: list[float] = []
    sides: list[int] = []
    for one in spread(train):
        if (sizes := sizes_of(one.image)) is not None:
            side = max(sizes.upright)
            sides.append(side)
            boxes = (item["box"] for item in trained_on(one))
            shares += [math.sqrt((right - left) * (bottom - top)) / side for left, top, right, bottom in boxes]
    if not shares:
        return Suited(_SIZES[2], "the sizes of the objects are not known")
    small, side = float(np.quantile(shares, 0.05)), int(np.median(sides))
    most = next((size for size in _SIZES if size >= side), _SIZES[-1])
    chosen = min(next((size for size in _SIZES if size * small >= _SMALL), _SIZES[-1]), most)
    return Suited(
        chosen,
        f"images have {side} px (the longer side, median), and at this size nearly all objects at least "
        f"{chosen * small:.0f} px. More shows small objects better and takes more time",
    )


def trained_on(image: MarkedImage) -> list[Mapping[str, Any]]:
    """Return the objects of an image that are no crowds."""
    return [one for one in image.objects if not one.get("crowd")]


def spread(images: Sequence[MarkedImage]) -> Sequence[MarkedImage]:
    """Return some hundreds of images at equal distances."""
    return images[:: max(1, len(images) // _MEASURED)]
