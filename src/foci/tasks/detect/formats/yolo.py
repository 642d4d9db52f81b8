"""YOLO: a text file per image with a line for each object: the number of its class, and its box as shares.

``class center-x center-y width height``; a line with more numbers is the outline of an object, whose box is taken. The
labels of ``images/…/a.jpg`` are in ``labels/…/a.txt``, else beside the image; no file, or an empty one, is an image
without objects. The names of the classes are in data.yaml, classes.txt or obj.names, of which only what is needed is
read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from foci.data.images.files import image_files
from foci.data.lines import Fault, read_lines, strict
from foci.errors import DataError
from foci.files import listed
from foci.tasks.detect.marked import SHARES, GivenImage, GivenObject

_LISTS = ("classes.txt", "obj.names", "classes.names", "_darknet.labels", "labels.txt")
_ABOVE = 3
"""How many folders above the images the names of classes are looked for in."""
_FARTHEST = 2.0
"""The largest share that is taken for one: a larger number is one of pixels."""
_PAIR = re.compile(r"""(?P<name>[\w./-]+|"[^"]*"|'[^']*')\s*:(?:\s+(?P<value>.*))?$""")


def read_yolo(path: str, images: str | None = None) -> Iterator[GivenImage | Fault]:
    """Yield the images of a folder, or those that a list names, with what their label files have.

    Args:
        path: a folder of images, or one with ``images`` and ``labels``; or a text file with the path of an image in
            each line.
        images: the folder that such paths are relative to. Default: that of the list.
    """
    names = class_names(path)
    if os.path.isfile(path):
        base = images or os.path.dirname(path)
        found = [os.path.join(base, line.strip()) for line in strict(read_lines(Path(path))) if line.strip()]
    else:
        inside = os.path.join(path, "images")
        found = image_files(images or (inside if os.path.isdir(inside) else path)).images
    for name in found:
        yield _image(name, names)


def _image(name: str, names: Sequence[str]) -> GivenImage | Fault:
    path = Path(_labels_of(name))
    objects = []
    for number, line in enumerate(read_lines(path) if path.exists() else (), start=1):
        made = line if isinstance(line, Fault) else _object(path, number, line.split(), names) if line.strip() else None
        if isinstance(made, Fault):
            return made
        if made is not None:
            objects.append(made)
    return GivenImage(name, objects, SHARES, path)


def _labels_of(image: str) -> str:
    """Return the label file of an image: in the folder of the labels, or beside it."""
    folder, name = os.path.split(image)
    swapped, file = labels_folder(folder), f"{os.path.splitext(name)[0]}.txt"
    places = [os.path.join(place, file) for place in (swapped, folder) if place is not None]
    return next(filter(os.path.exists, places), places[0])


def labels_folder(folder: str) -> str | None:
    """Return the folder of the labels of images: with "labels" for the last folder called images.

    Example:
        >>> labels_folder("/images/pets/images/train"), labels_folder("/pets")
        ('/images/pets/labels/train', None)
    """
    names = folder.split(os.sep)
    places = [place for place, name in enumerate(names) if name == "images"]
    return os.sep.join([*names[: places[-1]], "labels", *names[places[-1] + 1 :]]) if places else None


def _object(path: Path, line: int, words: Sequence[str], names: Sequence[str]) -> GivenObject | Fault:
    try:
        number, *places = map(float, words)
    except ValueError:
        return Fault(path, line, "no numbers", f"{' '.join(words)[:60]!r} is not all numbers, expected class and box.")
    if len(places) != 4 and (len(places) < 6 or len(places) % 2):
        reason = f"{len(words)} numbers, expected 5 (class, center x, center y, width, height), or an outline."
        return Fault(path, line, "not a box", reason)
    if not (number == int(number) if abs(number) < 1e9 else False) or not 0 <= number < len(names):
        reason = f"the class is {words[0]}, but there are the classes 0 to {len(names) - 1}: {', '.join(names[:10])}."
        return Fault(path, line, "unknown class", reason)
    if not all(abs(place) <= _FARTHEST for place in places):
        reason = "a number is far from 0 to 1, expected shares of width and height, not pixels."
        return Fault(path, line, "not a share", reason)
    if len(places) == 4:
        x, y, width, height = places
        box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    else:
        box = (min(places[::2]), min(places[1::2]), max(places[::2]), max(places[1::2]))
    return GivenObject(names[int(number)], box, line)


# ---- classes and parts


def class_names(path: str) -> list[str]:
    """Return the names of the classes, from a file in this folder or one of those above.

    Raises:
        DataError: there is none.
    """
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    looked = []
    for _ in range(_ABOVE + 1):
        looked.append(folder)
        for name in listed(folder).files:
            whole = os.path.join(folder, name)
            if name in _LISTS:
                names = [line.strip() for line in strict(read_lines(Path(whole))) if line.strip()]
            else:
                names = read_yaml(whole).names if is_yaml(name) else []
            if names:
                return names
        if os.path.dirname(folder) == folder:
            break
        folder = os.path.dirname(folder)
    raise DataError(
        f"{path}: labels of YOLO are numbers, and their names are in none of {', '.join(looked)}. Put them into "
        f"data.yaml, as in names: [cat, dog], or into classes.txt, a name per line."
    )


class DataYaml:
    """What is read of a data.yaml: the names of the classes, and where the parts are."""

    def __init__(self, names: list[str], parts: dict[str, str]) -> None:
        self.names, self.parts = names, parts


def is_yaml(name: str) -> bool:
    """Return whether a file is YAML, by its name."""
    return name.lower().endswith((".yaml", ".yml"))


def read_yaml(path: str) -> DataYaml:
    """Return the names and parts of a data.yaml: lists and tables as such files have them, no other YAML.

    Raises:
        DataError: the names are written in another way.
    """
    values: dict[str, str] = {}
    inner: dict[str, list[tuple[int, str]]] = {}
    name, opened = "", 0
    for number, line in enumerate(strict(read_lines(Path(path))), start=1):
        text = _uncommented(line)
        if not text.strip():
            continue
        if opened <= 0 and not text[0].isspace() and not text.startswith("-") and (pair := _PAIR.match(text.strip())):
            name, value = _bare(pair["name"]), (pair["value"] or "").strip()
            values[name], inner[name] = value, []
            opened = value.count("[") + value.count("{") - value.count("]") - value.count("}")
        elif opened > 0:
            values[name] += f" {text.strip()}"
            opened += text.count("[") + text.count("{") - text.count("]") - text.count("}")
        elif name:
            inner[name].append((number, text.strip()))
    names = _names(path, values.get("names", ""), inner.get("names", []))
    return DataYaml(names, _parts(path, values))


def _names(path: str, value: str, lines: Sequence[tuple[int, str]]) -> list[str]:
    entries = [*lines]
    if value:
        if (value[0], value[-1]) not in (("[", "]"), ("{", "}")):
            raise DataError(f"{path}: names is {value[:60]!r}, expected a list, as in names: [cat, dog].")
        entries = [(1, f"- {part.strip()}" if value[0] == "[" else part.strip()) for part in _split(value[1:-1])]
    found: dict[int, str] = {}
    for number, entry in entries:
        if entry.startswith("- "):
            found[len(found)] = _bare(entry[2:])
        elif (pair := _PAIR.match(entry)) and _bare(pair["name"]).isdecimal() and pair["value"]:
            found[int(_bare(pair["name"]))] = _bare(pair["value"])
        else:
            raise DataError(f"{path}, line {number}: {entry[:60]!r} in names, expected - name or 0: name.")
    if found and sorted(found) != [*range(len(found))]:
        raise DataError(f"{path}: names has the numbers {sorted(found)[:10]}, expected 0 to {len(found) - 1}.")
    return [found[number] for number in range(len(found))]


def _parts(path: str, values: dict[str, str]) -> dict[str, str]:
    """Return the folders or lists of the parts that exist."""
    here = os.path.dirname(path)
    base = os.path.join(here, _bare(values.get("path", "")))
    found = {}
    for part, keys in (("train", ("train",)), ("valid", ("val", "valid")), ("test", ("test",))):
        value = next((_bare(values[key]) for key in keys if values.get(key)), "")
        # Exports say ../train where the folder is beside the file.
        tries = [os.path.join(base, value), os.path.join(here, value), os.path.join(here, value.removeprefix("../"))]
        existing = next((place for place in tries if value and os.path.exists(place)), None)
        if existing is not None:
            found[part] = os.path.normpath(existing)
    return found


def _uncommented(line: str) -> str:
    """Return a line without its comment, which begins with # at the beginning or after a space."""
    return re.sub(r"(^|\s)#.*", "", line) if "'" not in line and '"' not in line else line.rstrip()


def _split(text: str) -> list[str]:
    """Return the parts between commas that are not in quotes."""
    return [part for part in re.findall(r"""(?:[^,"']|"[^"]*"|'[^']*')+""", text) if part.strip()]


def _bare(text: str) -> str:
    """Return a text without its quotes."""
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
