"""Images from files, of whatever kind, as arrays of one size; an image that cannot be read is named and left out.

    read_image(path, size)              one image, or the reason why it cannot be read
    Images.load(names, size=…, …)       many, decoded once; unreadable ones are counted
    image_files(folder)                 the images of a folder and its folders, and the files that are none

An image is scaled to fit into a square, and what is left of the square is gray: nothing is cut off or distorted.
Palettes, CMYK, 16 bits, other color spaces and alpha (over white) become RGB, EXIF's rotation is applied, and of an
animation the first frame is read. The number of pixels is checked before anything is decoded: a file of some kilobytes
may describe an image that would fill the memory. Names that begin with ``drawn:`` are scenes of
`foci.data.images.drawn`.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray
from torch import Tensor

from foci.data.batching import Indices
from foci.data.images.drawn import PREFIX, SIDE, draw, find_scene
from foci.data.lines import Log, counted
from foci.data.splits import same_content
from foci.errors import DataError, MissingPackageError, check_sizes
from foci.files import MAX_PIXELS, open_regular, walk

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

GRAY = 127
"""What fills the rest of the square."""
IN_MEMORY = 1 << 30
"""Bytes of decoded images that are kept in memory; more of them are kept in a temporary file."""
_STRIP = 1 << 21
"""Pixels of an image that are computed with at a time; it takes some ten bytes for each."""
_NAMED = 5
"""Unreadable images that are named in the log; the others are counted."""
_MEASURED = 100
"""Images whose size is looked up, to say how much they are reduced."""
_ORIENTATION, _SIDEWAYS = 0x0112, (5, 6, 7, 8)
"""EXIF's tag of the orientation, and its values that exchange height and width."""
_NO_PIXELS = frozenset(("BUFR", "GRIB", "HDF5", "MPEG", "WMF"))
"""Formats that Pillow recognizes, but cannot decode by itself."""
_DAMAGED = (
    OSError, SyntaxError, ValueError, ArithmeticError, EOFError, LookupError, TypeError, AttributeError, struct.error,
    zlib.error, MemoryError,
)  # fmt: skip
"""What Pillow raises for damaged files, depending on the format and the damage."""

Read = TypeVar("Read")
Pixels = UInt8[NDArray[np.uint8], "H W 3"]


class Unreadable(NamedTuple):
    """An image that cannot be used, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class Scaled(NamedTuple):
    """An image that was scaled down or up, and its own height and width, upright."""

    pixels: Pixels
    size: tuple[int, int]


class Sizes(NamedTuple):
    """Height and width of an image as it is stored, and when it is turned as EXIF's orientation (1: not) says."""

    stored: tuple[int, int]
    upright: tuple[int, int]
    orientation: int = 1


def read_image(name: str | Path, size: int, *, max_pixels: int = MAX_PIXELS) -> Pixels | Unreadable:
    """Return an image scaled to fit into ``size`` × ``size`` pixels; or why it cannot be read.

    Args:
        name: a file that Pillow reads, or the name of a drawn scene.
        size: height and width of the result.
        max_pixels: an image with more pixels is refused before it is decoded.

    Raises:
        MissingPackageError: Pillow is not installed; drawn scenes do not need it.
    """
    found = read_scaled(name, (size, size), max_pixels=max_pixels)
    if isinstance(found, Unreadable):
        return found
    height, width = found.pixels.shape[:2]
    square = np.full((size, size, 3), GRAY, np.uint8)
    top, left = (size - height) // 2, (size - width) // 2
    square[top : top + height, left : left + width] = found.pixels
    return square


def read_scaled(name: str | Path, bounds: tuple[int, int], *, max_pixels: int = MAX_PIXELS) -> Scaled | Unreadable:
    """Return an image scaled to fit into ``bounds``, a height and a width, as `read_image` does, without what is left.

    Raises:
        MissingPackageError: Pillow is not installed; drawn scenes do not need it.
    """
    if str(name).startswith(PREFIX):
        try:
            return Scaled(draw(find_scene(str(name)), min(bounds)), (SIDE, SIDE))
        except DataError as error:
            return Unreadable(str(name), str(error))
    pillow = _pillow()
    path = Path(name)
    try:
        if path.is_file() and path.stat().st_size == 0:
            return Unreadable(str(name), "the file is empty.")
        with _opened(path) as image:
            if image.width * image.height > max_pixels:
                return Unreadable(str(name), _too_large(f"{image.width} × {image.height} pixels", max_pixels))
            size = _sizes(image).upright
            # A JPEG file is decoded at a fraction of its size, where that will do.
            image.draft("RGB", (max(bounds), max(bounds)))
            return Scaled(_fitted(_upright(image), bounds), size)
    except pillow.DecompressionBombError:
        return Unreadable(str(name), _too_large("too many pixels", max_pixels))
    except FileNotFoundError:
        return Unreadable(str(name), "there is no such file.")
    except _DAMAGED as error:
        return Unreadable(
            str(name),
            f"not an image, or a damaged one ({str(error).splitlines()[0] if str(error) else type(error).__name__}).",
        )


def same_pixels(names: Sequence[str], *, max_pixels: int = MAX_PIXELS) -> list[str | None]:
    """Return one key for all files of other bytes that have the same pixels, such as a PNG and a BMP of one image.

    Only images of equal size are decoded. None is the key of those that are alone, cannot be read, or are drawn.
    """
    return same_content(
        names,
        lambda name: None if name.startswith(PREFIX) else sizes_of(name),
        lambda name: _pixel_digest(name, max_pixels),
    )


def sizes_of(name: str) -> Sizes | None:
    """Return what the header of an image says of its size; None where it cannot be read."""
    if name.startswith(PREFIX):
        return Sizes((SIDE, SIDE), (SIDE, SIDE))
    try:
        with _opened(name) as image:
            return _sizes(image)
    except (*_DAMAGED, _pillow().DecompressionBombError):
        return None  # it is reported when it is decoded


def _sizes(image: Picture) -> Sizes:
    stored = image.height, image.width
    # Of TIFF, Pillow gives the size when turned.
    orientation = 1 if image.format == "TIFF" else image.getexif().get(_ORIENTATION, 1)
    return Sizes(stored, stored[::-1] if orientation in _SIDEWAYS else stored, orientation)


def _pixel_digest(name: str, max_pixels: int) -> str | None:
    try:
        with _opened(name) as image:
            if image.width * image.height > max_pixels:
                return None
            digest = hashlib.blake2b(f"{_upright(image).size}".encode(), digest_size=16)
            to_rgb = _to_rgb(image)
            for _, part in _strips(image):
                digest.update(to_rgb(part).tobytes())
            return digest.hexdigest()
    except (*_DAMAGED, _pillow().DecompressionBombError):
        return None


@contextmanager
def _opened(name: str | Path) -> Iterator[Picture]:
    with warnings.catch_warnings():
        # Pillow only warns of an image that fills the memory, and speaks of EXIF data that it could not read.
        warnings.simplefilter("ignore")
        with open_regular(name) as file, _pillow().open(file) as image:
            yield image


class FolderFiles(NamedTuple):
    """The files of a folder and its folders, in order: images, and those that are none."""

    images: list[str]
    others: list[str]


def image_files(folder: str | Path) -> FolderFiles:
    """Return the images of a folder and its folders; hidden files are passed over.

    The endings of Pillow's formats are believed, so that millions of files are listed without being opened; of a file
    with another ending, or none, the first bytes decide.

    Raises:
        MissingPackageError: Pillow is not installed.
    """
    pillow = _pillow()
    pillow.init()
    endings = {
        ending
        for ending, form in pillow.registered_extensions().items()
        if form in pillow.OPEN and form not in _NO_PIXELS
    }
    found = FolderFiles([], [])
    for path in walk(folder):
        image = os.path.splitext(path)[1].lower() in endings or _begins_like_an_image(path)
        (found.images if image else found.others).append(path)
    return found


def _begins_like_an_image(path: str) -> bool:
    try:
        with _opened(path) as image:
            return image.format not in _NO_PIXELS
    except _DAMAGED:
        return False


def log_reduction(names: Sequence[str], size: int, log: Log) -> None:
    """Log by how much images are reduced to fit into ``size`` pixels, and which setting changes it."""
    sides = []
    for name in names[:: max(1, len(names) // _MEASURED)]:
        if not name.startswith(PREFIX):
            found = sizes_of(name)
            sides += [] if found is None else [max(found.stored)]
    if sides and (side := int(np.median(sides))) > size:
        log(
            f"images of {side:,} px (the longer side, median of {len(sides)}) are reduced to {size} px. Set "
            "data.image_size (--size) to keep more detail, at the cost of time"
        )


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingPackageError(
            "images are read by Pillow, which is not installed. Install it: pip install 'foci[vision]'"
        ) from error
    return Image


def _too_large(found: str, most: int) -> str:
    return f"{found}, expected at most {most:,} in all. Scale it down, or raise data.max_pixels."


def _upright(image: Picture) -> Picture:
    """Decode the first frame, and turn it as EXIF says."""
    from PIL import ImageOps

    image.load()
    ImageOps.exif_transpose(image, in_place=True)
    return image


def _strips(image: Picture) -> Iterator[tuple[int, Picture]]:
    """Yield an image in strips, each after its first row: computing takes several times the memory of what it is of."""
    rows = max(1, _STRIP // image.width)
    for above in range(0, image.height, rows):
        yield above, image.crop((0, above, image.width, min(above + rows, image.height)))


def _to_rgb(image: Picture) -> Callable[[Picture], Picture]:
    """Return how parts of an image become RGB, alike in all of them."""
    from PIL import Image

    least, most = _levels(image) if image.mode.startswith(("I", "F")) else (0.0, 0.0)

    def convert(part: Picture) -> Picture:
        if part.mode.startswith(("I", "F")):  # whole or floating numbers of 16 or 32 bits
            part = Image.fromarray(_as_bytes(np.asarray(part), part.mode, least, most))
        if part.has_transparency_data:
            layered = part.convert("RGBA")
            white = Image.new("RGBA", layered.size, "white")
            return Image.alpha_composite(white, layered).convert("RGB")
        return part.convert("RGB")

    return convert


def _levels(image: Picture) -> tuple[float, float]:
    """Return the least and the largest value of an image of numbers."""
    least, most = math.inf, -math.inf
    for _, part in _strips(image):
        numbers = _numbers(np.asarray(part))
        least, most = min(least, float(numbers.min())), max(most, float(numbers.max()))
    return least, most


def _numbers(values: NDArray[np.generic]) -> NDArray[np.float64]:
    return np.nan_to_num(values.astype(np.float64))


def _as_bytes(values: NDArray[np.generic], mode: str, least: float, most: float) -> NDArray[np.uint8]:
    """Values of 16 bits by their upper byte; others as they are from 0 to 255, or else from least to largest."""
    if mode.startswith("I;16"):
        return (values.astype(np.uint16) >> 8).astype(np.uint8)
    numbers = _numbers(values)
    if least < 0 or most > 255 or (mode == "F" and most <= 1):
        numbers = (numbers - least) * (255 / max(most - least, 1e-12))
    return np.rint(numbers).astype(np.uint8)


def _fitted(image: Picture, bounds: tuple[int, int]) -> Pixels:
    from PIL import Image

    scale = min(bounds[0] / image.height, bounds[1] / image.width)
    height, width = (min(most, max(1, round(side * scale))) for most, side in zip(bounds, (image.height, image.width)))
    smooth = Image.Resampling.BOX if scale < 1 else Image.Resampling.BILINEAR
    # First across and then down, as Pillow does, so that strips give what the whole image gives.
    narrow = Image.new("RGB", (width, image.height))
    to_rgb = _to_rgb(image)
    for above, strip in _strips(image):
        narrow.paste(to_rgb(strip).resize((width, strip.height), smooth), (0, above))
    return np.asarray(narrow.resize((width, height), smooth))


class Images:
    """Decoded images of one size, in memory or, if there are many, in a temporary file.

    Args:
        pixels: ``(N, H, W, 3)``, uint8.
        kept: which of the names that were given each of them is.
        unreadable: those that were left out.
    """

    def __init__(
        self, pixels: UInt8[NDArray[np.uint8], "N H W 3"], kept: Sequence[int], unreadable: Sequence[Unreadable] = ()
    ) -> None:
        self.pixels, self.kept, self.unreadable = pixels, list(kept), tuple(unreadable)

    def __len__(self) -> int:
        return len(self.kept)

    def grids(self, indices: Indices) -> UInt8[Tensor, "B 3 H W"]:
        """Return these images, channels first."""
        return torch.from_numpy(np.ascontiguousarray(self.pixels[indices].transpose(0, 3, 1, 2)))

    @classmethod
    def load(cls, names: Sequence[str], size: int, *, max_pixels: int = MAX_PIXELS, log: Log | None = None) -> Images:
        """Decode images, each name once; the log gets their number every few seconds, and those that were left out.

        Args:
            names: files, or drawn scenes.
            size: height and width.
            max_pixels: an image with more pixels is left out.
            log: called with each message.
        """
        check_sizes("Images.load", size=size)
        room = room_for(len(names), (size, size))
        unreadable: list[Unreadable] = []
        kept: list[int] = []
        for number, found in readable(
            names, lambda name: read_image(name, size, max_pixels=max_pixels), unreadable, log
        ):
            room[len(kept)] = found
            kept.append(number)
        return cls(room[: len(kept)], kept, unreadable)


def readable(
    names: Sequence[str], read: Callable[[str], Read | Unreadable], unreadable: list[Unreadable], log: Log | None
) -> Iterator[tuple[int, Read]]:
    """Yield the number of each image that can be read, and what was read; add the others to ``unreadable``.

    The log gets their number every few seconds, and at last those that are left out.
    """
    numbered: Iterable[tuple[int, str]] = enumerate(names)
    for number, name in counted(numbered, "images", log):
        found = read(name)
        if isinstance(found, Unreadable):
            unreadable.append(found)
        else:
            yield number, found
    if unreadable and log is not None:
        log_unreadable(unreadable, len(names), log)


def room_for(count: int, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return room for the pixels of images of this height and width, filled with 0."""
    shape = (count, *size, 3)
    if math.prod(shape) <= IN_MEMORY:
        return np.zeros(shape, np.uint8)
    with tempfile.TemporaryFile(prefix="foci-images-") as file:  # it vanishes with the array
        return np.memmap(file, np.uint8, "w+", shape=shape)


def log_unreadable(unreadable: Sequence[Unreadable], total: int, log: Log) -> None:
    """Log how many images were left out, and name the first of them."""
    for one in unreadable[:_NAMED]:
        log(f"left out: {one}")
    more = f", the first {_NAMED} of them above" if len(unreadable) > _NAMED else ""
    verb = "is" if len(unreadable) == 1 else "are"
    log(f"{len(unreadable):,} of {total:,} images cannot be read and {verb} left out{more}")


def beside(path: Path, name: str) -> str:
    """Return the name of an image as a table gives it, relative to the table's folder, as one that can be opened."""
    return name if name.startswith(PREFIX) else os.path.join(path.parent, name)
