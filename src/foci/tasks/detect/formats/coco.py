"""COCO: one JSON file with images, annotations and categories; boxes are left, top, width and height."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from foci.data.lines import Fault, current_encoding, open_bytes
from foci.encodings import decode, has_surrogates
from foci.errors import DataError
from foci.files import MAX_BYTES
from foci.tasks.detect.marked import Corners, GivenImage, GivenObject

LARGEST = 4 * MAX_BYTES
"""A larger file is not read; that of COCO's training images has 450 MB."""
_TRIED = 20
"""Images that are looked for in each folder that may hold them."""


def as_coco(path: Path) -> dict[str, Any] | None:
    """Return the content of a COCO file; None if the file is no JSON object with images and annotations."""
    with open_bytes(path) as file:
        raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise DataError(f"{path}: more than {LARGEST:,} bytes, expected at most that. Split the file.")
    try:
        whole = json.loads(decode(raw, current_encoding().name))
    except (ValueError, RecursionError):
        return None  # what is wrong with which line is found by reading it as lines
    lists = [whole.get(name) for name in ("images", "annotations", "categories")] if isinstance(whole, dict) else []
    return whole if lists and all(isinstance(one, list) for one in lists) else None


def numbers_of(content: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of the categories by their names, where they are whole numbers."""
    found = [one for one in content["categories"] if isinstance(one, dict) and isinstance(one.get("id"), int)]
    return {str(one.get("name")): one["id"] for one in found}


def read_coco(path: Path, content: Mapping[str, Any], images: str | None = None) -> Iterator[GivenImage | Fault]:
    """Yield the images of a COCO file with their objects.

    JSON has no lines that could be named: faults say which of the annotations has them.

    Args:
        path: the file, for messages.
        content: what it holds.
        images: the folder of the images. Default: the one of some near the file that has them.
    """
    try:
        labels = {one["id"]: str(one["name"]) for one in content["categories"]}
        files = {one["id"]: one for one in content["images"]}
        names = [str(one["file_name"]) for one in content["images"]]
    except (KeyError, TypeError) as error:
        reason = (
            f"an image or a category is not as expected ({type(error).__name__}: {error}): id with file_name, or name."
        )
        yield Fault(path, 1, "bad image", reason)
        return
    for what, found, given in (("category", labels, content["categories"]), ("image", files, content["images"])):
        if len(found) < len(given):
            yield Fault(path, 1, f"repeated {what}", f"{len(given) - len(found)} ids of {what} occur twice.")
            return
    objects: dict[Any, list[GivenObject]] = {number: [] for number in files}
    for number, one in enumerate(content["annotations"], start=1):
        made = _annotation(one, labels, files)
        if isinstance(made, str):
            yield Fault(path, 1, "bad annotation", f"annotation {number} of the file: {made}")
        else:
            objects[one["image_id"]].append(made)
    folder = _folder(path, names, images)
    for number, one in files.items():
        sides = one.get("height"), one.get("width")
        size = (sides[0], sides[1]) if all(isinstance(side, int | float) and side > 0 for side in sides) else None
        yield GivenImage(os.path.join(folder, str(one["file_name"])), objects[number], size, path)


def _annotation(one: Any, labels: Mapping[Any, str], files: Mapping[Any, Any]) -> GivenObject | str:
    """Return an object, or what is wrong with it."""
    if not isinstance(one, dict):
        return f"a {type(one).__name__}, expected an object."
    for name, known, what in (("image_id", files, "images"), ("category_id", labels, "categories")):
        if not isinstance(one.get(name), int | str) or one[name] not in known:
            return f"{name} is {one.get(name)!r}, which is not among the {what} of the file."
    label = labels[one["category_id"]]
    if not label.strip() or has_surrogates(label):
        return f"the name of category {one['category_id']} is {label!r}, expected text."
    box = corners_of(one.get("bbox"))
    if box is None:
        return f"bbox is {one.get('bbox')!r}, expected four numbers: left, top, width and height."
    left, top, width, height = box
    corners = left, top, left + width, top + height
    return GivenObject(label, corners, 1, bool(one.get("iscrowd")), area_of(one))


def area_of(one: Mapping[str, Any]) -> float | None:
    """Return the area of an object's mask; None where it has none."""
    area = one.get("area")
    known = isinstance(area, int | float) and not isinstance(area, bool) and 0 < area < math.inf
    return float(area) if known and area is not None else None


def corners_of(value: Any) -> Corners | None:
    """Return a list of four finite numbers; None for anything else."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 4:
        return None
    if not all(isinstance(one, int | float) and not isinstance(one, bool) and abs(one) < 1e9 for one in value):
        return None
    return float(value[0]), float(value[1]), float(value[2]), float(value[3])


def _folder(path: Path, names: Sequence[str], images: str | None) -> str:
    """Return the folder that has the images: the one that is named, or one near the file."""
    if images is not None or not names:  # that there are none is reported by the reader
        return images or str(path.parent)
    here, above = str(path.parent), str(path.parent.parent)
    part = path.stem.rpartition("_")[2]
    inner = ("", "images", part, os.path.join("images", part), "JPEGImages")
    folders = [os.path.join(folder, name) if name else folder for folder in (here, above) for name in inner]
    for folder in folders:
        if any(os.path.exists(os.path.join(folder, name)) for name in islice(names, _TRIED)):
            return folder
    raise DataError(
        f"{path}, line 1: its images, such as {names[0]}, are not in {', '.join(folders[:4])} or "
        "near. Name their folder: data.images (--images)."
    )
