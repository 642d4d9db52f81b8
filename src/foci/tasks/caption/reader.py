"""Images with their captions, grouped by image: Flickr8k's token.txt, Karpathy's dataset_*.json, .tsv, .csv, .jsonl."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foci.data.images.files import beside
from foci.data.lines import (
    Fault,
    Log,
    current_encoding,
    each,
    ending_of,
    open_bytes,
    read_examples,
    read_lines,
    usable,
)
from foci.data.tables import (
    JSON,
    LONGEST_TEXT,
    Column,
    JsonObject,
    TableRow,
    field_of,
    json_objects,
    missing_field,
    name_of,
    read_rows,
)
from foci.encodings import decode, has_surrogates
from foci.errors import ConfigError, DataError, near_names
from foci.files import MAX_BYTES
from foci.tasks.caption.config import COLUMNS

SPLITS = {"train": "train", "restval": "train", "val": "valid", "valid": "valid", "dev": "valid", "validation": "valid",
          "test": "test"}  # fmt: skip
"""The parts by the names that files give them; ``restval`` are COCO's validation images that Karpathy trains on."""
_TOKEN = re.compile(r"(?P<image>.*?)\s*#(?:[a-z]+#)?\d+[\t ](?P<caption>.*)")
"""``name.jpg#0<TAB>caption``; Flickr8k-CN has the language in between and a space: ``name.jpg#zhc#0 caption``."""
_TEXT_ENDINGS = (".txt", ".token")


class CaptionedImage(NamedTuple):
    """The file of an image, or the name of a drawn scene, its captions, and its part if the file says so."""

    image: str
    captions: tuple[str, ...]
    part: str = ""
    """One of train, valid and test; or empty."""


def read_captions(
    path: str | Path,
    *,
    images: str | Path | None = None,
    columns: Sequence[Column] = COLUMNS,
    only: str | Path | None = None,
    log: Log | None = None,
) -> list[CaptionedImage]:
    """Return the captions of a file (+ .gz, .xz), grouped by image in the order of their first captions.

    No image is opened and no folder is listed.

    ========================  ======================================================================================
    .txt, .token              a line for each caption: ``name.jpg#0<TAB>caption``; or a first line ``image,caption``
    .json                     Karpathy's: ``{"images": [{"filename": …, "sentences": [{"raw": …}], "split": …}]}``
    .tsv, .csv, .jsonl        a row for each caption, or in JSON a list of captions; the column ``split`` is optional
    ========================  ======================================================================================

    Args:
        path: the file.
        images: the folder that the names of images are relative to. Default: that of the file.
        columns: those of image and caption, by the names in a table's first line or by two numbers from 0 (then there
            is no line of names); the fields of a JSONL file.
        only: a file with the names of the images to keep, one per line, with or without their endings.
        log: called with a message every few seconds.

    Everything is read before a DataError reports the first fault, with its file and line, and their number.
    """
    path = Path(path)
    if images is not None and not Path(images).is_dir():
        raise DataError(f"{images}: is not a folder, expected the folder of the images of {path.name}.")
    entries = _entries(path, columns)
    base = path if images is None else Path(images) / path.name
    grouped: dict[str, list[str]] = {}
    parts: dict[str, str] = {}
    for entry in read_examples(path, entries, "captions"):
        grouped.setdefault(entry.image, []).extend(entry.captions)
        parts.setdefault(entry.image, entry.part)
    kept = grouped.keys() if only is None else _chosen(grouped, Path(only), path, log)
    return [CaptionedImage(beside(base, name), tuple(grouped[name]), parts[name]) for name in kept]


def _entries(path: Path, columns: Sequence[Column]) -> Iterator[CaptionedImage | Fault]:
    ending = ending_of(path)
    if not path.exists():
        raise DataError(f"{path}: there is no such file.")
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder, expected the file with the captions; data.images names the folder.")
    if ending in _TEXT_ENDINGS:
        return _in_text(path)
    if ending == ".json":
        whole = _karpathy(path)
        if whole is not None:
            return whole
    if ending in JSON:
        return each(json_objects(path), lambda entry: _in_object(path, entry, columns))
    expected = (
        "captions as .txt or .token (name.jpg#0<TAB>caption), Karpathy's .json, .tsv, .csv or .jsonl (also .gz, .xz)"
    )
    return _in_rows(path, read_rows(path, columns, texts=2, optional=("split",), expected=expected))


def _in_text(path: Path) -> Iterator[CaptionedImage | Fault]:
    lines = read_lines(path, LONGEST_TEXT)
    for number, line in enumerate(lines, start=1):
        if isinstance(line, Fault):
            yield line
            continue
        if number == 1 and re.fullmatch(r"image\s*,\s*caption\s*", line):
            yield from _in_rows(path, read_rows(path, ("image", "caption"), texts=2, commas=(".csv", *_TEXT_ENDINGS)))
            return
        found = _TOKEN.fullmatch(line)
        if found is None:
            reason = f"{line[:40]!r} has no image, expected name.jpg#0, a tab and the caption."
            yield Fault(path, number, "line without an image", reason)
        else:
            yield _checked(path, number, found["image"], [found["caption"]], "")


def _in_rows(path: Path, rows: Iterable[TableRow | Fault]) -> Iterator[CaptionedImage | Fault]:
    return each(rows, lambda row: _checked(path, row.line, row.values[0], [row.values[1]], "".join(row.values[2:])))


def _in_object(path: Path, entry: JsonObject, columns: Sequence[Column]) -> CaptionedImage | Fault:
    """One object; the field of captions is a text or a list of texts."""
    record, line = entry
    names = [column if isinstance(column, tuple) else str(column) for column in columns]
    for name in names:
        if missing := missing_field(path, line, record, name):
            return missing
    image, captions = (field_of(record, name) for name in names)
    texts = captions if isinstance(captions, list) else [captions]
    if not isinstance(image, str) or not all(isinstance(text, str) for text in texts):
        fields = [name_of(name, record) for name in names]
        reason = f"field {fields[0]!r} must be a text, and {fields[1]!r} a text or a list of texts."
        return Fault(path, line, "field of another kind", reason)
    return _checked(path, line, image, texts, str(record.get("split", "")))


def _karpathy(path: Path) -> Iterator[CaptionedImage | Fault] | None:
    """Return the captions of one JSON object with the field ``images``; None if the file has objects in lines."""
    with open_bytes(path) as file:
        raw = file.read(MAX_BYTES)  # that of COCO has 144 MB
    try:
        whole = json.loads(decode(raw, current_encoding().name))
    except (ValueError, RecursionError):
        return None  # what is wrong with which line is found by reading it as lines
    if not isinstance(whole, dict) or not isinstance(whole.get("images"), list):
        return None
    return (_karpathy_image(path, number, one) for number, one in enumerate(whole["images"], start=1))


def _karpathy_image(path: Path, number: int, one: Any) -> CaptionedImage | Fault:
    """One image; such files are one line, so that a fault says which of the images has it."""
    try:
        name = os.path.join(one.get("filepath", ""), one["filename"])
        texts = [
            sentence["raw"] if "raw" in sentence else " ".join(sentence["tokens"]) for sentence in one["sentences"]
        ]
        part = one.get("split", "")
        if has_surrogates(f"{name}{texts}"):
            raise TypeError("a text holds half of a surrogate pair")
    except (KeyError, TypeError, AttributeError) as error:
        reason = f"image {number} of the file is not as expected ({type(error).__name__}: {error}); it needs filename "
        return Fault(path, 1, "bad image", f"{reason}and sentences with raw or tokens.")
    checked = _checked(path, 1, str(name), [str(text) for text in texts], str(part))
    return checked._replace(reason=f"image {number}: {checked.reason}") if isinstance(checked, Fault) else checked


def _checked(path: Path, line: int, image: str, captions: Sequence[str], part: str) -> CaptionedImage | Fault:
    image, texts, part = image.strip(), tuple(text.strip() for text in captions), part.strip().lower()
    if not image:
        return Fault(path, line, "empty image", "the name of the image is empty.")
    if not texts or not all(texts):
        return Fault(path, line, "empty caption", "the caption is empty.")
    if part and part not in SPLITS:
        return Fault(path, line, "unknown split", f"the split is {part!r}. {near_names(part, SPLITS)}")
    return CaptionedImage(image, texts, SPLITS[part] if part else "")


def _chosen(names: Collection[str], only: Path, path: Path, log: Log | None) -> list[str]:
    """The images that a file names, by whole names or by names without ending, in the file's order."""
    by_name = {Path(name).stem: name for name in names} | {Path(name).name: name for name in names}
    listed = [line.strip() for line in usable(read_lines(only), "names") if line.strip()]
    found = [by_name[name] for name in listed if name in by_name]
    if not found:
        raise DataError(f"{only}: none of its {len(listed)} names is the image of a caption in {path}.")
    if len(found) < len(listed) and log is not None:
        log(f"{only}: {len(listed) - len(found):,} of {len(listed):,} images have no captions in {path.name}")
    return list(dict.fromkeys(found))
