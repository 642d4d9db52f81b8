"""JSONL with the objects of an image in each line, and CSV or TSV with a box in each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from foci.data.images.files import beside
from foci.data.lines import Fault, each
from foci.data.tables import Column, JsonObject, TableRow, json_objects, missing_field, read_rows
from foci.tasks.detect.config import COLUMNS
from foci.tasks.detect.formats.coco import area_of, corners_of
from foci.tasks.detect.marked import GivenImage, GivenObject

EXPECTED = "{" + '"image": …, "objects": [{"label": …, "box": [left, top, right, bottom]}]}'


def read_jsonl(path: Path) -> Iterator[GivenImage | Fault]:
    """Yield the images of a file with a JSON object in each line; an image without objects has an empty list."""
    return each(json_objects(path), lambda entry: _record(path, entry))


def _record(path: Path, entry: JsonObject) -> GivenImage | Fault:
    record, line = entry
    for name in ("image", "objects"):
        if missing := missing_field(path, line, record, name):
            return missing._replace(reason=f"no field {name!r}, expected {EXPECTED}.")
    image, given = record["image"], record["objects"]
    if not isinstance(image, str) or not image.strip() or not isinstance(given, list):
        return Fault(path, line, "field of another kind", f"expected {EXPECTED}.")
    objects = [object_of(path, line, one) for one in given]
    fault = next((one for one in objects if isinstance(one, Fault)), None)
    found = [one for one in objects if isinstance(one, GivenObject)]
    return fault or GivenImage(beside(path, image.strip()), found, None, path)


def object_of(path: Path, line: int, one: Any) -> GivenObject | Fault:
    """Return an object of a JSON record."""
    label = one.get("label") if isinstance(one, Mapping) else None
    if not isinstance(label, str | int) or isinstance(label, bool) or not str(label).strip():
        return Fault(path, line, "object without a label", f"an object has no label, expected {EXPECTED}.")
    box = corners_of(one.get("box"))
    if box is None:
        reason = f"the box of {label!r} is {one.get('box')!r}, expected four numbers: [left, top, right, bottom]."
        return Fault(path, line, "bad box", reason)
    crowd = any(one.get(name) for name in ("crowd", "iscrowd", "difficult"))
    return GivenObject(str(label).strip(), box, line, crowd, area_of(one))


def read_table(path: Path, columns: Sequence[Column] = COLUMNS) -> Iterator[GivenImage | Fault]:
    """Yield the images of a table with a box in each row; an image without objects has a row without class and box.

    Args:
        path: a .csv or .tsv file.
        columns: those of image, class, left, top, right and bottom.
    """
    expected = "a .csv, .tsv or .jsonl file (also .gz, .xz), a COCO .json file, or a folder of Pascal VOC or YOLO"
    objects: dict[str, list[GivenObject]] = {}
    for row in read_rows(path, columns, texts=2, expected=expected):
        made = row if isinstance(row, Fault) else _row(path, row)
        if isinstance(made, Fault):
            yield made
        elif made is not None:
            objects.setdefault(beside(path, made[0]), []).extend(made[1])
    for name, found in objects.items():
        yield GivenImage(name, found, None, path)


def _row(path: Path, row: TableRow) -> tuple[str, list[GivenObject]] | Fault:
    image, label, *edges = (value.strip() for value in row.values)
    if not image:
        return Fault(path, row.line, "empty image", "the image is empty.")
    if not label and not any(edges):
        return image, []
    try:
        box = corners_of([float(edge) for edge in edges])
    except ValueError:
        box = None
    if not label or box is None:
        reason = (
            f"class {label!r} with the box {', '.join(edges)!r}, expected a class and four numbers, or nothing of both."
        )
        return Fault(path, row.line, "bad box", reason)
    return image, [GivenObject(label, box, row.line)]
