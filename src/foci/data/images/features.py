"""Features of images from a frozen network, computed once and kept in files that are read without loading them.

    encoder = build_frozen_encoder("efficientnet_lite0")        # foci.models.encoders.frozen; or any FeatureEncoder
    features = cached_features(names, encoder, "cache", size=224, log=print)
    features.batch([3, 0])                                      # (2, regions, channels), read from the disk

A cache is a folder with two files that only grow:

features.npy    (image, row, column, channel), float16, memory-mapped; its first axis is the number of finished images
index.jsonl     first the checksum of the encoder's weights and the size of the images; then, for each row of
                features.npy, the name, size, time and checksum of the image

Rows are written first, then their lines in the index, then the number in the header of features.npy, so that a process
that is killed at any moment leaves a usable cache: the next one drops what the index does not name and goes on. An
image is found again by its name if its size and time are unchanged, and otherwise by the checksum of its bytes, also
under another name. Several processes may use one cache; one at a time writes.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float16, UInt8
from numpy.typing import NDArray
from torch import Tensor, nn

from foci.data.batching import Indices
from foci.data.images.drawn import PREFIX
from foci.data.images.files import Unreadable, log_unreadable, read_image
from foci.data.lines import Log
from foci.errors import ConfigError, DataError, ShapeError, check_sizes
from foci.files import MAX_PIXELS, locked, open_regular

FORMAT = 1
_CHECKSUM_BYTES = 16
_LOG_SECONDS = 5.0
_GROWTH = 21
"""Digits that numpy leaves room for in the header of a .npy file, so that its first axis can grow in place."""


@runtime_checkable
class FeatureEncoder(Protocol):
    """Any network that turns images into a grid of features; an `nn.Module` is one."""

    def __call__(self, images: UInt8[Tensor, "B 3 H W"], /) -> Float[Tensor, "B D h w"]:
        """Return the features of a batch of images, whose values are from 0 to 255."""
        ...


class ImageFeatures:
    """Features of images, read from the disk as they are asked for.

    Args:
        array: ``(row, h, w, D)``, memory-mapped.
        rows: the row of each image.
        kept: which of the names that were given each of them is.
        unreadable: those that were left out.
    """

    def __init__(
        self,
        array: Float16[NDArray[np.float16], "N h w D"],
        rows: Sequence[int],
        kept: Sequence[int],
        unreadable: Sequence[Unreadable] = (),
    ) -> None:
        self.array, self.rows = array, np.array(rows, dtype=np.int64)
        self.kept, self.unreadable = list(kept), tuple(unreadable)

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def grid(self) -> tuple[int, int]:
        """How many regions down and across an image has."""
        return int(self.array.shape[1]), int(self.array.shape[2])

    @property
    def dim(self) -> int:
        """The size of a region."""
        return int(self.array.shape[3])

    def batch(self, indices: Sequence[int] | Indices) -> Float16[Tensor, "B S D"]:
        """Return the regions of these images, row by row of each grid, in float16."""
        return self.grids(indices).flatten(1, 2)

    def grids(self, indices: Sequence[int] | Indices) -> Float16[Tensor, "B h w D"]:
        """Return the grids of regions of these images, in float16."""
        rows = self.rows[np.asarray(indices, dtype=np.int64)]
        read = np.empty((len(rows), *self.array.shape[1:]), np.float16)
        for place in np.argsort(rows, kind="stable"):  # in the order of the file
            read[place] = self.array[rows[place]]
        return torch.from_numpy(read)


def encode_images(
    images: UInt8[NDArray[np.uint8], "B H W 3"], encoder: FeatureEncoder, *, device: torch.device | str = "cpu"
) -> Float16[NDArray[np.float16], "B h w D"]:
    """Return the features of images as a cache holds them; a network's mode is that of evaluation meanwhile.

    Raises:
        ShapeError: the encoder returns something else than ``(B, D, h, w)``.
    """
    pixels = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).to(device)
    training = isinstance(encoder, nn.Module) and encoder.training
    if isinstance(encoder, nn.Module):
        encoder.eval()
    try:
        with torch.no_grad():
            features = encoder(pixels)
    finally:
        if isinstance(encoder, nn.Module):
            encoder.train(training)
    if not isinstance(features, Tensor) or features.dim() != 4 or features.shape[0] != len(images):
        came = tuple(features.shape) if isinstance(features, Tensor) else f"a {type(features).__name__}"
        raise ShapeError(
            f"{_name(encoder)}: returned {came}, expected features ({len(images)}, channels, rows, columns)."
        )
    largest = torch.finfo(torch.float16).max
    found: NDArray[np.float16] = features.clamp(-largest, largest).permute(0, 2, 3, 1).half().cpu().numpy()
    return found


def cached_features(
    names: Sequence[str],
    encoder: FeatureEncoder,
    cache: str | Path,
    *,
    size: int = 224,
    batch_size: int = 32,
    max_pixels: int = MAX_PIXELS,
    device: torch.device | str = "cpu",
    log: Log | None = None,
) -> ImageFeatures:
    """Return the features of images; those that the cache does not have are computed and added to it.

    Args:
        names: files, or drawn scenes; unreadable ones are left out, counted and named in the log.
        encoder: a frozen network.
        cache: a folder, made if there is none.
        size: height and width to which images are scaled, as `read_image` does.
        batch_size: number of images that are encoded at once, and written at once.
        max_pixels: an image with more pixels is left out.
        device: where the encoder is.
        log: called with the number of images every few seconds.

    Raises:
        ConfigError: the cache was made by another network, or with images of another size.
        DataError: none of the images can be read.
    """
    check_sizes("cached_features", size=size, batch_size=batch_size)
    folder = Path(cache)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        store = _Store.open(folder, {"format": FORMAT, "encoder": fingerprint(encoder), "size": size})
        rows: list[int] = []
        kept: list[int] = []
        unreadable: list[Unreadable] = []
        pending: dict[str, int] = {}  # rows of images that are not written yet, by checksum
        batch: list[tuple[_Entry, NDArray[np.uint8]]] = []
        computed, started, last = 0, time.monotonic(), time.monotonic()

        def flush() -> None:
            nonlocal computed
            if batch:
                store.append(
                    encode_images(np.stack([pixels for _, pixels in batch]), encoder, device=device),
                    [entry for entry, _ in batch],
                )
            computed += len(batch)
            batch.clear()
            pending.clear()

        for number, name in enumerate(names):
            entry = store.entry(name)
            if isinstance(entry, Unreadable):
                unreadable.append(entry)
                continue
            row = store.by_checksum.get(entry.checksum, pending.get(entry.checksum))
            if row is None:
                pixels = read_image(name, size, max_pixels=max_pixels)
                if isinstance(pixels, Unreadable):
                    unreadable.append(pixels)
                    continue
                row = pending[entry.checksum] = store.count + len(batch)
                batch.append((entry, pixels))
            rows.append(row)
            kept.append(number)
            if len(batch) == batch_size:
                flush()
            if log is not None and computed and time.monotonic() - last >= _LOG_SECONDS:
                last = time.monotonic()
                log(f"features of {number + 1:,} of {len(names):,} images, {computed / (last - started):.1f} images/s")
        flush()
        array = store.array()
    if log is not None and unreadable:
        log_unreadable(unreadable, len(names), log)
    if array is None or not kept:
        first = f" The first: {unreadable[0]}" if unreadable else ""
        raise DataError(f"cached_features: none of {len(names)} images can be read.{first}")
    if log is not None and computed:
        seconds = time.monotonic() - started
        log(f"computed features of {computed:,} images in {seconds:.0f} s; {len(kept) - computed:,} were in {folder}")
    return ImageFeatures(array, rows, kept, unreadable)


def fingerprint(encoder: FeatureEncoder) -> str:
    """Return the checksum of a network: its attribute ``checksum``, or that of its weights and of its printed layers.

    Of a function without a checksum it is the name alone, so that a change of the function is not noticed.
    """
    own = getattr(encoder, "checksum", None)
    if own is not None:
        return str(own)
    digest = hashlib.blake2b(_name(encoder).encode(), digest_size=_CHECKSUM_BYTES)
    if isinstance(encoder, nn.Module):
        digest.update(str(encoder).encode())
        for name, tensor in encoder.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _name(encoder: FeatureEncoder) -> str:
    kind = encoder if hasattr(encoder, "__qualname__") else type(encoder)
    return f"{kind.__module__}.{kind.__qualname__}"


class _Entry(NamedTuple):
    """An image: a line of the index. The checksum is of the file's bytes, or of a drawn scene's name."""

    image: str
    bytes: int
    time: int
    checksum: str


class _Store:
    """The two files of a cache."""

    def __init__(self, folder: Path, head: dict[str, Any], entries: list[_Entry], shape: list[int] | None) -> None:
        self.folder, self.head, self.shape, self.count = folder, head, shape, len(entries)
        self.by_name = {entry.image: (row, entry) for row, entry in enumerate(entries)}
        self.by_checksum = {entry.checksum: row for row, entry in enumerate(entries)}

    @classmethod
    def open(cls, folder: Path, head: dict[str, Any]) -> _Store:
        """Read the index, and drop an unfinished last line and rows without a line."""
        path = folder / "index.jsonl"
        lines: list[bytes] = []
        if path.exists():
            with path.open("rb") as file:
                lines = [line for line in file if line.endswith(b"\n")]
        if not lines:
            return cls(folder, head, [], None)
        try:
            found = json.loads(lines[0])
            entries = [_Entry(*json.loads(line)) for line in lines[1:]]
            shape = [int(side) for side in found.pop("shape")]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"{path}: is not the index of features ({error}). Remove the folder {folder}.") from error
        if found != head:
            what = next(name for name in (*head, *found) if found.get(name) != head.get(name))
            raise ConfigError(
                f"{folder}: holds features with {what} {found.get(what)!r}, expected {head.get(what)!r}. "
                "Give another folder for the cache, or remove this one."
            )
        with path.open("r+b") as file:
            file.truncate(sum(map(len, lines)))
        store = cls(folder, head, entries, shape)
        store.write_header()
        return store

    @property
    def data(self) -> Path:
        """The file of the features."""
        return self.folder / "features.npy"

    def entry(self, name: str) -> _Entry | Unreadable:
        """Return what identifies an image; its bytes are read only if its size or time are not those of the index."""
        if name.startswith(PREFIX):
            return _Entry(name, 0, 0, _checksum(name.encode("utf-8", "surrogatepass")))
        path = os.path.abspath(name)
        try:
            stat = os.stat(path)
            _, known = self.by_name.get(path, (0, None))
            if known is not None and (known.bytes, known.time) == (stat.st_size, stat.st_mtime_ns):
                return known
            with open_regular(path) as file:
                checksum = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=_CHECKSUM_BYTES)).hexdigest()
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            return Unreadable(name, "there is no such file." if missing else f"cannot be opened ({error.strerror}).")
        return _Entry(path, stat.st_size, stat.st_mtime_ns, checksum)

    def append(self, features: Float16[NDArray[np.float16], "B h w D"], entries: Sequence[_Entry]) -> None:
        """Add rows, and then their lines."""
        path = self.folder / "index.jsonl"
        if self.shape is None:
            self.shape = list(features.shape[1:])
            self.write_header()
            _write(path, "wb", (json.dumps({**self.head, "shape": self.shape}) + "\n").encode())
        if list(features.shape[1:]) != self.shape:
            raise ShapeError(f"{self.folder}: features of shape {features.shape[1:]}, expected {tuple(self.shape)}.")
        _write(self.data, "ab", np.ascontiguousarray(features).tobytes())
        _write(path, "ab", "".join(json.dumps(list(entry)) + "\n" for entry in entries).encode())
        for row, entry in enumerate(entries, start=self.count):
            self.by_name[entry.image] = row, entry
            self.by_checksum[entry.checksum] = row
        self.count += len(entries)
        self.write_header()

    def write_header(self) -> None:
        """Write the number of finished rows at the beginning of the file, and cut off rows that are not finished."""
        if self.shape is None:
            return
        with self.data.open("r+b" if self.data.exists() else "w+b") as file:
            shape = (self.count, *self.shape)
            np.lib.format.write_array_header_1_0(
                file, {"descr": np.lib.format.dtype_to_descr(np.dtype("<f2")), "fortran_order": False, "shape": shape}
            )
            expected = file.tell() + self.count * 2 * int(np.prod(self.shape))
            if file.seek(0, os.SEEK_END) < expected:
                raise DataError(f"{self.data}: is shorter than its index says. Remove the folder {self.folder}.")
            file.truncate(expected)

    def array(self) -> NDArray[np.float16] | None:
        """Return all rows, memory-mapped."""
        if self.count == 0:
            return None
        found: NDArray[np.float16] = np.load(self.data, mmap_mode="r", allow_pickle=False)
        return found


def _write(path: Path, mode: Literal["wb", "ab"], content: bytes) -> None:
    with path.open(mode) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _checksum(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=_CHECKSUM_BYTES).hexdigest()
