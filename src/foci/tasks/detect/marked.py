"""Images with their objects: as a file has them, and checked, in pixels of the upright image.

A box is left, top, right and bottom edge; the first pixel is from 0 to 1. Boxes that reach beyond their image are cut,
boxes without area are left out, and boxes of an image that was scaled or turned after it was annotated are moved along;
all of it is counted, and the first of each kind is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foci.data.images.files import Sizes, sizes_of
from foci.data.lines import Fault, Log, counted
from foci.printable import printable

Corners = tuple[float, float, float, float]
"""Left, top, right and bottom."""


SHARES = (1, 1)
"""The size of an image whose boxes are given as shares of it."""
_SLACK = 1.0 / 64
"""Pixels by which a box may leave its image without being counted: files round."""


class MarkedImage(NamedTuple):
    """The file of an image, or the name of a drawn scene, and its objects.

    Each has a ``label`` and a ``box`` in pixels. One that is a crowd, or difficult, is ``crowd``: it is not trained on,
    and it counts neither as found nor as missed. ``area`` is that of its mask, where it is known.
    """

    image: str
    objects: Sequence[Mapping[str, Any]]


class GivenObject(NamedTuple):
    """An object as a file has it, and its line there."""

    label: str
    box: Corners
    line: int
    crowd: bool = False
    area: float | None = None


class GivenImage(NamedTuple):
    """An image as a file has it.

    ``size`` is the height and width that the boxes refer to, `SHARES` for shares; None: those of the image.
    """

    image: str
    objects: Sequence[GivenObject]
    size: tuple[float, float] | None
    path: Path


class _Change:
    """Counts what one kind of change concerns, and keeps the first of it."""

    def __init__(self) -> None:
        self.count, self.first = 0, ""

    def add(self, where: str) -> None:
        self.first = self.first or where
        self.count += 1


class Changes:
    """What was changed in the objects of a file."""

    def __init__(self) -> None:
        self.boxes = self.images = 0
        self.cut, self.dropped, self.scaled, self.turned = _Change(), _Change(), _Change(), _Change()

    def say(self, log: Log) -> None:
        """Log the counts, each with the first place."""
        images = f"of {self.images:,} images"
        boxes = f"of {self.boxes:,} boxes"
        for change, text in (
            (
                self.turned,
                f"{images} are turned by EXIF, but were annotated as they are stored: boxes are turned along",
            ),
            (self.scaled, f"{images} have another size than their annotations say: boxes are scaled along"),
            (self.cut, f"{boxes} reach beyond their image, and are cut to it"),
            (self.dropped, f"{boxes} have no area in their image, and are left out"),
        ):
            if change.count:
                log(f"{change.count:,} {text} (the first: {printable(change.first)})")


def checked(images: Iterable[GivenImage | Fault], changes: Changes, log: Log | None) -> Iterator[MarkedImage | Fault]:
    """Yield images with their boxes in pixels of the upright image; of image files the headers alone are read."""
    for given in counted(images, "images", log):
        if isinstance(given, Fault):
            yield given
            continue
        move = _Move.to_upright(given, sizes_of(given.image), changes)
        changes.images += 1
        yield MarkedImage(given.image, [found for one in given.objects if (found := move.apply(one, given, changes))])


class _Move(NamedTuple):
    """From the places that a file gives to those in the upright image.

    ``width`` and ``height`` bound the given places, ``across`` and ``down`` scale them; ``orientation`` is that of EXIF
    where they are turned, else 1.
    """

    width: float
    height: float
    across: float = 1.0
    down: float = 1.0
    orientation: int = 1

    @classmethod
    def to_upright(cls, given: GivenImage, sizes: Sizes | None, changes: Changes) -> _Move:
        """Compare the size that a file says with that of the image; an unreadable image is reported when decoded."""
        if sizes is None:
            height, width = given.size or (math.inf, math.inf)
            return cls(width, height)
        height, width = given.size or sizes.upright
        if (height, width) == sizes.upright:
            return cls(width, height)
        if (height, width) == sizes.stored:
            changes.turned.add(given.image)
            return cls(width, height, orientation=sizes.orientation)
        if (height, width) != SHARES:
            own = f"{sizes.upright[1]} × {sizes.upright[0]}"
            changes.scaled.add(f"{given.image}: annotated as {width:g} × {height:g}, but it has {own}")
        return cls(width, height, sizes.upright[1] / width, sizes.upright[0] / height)

    def apply(self, one: GivenObject, given: GivenImage, changes: Changes) -> dict[str, Any] | None:
        """Return an object as a record; None if it has no area in the image."""
        changes.boxes += 1
        left, top, right, bottom = one.box
        box = max(left, 0.0), max(top, 0.0), min(right, float(self.width)), min(bottom, float(self.height))
        if not (box[0] < box[2] and box[1] < box[3]):
            changes.dropped.add(f"{given.path}, line {one.line}")
            return None
        beyond = max(
            abs(inside - edge) * side for inside, edge, side in zip(box, one.box, [self.across, self.down] * 2)
        )
        if beyond > _SLACK:
            changes.cut.add(f"{given.path}, line {one.line}")
        left, top, right, bottom = self._turned(box)
        found: dict[str, Any] = {
            "label": one.label,
            "box": [left * self.across, top * self.down, right * self.across, bottom * self.down],
        }
        if one.crowd:
            found["crowd"] = True
        if one.area is not None:
            found["area"] = one.area * self.across * self.down
        return found

    def _turned(self, box: Corners) -> Corners:
        """Return a box in the stored image, of which height and width are exchanged, in the upright one."""
        if self.orientation == 1:
            return box
        left, top, right, bottom = box
        if self.orientation in (7, 8):
            left, right = self.width - right, self.width - left
        if self.orientation in (6, 7):
            top, bottom = self.height - bottom, self.height - top
        return top, left, bottom, right
