"""Objects in an image: their boxes, and for each where its query looked.

A figure shows the image with all boxes, then once for each object: the map of its weights as a wash of the colors of
weights, clear where little was read, with a line around what has at least half of the largest weight; of deformable
attention the points it read, as dots whose areas are their weights. The image keeps its colors. Of an attention of the
image to itself, such as an encoder's, there is a picture for the middle of each box: where it looked from there.

In a terminal the boxes are a table, and the maps coarse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from foci.errors import ConfigError
from foci.viz.axis import Axis
from foci.viz.figure import canvas
from foci.viz.figure.boxes import class_of, draw_box, draw_points, draw_wash, hues_of, show_picture
from foci.viz.figure.measured_text import SMALLEST, wrapped
from foci.viz.labels import cut, shown, widest, width
from foci.viz.regions import reduced
from foci.viz.selection import Selection
from foci.viz.terminal.sheet import sheet_of, with_notes
from foci.viz.terminal.tiles import beside, coarser
from foci.viz.trace import Trace

_TILE = 2.4
"""Width of an image in inches."""
_NARROWEST_TILE = 1.1
"""Of an image in a figure of a given width."""
_BAR = 0.8
"""What the bar of colors takes with its numbers and its name."""
_MOST = 23
"""How many objects are drawn by default."""
_NAMED = 12
"""Labels of more objects would hide each other; their classes are named instead."""
_PIXELS = 800
"""The most along a side that an image is drawn with."""
_WIDEST = 16
"""Regions across a map in a terminal, each of two columns."""
_LABEL = 24
"""Columns of a label in a terminal; longer ones are cut."""


def fits(selection: Selection) -> bool:
    """Objects, or the image that they are in, read that image; a figure needs its pixels, a terminal its grid alone."""
    image = selection.source
    if image.kind != "regions" or image.grid is None or (image.image is None and selection.form == "figure"):
        return False
    return selection.target.kind == "objects" or (selection.target is image and bool(_axes_of_objects(selection)))


def figure(
    trace: Trace,
    style: canvas.FigureStyle,
    name: str | None = None,
    head: int | None = None,
    words: Sequence[int] | None = None,
) -> canvas.Figure:
    """The image with all boxes, and for each object, or place in the image, where it looked."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.patches import Patch

    selection = Selection(trace, name, head)
    objects = _objects(selection)
    if selection.source.image is None:
        key = selection.attention.source
        raise ConfigError(f"plot: {key!r} has no image; make it with Axis.from_image(image, grid).")
    rows = _rows(selection, objects)[:_MOST] if words is None else list(words)
    for row in rows:
        if not 0 <= row < len(selection.target):
            raise ConfigError(
                f"plot: word {row} is not among the {len(selection.target)} of {selection.attention.target!r} "
                "(zero-based)."
            )
    picture = reduced(selection.source.image, _PIXELS)
    size = picture.shape[0], picture.shape[1]
    drawn, tile, panels = _panels(style, len(rows) + 1, size)
    hues, boxes = hues_of(objects.labels), _in_pixels(objects, size)
    for axes in panels:
        show_picture(axes, picture)
    crowded = len(objects) > _NAMED
    for label, box, hue in zip(objects.labels, boxes, hues):
        draw_box(panels[0], box, hue, "" if crowded else style.label(label))
    if crowded:
        named = dict(zip(map(class_of, objects.labels), hues))
        handles = [Patch(color=hue, label=style.label(name)) for name, hue in named.items()]
        below_it = {"loc": "upper left", "bbox_to_anchor": (0.0, 0.0), "borderaxespad": 0.2, "frameon": False}
        small = {"fontsize": SMALLEST, "handlelength": 1.0, "handletextpad": 0.4, "columnspacing": 0.8, "borderpad": 0}
        panels[0].legend(handles=handles, ncols=3, **below_it, **small)
    panels[0].set_title(wrapped(style.text(selection.source.title), tile, style.size))
    looked, highest, draw = _looked(selection, style, rows)
    norm = style.norm(0.0, highest)
    for axes, row, one in zip(panels[1:], rows, looked):
        draw(axes, one, size, norm)
        if selection.target is objects:
            draw_box(axes, boxes[row], hues[row])
        else:
            draw_box(axes, _region(selection.source, row, size), "white")
        axes.set_title(wrapped(style.label(_called(selection, row)), tile, style.size))
    if rows:
        bar = drawn.colorbar(ScalarMappable(norm, canvas.colors()), ax=panels, fraction=0.03, pad=0.015, aspect=25)
        bar.set_label(style.title(trace.measure))
        bar.outline.set(edgecolor="#c8c8c8", linewidth=0.5)
    dots = selection.attention.points is not None
    said = [*_said(selection), "areas of dots: weights" if dots else "line: half of the largest weight"][
        : None if rows else 0
    ]
    if words is None and len(_rows(selection, objects)) > len(rows):
        said.append(f"the first {_MOST} of {len(objects)} objects")
    below = wrapped(style.text(" · ".join(said), canvas.LONGEST_TITLE), drawn.get_figwidth() - 0.1, style.size)
    drawn.supxlabel(below, fontsize=style.size)
    return drawn


def terminal(selection: Selection) -> list[str]:
    """A table of the boxes, and a map for each object, or place in the image, beside each other where there is room."""
    objects, sheet = _objects(selection), sheet_of(selection)
    rows = _rows(selection, objects)
    lines = []
    for row in rows[: selection.most_rows]:
        shares = coarser(selection.weights[row].reshape(selection.source.grid), _WIDEST)
        size = 2 * shares.shape[1]
        picture = ["".join(sheet.cell(float(share), float(shares.max()), 2) for share in line) for line in shares]
        if not selection.screen.colors:  # what is blank would have no end
            edge = f"+{'-' * size}+"
            size, picture = size + 2, [edge, *(f"|{line}|" for line in picture), edge]
        called = cut(shown(_called(selection, row)), max(size, _LABEL))
        lines.append((called, [(line, size) for line in picture], max(size, width(called))))
    more = [f"… and {len(rows) - len(lines):,} more"] if len(lines) < len(rows) else []
    shown_maps = beside(lines, selection.screen.columns)
    return with_notes(replace(selection, most_rows=None), [*_table(objects, selection), "", *shown_maps, *more])


def _table(objects: Axis, selection: Selection) -> list[str]:
    if not objects.labels:
        return ["no objects"]
    image = selection.source.image
    height, wide = (1, 1) if image is None else image.shape[:2]
    unit = "shares of the image" if image is None else f"pixels of {wide} × {height}"
    labels = [cut(shown(label), _LABEL) for label in objects.labels]
    margin = max(widest(labels), 4)
    boxes = [
        [f"{edge:.2f}" if image is None else f"{edge:.0f}" for edge in box]
        for box in _in_pixels(objects, (height, wide))
    ]
    lines = [f"{' ' * margin}  {'left':>6} {'top':>6} {'right':>6} {'bottom':>6}  {unit}"]
    for label, box in zip(labels, boxes):
        lines.append(f"{label}{' ' * (margin - width(label))}  {' '.join(f'{edge:>6}' for edge in box)}")
    return [cut(line, selection.screen.columns) for line in lines]


def _axes_of_objects(selection: Selection) -> list[Axis]:
    """Return the axes of objects that read this image, or the same one in other regions."""
    axes, image = selection.trace.axes, selection.source
    reading = [(axes[one.target], axes[one.source]) for one in selection.trace.attentions.values()]
    return [objects for objects, read in reading if objects.kind == "objects" and _is_same_image(read, image)]


def _is_same_image(one: Axis, other: Axis) -> bool:
    if one is other or one.image is None or other.image is None:
        return one is other
    return np.array_equal(one.image, other.image)


def _objects(selection: Selection) -> Axis:
    """Return the axis of the objects, or say why there is nothing to draw them on."""
    image, target = selection.source, selection.target
    found = _axes_of_objects(selection)
    if image.kind != "regions" or image.grid is None or not found or not (target is image or target.kind == "objects"):
        name = selection.attention.name
        raise ConfigError(
            f"view 'boxes' needs an attention of objects to an image, or of that image to itself, but {name!r} is of "
            f"{target.kind} to {image.kind}. Make their axes with Axis.from_boxes and Axis.from_image."
        )
    return target if target.kind == "objects" else found[0]


def _rows(selection: Selection, objects: Axis) -> list[int]:
    """Return the rows that are shown: all objects, or the regions at the middles of their boxes or of the image."""
    if selection.target is objects or objects.boxes is None or selection.source.grid is None:
        return list(range(len(selection.target)))
    down, across = selection.source.grid
    boxes = objects.boxes if len(objects) else np.array([[0.0, 0.0, 1.0, 1.0]])
    middles = (boxes[:, :2] + boxes[:, 2:]) / 2
    columns, lines = (middles * [across, down]).astype(int).clip(0, [across - 1, down - 1]).T
    return list(dict.fromkeys((lines * across + columns).tolist()))


def _called(selection: Selection, row: int) -> str:
    if selection.target is not selection.source or selection.source.grid is None:
        return selection.target.labels[row]
    line, column = divmod(row, selection.source.grid[1])
    return f"from row {line + 1}, column {column + 1}"


def _said(selection: Selection) -> list[str]:
    return [*(one.name for one in selection.attentions), *selection.notes]


def _in_pixels(objects: Axis, size: tuple[int, int]) -> Float[NDArray[np.floating], "N 4"]:
    boxes = np.zeros((0, 4)) if objects.boxes is None else objects.boxes
    scaled: Float[NDArray[np.floating], "N 4"] = boxes * np.array([size[1], size[0], size[1], size[0]])
    return scaled


def _region(image: Axis, row: int, size: tuple[int, int]) -> list[float]:
    down, across = image.grid or (1, 1)
    line, column = divmod(row, across)
    high, wide = size[0] / down, size[1] / across
    return [column * wide, line * high, (column + 1) * wide, (line + 1) * high]


def _panels(style: canvas.FigureStyle, count: int, size: tuple[int, int]) -> tuple[canvas.Figure, float, list[Any]]:
    """Return a figure, the width of a picture in it, and as many places for pictures of this height and width."""
    room = 10.0 if style.width is None else style.width - _BAR
    least = _TILE if style.width is None else _NARROWEST_TILE
    across = min(count, max(1, int(room // (least + 0.1))))
    down = -(-count // across)
    across = -(-count // down)
    tile = _TILE if style.width is None else room / across - 0.1
    wide = style.width or across * (tile + 0.1) + _BAR
    drawn = canvas.new_figure(wide, down * (tile * min(max(size[0] / size[1], 0.3), 3.0) + 0.35) + 0.4, "compressed")
    places = list(drawn.subplots(down, across, squeeze=False).flat)
    for axes in places:
        axes.set_axis_off()
    return drawn, tile, places[:count]


def _looked(
    selection: Selection, style: canvas.FigureStyle, rows: Sequence[int]
) -> tuple[list[NDArray[Any]], float, Callable[..., None]]:
    """Return what is drawn of each row, its points or its map, the largest weight of all, and what draws it."""
    if selection.attention.points is None:
        maps = style.scaled(selection.weights)
        highest = float(maps[list(rows)].max(initial=0.0)) or 1.0
        return [maps[row].reshape(selection.source.grid) for row in rows], highest, draw_wash
    points = points_of(selection)
    points[..., 2] = style.scaled(points[..., 2])
    highest = float(points[list(rows), :, 2].max(initial=0.0)) or 1.0
    return [points[row] for row in rows], highest, draw_points


def points_of(selection: Selection) -> Float[NDArray[np.floating], "L N 3"]:
    """Return the points of each row: those of one head, or of all, whose weights are then divided by their number."""
    attention = selection.attention
    if attention.points is None:
        raise ConfigError(f"view 'boxes': {attention.name!r} has no points, expected those of deformable attention.")
    heads = attention.points if selection.place is None else attention.points[[selection.place]]
    count, rows, each, _ = heads.shape
    points = heads.transpose(1, 0, 2, 3).reshape(rows, count * each, 3).copy()
    points[..., 2] /= count
    return points
