"""The labeled cells of one side of a trace: what is read, or who reads."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foci.errors import ConfigError, DataError, ShapeError, unknown_name


class Mark(NamedTuple):
    """A labeled stretch of cells, from ``first`` to ``last``, both in it, and how sure it is: from 0 to 1."""

    first: int
    last: int
    label: str
    share: float


KINDS = ("tokens", "regions", "frames", "document", "slots", "steps", "tags", "channels")


@dataclass(frozen=True, eq=False)
class Cells:
    """The labeled cells of one side.

    Args:
        kind: what the cells are: tokens, regions (of an image), frames (of a recording), document (words in sentences),
            slots (of a memory), steps, tags or channels (of a feature map).
        labels: a label for each cell; plain text, never markup.
        title: what the side is called, for example "source".
        image: for regions, what they are regions of: ``(height, width, 3)``, uint8.
        grid: for regions, how many there are ``(down, across)``, row by row.
        spectrogram: for frames, ``(time, bin)``; it is spread over all cells, so it may have more steps than cells.
        seconds: for frames, how long each cell is.
        sentences: for a document, how many words (cells) each sentence has.
        marks: labeled stretches of cells, in order and without overlaps: what a tagger has found, or for frames the
            words that were spoken.
        sound: for frames, the recording itself, int16; the page plays it.
        rate: samples per second of the sound.

    Example:
        >>> Cells.of_document([["It", "rains", "."], ["Again", "."]]).sentences
        (3, 2)
        >>> Cells.of_tokens(["שלום", "עולם"]).right_to_left
        True
    """

    kind: str
    labels: tuple[str, ...]
    title: str = ""
    image: NDArray[np.uint8] | None = None
    grid: tuple[int, int] | None = None
    spectrogram: NDArray[np.float32] | None = None
    seconds: float | None = None
    sentences: tuple[int, ...] | None = None
    marks: tuple[Mark, ...] | None = None
    sound: NDArray[np.int16] | None = None
    rate: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown_name("kind of cells", self.kind, KINDS)
        object.__setattr__(self, "labels", _as_labels(self.labels))
        if self.marks is not None:
            object.__setattr__(self, "marks", tuple(Mark(*mark) for mark in self.marks))
        for label in self.labels:
            if not isinstance(label, str):
                raise DataError(f"Cells: a label is of type {type(label).__name__}, expected str.")
        _check_fields(self)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def right_to_left(self) -> bool:
        """Whether more letters are of scripts that run from right to left (Arabic, Hebrew, …) than of others."""
        ways = [unicodedata.bidirectional(letter) for label in self.labels for letter in label]
        return sum(way in ("R", "AL") for way in ways) > sum(way == "L" for way in ways)

    @classmethod
    def of_tokens(cls, labels: Sequence[str], title: str = "") -> Cells:
        """Words or pieces of words."""
        return cls("tokens", tuple(_as_labels(labels)), title)

    @classmethod
    def of_image(cls, image: ArrayLike, grid: tuple[int, int], title: str = "image") -> Cells:
        """The regions of an image ``(height, width, 3)``, row by row."""
        down, across = grid
        labels = tuple(f"{row},{column}" for row in range(down) for column in range(across))
        return cls("regions", labels, title, image=np.asarray(image), grid=(down, across))

    @classmethod
    def of_frames(
        cls, count: int, *, seconds: float | None = None, spectrogram: ArrayLike | None = None, title: str = "audio"
    ) -> Cells:
        """Pieces of a recording, labeled by when they begin."""
        labels = tuple(str(number) if seconds is None else f"{number * seconds:.2f} s" for number in range(count))
        picture = None if spectrogram is None else np.asarray(spectrogram, dtype=np.float32)
        return cls("frames", labels, title, spectrogram=picture, seconds=seconds)

    @classmethod
    def of_document(cls, sentences: Sequence[Sequence[str]], title: str = "document") -> Cells:
        """Words, sentence by sentence."""
        words = tuple(word for sentence in sentences for word in _as_labels(sentence))
        return cls("document", words, title, sentences=tuple(len(sentence) for sentence in sentences))

    @classmethod
    def numbered(cls, kind: str, count: int, title: str = "") -> Cells:
        """Cells that have nothing but a number: slots, steps, channels."""
        return cls(kind, tuple(str(number) for number in range(count)), title or kind)


def _check_fields(cells: Cells) -> None:
    """What belongs to the kind must fit the number of labels."""
    count = len(cells.labels)
    if cells.image is not None and (
        cells.image.ndim != 3 or cells.image.shape[2] != 3 or cells.image.dtype != np.uint8
    ):
        raise ShapeError(
            f"Cells: image has shape {cells.image.shape} and dtype {cells.image.dtype}, expected (height, width, 3) of "
            "uint8. From 0 to 1 it becomes (image * 255).astype('uint8')."
        )
    if cells.grid is not None and cells.grid[0] * cells.grid[1] != count:
        down, across = cells.grid
        raise ShapeError(f"Cells: grid {down} × {across} has {down * across} regions, but there are {count} labels.")
    if cells.spectrogram is not None and (cells.spectrogram.ndim != 2 or 0 in cells.spectrogram.shape):
        raise ShapeError(f"Cells: spectrogram has shape {cells.spectrogram.shape}, expected (time, bin).")
    if cells.seconds is not None and not cells.seconds > 0:
        raise ConfigError(f"Cells: seconds is {cells.seconds}, expected a number above 0.")
    if cells.sentences is not None and (sum(cells.sentences) != count or min(cells.sentences, default=0) < 0):
        raise ShapeError(f"Cells: sentences has {sum(cells.sentences)} words in all, but there are {count} labels.")
    if cells.sound is not None and (cells.sound.ndim != 1 or cells.sound.dtype != np.int16 or not cells.rate):
        raise ShapeError(
            f"Cells: sound has shape {cells.sound.shape}, dtype {cells.sound.dtype} and rate {cells.rate}, expected "
            "samples of int16 in one axis, and their number per second."
        )
    end = -1
    for mark in cells.marks or ():
        if not end < mark.first <= mark.last < count or not 0 <= mark.share <= 1:
            raise ShapeError(
                f"Cells: the mark {tuple(mark)} does not fit {count} cells, expected first and last in order, without "
                "overlaps, and a share from 0 to 1."
            )
        end = mark.last


def _as_labels(labels: Sequence[str]) -> tuple[str, ...]:
    if isinstance(labels, str):
        raise ShapeError("Cells: labels is one text, expected a list of texts, for example text.split().")
    return tuple(labels)
