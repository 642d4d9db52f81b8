"""Folders of classes as data: one folder of files per class, whole or in parts, as archives of data sets have them.

FOLDER/cat/1.png, FOLDER/cat/more/2.png         a class is a folder, with all that lies below it
FOLDER/train/cat/1.png, FOLDER/val/…, …/test/…  one such folder for each part
FOLDER/archive/cat/1.png                        a folder that holds nothing but one folder is that folder
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from foci.encodings import has_surrogates
from foci.errors import DataError
from foci.files import count_endings, expanded, listed
from foci.printable import printable

Log = Callable[[str], None]

PART_NAMES = {
    "train": ("train", "training"),
    "valid": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
_SHOWN = 3
"""Files that are named of those that are left out."""


class ClassFile(NamedTuple):
    """A file, and the class in whose folder it lies."""

    path: str
    label: str


def innermost(folder: str) -> str:
    """Return the folder that holds the classes or parts: each that is the only content of the one above is entered."""
    while True:
        folders, files = listed(folder)
        if len(folders) != 1 or files or not listed(os.path.join(folder, folders[0])).folders:
            return folder
        folder = os.path.join(folder, folders[0])


def parts_of(folder: str) -> dict[str, str]:
    """Return the folders of the parts by train, valid and test; empty where the folder is not divided so.

    A part has folders of classes. Without another part beside it, "train" is the name of a class.
    """
    folder = innermost(folder)
    by_name = {name.lower(): os.path.join(folder, name) for name in listed(folder).folders}
    found = {part: by_name[name] for part, names in PART_NAMES.items() for name in names if name in by_name}
    parts = {part: path for part, path in found.items() if listed(path).folders}
    return parts if "train" in parts and len(found) > 1 else {}


def implied_parts(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings data.valid and data.test that follow from a data.path with parts."""
    path = tables.get("data", {}).get("path")
    try:
        folder = "" if path is None else expanded(str(path))
    except ValueError:  # none, which names no folder
        return {}
    parts = parts_of(folder) if os.path.isdir(folder) else {}
    return {"data": {part: parts[part] for part in ("valid", "test") if part in parts}} if parts else {}


def training_folder(folder: str, log: Log) -> str:
    """Return the part of a folder that is trained on, and log what the other folders are; itself without parts."""
    parts = parts_of(folder) if os.path.isdir(folder) else {}
    if not parts:
        return folder
    inner = innermost(folder)
    folders, beside = listed(inner)
    other = [name for name in folders if os.path.join(inner, name) not in parts.values()]
    uses = {"train": "train on", "valid": "validate", "test": "evaluate"}
    log(f"{inner} has parts: " + ", ".join(f"{os.path.basename(path)} to {uses[part]}" for part, path in parts.items()))
    if other:
        log(f"left out: {_counted(other, 'folder')}, by name no part or without folders of classes")
    if beside:
        log(f"left out: {_counted(beside, 'file')} beside the folders of parts")
    return parts["train"]


def class_files(
    folder: str, choose: Callable[[str], tuple[Sequence[str], Sequence[str]]], what: str, log: Log | None
) -> list[ClassFile]:
    """Return the files of a folder of classes; what is not read is logged, with counts and names.

    Args:
        folder: with one folder per class, in which files may lie in further folders.
        choose: returns the files below a folder that are read, and the others.
        what: what a file is called, in the plural.
        log: called with each message.

    Raises:
        DataError: there are no folders, or folders of parts and not of classes.
    """
    if parts := parts_of(folder):
        paths = ", ".join(parts.values())
        raise DataError(
            f"{folder}: holds the parts {', '.join(parts)}, expected folders of classes. Name one: {paths}."
        )
    inner = innermost(folder)
    classes, beside = listed(inner)
    if not classes:
        raise DataError(f"{folder}: holds no folders, expected one folder of {what} for each class.")
    found: list[ClassFile] = []
    others: list[str] = []
    empty: list[str] = []
    below = 0
    for name in classes:
        if has_surrogates(name):
            raise DataError(f"{os.path.join(inner, name)}: the name of the class is not UTF-8. Rename the folder.")
        files, rest = choose(os.path.join(inner, name))
        found += [ClassFile(file, name) for file in files]
        below += sum(os.path.dirname(file) != os.path.join(inner, name) for file in files)
        others += rest
        empty += [] if files else [name]
    if log is not None:
        if inner != folder:
            log(f"{folder} holds one folder: the folders of {inner} are the classes")
        if below:
            log(f"{below:,} of {len(found):,} {what} lie in folders below that of their class")
        if others:
            names = [os.path.relpath(file, inner) for file in others]
            log(f"left out: {_counted(names, 'file')} that are no {what} ({count_endings(others)})")
        if beside:
            log(f"left out: {_counted(beside, 'file')} beside the folders of classes, in none of them")
        if empty:
            log(f"left out: {_counted(empty, 'folder')} without {what}")
    return found


def _counted(names: Sequence[str], noun: str) -> str:
    more = ", …" if len(names) > _SHOWN else ""
    return f"{len(names):,} {noun}{'s' * (len(names) > 1)} ({printable(', '.join(names[:_SHOWN]))}{more})"
