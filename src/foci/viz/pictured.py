"""Of a text with an image in it, what its words read of the image, and what they read of the image as a whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foci.viz.axis import Axis
from foci.viz.kept_weights import TracedAttention
from foci.viz.regrouped import joined_attention
from foci.viz.selection import Selection
from foci.viz.trace import Trace


def has_picture(axis: Axis) -> bool:
    """Return whether one of the parts of an axis is an image with a grid."""
    return any(part.grid is not None for _, part in axis.placed_parts)


def of_picture(selection: Selection) -> Selection:
    """Return the selection with the first image as what is read; any other than of a mixed axis as it is.

    Rows are the words that read it. Their weights stay as they are, and their labels say how much of a row they are.

    Example:
        >>> image = Axis.from_image(np.zeros((2, 4, 3), np.uint8), (1, 2))
        >>> both = Axis.from_parts([image, Axis.from_tokens(["a", "cat"])])
        >>> trace = Trace.from_arrays([[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 1, 0], [0.2, 0.4, 0.2, 0.2]], both)
        >>> of_picture(Selection(trace)).target.labels
        ('cat (60 %)',)
    """
    source, attention = selection.source, selection.attention
    if source.parts is None or not has_picture(source):
        return selection
    pictures = [(start, part) for start, part in source.placed_parts if part.grid is not None]
    start, picture = pictures[0]
    weights = [one.dense(selection.place)[:, start : start + len(picture)] for one in selection.attentions]
    shares = np.mean(weights, axis=0).sum(axis=-1)
    words = selection.target.word_positions
    rows = [row for row in range(len(selection.target)) if row in words and shares[row] > 0]
    labels = [f"{selection.target.labels[row]} ({100 * shares[row]:.0f} %)" for row in rows]
    if len(pictures) > 1:
        picture = replace(picture, title=f"{picture.title} of {len(pictures)}")
    kept = np.ascontiguousarray(np.mean(weights, axis=0)[None, rows])
    head = None if selection.place is None else (attention.head_numbers[selection.place],)
    alone = TracedAttention(attention.name, "image", "words", kept, head, hidden=_hidden(selection, rows))
    axes = {"image": picture, "words": Axis.from_tokens(labels, selection.target.title or "words")}
    trace = Trace(axes, {attention.name: alone}, selection.trace.text)
    return replace(selection, trace=trace, name=attention.name, head=None)


def images_as_one(selection: Selection) -> Selection:
    """Return the selection with one position for each image of a mixed axis, for views of words; any other as it is.

    Example:
        >>> image = Axis.from_image(np.zeros((2, 4, 3), np.uint8), (1, 2), "photo")
        >>> both = Axis.from_parts([image, Axis.from_tokens(["cat"])])
        >>> trace = Trace.from_arrays([[0.5, 0.5, 0], [0.5, 0.5, 0], [0.2, 0.4, 0.4]], both)
        >>> one = images_as_one(Selection(trace))
        >>> one.source.labels, one.weights.round(1).tolist()
        (('photo', 'cat'), [[1.0, 0.0], [0.6000000238418579, 0.4000000059604645]])
    """
    axes = selection.trace.axes
    if not any(has_picture(axis) for axis in axes.values() if axis.parts is not None):
        return selection
    sizes = {key: _sizes(axis) for key, axis in axes.items()}
    attentions = {
        name: joined_attention(one, sizes[one.target], sizes[one.source])
        for name, one in selection.trace.attentions.items()
    }
    words = {key: axis if axis.parts is None else _words(axis) for key, axis in axes.items()}
    joined = replace(selection.trace, axes=words, attentions=attentions)
    return replace(selection, trace=joined, name=selection.attention.name, head=selection.place)


def _sizes(axis: Axis) -> list[int]:
    """Return how many positions there are together: all of an image, each word alone."""
    if axis.parts is None:
        return [1] * len(axis)
    return [size for part in axis.parts for size in ([1] * len(part) if part.grid is None else [len(part)])]


def _words(axis: Axis) -> Axis:
    labels = [part.labels if part.grid is None else (part.title or "image",) for part in axis.parts or ()]
    return Axis.from_tokens([label for some in labels for label in some], axis.title)


def _hidden(selection: Selection, rows: list[int]) -> NDArray[np.float32] | None:
    if selection.attention.hidden is None:
        return None
    hidden = selection.attention.hidden if selection.place is None else selection.attention.hidden[[selection.place]]
    mean: NDArray[np.float32] = hidden.mean(axis=0, keepdims=True)[:, rows]
    return mean
