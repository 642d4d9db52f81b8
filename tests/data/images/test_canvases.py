"""Images on canvases: proportions stay, EXIF turns them, and what is known of their sizes is true."""

import numpy as np
import pytest
import torch
from PIL import Image

from foci.data.images.canvases import Canvases, canvas_for
from foci.data.images.drawn import draw, find_scene, scene_name
from foci.data.images.files import sizes_of


def halves(width, height):
    """An image whose left half is red and whose right half is blue."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2, 0] = pixels[:, width // 2 :, 2] = 250
    return Image.fromarray(pixels)


def turned(path, image, orientation):
    """Save an image that is stored in another orientation, and says so."""
    stored = {1: None, 3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
    way = stored[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    (image if way is None else image.transpose(way)).save(path, exif=exif)
    return str(path)


@pytest.mark.parametrize("ending", ["jpg", "png", "tiff", "webp"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_images_are_upright_at_the_top_left(tmp_path, ending, orientation):
    path = turned(tmp_path / f"a.{ending}", halves(610, 410), orientation)
    sizes = sizes_of(path)
    assert sizes.upright == (410, 610)
    if ending != "tiff":
        assert sizes.stored == ((610, 410) if orientation > 4 else (410, 610))
    canvases = Canvases.load_canvases([path], (64, 61))
    assert canvases.sizes.tolist() == [[41, 61]]
    assert canvases.originals.tolist() == [[410, 610]]
    assert canvases.pixels.shape == (1, 64, 61, 3)
    assert not canvases.pixels[0, 41:].any()
    picture = canvases.picture(0).astype(int)
    assert picture.shape == (41, 61, 3)
    red, blue = picture[:, :29].mean(axis=(0, 1)), picture[:, 32:].mean(axis=(0, 1))
    assert red[0] > 200 > 100 > red[2]
    assert blue[2] > 200 > 100 > blue[0]


def test_what_cannot_be_read_is_named_and_left_out(tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    scene = scene_name("scattered", "test", 0, 3)
    said = []
    names = [str(tmp_path / "broken.jpg"), scene, str(tmp_path / "missing.png")]
    canvases = Canvases.load_canvases(names, (31, 37), log=said.append)
    assert canvases.kept == [1]
    assert [one.name for one in canvases.unreadable] == [names[0], names[2]]
    assert "2 of 3 images cannot be read" in said[-1]
    assert (canvases.picture(0) == draw(find_scene(scene), 31)).all()
    assert canvases.originals.tolist() == [[64, 64]]
    assert torch.equal(canvases.readable_sizes(np.array([0])), torch.tensor([[31, 31]]))


def test_a_canvas_holds_nearly_all_images():
    assert canvas_for([(480, 640)] * 99 + [(640, 480)], 256) == (192, 256)
    assert canvas_for([(480, 640)] * 9 + [(640, 480)], 256) == (256, 256)
    assert canvas_for([(100, 300)], 100) == (48, 100)
    assert canvas_for([], 48) == (48, 48)
