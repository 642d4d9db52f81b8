"""The labeled axes of a trace: what is read, and who reads."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foci.errors import ConfigError, DataError, ShapeError, unknown_name
from foci.viz.words import Word, words_of_labels


class Mark(NamedTuple):
    """A labeled stretch of an axis, from ``first`` to ``last``, both in it, and how sure it is: from 0 to 1."""

    first: int
    last: int
    label: str
    share: float


KINDS = ("tokens", "regions", "frames", "document", "slots", "steps", "tags", "channels", "objects", "mixed")
WORDED = ("tokens", "document")
"""Kinds of positions that are words or pieces of words."""
_SPECIAL = ("<s>", "</s>", "<pad>", "<bos>", "<eos>", "<cls>", "<sep>", "<mask>", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
"""The usual labels of special tokens, foci's own among them."""


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis of attention weights, with a label for each position.

    Args:
        kind: what its positions are: tokens, regions (of an image), frames (of a recording), document (words in
            sentences), slots (of a memory), steps, tags, channels (of a feature map) or objects (in an
            image); mixed: parts of several kinds.
        labels: a label for each position; plain text, never markup.
        title: what the axis is called, for example "source".
        image: for regions, what they are regions of: ``(height, width, 3)``, uint8.
        grid: for regions, how many there are ``(down, across)``, row by row.
        spectrogram: for frames, ``(time, bin)``; it is spread over the whole axis, so it may have more steps than
            positions.
        seconds: for frames, how long each position is.
        sentences: for a document, how many words each sentence has.
        marks: labeled stretches, in order and without overlaps: what a tagger has found, or for frames the
            words that were spoken.
        sound: for frames, the recording itself, int16; the page plays it.
        rate: samples per second of the sound.
        start: for frames, when the first of them begins, in seconds: of a segment of a longer recording.
        words: for tokens and documents, the words that their pieces form, in order. Default: as the labels tell.
        boxes: for objects, ``(N, 4)``: left, top, right and bottom as shares of the image, which may reach beyond it.
        parts: for a mixed axis, what it consists of, in order: text and images of one sequence.
        special: positions of special tokens, such as <s>. Default: those whose labels are usual for them.

    Example:
        >>> Axis.from_document([["It", "rains", "."], ["Again", "."]]).sentences
        (3, 2)
        >>> Axis.from_tokens(["שלום", "עולם"]).right_to_left
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
    start: float = 0.0
    words: tuple[Word, ...] | None = None
    special: tuple[int, ...] | None = None
    parts: tuple[Axis, ...] | None = None
    boxes: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown_name("kind of axis", self.kind, KINDS)
        object.__setattr__(self, "labels", _as_labels(self.labels))
        if self.marks is not None:
            object.__setattr__(self, "marks", tuple(Mark(*mark) for mark in self.marks))
        if self.words is not None:
            object.__setattr__(self, "words", tuple(Word(*word) for word in self.words))
        for label in self.labels:
            if not isinstance(label, str):
                raise DataError(f"Axis: a label is of type {type(label).__name__}, expected str.")
        _check_fields(self)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def sentence_lengths(self) -> tuple[int, ...]:
        """How many words each sentence has; without sentences all are one."""
        return self.sentences or (len(self),)

    @property
    def is_text(self) -> bool:
        """Whether all positions are tokens or words, in parts (prompt and answer) or not."""
        return all(part.kind in WORDED for _, part in self.placed_parts)

    @property
    def placed_parts(self) -> tuple[tuple[int, Axis], ...]:
        """The parts of a mixed axis, each with the position where it begins; of any other the axis itself, at 0."""
        parts = (self,) if self.parts is None else self.parts
        return tuple(zip(accumulate((len(part) for part in parts), initial=0), parts))

    @property
    def word_positions(self) -> frozenset[int]:
        """The positions that are words or pieces of words; others have places in a picture, a sound or a memory."""
        worded = [range(start, start + len(part)) for start, part in self.placed_parts if part.kind in WORDED]
        return frozenset(place for places in worded for place in places)

    @property
    def special_tokens(self) -> tuple[int, ...]:
        """The positions of special tokens."""
        if self.parts is not None:
            return tuple(start + place for start, part in self.placed_parts for place in part.special_tokens)
        if self.special is not None or self.kind not in WORDED:
            return self.special or ()
        return tuple(place for place, label in enumerate(self.labels) if label in _SPECIAL)

    @property
    def joined_words(self) -> tuple[Word, ...]:
        """The words that the positions form, each sentence for itself; where there are none, each position is one."""
        if self.parts is not None:
            return tuple(word for part in self.parts for word in part.joined_words)
        if self.words is not None:
            return self.words
        if self.kind not in WORDED:
            return tuple(Word(label, 1) for label in self.labels)
        found: tuple[Word, ...] = ()
        start = 0
        for length in self.sentence_lengths:
            alone = {place - start for place in self.special_tokens}
            found += words_of_labels(self.labels[start : start + length], alone)
            start += length
        return found

    def moment(self, position: int) -> float:
        """Return when a frame begins, in seconds, or its number where no duration is known."""
        return self.start + position * (self.seconds or 1.0)

    @property
    def right_to_left(self) -> bool:
        """Whether more letters are of scripts that run from right to left (Arabic, Hebrew, …) than of others."""
        ways = [unicodedata.bidirectional(letter) for label in self.labels for letter in label]
        return sum(way in ("R", "AL") for way in ways) > sum(way == "L" for way in ways)

    @classmethod
    def from_tokens(cls, labels: Sequence[str], title: str = "") -> Axis:
        """Words or pieces of words."""
        return cls("tokens", tuple(_as_labels(labels)), title)

    @classmethod
    def from_image(cls, image: ArrayLike, grid: tuple[int, int], title: str = "image") -> Axis:
        """The regions of an image ``(height, width, 3)``, row by row."""
        down, across = grid
        labels = tuple(f"{row},{column}" for row in range(down) for column in range(across))
        return cls("regions", labels, title, image=np.asarray(image), grid=(down, across))

    @classmethod
    def from_boxes(cls, labels: Sequence[str], boxes: ArrayLike, title: str = "objects") -> Axis:
        """Objects in an image, with their boxes ``(N, 4)``: left, top, right and bottom as shares of the image.

        Example:
            >>> Axis.from_boxes(["cat 0.93"], [[0.1, 0.25, 0.5, 1.0]]).boxes.shape
            (1, 4)
        """
        return cls("objects", tuple(_as_labels(labels)), title, boxes=np.asarray(boxes, np.float32).reshape(-1, 4))

    @classmethod
    def from_parts(cls, parts: Sequence[Axis], title: str = "") -> Axis:
        """One sequence of text and images, such as a vision-language model reads.

        Example:
            >>> image = Axis.from_image(np.zeros((4, 4, 3), np.uint8), (2, 2))
            >>> Axis.from_parts([image, Axis.from_tokens(["a", "cat"])]).labels
            ('0,0', '0,1', '1,0', '1,1', 'a', 'cat')
        """
        return cls("mixed", tuple(label for part in parts for label in part.labels), title, parts=tuple(parts))

    @classmethod
    def from_frames(
        cls,
        count: int,
        *,
        seconds: float | None = None,
        spectrogram: ArrayLike | None = None,
        title: str = "audio",
        start: float = 0.0,
    ) -> Axis:
        """Pieces of a recording, labeled by when they begin."""
        picture = None if spectrogram is None else np.asarray(spectrogram, dtype=np.float32)
        numbers = tuple(map(str, range(count)))
        axis = cls("frames", numbers, title, spectrogram=picture, seconds=seconds, start=start)
        if seconds is None:
            return axis
        return replace(axis, labels=tuple(f"{axis.moment(number):.2f} s" for number in range(count)))

    @classmethod
    def from_document(cls, sentences: Sequence[Sequence[str]], title: str = "document") -> Axis:
        """Words, sentence by sentence."""
        words = tuple(word for sentence in sentences for word in _as_labels(sentence))
        return cls("document", words, title, sentences=tuple(len(sentence) for sentence in sentences))

    @classmethod
    def numbered(cls, kind: str, count: int, title: str = "") -> Axis:
        """Positions that have nothing but a number: slots, steps, channels."""
        return cls(kind, tuple(str(number) for number in range(count)), title or kind)


def _check_fields(axis: Axis) -> None:
    """What belongs to the kind must fit the number of labels."""
    count = len(axis.labels)
    if axis.image is not None and (axis.image.ndim != 3 or axis.image.shape[2] != 3 or axis.image.dtype != np.uint8):
        raise ShapeError(
            f"Axis: image has shape {axis.image.shape} and dtype {axis.image.dtype}, expected (height, width, 3) of "
            "uint8. From 0 to 1 it becomes (image * 255).astype('uint8')."
        )
    if axis.grid is not None and axis.grid[0] * axis.grid[1] != count:
        down, across = axis.grid
        raise ShapeError(f"Axis: grid {down} × {across} has {down * across} regions, but there are {count} labels.")
    if axis.spectrogram is not None and (axis.spectrogram.ndim != 2 or 0 in axis.spectrogram.shape):
        raise ShapeError(f"Axis: spectrogram has shape {axis.spectrogram.shape}, expected (time, bin).")
    if axis.seconds is not None and not axis.seconds > 0:
        raise ConfigError(f"Axis: seconds is {axis.seconds}, expected a number above 0.")
    if not math.isfinite(axis.start):
        raise ConfigError(f"Axis: start is {axis.start}, expected a number of seconds.")
    if axis.sentences is not None and (sum(axis.sentences) != count or min(axis.sentences, default=0) < 0):
        raise ShapeError(f"Axis: sentences has {sum(axis.sentences)} words in all, but there are {count} labels.")
    if axis.sound is not None and (axis.sound.ndim != 1 or axis.sound.dtype != np.int16 or not axis.rate):
        raise ShapeError(
            f"Axis: sound has shape {axis.sound.shape}, dtype {axis.sound.dtype} and rate {axis.rate}, expected "
            "samples of int16 in one axis, and their number per second."
        )
    _check_boxes(axis)
    if (axis.kind == "mixed") != (axis.parts is not None) or sum(map(len, axis.parts or ())) not in (0, count):
        raise ShapeError(
            f"Axis: parts has {sum(map(len, axis.parts or ()))} positions in all, but there are {count} labels of kind "
            f"{axis.kind!r}. Make a mixed axis with Axis.from_parts."
        )
    if axis.words is not None and sum(word.pieces for word in axis.words) != count:
        pieces = sum(word.pieces for word in axis.words)
        raise ShapeError(f"Axis: words has {pieces} pieces in all, but there are {count} labels.")
    if axis.special and not 0 <= min(axis.special) <= max(axis.special) < count:
        raise ShapeError(f"Axis: special has {max(axis.special)}, expected positions of the {count} labels, from 0.")
    end = -1
    for mark in axis.marks or ():
        if not end < mark.first <= mark.last < count or not 0 <= mark.share <= 1:
            raise ShapeError(
                f"Axis: the mark {tuple(mark)} does not fit {count} positions, expected first and last in order, "
                "without overlaps, and a share from 0 to 1."
            )
        end = mark.last


def _check_boxes(axis: Axis) -> None:
    if (axis.kind == "objects") != (axis.boxes is not None):
        raise ConfigError(
            f"Axis: an axis of kind {axis.kind!r} {'has' if axis.boxes is not None else 'has no'} boxes, expected them "
            "of objects alone. Make an axis of objects with Axis.from_boxes."
        )
    if axis.boxes is None:
        return
    if axis.boxes.shape != (len(axis.labels), 4):
        raise ShapeError(
            f"Axis: boxes has shape {axis.boxes.shape}, expected ({len(axis.labels)}, 4): left, top, right and bottom "
            "for each label."
        )
    if not (np.isfinite(axis.boxes).all() and (axis.boxes[:, :2] <= axis.boxes[:, 2:]).all()):
        raise DataError("Axis: a box is not left ≤ right and top ≤ bottom in finite numbers. Swap its corners.")


def _as_labels(labels: Sequence[str]) -> tuple[str, ...]:
    if isinstance(labels, str):
        raise ShapeError("Axis: labels is one text, expected a list of texts, for example text.split().")
    return tuple(labels)
