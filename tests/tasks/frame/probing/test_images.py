"""Boxes that people drew, as regions of the square that an image is fitted into."""

import numpy as np
import pytest
import torch
from PIL import Image

from foci.data.images.files import read_image
from foci.errors import ConfigError, DataError
from foci.tasks.frame.probing.images import boxes_of, erasable_image
from foci.viz.axis import Axis


def no_boxes(scene):
    return []


def shapes(scene):
    return [shape.box for shape in scene.shapes]


@pytest.fixture
def wide(tmp_path):
    """An image of 40 × 20 pixels with a white patch."""
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[4:12, 26:38] = 255
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    return str(tmp_path / "wide.png")


def test_a_box_in_pixels_lies_where_the_image_is_fitted(wide):
    (box,) = boxes_of({"image": wide, "boxes": [[26, 4, 38, 12]]}, no_boxes)
    square = read_image(wide, 80)
    rows, columns = np.nonzero(square.min(axis=2) > 200)
    edges = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    assert [80 * edge for edge in box] == pytest.approx(edges, abs=1.01)


def test_an_image_that_exif_turns_is_measured_upright(tmp_path):
    picture = Image.new("RGB", (40, 20))
    exif = picture.getexif()
    exif[0x0112] = 6
    picture.save(tmp_path / "turned.jpg", exif=exif)
    name = str(tmp_path / "turned.jpg")
    assert boxes_of({"image": name, "boxes": [[0, 0, 20, 40]]}, no_boxes) == [(0.25, 0.0, 0.75, 1.0)]
    with pytest.raises(ConfigError, match="which is 20 × 40"):
        boxes_of({"image": name, "boxes": [[0, 0, 40, 20]]}, no_boxes)


def test_marked_regions_are_those_inside(wide):
    pixels = torch.from_numpy(read_image(wide, 16).transpose(2, 0, 1).copy()).unsqueeze(0)
    axis = Axis.from_image(np.zeros((16, 16, 3), np.uint8), (4, 4))
    _, source = erasable_image(pixels, axis, {"image": wide, "boxes": [[23, 0, 40, 12]]}, no_boxes)
    assert sorted(source.gold) == [6, 7]
    values, unmarked = erasable_image(pixels, axis, {"image": wide}, no_boxes)
    assert unmarked.gold is None
    assert values.min() >= -1
    assert values.max() <= 1


def test_features_have_a_cell_for_each_region(wide):
    features = torch.randn(1, 2, 3, 5).half()
    axis = Axis.from_image(np.zeros((8, 8, 3), np.uint8), (2, 3))
    values, source = erasable_image(features, axis, {"image": wide}, no_boxes)
    with source.eraser.erased(torch.nn.Identity(), {0: values}, 0, [(4,)], differentiate=False) as reading:
        expected = features.float().clone()
        expected[0, 1, 1] = features.float().mean(dim=(0, 1, 2))
        assert reading.inputs[0] == pytest.approx(expected)


def test_drawn_scenes_know_their_boxes():
    name = "drawn:several/test/0/3"
    assert len(boxes_of({"image": name}, shapes)) == 2
    with pytest.raises(ConfigError, match="whose shapes are known"):
        boxes_of({"image": name, "boxes": [[0, 0, 1, 1]]}, shapes)


def test_boxes_of_a_wrong_form_are_refused(wide, tmp_path):
    for wrong in ([1, 2, 3, 4], [[1, 2, 3]], [[5, 0, 5, 3]], [[0, 0, 41, 20]], [[-1, 0, 3, 3]], "all", [["a"] * 4]):
        with pytest.raises(ConfigError, match=r"expected \[\[left, top, right, bottom\], …\] in pixels.*40 × 20"):
            boxes_of({"image": wide, "boxes": wrong}, no_boxes)
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nabc")
    with pytest.raises(DataError, match=r"broken\.png: not an image"):
        boxes_of({"image": str(tmp_path / "broken.png"), "boxes": [[0, 0, 1, 1]]}, no_boxes)
