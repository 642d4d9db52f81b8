"""Pascal VOC: an XML file per image, in a folder with ImageSets, or beside the images.

By its specification, corners are whole pixels counted from 1, the last one inside; many tools write edges from 0. Which
of them a data set has is seen where boxes touch the left or the top of their image.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree
from xml.parsers import expat

from foci.data.images.files import image_files
from foci.data.lines import Fault, read_lines
from foci.encodings import has_surrogates
from foci.files import listed, read_bytes
from foci.tasks.detect.marked import GivenImage, GivenObject

_LINE = "line "
"""The attribute of an element that holds its line; no name of XML has a space."""
_SETS = ("ImageSets/Main", "ImageSets")
_MARKS, _IMAGES = ("Annotations", "annotations"), ("JPEGImages", "images", "Images")


class Corners(NamedTuple):
    """From which number on corners are counted, and how many boxes show it: those that begin at 0, and at 1."""

    base: int
    at_zero: int
    at_one: int

    def __str__(self) -> str:
        shown = f"{self.at_one:,} boxes touch 1 at the left or the top, {self.at_zero:,} touch 0"
        if self.base:
            return f"corners are read as pixels from 1, as Pascal VOC has them: {shown}"
        return f"corners are read as edges from 0: {shown}"


def guess_corners(images: Sequence[GivenImage]) -> Corners:
    """Guess from which number corners are counted; from 1, as specified, unless more boxes begin at 0 than at 1."""
    firsts = [edge for image in images for one in image.objects for edge in one.box[:2]]
    at_zero, at_one = sum(edge < 0.5 for edge in firsts), sum(0.5 <= edge < 1.5 for edge in firsts)
    return Corners(int(at_zero <= at_one), at_zero, at_one)


def from_base(image: GivenImage, base: int) -> GivenImage:
    """Return an image whose corners count from ``base`` with edges from 0."""
    moved = [one._replace(box=(one.box[0] - base, one.box[1] - base, one.box[2], one.box[3])) for one in image.objects]
    return image._replace(objects=moved)


def lists_of(folder: str) -> dict[str, str]:
    """Return the lists of names of a VOC folder: train, valid and test, as far as there are such."""
    for sets in _SETS:
        place = os.path.join(folder, sets)
        if os.path.isdir(place):
            names = {os.path.splitext(name)[0].lower(): os.path.join(place, name) for name in listed(place).files}
            train = names.get("train") or names.get("trainval")
            found = {"train": train, "valid": names.get("val") or names.get("valid"), "test": names.get("test")}
            return {part: path for part, path in found.items() if path is not None}
    return {}


def root_of(path: str) -> str | None:
    """Return the VOC folder that a list of names belongs to; None if it belongs to none."""
    folder = os.path.dirname(path)
    while os.path.basename(folder) in ("Main", "ImageSets"):
        folder = os.path.dirname(folder)
        if marks_of(folder) is not None:
            return folder
    return None


def marks_of(folder: str) -> str | None:
    """Return the folder of the annotations of a VOC folder: one inside, or itself if it has XML files."""
    if not os.path.isdir(folder):
        return None
    inside = [os.path.join(folder, name) for name in _MARKS]
    return next((place for place in (*inside, folder) if _xml_files(place)), None)


def _xml_files(folder: str) -> list[str]:
    return [name for name in listed(folder).files if name.lower().endswith(".xml")] if os.path.isdir(folder) else []


def read_voc(path: str, images: str | None = None) -> Iterator[GivenImage | Fault]:
    """Yield the images of a VOC folder, or those that one of its lists names, with corners as they are written.

    Args:
        path: a folder, or a list.
        images: the folder of the images. Default: JPEGImages or images beside the annotations, or their own.
    """
    folder = root_of(path) if os.path.isfile(path) else path
    marks = marks_of(folder or "") or ""
    names = _listed_names(Path(path), marks) if os.path.isfile(path) else _xml_files(marks)
    beside = [os.path.join(folder or "", name) for name in _IMAGES]
    place = images or next((one for one in beside if os.path.isdir(one)), marks)
    by_stem = {os.path.splitext(os.path.basename(name))[0]: name for name in image_files(place).images}
    for name in names:
        yield name if isinstance(name, Fault) else _read_xml(Path(marks, name), place, by_stem)


def _listed_names(path: Path, marks: str) -> Iterator[str | Fault]:
    known = {*_xml_files(marks)}
    for number, line in enumerate(read_lines(path), start=1):
        if isinstance(line, Fault):
            yield line
            continue
        words = line.split()
        if len(words) > 1:
            reason = (
                f"{len(words)} words, expected one name: lists of one class have a second column. Name the list of all."
            )
            yield Fault(path, number, "list of a class", reason)
        elif words:
            name = f"{words[0].removesuffix('.xml')}.xml"
            missing = Fault(path, number, "missing annotations", f"{os.path.join(marks, name)}: there is no such file.")
            yield name if name in known else missing


def _read_xml(path: Path, place: str, by_stem: dict[str, str]) -> GivenImage | Fault:
    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda tag, given: builder.start(tag, {**given, _LINE: str(parser.CurrentLineNumber)})
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(read_bytes(path), True)
        root = builder.close()
    except (expat.ExpatError, OSError, AssertionError) as error:
        return Fault(path, getattr(error, "lineno", 1), "broken XML", f"no XML that can be read ({error}).")
    if root.tag != "annotation":
        return Fault(path, 1, "other XML", f"the file holds <{root.tag}>, expected <annotation> of Pascal VOC.")
    objects = []
    for element in root.iter("object"):
        made = _object(path, element)
        if isinstance(made, Fault):
            return made
        objects.append(made)
    written = os.path.basename((root.findtext("filename") or "").strip().replace("\\", "/"))
    found = by_stem.get(path.stem) or by_stem.get(os.path.splitext(written)[0])
    size = [_number(root.findtext(f"size/{side}")) for side in ("height", "width")]
    known = (size[0], size[1]) if size[0] and size[1] else None
    return GivenImage(found or os.path.join(place, written or path.stem), objects, known, path)


def _object(path: Path, element: Any) -> GivenObject | Fault:
    line = int(element.get(_LINE))
    label = (element.findtext("name") or "").strip()
    if not label or has_surrogates(label):
        return Fault(path, line, "object without a name", "<object> has no <name>, expected its class.")
    box = element.find("bndbox")
    texts = {edge: None if box is None else box.findtext(edge) for edge in ("xmin", "ymin", "xmax", "ymax")}
    numbers = [_number(text) for text in texts.values()]
    if None in numbers:
        name, text = next(pair for pair in texts.items() if _number(pair[1]) is None)
        at = line if box is None or box.find(name) is None else int(box.find(name).get(_LINE))
        reason = f"<{name}> of {label!r} is {text!r}, expected a number." if text else f"{label!r} has no <{name}>."
        return Fault(path, at, "bad box", reason)
    left, top, right, bottom = (float(number or 0.0) for number in numbers)
    difficult = (element.findtext("difficult") or "0").strip()
    return GivenObject(label, (left, top, right, bottom), line, crowd=difficult not in ("0", ""))


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if abs(value) < 1e9 else None
