"""The loss of a set of boxes: each object is matched with one query, and the other queries shall find nothing.

    σ̂      = argmin_σ Σ_i cost(y_i, ŷ_σ(i))                                    one query per object
    cost   = λ_class · class cost + λ_L1 · ‖b_i − b̂_σ(i)‖₁ − λ_giou · GIoU(b_i, b̂_σ(i))
    loss   = λ_class · class loss of all queries + Σ_i λ_L1 · ‖b_i − b̂_σ̂(i)‖₁ + λ_giou · (1 − GIoU(b_i, b̂_σ̂(i)))

The loss is the sum over objects, and over the layers of the decoder, which are matched each for itself; dividing by the
number of objects is left to the training, which divides by that of all batches of a step.

Paper: End-to-End Object Detection with Transformers (Carion et al., 2020), eqs. 1-2 and appendix A.2,
    arXiv:2005.12872; the focal form: Deformable DETR (Zhu et al., 2021), appendix A.3
Names: λ_class = class_weight, λ_L1 = distance_weight, λ_giou = overlap_weight, y = targets, ŷ = output
Complexity: O(Q · N) for the costs, and O(N² · Q) for the matching of an image with N objects
"""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor


class Targets(NamedTuple):
    """The objects of a batch of images; rows that are not ``valid`` are padding, and N may be 0.

    ``boxes`` are middle, width and height as shares of the readable picture.
    """

    boxes: Float[Tensor, "B N 4"]
    labels: Int[Tensor, "B N"]
    valid: Bool[Tensor, "B N"]
