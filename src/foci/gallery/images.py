"""Scenes of feature maps: weights of channels, of locations, and of a few points."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy, interpolate, max_pool2d

from foci.gallery.scene import Scene, build, fit, set_parameter

HEIGHT, WIDTH = 16, 20
CHANNELS = ["disc", "its edge", "stripes", "noise"]


def squeeze_excitation() -> Scene:
    """Whole channels are kept or dropped."""
    torch.manual_seed(0)
    features = _features()
    attention = build("squeeze_excitation", channels=len(CHANNELS), reduction=1)
    fit(attention, lambda: binary_cross_entropy(attention(features).weights.dense(), _wanted_channels()))
    output, weights, _ = attention(features)
    shares = weights.dense().flatten().tolist()
    return Scene(
        weights=torch.cat([features[0], output[0]]),
        panels=[*CHANNELS, *(f"{name} × {share:.2f}" for name, share in zip(CHANNELS, shares))],
        scale="feature",
        across=len(CHANNELS),
        caption="Four channels of a feature map (above), and the same channels times their weights (below). Fitted in "
        "100 steps to keep the two that show the object.",
    )


def efficient_channel() -> Scene:
    """A channel's weight depends on its neighbors."""
    averages = torch.tensor([-1, -1, -1, -1, 0.5, 2, 2, 0.5, -1, -1, -1, 2, -1, -1, -1, -1])
    features = averages.view(1, -1, 1, 1).expand(1, -1, HEIGHT, WIDTH)
    attention = build("efficient_channel", channels=len(averages), kernel_size=3)
    set_parameter(attention.convolve.weight, torch.full((1, 1, 3), 0.7))
    weights = attention(features).weights.dense().flatten()
    return Scene(
        weights=weights,
        rows=["weight"],
        columns=[f"{number}: {average:g}" for number, average in enumerate(averages.tolist())],
        texts=[[f"{weight:.2f}" for weight in weights.tolist()]],
        column_axis="channel: average of its features",
        caption="Sixteen channels and their averages. A weight depends on a channel and its two neighbors: two strong "
        "adjacent channels get a high weight, the single one, number 11, a lower one. The three numbers of the "
        "convolution are set by hand.",
    )


def cbam() -> Scene:
    """First channels, then locations."""
    torch.manual_seed(0)
    features, wanted = _features(), _wanted_channels() * _object()
    attention = build("cbam", channels=len(CHANNELS), reduction=1)
    fit(attention, lambda: binary_cross_entropy(attention(features).weights.dense(), wanted))
    return Scene(
        weights=torch.cat([features[0], attention(features).weights.dense()[0]]),
        panels=[*CHANNELS, *(f"weights of {name}" for name in CHANNELS)],
        scale=["feature"] * len(CHANNELS) + ["weight"] * len(CHANNELS),
        across=len(CHANNELS),
        caption="Four channels of a feature map (above), and the weights each was multiplied by (below): a number per "
        "channel times a map of locations. Fitted in 100 steps to keep the object in the channels that show it.",
    )


def spatial() -> Scene:
    """Locations are kept or dropped, in all channels."""
    torch.manual_seed(0)
    features = _features()
    attention = build("spatial", kernel_size=7)
    fit(attention, lambda: binary_cross_entropy(attention(features).weights.dense()[0], _object()))
    output, weights, _ = attention(features)
    return Scene(
        weights=torch.stack([features[0].mean(dim=0), output[0].mean(dim=0), weights.dense()[0, 0]]),
        panels=["mean of the channels", "mean of the output", "weights"],
        scale=["feature", "feature", "weight"],
        across=2,
        caption="One map of weights for all channels, from the mean and the maximum over the channels around each "
        "location. The features are those of the picture for `squeeze_excitation`; fitted in 100 steps to find the "
        "object.",
    )


def conditional() -> Scene:
    """Two objects of one kind, and a place that tells them apart."""
    discs = _disc(4, 10) + _disc(14, 10)
    places = torch.cartesian_prod(torch.arange(HEIGHT), torch.arange(WIDTH))
    attention = build("conditional", model_dim=4, num_heads=1, key_dim=1)
    for parameter in attention.parameters():
        set_parameter(parameter, 0.0)
    for layer in (attention.query_layer, attention.query_position_layer, attention.key_position_layer):
        set_parameter(layer.weight, torch.eye(4))
    set_parameter(attention.key_layer.weight[0], 1.0)
    set_parameter(attention.scale_layer[2].bias, 1.0)
    # The scale of the last query is 0 for the features of the row: it looks as far up and down as there is picture.
    set_parameter(attention.scale_layer[0].weight[0, 1], 1.0)
    set_parameter(attention.scale_layer[2].weight[:2, 0], -1.0)
    queries = torch.tensor([[[12.0, 0, 0, 0], [0, 0, 0, 0], [12.0, 0, 0, 0], [0, 1.0, 0, 0]]])
    reference = torch.tensor([0.0, 30, 30, 30]).view(1, 4, 1) * _code(torch.tensor([5, 13]))
    read = attention(queries, discs.view(1, -1, 1), query_position=reference, key_position=_code(places).unsqueeze(0))
    return Scene(
        weights=torch.cat([discs, read.weights.dense()[0, 0].detach().view(4, HEIGHT, WIDTH)]),
        panels=["feature", "content alone", "place alone", "content and place", "the scale forgets the row"],
        scale=["feature"] + ["weight"] * 4,
        across=3,
        caption="A query seeks bright positions around a reference point at the right. By content alone it reads both "
        "discs, by place alone all around the point; the sum of both scores reads the right disc. In the last picture "
        "another query, which seeks nothing bright, scales the row's features to 0: it looks at a column. All "
        "parameters are set by hand.",
    )


def deformable() -> Scene:
    """A query reads a few points around its reference, on a fine and a coarse map."""
    levels = [(HEIGHT, WIDTH), (HEIGHT // 2, WIDTH // 2)]
    attention = build("deformable", model_dim=1, num_heads=1, num_levels=2, num_points=2)
    for layer in (attention.offset_layer, attention.weight_layer):
        for parameter in layer.parameters():
            set_parameter(parameter, 0.0)
    set_parameter(attention.offset_layer.weight[:, 0], torch.tensor([-1.0, 0, 1, 0, -0.5, 0, 0.5, 0]))
    set_parameter(attention.weight_layer.bias, torch.tensor([1.0, 1.0, 0.0, 0.0]))
    cells = torch.cat([level.flatten() for level in (_disc(), _disc()[:, ::2, ::2])]).view(1, -1, 1)
    sizes, centers = torch.tensor([[[4.0], [1.5]]]), torch.tensor([[[12.5, 7.5], [3.5, 3.5]]])
    reference = centers / torch.tensor([WIDTH, HEIGHT])
    weights = attention(sizes, cells, reference=reference, levels=levels).weights.dense()[0, 0].detach()
    fine, coarse = weights.split([height * width for height, width in levels], dim=-1)
    enlarged = interpolate(coarse.view(1, 2, *levels[1]), levels[0], mode="nearest")[0]
    return Scene(
        weights=torch.cat([_disc(), fine.view(2, *levels[0]), enlarged]),
        panels=["feature", *(f"query {number}, {level} map" for level in ("fine", "coarse") for number in (1, 2))],
        scale=["feature"] + ["weight"] * 4,
        across=3,
        caption="A query holds how large it expects an object to be, and reads to the left and right of its reference "
        "point: query 1 at the edges of the disc, query 2 close to a point at the upper left. Both read a fine map "
        "and, with smaller weights, a coarse one, whose cells are drawn in the size of four. A point between cells "
        "shares its weight among those around it. All parameters are set by hand.",
    )


def _code(places: Tensor) -> Tensor:
    """Sine and cosine of row and column, in half a turn over the picture's width: near places have a large product."""
    angles = places * (math.pi / WIDTH)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


def _object() -> Tensor:
    """Where the object is, ``(1, HEIGHT, WIDTH)``."""
    return max_pool2d(_disc(), 3, stride=1, padding=1)


def _wanted_channels() -> Tensor:
    return torch.tensor([1.0, 1.0, 0.0, 0.0]).view(1, 4, 1, 1)


def _disc(column: int = 12, radius_squared: int = 20) -> Tensor:
    rows, columns = torch.arange(HEIGHT).view(-1, 1), torch.arange(WIDTH)
    return ((rows - 7) ** 2 + (columns - column) ** 2 <= radius_squared).float().unsqueeze(0)


def _features() -> Tensor:
    """Four channels ``(1, 4, HEIGHT, WIDTH)`` around 0: an object, its outline, and two that do not show it."""
    disc, edge = _disc(), _object() - _disc()
    stripes = (torch.arange(WIDTH) % 4 < 2).float().expand(1, HEIGHT, -1)
    noise = torch.randn(3, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(0))
    shown = torch.cat([1.5 * disc - 0.5, 1.5 * edge - 0.5]) + 0.1 * noise[:2]
    return torch.cat([shown, stripes - 0.5, 0.3 * noise[2:]]).unsqueeze(0)
