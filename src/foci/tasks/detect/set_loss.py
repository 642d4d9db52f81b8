"""The loss of a set of boxes: each object is matched with one query, and the other queries shall find nothing.

    σ̂      = argmin_σ Σ_i λ_class · cost(c_i, p̂_σ(i)) + λ_L1 · ‖b_i − b̂_σ(i)‖₁ − λ_giou · GIoU(b_i, b̂_σ(i))
    loss   = λ_class · class loss of all queries + Σ_i λ_L1 · ‖b_i − b̂_σ̂(i)‖₁ + λ_giou · (1 − GIoU(b_i, b̂_σ̂(i)))

    focal form           cost = α (1 − p)^γ (−log p) − (1 − α) p^γ (−log(1 − p))
                         loss = Σ_qc α (1 − p)^γ (−log p) where query q has an object of class c,
                                     (1 − α) p^γ (−log(1 − p)) elsewhere
    cross-entropy form   cost = −p,   loss = Σ_q w_q (−log p_q), w_q = 1 where q has an object, else empty_weight

Losses are sums over objects and over the layers of the decoder, each of which is matched for itself. The training
divides them by the count: of each image its objects, and at least 1. So the gradient of a batch is that of its parts
together, however it is divided, and a batch without objects has one.

Paper: End-to-End Object Detection with Transformers (Carion et al., 2020), eqs. 1-2 and appendix A.2,
    arXiv:2005.12872; the focal form: Deformable DETR (Zhu et al., 2021), appendix A.4, and Focal Loss for Dense Object
    Detection (Lin et al., 2017), eq. 5
Names: λ_class = class_weight, λ_L1 = distance_weight, λ_giou = overlap_weight, α = positive_share, p = probability
Complexity: O(Q · N) for the costs, and O(N² · Q) for the matching of an image with N objects
Differs: DETR divides its cross-entropy by the sum of its weights instead of by the number of objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from foci.errors import MissingPackageError
from foci.functional.boxes import generalized_iou, to_corners
from foci.functional.windows import at_least_float32
from foci.models.decoders.objects import Answer
from foci.models.detector import DetectorOutput
from foci.models.options.detection import CrossEntropyLossOptions, FocalLossOptions

LossOptions = FocalLossOptions | CrossEntropyLossOptions


class Targets(NamedTuple):
    """The objects of a batch of images; rows that are not ``valid`` are padding, and N may be 0.

    ``boxes`` are middle, width and height as shares of the readable picture.
    """

    boxes: Float[Tensor, "B N 4"]
    labels: Int[Tensor, "B N"]
    valid: Bool[Tensor, "B N"]


@dataclass(frozen=True)
class SetLoss:
    """The loss of a batch, ``total / count``.

    Attributes:
        total: the sum that is minimized.
        parts: of the last layer the sums "class", "distance" and "overlap" (1 − GIoU) without their weights, for
            display.
        count: of each image its objects, at least 1.
    """

    total: Float[Tensor, ""]
    parts: dict[str, Tensor]
    count: int


def set_loss(output: DetectorOutput, targets: Targets, options: LossOptions) -> SetLoss:
    """Return the loss of a batch, of whose objects more than there are queries are left out.

    Example:
        >>> boxes = torch.tensor([[[0.5, 0.5, 0.2, 0.2], [0.1, 0.1, 0.2, 0.2]]])
        >>> found = DetectorOutput(torch.tensor([[[9.0], [-9.0]]]), boxes, (), {}, ())
        >>> targets = Targets(boxes[:, :1], torch.tensor([[0]]), torch.tensor([[True]]))
        >>> round(set_loss(found, targets, FocalLossOptions()).total.item(), 4)
        0.0
    """
    answers = [*output.earlier, Answer(output.logits, output.boxes)]
    logits = at_least_float32(torch.stack([answer.logits for answer in answers]))  # (K, B, Q, C), K layers
    boxes = at_least_float32(torch.stack([answer.boxes for answer in answers]))
    wanted = targets._replace(boxes=at_least_float32(targets.boxes))
    query = match(logits, boxes, wanted, options)
    matched = query >= 0
    parts = {
        "class": _class_loss(logits, query, wanted, options),
        **_box_losses(boxes, query.clamp_min(0), matched, wanted),
    }
    weights = {"class": options.class_weight, "distance": options.distance_weight, "overlap": options.overlap_weight}
    total = torch.stack([weights[name] * part.sum() for name, part in parts.items()]).sum()
    count = int(targets.valid.sum(dim=1).clamp_min(1).sum())
    return SetLoss(total, {name: part[-1].detach() for name, part in parts.items()}, count)


@torch.no_grad()
def match(
    logits: Float[Tensor, "K B Q C"], boxes: Float[Tensor, "K B Q 4"], targets: Targets, options: LossOptions
) -> Int[Tensor, "K B N"]:
    """Return the query of each object in each layer; −1 for padding, and for objects beyond the number of queries."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise MissingPackageError(
            "the matching of boxes needs the package scipy, which is not installed. Install it: "
            "pip install 'foci[vision]'"
        ) from error
    # A loss that is not finite ends the training with its own message.
    costs = torch.nan_to_num(_costs(logits, boxes, targets, options), nan=1e9, posinf=1e9, neginf=-1e9).cpu().numpy()
    valid = targets.valid.cpu().numpy()
    found = torch.full((*costs.shape[:2], costs.shape[3]), -1, dtype=torch.long)
    for layer, of_layer in enumerate(costs):
        for image, of_image in enumerate(of_layer):
            objects = valid[image].nonzero()[0]
            queries, columns = linear_sum_assignment(of_image[:, objects])
            found[layer, image, objects[columns]] = torch.from_numpy(queries)
    return found.to(logits.device)


def _costs(logits: Tensor, boxes: Tensor, targets: Targets, options: LossOptions) -> Float[Tensor, "K B Q N"]:
    labels = targets.labels.clamp_min(0).expand(*logits.shape[:2], -1).unsqueeze(2).expand(-1, -1, logits.shape[2], -1)
    match options:
        case FocalLossOptions():
            of_class = _focal(logits, True, options) - _focal(logits, False, options)
        case CrossEntropyLossOptions():
            of_class = -torch.softmax(logits, dim=-1)
    distance = (boxes.unsqueeze(3) - targets.boxes.unsqueeze(1)).abs().sum(dim=-1)
    overlap = generalized_iou(to_corners(boxes).unsqueeze(3), to_corners(targets.boxes).unsqueeze(1))
    return (
        options.class_weight * of_class.gather(-1, labels)
        + options.distance_weight * distance
        - options.overlap_weight * overlap
    )


def _class_loss(logits: Tensor, query: Tensor, targets: Targets, options: LossOptions) -> Float[Tensor, " K"]:
    """Return the sum over the queries of all images, for each layer."""
    layer, image, place = (query >= 0).nonzero(as_tuple=True)
    at = (layer, image, query[layer, image, place])
    labels = targets.labels[image, place]
    match options:
        case FocalLossOptions():
            there = torch.zeros_like(logits, dtype=torch.bool)
            there[(*at, labels)] = True
            losses = torch.where(there, _focal(logits, True, options), _focal(logits, False, options))
            return losses.sum(dim=(1, 2, 3))
        case CrossEntropyLossOptions():
            classes = torch.full_like(logits[..., 0], logits.shape[-1] - 1, dtype=torch.long)
            classes[at] = labels
            weights = torch.full_like(logits[..., 0], options.empty_weight)
            weights[at] = 1.0
            losses = F.cross_entropy(logits.flatten(0, 2), classes.flatten(), reduction="none")
            return (losses.view(weights.shape) * weights).sum(dim=(1, 2))


def _focal(logits: Tensor, there: bool, options: FocalLossOptions) -> Tensor:
    """Return the loss of each score where its class is there, or where it is not."""
    sign, share = (1.0, options.positive_share) if there else (-1.0, 1.0 - options.positive_share)
    return share * torch.sigmoid(-sign * logits) ** options.gamma * F.softplus(-sign * logits)


def _box_losses(boxes: Tensor, query: Tensor, matched: Tensor, targets: Targets) -> dict[str, Tensor]:
    """Return the distances and 1 − GIoU of all matched objects, summed for each layer."""
    found = boxes.gather(2, query.unsqueeze(-1).expand(-1, -1, -1, 4))
    wanted = targets.boxes.expand_as(found)
    distance = (found - wanted).abs().sum(dim=-1)
    apart = 1 - generalized_iou(to_corners(found), to_corners(wanted))
    return {
        name: part.masked_fill(~matched, 0.0).sum(dim=(1, 2))
        for name, part in {"distance": distance, "overlap": apart}.items()
    }
