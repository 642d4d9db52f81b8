"""Images with a class, from a folder of classes or a table, and as batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import starmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray
from torch import Tensor

from foci.data.batching import Indices
from foci.data.images.drawn import find_scene, scene_name
from foci.data.images.files import Images, beside, image_files
from foci.data.lines import Fault, Log, each, empty_field, read_examples
from foci.data.tables import Column, TableRow, read_rows
from foci.tasks.frame.class_folders import class_files


class LabeledImage(NamedTuple):
    """The file of an image, or the name of a drawn scene, and its class."""

    image: str
    label: str


def read_labeled_images(
    path: str | Path, *, columns: Sequence[Column] = LabeledImage._fields, log: Log | None = None
) -> list[LabeledImage]:
    """Return the images of a folder of classes, or of a .csv, .tsv or .jsonl file (+ .gz, .xz); none is opened.

    Args:
        path: a folder with one folder of images per class, in which they may lie in further folders, or a file that
            names images; names are relative to its folder.
        columns: those of image and class in a table, by the names in its first line or by two zero-based numbers (then
            there is no line of names); the fields of a JSONL file.
        log: called with a message every few seconds, and with what is left out of a folder.

    Everything is read before a DataError reports the first fault, with its file and line, and their number.
    """
    path = Path(path)
    entries: Iterable[LabeledImage | Fault]
    if path.is_dir():
        entries = starmap(LabeledImage, class_files(str(path), image_files, "images", log))
    else:
        entries = _in_table(path, columns)
    return read_examples(path, entries, "images", "file or folder")


def _in_table(path: Path, columns: Sequence[Column]) -> Iterator[LabeledImage | Fault]:
    expected = "a folder with a folder of images per class, or .csv, .tsv or .jsonl (also .gz, .xz)"

    def labeled(row: TableRow) -> LabeledImage | Fault:
        name, label = (value.strip() for value in row.values)
        return empty_field(path, row.line, image=name, label=label) or LabeledImage(beside(path, name), label)

    return each(read_rows(path, columns, texts=1, expected=expected), labeled)


def drawn_shapes(count: int, *, split: str = "train", seed: int = 0) -> list[LabeledImage]:
    """Return drawn scenes with one shape each, which is their class.

    Example:
        >>> drawn_shapes(1)
        [LabeledImage(image='drawn:one/train/0/0', label='cross')]
    """
    names = [scene_name("one", split, seed, number) for number in range(count)]
    return [LabeledImage(name, find_scene(name).shapes[0].kind) for name in names]


class ImageExamples:
    """Decoded images with the numbers of their classes.

    Args:
        images: the images.
        labels: the class of every name that was given to `Images.load`, those of unreadable images included.
    """

    def __init__(self, images: Images, labels: Sequence[int]) -> None:
        self.images = images
        self.labels = np.array([labels[number] for number in images.kept], dtype=np.int64)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """``(image, 1)``: each counts as one."""
        return np.ones((len(self.images), 1), np.int64)

    def batch(self, indices: Indices, widths: Sequence[int]) -> tuple[Tensor, ...]:
        """Return these images ``(B, 3, H, W)``, and the numbers of their classes."""
        return self.images.grids(indices), torch.from_numpy(self.labels[indices])


def augmented(images: UInt8[Tensor, "B 3 H W"], *, flip: bool = False, shift: int = 0) -> UInt8[Tensor, "B 3 H W"]:
    """Return images mirrored at random, and moved by up to ``shift`` pixels; edges are repeated.

    Example:
        >>> images = torch.arange(9, dtype=torch.uint8).reshape(1, 1, 3, 3).expand(1, 3, 3, 3)
        >>> torch.equal(augmented(images), images), augmented(images, shift=1).shape
        (True, torch.Size([1, 3, 3, 3]))
    """
    count, _, height, width = images.shape
    if not (flip or shift) or count == 0:
        return images
    device = images.device
    rows = torch.arange(height, device=device).expand(count, -1)
    columns = torch.arange(width, device=device).expand(count, -1)
    if flip:
        columns = torch.where(torch.rand(count, 1, device=device) < 0.5, columns.flip(1), columns)
    if shift:
        moves = torch.randint(-shift, shift + 1, (2, count, 1), device=device)
        rows, columns = (rows + moves[0]).clamp(0, height - 1), (columns + moves[1]).clamp(0, width - 1)
    number = torch.arange(count, device=device)[:, None, None]
    return images[number, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
