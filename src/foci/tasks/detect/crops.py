"""The parts of a picture in the boxes that were found, each as a file of its own."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foci.data.images.files import Unreadable, read_scaled
from foci.errors import DataError

_LONGEST = 100
"""Characters of the name of an image that are kept."""


def write_crops(name: str, size: tuple[int, int], objects: Sequence[dict[str, Any]], folder: Path) -> None:
    """Write the part of an image of this height and width in each box; objects get the name of their file as crop."""
    from PIL import Image

    found = read_scaled(name, size)
    if isinstance(found, Unreadable):
        raise DataError(str(found))
    folder.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^\w.-]+", "_", os.path.splitext(name)[0]).strip("_.")[-_LONGEST:]
    for number, one in enumerate(objects, start=1):
        left, top, right, bottom = one["box"]
        rows = slice(math.floor(top), max(math.ceil(bottom), math.floor(top) + 1))
        columns = slice(math.floor(left), max(math.ceil(right), math.floor(left) + 1))
        label = re.sub(r"[^\w-]+", "_", one["label"])
        path = folder / f"{stem}-{number}-{label}.png"
        Image.fromarray(np.ascontiguousarray(found.pixels[rows, columns])).save(path)
        one["crop"] = str(path)
