"""A small residual network that classifies images, with attention to channels and places in its blocks.

    x = ImageGridEncoder(image)                   z_c = mean_i (w_c · x_i) + b_c,   p = softmax(z)
    e_ci = w_c · x_i                              the evidence for class c in region i, so that z_c = mean_i e_ci + b_c

Paper: the network and its attentions as in `foci.models.encoders.image_grid`; the map of a class: Learning Deep
    Features for Discriminative Localization (Zhou et al., 2016), eqs. 1-2, arXiv:1512.04150
Names: x = encoded.values, w and b = output, e = evidence, M_c = evidence of class c
Complexity: O(H · W · C²) per block
Differs: dropout before the output layer, which the papers do not have, is an option.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from foci.errors import check_sizes
from foci.layers.dropout import Dropout
from foci.models.encoders.image_grid import Image, ImageGridEncoder
from foci.models.options.images import ImageClassifierOptions
from foci.tracing import exportable
from foci.weights import Weights


@exportable
class ImageClassifierOutput(NamedTuple):
    """The scores of each class, the regions they come from, and the maps of each block by name.

    ``attentions["0.channel"] (B, C, 1, 1)`` and ``attentions["0.spatial"] (B, 1, h, w)`` are from 0 to 1: what the
    features of block 0 were multiplied by.
    """

    logits: Float[Tensor, "B C"]
    regions: Float[Tensor, "B S D"]
    attentions: dict[str, Weights]


class ImageClassifier(nn.Module):
    """Classifies images.

    Call it with ``images (B, 3, H, W)``: bytes from 0 to 255, or floating numbers around 0.

    Args:
        num_classes: number of classes.
        options: sizes and options.

    Example:
        >>> import torch
        >>> model = ImageClassifier(5, ImageClassifierOptions(hidden_dim=12, block_attention="squeeze_excitation"))
        >>> classified = model(torch.zeros(2, 3, 16, 16, dtype=torch.uint8))
        >>> classified.logits.shape, classified.regions.shape, classified.attentions["2.channel"].shape
        (torch.Size([2, 5]), torch.Size([2, 16, 12]), torch.Size([2, 12, 1, 1]))
    """

    def __init__(self, num_classes: int, options: ImageClassifierOptions) -> None:
        super().__init__()
        check_sizes(type(self).__name__, num_classes=num_classes)
        self.encoder = ImageGridEncoder(options)
        self.dropout = Dropout(options.dropout)
        self.output = nn.Linear(options.hidden_dim, num_classes)

    def forward(self, images: Image) -> ImageClassifierOutput:
        """Classify a batch of images."""
        encoded = self.encoder(images)
        logits = self.output(self.dropout(encoded.mean()))
        return ImageClassifierOutput(logits, encoded.values, encoded.attentions or {})

    def evidence(self, regions: Float[Tensor, "B S D"], classes: Int[Tensor, " B"]) -> Float[Tensor, "B S"]:
        """Return the evidence for a class in each region: its mean plus the bias is the score of the class."""
        return (regions * self.output.weight[classes].unsqueeze(1)).sum(dim=-1)
