"""Images with objects from any of the usual forms, each recognized: what a file or folder is, its parts, its images.

========================  ==========================================================================================
a .json file              COCO: images, annotations, categories
a .jsonl file             ``{"image": …, "objects": [{"label": …, "box": [left, top, right, bottom]}]}`` in each line
a .csv or .tsv file       a row for each box: image, label, left, top, right, bottom
a folder                  Pascal VOC (Annotations, JPEGImages, ImageSets), YOLO (images, labels, data.yaml), or COCO
a .yaml file              the data.yaml of YOLO
a .txt file               a list of VOC (in ImageSets), or of YOLO (a path of an image in each line)
========================  ==========================================================================================
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foci.data.images.drawn import SIDE, find_scene, scene_name
from foci.data.lines import Fault, Log, ending_of, read_examples, usable
from foci.data.tables import Column
from foci.errors import DataError
from foci.files import expanded, listed
from foci.tasks.detect.config import COLUMNS
from foci.tasks.detect.formats import coco, tables, voc, yolo
from foci.tasks.detect.marked import Changes, GivenImage, MarkedImage, checked
from foci.tasks.frame.class_folders import PART_NAMES, innermost

_EXPECTED = (
    "a COCO .json file, a folder of Pascal VOC (Annotations with .xml files), a folder of YOLO (images, labels and "
    "data.yaml), a .jsonl file, or a .csv file with a box in each row"
)


class ReadImages(NamedTuple):
    """Images with objects, and what writes them again.

    ``corners`` is from which number those of VOC were counted, None for all other forms; ``numbers`` are COCO's of the
    classes, none for all other forms.
    """

    images: list[MarkedImage]
    corners: int | None
    numbers: Mapping[str, int]


def read_marked_images(
    path: str | Path,
    *,
    images: str | None = None,
    columns: Sequence[Column] = COLUMNS,
    corners: int | None = None,
    log: Log | None = None,
) -> ReadImages:
    """Return the images of a file or folder, or of its part to train on, with their objects in pixels.

    Args:
        path: any of the forms above.
        images: the folder of the images, where they are not beside their annotations.
        columns: those of a table: image, label, left, top, right, bottom.
        corners: from which number the corners of VOC count, 0 or 1. Default: as the boxes tell. Others have edges.
        log: called with what is guessed, changed and left out.

    Everything is read before a DataError reports the first fault, with its file and line, and their number.
    """
    whole = str(path)
    part = parts_of(whole).get("train", whole) if os.path.isdir(whole) or yolo.is_yaml(whole) else whole
    if part != whole and log is not None:
        log(f"{whole}: {part} is read")
    form = _form_of(part)
    numbers: Mapping[str, int] = {}
    given: Iterator[GivenImage | Fault]
    if form == "voc":
        raw = list(usable(voc.read_voc(part, images), "images"))
        guessed = voc.guess_corners(raw)
        if corners is None and log is not None:
            log(f"{guessed} (data.corners)")
        corners = guessed.base if corners is None else corners
        given = (voc.from_base(one, corners or 0) for one in raw)
    elif form == "coco":
        content = coco.as_coco(Path(part)) or {}
        numbers = coco.numbers_of(content)
        given = coco.read_coco(Path(part), content, images)
    else:
        given = _READERS[form](part, images, columns)
    changes = Changes()
    found = read_examples(Path(part), checked(given, changes, log), "images", "file or folder")
    if log is not None:
        changes.say(log)
    return ReadImages(found, corners if form == "voc" else None, numbers)


_READERS: Mapping[str, Callable[[str, str | None, Sequence[Column]], Iterator[GivenImage | Fault]]] = {
    "yolo": lambda path, images, columns: yolo.read_yolo(path, images),
    "jsonl": lambda path, images, columns: tables.read_jsonl(Path(path)),
    "table": lambda path, images, columns: tables.read_table(Path(path), columns),
}
"""Reads a form, given the path, the folder of the images and the columns."""


def _form_of(path: str) -> str:
    """Return which form a file, or a folder without parts, has."""
    ending = ending_of(path)
    if os.path.isdir(path):
        if voc.marks_of(path) is not None:
            return "voc"
        if _is_yolo(path):
            return "yolo"
        raise DataError(f"{path}: the folder holds no annotations that are known, expected {_EXPECTED}.")
    if ending == ".json" and os.path.isfile(path) and coco.as_coco(Path(path)) is not None:
        return "coco"
    if ending in (".json", ".jsonl"):
        return "jsonl"
    if ending == ".txt" and os.path.isfile(path):
        return "voc" if voc.root_of(path) else "yolo"
    return "table"  # which refuses all other endings


def _is_yolo(folder: str) -> bool:
    """Return whether a folder has images whose labels are text files, or says that it has."""
    names = listed(folder)
    if {"images", "labels"} <= {*names.folders} or os.path.isdir(yolo.labels_folder(folder) or ""):
        return True
    stems = {os.path.splitext(name)[0] for name in names.files if name.endswith(".txt")}
    return any(os.path.splitext(name)[0] in stems for name in names.files if not name.endswith(".txt"))


# ---- parts


def parts_of(path: str) -> dict[str, str]:
    """Return what a data set has to train, validate and evaluate on, as far as it says; else nothing.

    Example:
        >>> parts_of("no such folder")
        {}
    """
    if yolo.is_yaml(path) and os.path.isfile(path):
        return yolo.read_yaml(path).parts
    if not os.path.isdir(path):
        return {}
    folder = innermost(path)
    if lists := voc.lists_of(folder):
        return lists
    if voc.marks_of(folder) is not None:
        return {} if folder == path else {"train": folder}
    files = [
        os.path.join(place, name) for place in (folder, os.path.join(folder, "annotations")) for name in _json(place)
    ]
    if files:
        return _coco_parts(path, files)
    for name in filter(yolo.is_yaml, listed(folder).files):
        if parts := yolo.read_yaml(os.path.join(folder, name)).parts:
            return parts
    inside = os.path.join(folder, "images")
    return _part_folders(inside) or _part_folders(folder) or ({} if folder == path else {"train": folder})


def implied_parts(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings data.valid and data.test that follow from a data.path with parts."""
    path = tables.get("data", {}).get("path")
    try:
        parts = {} if path is None else parts_of(expanded(str(path)))
    except (ValueError, OSError, DataError):  # which is reported when it is read
        return {}
    found = {part: parts[part] for part in ("valid", "test") if part in parts}
    return {"data": found} if "train" in parts and found else {}


def _json(folder: str) -> list[str]:
    return [name for name in listed(folder).files if name.endswith(".json")] if os.path.isdir(folder) else []


def _coco_parts(path: str, files: Sequence[str]) -> dict[str, str]:
    """Return the files of the parts, by their names; of several for one part that of instances."""
    found: dict[str, list[str]] = {}
    for file in files:
        words = re.split(r"[^a-z]+", os.path.basename(file).lower())
        part = next((part for part, names in PART_NAMES.items() if not {*names}.isdisjoint(words)), "train")
        found.setdefault(part, []).append(file)
    for part, several in found.items():
        chosen = [file for file in several if "instances" in os.path.basename(file)] or several
        if len(chosen) > 1:
            raise DataError(f"{path}: {', '.join(chosen)} may all be the {part} part. Name one: data.path (--data).")
        found[part] = chosen
    return {part: chosen[0] for part, chosen in found.items()}


def _part_folders(folder: str) -> dict[str, str]:
    """Return the folders train, val and test of a folder, each with what it holds: a COCO file, VOC or YOLO."""
    if not os.path.isdir(folder):
        return {}
    by_name = {name.lower(): os.path.join(folder, name) for name in listed(folder).folders}
    places = {part: by_name[name] for part, names in PART_NAMES.items() for name in names if name in by_name}
    found = {}
    for part, place in places.items():
        files = _json(place)
        if len(files) == 1:
            found[part] = os.path.join(place, files[0])
        elif voc.marks_of(place) is not None or _is_yolo(place):
            found[part] = place
    return found if "train" in found else {}


# ---- drawn scenes


def drawn_objects(count: int, *, split: str = "train", seed: int = 0) -> list[MarkedImage]:
    """Return drawn scenes with one to five shapes.

    Example:
        >>> scene, = drawn_objects(1, split="test")
        >>> scene.image, [one["label"] for one in scene.objects]
        ('drawn:scattered/test/0/0', ['square', 'square'])
    """
    names = [scene_name("scattered", split, seed, number) for number in range(count)]
    return [
        MarkedImage(
            name,
            [
                {"label": shape.kind, "box": [round(edge * SIDE, 3) for edge in shape.outline]}
                for shape in find_scene(name).shapes
            ],
        )
        for name in names
    ]
