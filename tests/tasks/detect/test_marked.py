"""Boxes become pixels of the upright image: cut, turned and scaled along."""

import json

import numpy as np
import pytest
from marked_images import coco, write_images, xml
from PIL import Image

from foci.data.images.files import read_scaled
from foci.tasks.detect.reader import read_marked_images


def test_boxes_beyond_the_image_are_cut_and_empty_ones_left_out(tmp_path):
    write_images(tmp_path)
    boxes = [[-5, 3, 20, 20], [60, 40, 99, 60], [10, 10, 10, 20], [80, 0, 90, 9], [30, 9, 20, 19], [1, 2, 3, 4]]
    record = {"image": "a.png", "objects": [{"label": "x", "box": box} for box in boxes]}
    (tmp_path / "a.jsonl").write_text(json.dumps(record), encoding="utf-8")
    said = []
    (image,) = read_marked_images(tmp_path / "a.jsonl", log=said.append).images
    assert [one["box"] for one in image.objects] == [[0, 3, 20, 20], [60, 40, 70, 50], [1, 2, 3, 4]]
    place = f"the first: {tmp_path / 'a.jsonl'}, line 1"
    assert said == [
        f"2 of 6 boxes reach beyond their image, and are cut to it ({place})",
        f"3 of 6 boxes have no area in their image, and are left out ({place})",
    ]


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_boxes_are_turned_with_an_image_that_was_annotated_as_stored(tmp_path, orientation):
    """A white rectangle where the box is, in the stored image: it is in the turned box of the upright one."""
    pixels = np.zeros((50, 60, 3), np.uint8)
    pixels[5:25, 10:40] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    (tmp_path / "a.xml").write_text(xml("a", [("x", (10, 5, 40, 25))], (60, 50)), encoding="utf-8")
    said = []
    (image,) = read_marked_images(tmp_path, corners=1, log=said.append).images
    upright = read_scaled(image.image, (60, 50)).pixels
    assert upright.shape == (60, 50, 3)
    left, top, right, bottom = map(round, image.objects[0]["box"])
    assert upright[top:bottom, left:right].min() == 255
    assert (upright == 255).sum() == 3 * (right - left) * (bottom - top)
    assert "annotated as they are stored" in said[0]


def test_boxes_of_an_image_that_was_scaled_later_are_scaled_along(tmp_path):
    path = coco(tmp_path)
    Image.new("RGB", (35, 25)).save(tmp_path / "a.png")
    said = []
    image = read_marked_images(path, log=said.append).images[0]
    assert [one["box"] for one in image.objects] == [[0, 2.5, 15.5, 23.5], [16.5, 0, 35, 25]]
    assert "1 of 3 images have another size than their annotations say" in said[0]
    assert "annotated as 70 × 50, but it has 35 × 25" in said[0]
