"""Object detection by a Transformer: a map of the image, and object queries that attend to it.

    map = levels(image),   boxes and classes of each query = decoder(queries, map)

Paper: End-to-End Object Detection with Transformers (Carion et al., 2020), arXiv:2005.12872; the kinds of attention and
    what has changed since are in `foci.models.decoders.objects`, the map in `foci.models.encoders.image_levels`
Names: levels = levels, queries = decoder.queries
Complexity: O(H · W · C² + S² · D) for the map, and O(Q² · D + Q · S · D) per layer of the decoder
Differs: two layers suffice for small pictures; the papers have six.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from foci.errors import check_sizes
from foci.functional.windows import at_least_float32
from foci.models.decoders.objects import Answer, ObjectDecoder, block_of
from foci.models.encoders.image_grid import Image
from foci.models.encoders.image_levels import ImageLevels
from foci.models.options.detection import DetectorOptions
from foci.tracing import exportable
from foci.weights import Weights


@exportable
class DetectorOutput(NamedTuple):
    """What the queries have found.

    Attributes:
        logits: scores of the classes before the sigmoid; with the loss "cross_entropy" before the softmax, and one more
            at the end for "no object".
        boxes: middle x and y, width and height as shares of the readable picture.
        earlier: logits and boxes of the earlier layers of the decoder; none without auxiliary losses.
        attentions: weights by name, such as ``encoder.0.self``, ``decoder.0.self`` and ``decoder.1.cross``, the last
            from queries to the places of all levels.
        grids: height and width of each level of the map, the finest first.
    """

    logits: Float[Tensor, "B Q C"]
    boxes: Float[Tensor, "B Q 4"]
    earlier: tuple[Answer, ...]
    attentions: dict[str, Weights]
    grids: tuple[tuple[int, int], ...]


class Detector(nn.Module):
    """Finds objects in images.

    Call it with ``images (B, 3, H, W)``, bytes from 0 to 255 or floating numbers around 0, and ``sizes (B, 2)``: height
    and width of the readable part of each, at the upper left; by default all of it.

    Args:
        num_classes: number of classes.
        options: sizes and options.

    Example:
        >>> import torch
        >>> model = Detector(3, DetectorOptions(num_queries=5))
        >>> found = model(torch.zeros(2, 3, 32, 48, dtype=torch.uint8))
        >>> found.logits.shape, found.boxes.shape, found.grids
        (torch.Size([2, 5, 3]), torch.Size([2, 5, 4]), ((8, 12), (4, 6)))
        >>> sorted(found.attentions)
        ['decoder.0.cross', 'decoder.0.self', 'decoder.1.cross', 'decoder.1.self', 'encoder.0.self']
    """

    def __init__(self, num_classes: int, options: DetectorOptions) -> None:
        super().__init__()
        check_sizes("Detector", num_classes=num_classes)
        self.num_classes = num_classes
        self.exclusive = options.loss.kind == "cross_entropy"
        self.levels = ImageLevels(block_of(options), options.encoder_layers, options.encoder)
        self.decoder = ObjectDecoder(options, num_classes + self.exclusive)

    def forward(self, images: Image, sizes: Int[Tensor, "B 2"] | None = None) -> DetectorOutput:
        """Find objects in a batch of images."""
        image = self.levels(images, sizes)
        answers, attentions = self.decoder(image)
        *earlier, last = answers
        return DetectorOutput(last.logits, last.boxes, tuple(earlier), image.attentions | attentions, image.grids)

    def probabilities(self, logits: Float[Tensor, "B Q C"]) -> Float[Tensor, "B Q K"]:
        """Return the probability of each class for each query; those of one query need not sum to 1."""
        wide = at_least_float32(logits)
        return torch.softmax(wide, dim=-1)[..., :-1] if self.exclusive else torch.sigmoid(wide)
