"""Captions of images in batches: an image is read, and encoded, once for all of its captions in a batch.

drawn_captions(count, …)            captions of drawn scenes, in English or Chinese
CaptionExamples(images, …)          images, or their features, with the word ids of their captions
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from foci.data.batching import Indices, Sequences, framed
from foci.data.images.drawn import Language, caption, find_scene, scene_name
from foci.data.images.features import ImageFeatures
from foci.data.images.files import Images
from foci.errors import DataError
from foci.tasks.caption.reader import CaptionedImage


def drawn_captions(
    count: int, *, split: str = "train", seed: int = 0, language: Language = "en"
) -> list[CaptionedImage]:
    """Return this many drawn scenes with their captions.

    Example:
        >>> drawn_captions(4, split="test")[3]
        CaptionedImage(image='drawn:several/test/0/3', captions=('a yellow cross above a red ring',), part='')
    """
    names = [scene_name("several", split, seed, number) for number in range(count)]
    return [CaptionedImage(name, (caption(find_scene(name), language),)) for name in names]


class CaptionBatch(NamedTuple):
    """Images, and captions between BOS and EOS, padded with 0, each with the number of its image.

    ``images`` are bytes ``(I, 3, H, W)``, or features ``(I, h, w, D)``.
    """

    images: Tensor
    image_of: Int[Tensor, " B"]
    target: Int[Tensor, "B T"]
    target_valid: Bool[Tensor, "B T"]


class CaptionExamples:
    """Captions as word ids, by their image: an example is an image with up to ``together`` captions.

    Args:
        images: the images, or their features.
        places: for each caption, the number of its image among them.
        captions: word ids, without BOS and EOS.
        together: an image with more captions is several examples.
    """

    def __init__(
        self, images: Images | ImageFeatures, places: Sequence[int], captions: Sequences, *, together: int
    ) -> None:
        if len(places) != len(captions):
            raise DataError(f"CaptionExamples: {len(places)} places and {len(captions)} captions, expected as many.")
        self.images, self.captions = images, captions
        by_image: dict[int, list[int]] = {}
        for number, place in enumerate(places):
            by_image.setdefault(place, []).append(number)
        self.groups = [
            (place, np.array(numbers[start : start + together]))
            for place, numbers in by_image.items()
            for start in range(0, len(numbers), together)
        ]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """``(example, 2)``: captions, and words of the longest one with BOS and EOS."""
        words = self.captions.lengths + 2
        return np.array([(len(numbers), words[numbers].max()) for _, numbers in self.groups]).reshape(-1, 2)

    def batch(self, indices: Indices, widths: Sequence[int]) -> CaptionBatch:
        """Return these images with their captions, padded."""
        numbers = np.concatenate([self.groups[index][1] for index in indices] or [np.zeros(0, np.int64)])
        places = np.array([self.groups[index][0] for index in indices], dtype=np.int64)
        image_of = np.repeat(np.arange(len(indices)), [len(self.groups[index][1]) for index in indices])
        words = framed(self.captions, numbers, widths[1])
        return CaptionBatch(image_batch(self.images, places), *map(torch.from_numpy, (image_of, *words)))


def image_batch(images: Images | ImageFeatures, places: Indices) -> Tensor:
    """Return some images as bytes ``(I, 3, H, W)``, or their features ``(I, h, w, D)``."""
    if isinstance(images, Images):
        return torch.from_numpy(np.ascontiguousarray(images.pixels[places].transpose(0, 3, 1, 2)))
    features: Tensor = images.batch(places).unflatten(1, images.grid)
    return features
