"""Entries about images, split into train, valid and test without an image in two of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

PARTS = ("train", "valid", "test")


@runtime_checkable
class HasImage(Protocol):
    """An entry with the name of an image."""

    @property
    def image(self) -> str:
        """The file of the image, or the name of a drawn scene."""
        ...


Entry = TypeVar("Entry", bound=HasImage)


class ImageParts(NamedTuple):
    """Entries to train on, to validate and to evaluate with."""

    train: list[Any]
    valid: list[Any]
    test: list[Any]


def split_by_image(entries: Sequence[Entry], *, valid_share: float, test_share: float, seed: int = 0) -> ImageParts:
    """Split entries by a hash of their image and the seed, so that no image is in two parts.

    Of n images ``round(n · valid_share)`` are for validation and ``round(n · test_share)`` for testing: one at least
    where the share is above 0, as long as one is left to train on.
    """
    names = sorted(
        {one.image for one in entries},
        key=lambda name: hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=str(seed).encode()).digest(),
    )
    valid, test = (max(1, round(len(names) * share)) if share > 0 else 0 for share in (valid_share, test_share))
    valid = min(valid, len(names) - 1)
    test = min(test, len(names) - 1 - valid)
    part = {name: 2 if place < test else 1 if place < test + valid else 0 for place, name in enumerate(names)}
    found: tuple[list[Entry], ...] = ([], [], [])
    for one in entries:
        found[part[one.image]].append(one)
    return ImageParts(*found)
