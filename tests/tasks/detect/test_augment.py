"""A drawn shape is still in its box after every change of the picture."""

import numpy as np
import pytest
import torch

from foci.data.images.canvases import Canvases
from foci.data.images.drawn import SIDE
from foci.functional.boxes import to_corners
from foci.tasks.detect.augment import augmented, readable_part
from foci.tasks.detect.batches import DetectionBatch, DetectionExamples
from foci.tasks.detect.reader import drawn_objects

CHANGES = {
    "horizontal": {"flips": "horizontal"},
    "both": {"flips": "both"},
    "crop": {"crop": 0.5},
    "scale": {"scale": 0.4},
    "color": {"color": 0.4},
    "all": {"flips": "both", "crop": 0.4, "scale": 0.3},
}


def flat_scenes(count, canvas):
    """Scenes without noise on canvases larger than they are: each shape has a gray value of its own."""
    scenes = drawn_objects(count, split="test")
    height, width = canvas
    pixels = np.zeros((count, height, width, 3), np.uint8)
    for row, scene in enumerate(scenes):
        pixels[row, :SIDE, :SIDE] = 20
        for number, one in enumerate(scene.objects):
            left, top, right, bottom = (round(edge) for edge in one["box"])
            pixels[row, top:bottom, left:right] = 60 + 40 * number
    sizes = [(SIDE, SIDE)] * count
    canvases = Canvases(pixels, range(count), (), sizes, sizes)
    rounded = [[{**one, "box": [round(edge) for edge in one["box"]]} for one in scene.objects] for scene in scenes]
    labels = sorted({one["label"] for scene in scenes for one in scene.objects})
    return DetectionExamples(canvases, rounded, labels).batch(np.arange(count), [1])


@pytest.mark.parametrize("name", CHANGES)
def test_objects_are_still_in_their_boxes(name):
    batch = flat_scenes(24, (71, 83))
    torch.manual_seed(3)
    changed = augmented(batch, **CHANGES[name])
    assert changed.images.shape == batch.images.shape
    assert changed.images.dtype == torch.uint8
    assert not torch.equal(changed.images, batch.images)
    assert (changed.sizes >= 1).all()
    assert (changed.sizes <= torch.tensor([71, 83])).all()
    assert not (changed.images * ~readable_part(changed.sizes, (71, 83))[:, None]).any()
    seen = 0
    for row in range(len(batch.images)):
        height, width = changed.sizes[row].tolist()
        boxes = to_corners(changed.targets.boxes[row])[changed.targets.valid[row]]
        numbers = torch.arange(len(batch.targets.valid[row]))[changed.targets.valid[row]].tolist()
        picture = changed.images[row].float().mean(dim=0)[:height, :width]
        if name == "color":  # which moves nothing but the values
            assert torch.equal(changed.targets.boxes[row], batch.targets.boxes[row])
            continue
        for number, box in zip(numbers, boxes):
            left, top, right, bottom = (box * torch.tensor([width, height, width, height])).tolist()
            # Two neighbors of other values blend into this one at their edge, of a pixel's width.
            near = (picture - (60 + 40 * number)).abs() < 3
            rows, columns = np.flatnonzero(near.sum(dim=1) > 1.5), np.flatnonzero(near.sum(dim=0) > 1.5)
            inside = near[max(0, int(top)) : int(bottom) + 1, max(0, int(left)) : int(right) + 1].sum()
            assert inside >= 0.5 * (right - left - 2) * (bottom - top - 2)
            seen += 1
            if len(rows) and (right - left > 6) and (bottom - top > 6) and inside == near.sum():
                found = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1])
                assert np.abs(found - [left, top, right, bottom]).max() <= 2.0
    assert seen > 30 or name == "color"
    assert (changed.targets.valid <= batch.targets.valid).all()
    if name in ("horizontal", "both", "color"):
        assert torch.equal(changed.targets.valid, batch.targets.valid)


def test_a_flip_is_exact_and_nothing_changes_without_settings():
    batch = flat_scenes(8, (SIDE, SIDE))
    assert augmented(batch) == batch
    torch.manual_seed(0)
    changed = augmented(batch, flips="horizontal")
    flipped = 0
    for row in range(8):
        mirrored = not torch.equal(changed.images[row], batch.images[row])
        flipped += mirrored
        expected = batch.images[row].flip(2) if mirrored else batch.images[row]
        assert torch.equal(changed.images[row], expected)
        boxes = batch.targets.boxes[row].clone()
        if mirrored:
            boxes[:, 0] = 1 - boxes[:, 0]
        valid = batch.targets.valid[row]
        assert torch.allclose(changed.targets.boxes[row][valid], boxes[valid], atol=1e-6)
    assert 0 < flipped < 8


def test_what_a_window_hardly_shows_is_no_target():
    """Half of the width is cut off at a random place: objects at the edges of the window are cut, or left out."""
    batch = flat_scenes(64, (SIDE, SIDE))
    torch.manual_seed(1)
    changed = augmented(batch, crop=0.9)
    assert changed.targets.valid.sum() < batch.targets.valid.sum()
    boxes = to_corners(changed.targets.boxes)[changed.targets.valid]
    assert boxes.min() >= 0
    assert boxes.max() <= 1 + 1e-6
    assert (boxes[:, 2:] > boxes[:, :2]).all()


def test_no_images_and_no_objects():
    batch = flat_scenes(3, (SIDE, SIDE))
    targets = type(batch.targets)(*(part[:, :0] for part in batch.targets))
    changed = augmented(
        DetectionBatch(batch.images, batch.sizes, targets), flips="both", crop=0.2, scale=0.2, color=0.2
    )
    assert changed.targets.boxes.shape == (3, 0, 4)
    nothing = DetectionBatch(
        batch.images[:0], batch.sizes[:0], type(batch.targets)(*(part[:0] for part in batch.targets))
    )
    assert augmented(nothing, flips="both") is nothing
