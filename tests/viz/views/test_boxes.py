"""Objects in an image and where their queries looked: the form of the trace, and what each view draws of it."""

from dataclasses import replace

import numpy as np
import pytest

from foci.errors import ConfigError, DataError, ShapeError
from foci.viz.axis import Axis
from foci.viz.trace import Trace, TracedAttention

GRID = (3, 5)
BOXES = np.array([[0.0, 0.0, 0.4, 0.5], [0.5, 0.25, 1.0, 0.75]], np.float32)


def detected(heads=2, *, points=True, boxes=BOXES, seed=3):
    """A trace of an image of 60 × 100 pixels with two objects, whose weights and points are known."""
    chance = np.random.default_rng(seed)
    regions = GRID[0] * GRID[1]
    picture = chance.integers(60, 200, (60, 100, 3)).astype(np.uint8)
    cross = chance.dirichlet(np.ones(regions), (heads, len(boxes))).astype(np.float32)
    places = chance.random((heads, len(boxes), 4, 2))
    shares = chance.dirichlet(np.ones(4), (heads, len(boxes)))[..., None]
    seen = np.concatenate([places, shares], axis=-1).astype(np.float32) if points else None
    encoder = chance.dirichlet(np.ones(regions), (heads, regions)).astype(np.float32)
    return Trace(
        {
            "image": Axis.from_image(picture, GRID),
            "objects": Axis.from_boxes([f"cell {0.9 - 0.2 * place:.2f}" for place in range(len(boxes))], boxes),
        },
        {
            "encoder.0.self": TracedAttention("encoder.0.self", "image", "image", encoder),
            "decoder.0.cross": TracedAttention("decoder.0.cross", "image", "objects", cross, points=seen),
        },
    )


def test_a_trace_of_objects_is_saved_and_loaded_with_boxes_and_points(tmp_path):
    trace = detected()
    again = Trace.load(trace.save(tmp_path / "cells"))
    assert np.array_equal(again.axes["objects"].boxes, BOXES)
    assert np.array_equal(again.attention("decoder.0.cross").points, trace.attention("decoder.0.cross").points)
    assert again.attention("encoder.0.self").points is None
    assert np.array_equal(
        trace.select(heads=[1]).attention("decoder.0.cross").points, trace.attention("decoder.0.cross").points[1:]
    )


def test_boxes_and_points_that_cannot_be_are_refused():
    with pytest.raises(ShapeError, match=r"boxes has shape \(1, 4\), expected \(2, 4\)"):
        Axis.from_boxes(["a", "b"], [[0, 0, 1, 1]])
    with pytest.raises(DataError, match="left ≤ right"):
        Axis.from_boxes(["a"], [[1, 0, 0, 1]])
    with pytest.raises(ConfigError, match="kind 'tokens' has boxes"):
        replace(Axis.from_tokens(["a"]), boxes=BOXES[:1])
    with pytest.raises(ConfigError, match="kind 'objects' has no boxes"):
        Axis("objects", ("a",))
    cross = detected().attention("decoder.0.cross")
    for wrong in (cross.points[:1], cross.points[:, :1], cross.points[..., :2], cross.points[0]):
        with pytest.raises(ShapeError, match=r"points of 'decoder.0.cross' has shape .*, expected \(2, 2\) and then"):
            replace(cross, points=wrong)
