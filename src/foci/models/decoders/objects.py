"""A decoder of objects: queries that attend to each other and to the map of an image, each with a box or without one.

    q ← norm(q + self(q + code, q + code, q))                  code: of the box of each query, or learned
    q ← norm(q + cross(q, box, map))
    q ← norm(q + feed_forward(q))
    b̂ = σ(σ⁻¹(b) + W q)                                         b: the box that the layer started from

Where boxes are refined, the next layer starts from b̂, through which no gradient flows back; else every layer starts
from the anchors. Plain queries have no box: b̂ = σ(W q).

Paper: plain: End-to-End Object Detection with Transformers (Carion et al., 2020), appendix A.3, arXiv:2005.12872;
    conditional: Conditional DETR for Fast Training Convergence (Meng et al., 2021), section 3.3, arXiv:2108.06152;
    deformable and refinement: Deformable DETR (Zhu et al., 2021), sections 4.1-4.2 and appendix A.4, arXiv:2010.04159;
    anchors of four numbers, and their code: DAB-DETR (Liu et al., 2022), section 4, arXiv:2201.12329
Names: q = queries, b = anchors, W = to_boxes, class scores = to_classes
Complexity: O(Q² · D + Q · S · D) per layer; with deformable attention S is the number of points
Differs: each layer has its own layers for classes and boxes. All kinds read all levels; plain queries, which have no
    box, read the codes of places too. The code of a place has frequencies from half a period to four over the
    picture where queries and places are compared, else to sixteen, since pictures here are small.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.functional.positions import place_code
from foci.functional.windows import at_least_float32
from foci.layers.block_options import BlockOptions
from foci.layers.feed_forward import FeedForward
from foci.layers.transformer import Sublayer
from foci.mechanisms.heads import ConditionalAttention, DeformableAttention, MultiHeadAttention
from foci.models.encoders.image_levels import FASTEST, ImageMap
from foci.models.options.detection import (
    AnchoredOptions,
    ConditionalAttentionOptions,
    DeformableAttentionOptions,
    DetectorOptions,
    PlainAttentionOptions,
)
from foci.outputs import AttentionOutput
from foci.weights import Weights

_PRIOR = 0.01
"""The probability of each class at the start: almost all queries find nothing (Lin et al., 2017, section 4.1)."""

Read = tuple[Float[Tensor, "B Q D"], Weights]
"""What each query has read, and its weights over the places of the map."""


class Answer(NamedTuple):
    """The answer of a layer: scores of the classes before the sigmoid or softmax, and boxes by their middle."""

    logits: Float[Tensor, "B Q C"]
    boxes: Float[Tensor, "B Q 4"]


class PlainCross(nn.Module):
    """Attention of queries without a box: their code is added to them, that of places to keys and values."""

    def __init__(self, options: DetectorOptions) -> None:
        super().__init__()
        self.attention = _heads(options)
        self.levels = nn.Parameter(torch.empty(options.encoder.num_levels, options.model_dim))
        nn.init.zeros_(self.levels)

    def forward(self, queries: Tensor, code: Tensor, boxes: Tensor | None, image: ImageMap) -> Read:
        """Read the map."""
        # A box is told by places alone, which the values of the finer levels do not hold.
        places = image.values + image.codes
        keys = places + _by_place(self.levels, image)
        read: AttentionOutput = self.attention(queries + code, keys, places, image.mask)
        return read.output, read.weights


class ConditionalCross(nn.Module):
    """Attention whose scores are the sum of one of contents and one of the places of box centers and of cells."""

    def __init__(self, options: DetectorOptions) -> None:
        super().__init__()
        self.attention = ConditionalAttention(options.model_dim, options.num_heads)
        self.levels = nn.Parameter(torch.empty(options.encoder.num_levels, options.model_dim))
        nn.init.zeros_(self.levels)

    def forward(self, queries: Tensor, code: Tensor, boxes: Tensor, image: ImageMap) -> Read:
        """Read the map."""
        center = place_code(boxes[..., :2], queries.shape[-1], fastest=FASTEST).to(queries.dtype)
        keys = image.values + _by_place(self.levels, image)
        read: AttentionOutput = self.attention(
            queries, keys, image.values, image.mask, query_position=center, key_position=image.codes
        )
        return read.output, read.weights


class DeformableCross(nn.Module):
    """Attention to a few points around the box of each query."""

    def __init__(self, options: DetectorOptions, num_points: int) -> None:
        super().__init__()
        self.attention = DeformableAttention(
            options.model_dim, options.num_heads, num_levels=options.encoder.num_levels, num_points=num_points
        )
        self.attention.reference_layer.requires_grad_(False)  # boxes are given; several processes wait for gradients

    def forward(self, queries: Tensor, code: Tensor, boxes: Tensor, image: ImageMap) -> Read:
        """Read the map."""
        read: AttentionOutput = self.attention(
            queries + code, image.values, mask=image.mask, reference=boxes.to(queries.dtype), levels=image.grids
        )
        return read.output, read.weights


class ObjectLayer(nn.Module):
    """Attention between queries, attention to the map, the feed-forward network, and an answer if there are scores.

    Args:
        options: those of the detector.
        num_scores: scores per query; 0 for a layer that does not answer.
    """

    def __init__(self, options: DetectorOptions, num_scores: int) -> None:
        super().__init__()
        block = block_of(options)
        dim = options.model_dim
        self.self_attention = _heads(options)
        self.cross_attention = _cross(options)
        self.feed_forward = FeedForward(dim, options.hidden_dim)
        self.around_self, self.around_cross, self.around_feed_forward = (Sublayer(block) for _ in range(3))
        self.answers = num_scores > 0
        if self.answers:
            self.to_classes = nn.Linear(dim, num_scores)
            self.to_boxes = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 4))
            if options.loss.kind == "focal":
                nn.init.constant_(self.to_classes.bias, -math.log((1 - _PRIOR) / _PRIOR))
            if isinstance(options.attention, AnchoredOptions):  # a layer starts from its box; without one all are alike
                nn.init.zeros_(self.to_boxes[-1].weight)  # type: ignore[arg-type]
                nn.init.zeros_(self.to_boxes[-1].bias)  # type: ignore[arg-type]

    def forward(
        self, queries: Float[Tensor, "B Q D"], code: Float[Tensor, "#B Q D"], boxes: Tensor | None, image: ImageMap
    ) -> tuple[Float[Tensor, "B Q D"], Answer | None, dict[str, Weights]]:
        """Return the queries, the answer of this layer if it gives one, and its weights by name."""
        read: dict[str, Weights] = {}

        def attend_to_queries(x: Tensor) -> Tensor:
            attended: AttentionOutput = self.self_attention(x + code, x + code, x)
            read["self"] = attended.weights
            return attended.output

        def attend_to_image(x: Tensor) -> Tensor:
            output, read["cross"] = self.cross_attention(x, code, boxes, image)
            attended: Tensor = output
            return attended

        queries = self.around_self(queries, attend_to_queries)
        queries = self.around_cross(queries, attend_to_image)
        queries = self.around_feed_forward(queries, self.feed_forward)
        if not self.answers:
            return queries, None, read
        change = at_least_float32(self.to_boxes(queries))
        start = 0.0 if boxes is None else torch.logit(boxes, eps=1e-5)
        return queries, Answer(self.to_classes(queries), torch.sigmoid(start + change)), read


class PlainQueries(nn.Module):
    """Queries without a box: what tells them apart is learned.

    Args:
        options: those of the detector.
    """

    refine = False

    def __init__(self, options: DetectorOptions) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.empty(options.num_queries, options.model_dim))
        nn.init.normal_(self.codes)

    def start(self) -> None:
        """Return no boxes."""

    def forward(self, boxes: None) -> Float[Tensor, "1 Q D"]:
        """Return the code of each query."""
        return self.codes.unsqueeze(0)


class AnchoredQueries(nn.Module):
    """Queries that start from boxes, and are told apart by them.

    Args:
        options: those of the detector.
        anchored: where they start, and whether layers refine their boxes.
    """

    def __init__(self, options: DetectorOptions, anchored: AnchoredOptions) -> None:
        super().__init__()
        self.refine = anchored.refine
        start = torch.logit(anchor_grid(options.num_queries))
        if anchored.anchors == "learned":
            self.anchors = nn.Parameter(torch.empty(start.shape))
            with torch.no_grad():
                self.anchors.copy_(start)
        else:
            self.register_buffer("anchors", start)
        self.code_layer = _two_layers(2 * options.model_dim, options.model_dim)
        self.model_dim = options.model_dim

    def start(self) -> Float[Tensor, "Q 4"]:
        """Return the boxes that queries start from."""
        return torch.sigmoid(self.anchors)

    def forward(self, boxes: Float[Tensor, "B Q 4"]) -> Float[Tensor, "B Q D"]:
        """Return the code of each query's box."""
        code: Tensor = self.code_layer(place_code(boxes, self.model_dim).to(self.anchors.dtype))
        return code


class ObjectDecoder(nn.Module):
    """Object queries, and the layers that turn them into boxes with classes.

    Args:
        options: those of the detector.
        num_scores: scores per query.
    """

    def __init__(self, options: DetectorOptions, num_scores: int) -> None:
        super().__init__()
        self.contents = nn.Parameter(torch.empty(options.num_queries, options.model_dim))
        nn.init.normal_(self.contents)
        self.queries = _queries(options)
        earlier = [num_scores if options.loss.auxiliary else 0] * (options.num_decoder_layers - 1)
        self.layers = nn.ModuleList(ObjectLayer(options, scores) for scores in (*earlier, num_scores))

    def forward(self, image: ImageMap) -> tuple[list[Answer], dict[str, Weights]]:
        """Return the answers of the layers that give one, and all weights by name, such as ``decoder.0.cross``."""
        batch = image.values.shape[0]
        contents, boxes = self.contents.expand(batch, -1, -1), self.queries.start()
        answers: list[Answer] = []
        attentions: dict[str, Weights] = {}
        for number, layer in enumerate(self.layers):
            boxes = boxes if boxes is None else boxes.expand(batch, -1, -1)
            contents, answer, read = layer(contents, self.queries(boxes), boxes, image)
            attentions |= {f"decoder.{number}.{name}": weights for name, weights in read.items()}
            if answer is not None:
                answers.append(answer)
                boxes = answer.boxes.detach() if self.queries.refine else boxes
        return answers, attentions


def anchor_grid(count: int) -> Float[Tensor, "Q 4"]:
    """Return boxes spread evenly over a picture, in rows of about equal numbers; each is as large as its share.

    Example:
        >>> anchor_grid(3)[:, :2]
        tensor([[0.5000, 0.2500],
                [0.2500, 0.7500],
                [0.7500, 0.7500]])
    """
    rows = max(1, round(math.sqrt(count)))
    boxes = []
    for row in range(rows):
        columns = (row + 1) * count // rows - row * count // rows
        boxes += [((column + 0.5) / columns, (row + 0.5) / rows, 1 / columns, 1 / rows) for column in range(columns)]
    return torch.tensor(boxes)


def block_of(options: DetectorOptions) -> BlockOptions:
    """Return the sizes of the layers of a detector."""
    return BlockOptions(
        model_dim=options.model_dim,
        num_heads=options.num_heads,
        hidden_dim=options.hidden_dim,
        dropout=options.dropout,
    )


def _heads(options: DetectorOptions) -> MultiHeadAttention:
    return MultiHeadAttention(options.model_dim, options.num_heads)


def _two_layers(input_dim: int, output_dim: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(input_dim, output_dim), nn.ReLU(), nn.Linear(output_dim, output_dim))


def _queries(options: DetectorOptions) -> PlainQueries | AnchoredQueries:
    match options.attention:
        case AnchoredOptions() as anchored:
            return AnchoredQueries(options, anchored)
        case PlainAttentionOptions():
            return PlainQueries(options)


def _cross(options: DetectorOptions) -> nn.Module:
    match options.attention:
        case PlainAttentionOptions():
            return PlainCross(options)
        case ConditionalAttentionOptions():
            return ConditionalCross(options)
        case DeformableAttentionOptions(num_points=num_points):
            return DeformableCross(options, num_points)


def _by_place(levels: Float[Tensor, "N D"], image: ImageMap) -> Float[Tensor, "S D"]:
    """Return what is learned of each level, for each of its places."""
    return torch.cat([level.expand(height * width, -1) for level, (height, width) in zip(levels, image.grids)])
