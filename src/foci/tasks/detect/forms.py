"""Predictions as one document: COCO's JSON, and a table with a box in each row."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from foci.printable import printable
from foci.tasks.frame.task import Prediction


class CocoForm:
    """COCO's JSON: annotations with a score, then images and categories.

    A category has the number that the training data gave it; an image the number that it is called by, else the next
    one.

    Args:
        assets: the classes and their numbers.
    """

    def __init__(self, assets: Any) -> None:
        self.numbers = dict(zip(assets.labels, assets.numbers))
        self.images: dict[int, dict[str, Any]] = {}
        self.begun, self.count = False, 0

    def add(self, prediction: Prediction) -> Iterator[str]:
        """Yield the lines of an image."""
        yield from self._begin()
        if prediction.failed:
            return
        name = str(prediction.inputs["image"])
        width, height = prediction.details["size"]
        stem = os.path.splitext(os.path.basename(name))[0]
        number = int(stem) if stem.isdecimal() and int(stem) not in self.images else len(self.images) + 1
        while number in self.images:
            number += 1
        self.images[number] = {"id": number, "file_name": name, "width": width, "height": height}
        for one in prediction.details["objects"]:
            left, top, right, bottom = one["box"]
            box = [round(edge, 2) for edge in (left, top, right - left, bottom - top)]
            found = {
                "id": self.count + 1,
                "image_id": number,
                "category_id": self.numbers[one["label"]],
                "bbox": box,
                "area": round(box[2] * box[3], 2),
                "iscrowd": 0,
                "score": round(one["probability"], 6),
            }
            yield (", " if self.count else "") + json.dumps(found)
            self.count += 1

    def end(self) -> Iterator[str]:
        """Yield the last lines."""
        yield from self._begin()
        categories = [{"id": number, "name": label} for label, number in self.numbers.items()]
        yield f'], "images": {json.dumps([*self.images.values()])},'
        yield f'"categories": {json.dumps(categories)}}}'

    def _begin(self) -> Iterator[str]:
        if not self.begun:
            self.begun = True
            yield '{"annotations": ['


class BoxesForm:
    """A table with a box in each row, and tabs between columns; an image without objects has a row without a box.

    Args:
        assets: not needed.
    """

    def __init__(self, assets: Any) -> None:
        self.begun = False

    def add(self, prediction: Prediction) -> Iterator[str]:
        """Yield the rows of an image."""
        if not self.begun:
            self.begun = True
            yield "\t".join(("image", "label", "left", "top", "right", "bottom", "probability"))
        if prediction.failed:
            return
        name = printable(prediction.inputs["image"])
        for one in prediction.details["objects"]:
            yield "\t".join(map(str, (name, printable(one["label"]), *one["box"], round(one["probability"], 6))))
        if not prediction.details["objects"]:
            yield name + "\t" * 6

    def end(self) -> Iterator[str]:
        """Yield nothing: a table ends with its last row."""
        return iter(())
