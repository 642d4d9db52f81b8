"""Captions of images in batches: an image is read, and encoded, once for all of its captions in a batch.

drawn_captions(count, …)            captions of drawn scenes, in English or Chinese
CaptionExamples(images, …)          images, or their features, with the word ids of their captions
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from foci.data.batching import GroupedSequences, Indices, Sequences, framed
from foci.data.images.drawn import Language, caption, find_scene, scene_name
from foci.data.images.features import ImageFeatures
from foci.data.images.files import Images
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


class CaptionExamples(GroupedSequences):
    """Captions as word ids, by their image: an example is an image with up to ``together`` captions.

    Args:
        images: the images, or their features.
        places: for each caption, the number of its image among them.
        captions: word ids, without BOS and EOS.
        together: an image with more captions is several examples.
    """

    added: ClassVar[int] = 2  # BOS and EOS

    def __init__(
        self, images: Images | ImageFeatures, places: Sequence[int], captions: Sequences, *, together: int
    ) -> None:
        super().__init__(places, captions, together)
        self.images = images

    def batch(self, indices: Indices, widths: Sequence[int]) -> CaptionBatch:
        """Return these images with their captions, padded."""
        places, image_of = self.owners(indices)
        words = framed(self.sequences, self.numbers(indices), widths[1])
        return CaptionBatch(self.images.grids(places), *map(torch.from_numpy, (image_of, *words)))
