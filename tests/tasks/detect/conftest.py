"""A run of detection on drawn scenes, and pictures of such scenes."""

import pytest
from PIL import Image

import foci
from foci.data.images.drawn import draw, find_scene
from foci.tasks.detect.config import DetectConfig
from foci.tasks.detect.reader import drawn_objects
from foci.tasks.frame.task import silent


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("detect") / "run"
    foci.train("detect", DetectConfig.smallest, out=folder, log=silent)
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Three drawn scenes as files, two of them wider than high, and a broken file."""
    folder = tmp_path_factory.mktemp("pictures")
    for number, scene in enumerate(drawn_objects(3, split="test")):
        pixels = draw(find_scene(scene.image), 96)
        Image.fromarray(pixels if number == 0 else pixels[:60]).save(folder / f"{number}.png")
    (folder / "broken.jpg").write_bytes(b"no picture")
    return folder
