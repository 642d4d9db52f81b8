"""Images with objects as batches: pictures on canvases, and boxes as shares of the pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

from foci.data.batching import Indices
from foci.data.images.canvases import Canvases
from foci.functional.boxes import from_corners
from foci.metrics.detection import Marked
from foci.tasks.detect.set_loss import Targets


class DetectionBatch(NamedTuple):
    """Pictures at the top left of canvases, the height and width of each, and their objects."""

    images: UInt8[Tensor, "B 3 H W"]
    sizes: Int[Tensor, "B 2"]
    targets: Targets


class DetectionExamples:
    """Decoded images with the objects that are trained on; crowds, and classes that were not trained, are left out.

    Args:
        canvases: the images.
        objects: those of every name that was given to `Canvases.load_canvases`, unreadable images included.
        labels: the classes, in the order of the model's scores.
    """

    def __init__(
        self, canvases: Canvases, objects: Sequence[Sequence[Mapping[str, Any]]], labels: Sequence[str]
    ) -> None:
        self.canvases = canvases
        numbers = {label: place for place, label in enumerate(labels)}
        self.boxes: list[Float[NDArray[np.float32], "N 4"]] = []
        self.labels: list[Int[NDArray[np.int64], " N"]] = []
        for place, number in enumerate(canvases.kept):
            known = [one for one in objects[number] if not one.get("crowd") and one["label"] in numbers]
            height, width = canvases.originals[place]
            corners = np.array([one["box"] for one in known], np.float64).reshape(-1, 4)
            self.boxes.append((corners / [width, height, width, height]).astype(np.float32))
            self.labels.append(np.array([numbers[one["label"]] for one in known], np.int64))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """``(image, 1)``: each counts as one."""
        return np.ones((len(self.canvases), 1), np.int64)

    def batch(self, indices: Indices, widths: Sequence[int]) -> DetectionBatch:
        """Return these images with their objects, padded to the most that one of them has."""
        chosen = [int(index) for index in indices]
        most = max((len(self.labels[index]) for index in chosen), default=0)
        boxes = torch.zeros(len(chosen), most, 4)
        labels = torch.zeros(len(chosen), most, dtype=torch.long)
        valid = torch.zeros(len(chosen), most, dtype=torch.bool)
        for row, index in enumerate(chosen):
            count = len(self.labels[index])
            boxes[row, :count] = torch.from_numpy(self.boxes[index])
            labels[row, :count] = torch.from_numpy(self.labels[index])
            valid[row, :count] = True
        images = self.canvases.grids(indices)
        return DetectionBatch(
            images, self.canvases.readable_sizes(indices), Targets(from_corners(boxes), labels, valid)
        )


def marked_objects(objects: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Marked:
    """Return the objects of an image whose classes were trained, as metrics take them.

    Example:
        >>> marked_objects([{"label": "cat", "box": [1, 2, 5, 4], "crowd": True}, {"label": "?", "box": []}], ["cat"])
        Marked(boxes=array([[1., 2., 5., 4.]]), labels=array([0]), crowd=array([ True]), area=array([8.]))
    """
    numbers = {label: place for place, label in enumerate(labels)}
    known = [one for one in objects if one["label"] in numbers]
    boxes = np.array([one["box"] for one in known], np.float64).reshape(-1, 4)
    marked = Marked.from_boxes(boxes, np.array([numbers[one["label"]] for one in known], np.int64))
    return marked._replace(
        crowd=np.array([bool(one.get("crowd")) for one in known], bool),
        area=np.array([one.get("area", area) for one, area in zip(known, marked.area)], np.float64),
    )
