"""Folders of classes: recursion, what is no image, the usual layouts of parts, and what is said of the rest."""

import os
from pathlib import Path

import numpy as np
import pytest

import foci
from foci.data.images.files import image_files
from foci.errors import ConfigError, DataError
from foci.tasks.classify.reader import read_documents
from foci.tasks.classify_images.reader import read_labeled_images
from foci.tasks.classify_images.task import ClassifyImages
from foci.tasks.frame import config as configs

Image = pytest.importorskip("PIL.Image")


def picture(path: Path, kind: int, size: int = 20) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(abs(hash(str(path))) % 2**32).integers(0, 90, (size, size, 3), dtype=np.uint8)
    pixels[..., kind] += 100
    Image.fromarray(pixels).save(path, format="PNG")


def classes(root: Path, count: int = 12, size: int = 20) -> None:
    for kind, name in enumerate(("cat", "dog")):
        for number in range(count):
            picture(root / name / f"{number}.png", kind, size)


def train(data: Path, out: Path, **changes) -> list[str]:
    said: list[str] = []
    tables = configs.put(ClassifyImages.Config.smallest, {"data.builtin": None, "data.path": str(data), **changes})
    foci.train("classify_images", tables, out=out, log=said.append)
    return said


def test_images_in_folders_below_a_class_are_trained_on_and_other_files_are_named(tmp_path):
    data = tmp_path / "data"
    classes(data)
    for number in range(12):
        picture(data / "bird" / f"day{number % 3}" / f"{number}.png", 2)
    for name in ("cat/notes.txt", "cat/meow.ogg", "dog/logo.svg", "readme.md", "bird/day0/.hidden.png"):
        (data / name).write_text("<svg></svg>")
    (data / "none").mkdir()
    said = train(data, tmp_path / "run")
    text = "\n".join(said)
    assert foci.load(tmp_path / "run").assets.labels == ("bird", "cat", "dog")
    assert "12 of 36 images lie in folders below that of their class" in text
    assert "3 files (cat/meow.ogg, cat/notes.txt, dog/logo.svg) that are no images" in text
    assert all(f"1 × .{ending}" in text for ending in ("ogg", "txt", "svg"))
    assert "1 file (readme.md) beside the folders of classes" in text
    assert "1 folder (none) without images" in text
    assert "cannot be read" not in text


def test_what_an_image_is_depends_on_its_content_where_the_ending_says_nothing(tmp_path):
    for name in ("a.PNG", "b", "c.photo", "deep/er/d.webp"):
        picture(tmp_path / name, 0)
    for name in ("e.txt", "f", "g.mp3", "h.h5"):
        (tmp_path / name).write_bytes(b"\x89HDF\r\n\x1a\n" if name == "h.h5" else b"no image")
    found = image_files(tmp_path)
    assert [os.path.relpath(path, tmp_path) for path in found.images] == ["a.PNG", "b", "c.photo", "deep/er/d.webp"]
    assert [os.path.relpath(path, tmp_path) for path in found.others] == ["e.txt", "f", "g.mp3", "h.h5"]


def test_links_in_a_circle_are_followed_once(tmp_path):
    classes(tmp_path / "data", count=2)
    (tmp_path / "data" / "cat" / "again").symlink_to(tmp_path / "data", target_is_directory=True)
    (tmp_path / "linked").symlink_to(tmp_path / "data", target_is_directory=True)
    assert len([*image_files(tmp_path / "linked" / "dog").images]) == 2
    assert len(image_files(tmp_path / "data" / "cat").images) == 4  # its own, and those of the dog: not its own again


@pytest.mark.parametrize(
    "names", [("train", "test"), ("Train", "val", "test"), ("training", "validation"), ("train", "valid")]
)
def test_folders_of_parts_are_the_parts(tmp_path, names):
    for name in names:
        classes(tmp_path / "data" / name, count=12 if name.lower().startswith("train") else 3)
    (tmp_path / "data" / "extra" / "x").mkdir(parents=True)
    (tmp_path / "data" / "README.md").write_text("what this is")
    said = train(tmp_path / "data", tmp_path / "run")
    run = foci.load(tmp_path / "run")
    data = run.config.data
    assert run.assets.labels == ("cat", "dog")
    assert (data.valid, data.test) == tuple(
        next((str(tmp_path / "data" / name) for name in names if name.startswith(part)), None)
        for part in ("val", "test")
    )
    if "test" in names:
        assert len(run.held_out()) == 6
    else:
        assert len(run.held_out()) < 12
    assert any("has parts: " in line and f"{names[0]} to train on" in line for line in said)
    assert any("1 folder (extra)" in line for line in said)
    assert any("1 file (README.md) beside the folders of parts" in line for line in said)
    with pytest.raises(DataError, match=r"holds the parts train, .* expected folders of classes\. Name one: "):
        run.read(str(tmp_path / "data"))
    assert len(run.read(str(tmp_path / "data" / names[1]))) == 6


def test_a_part_without_classes_is_not_read_and_named_files_come_first(tmp_path):
    classes(tmp_path / "data" / "train")
    classes(tmp_path / "mine", count=2)
    picture(tmp_path / "data" / "test" / "1.png", 0)  # as in competitions: no labels
    said = train(tmp_path / "data", tmp_path / "run", **{"data.valid": str(tmp_path / "mine")})
    data = foci.load(tmp_path / "run").config.data
    assert (data.valid, data.test) == (str(tmp_path / "mine"), None)
    assert any("1 folder (test), by name no part or without folders of classes" in line for line in said)


def test_train_is_a_class_beside_others_and_a_lone_folder_is_entered(tmp_path):
    for kind, name in enumerate(("bus", "train", "plane")):
        for number in range(3):
            picture(tmp_path / "vehicles" / "archive" / name / f"{number}.png", kind)
    said = []
    found = read_labeled_images(tmp_path / "vehicles", log=said.append)
    assert {one.label for one in found} == {"bus", "train", "plane"}
    assert len(found) == 9
    assert said == [f"{tmp_path}/vehicles holds one folder: the folders of {tmp_path}/vehicles/archive are the classes"]


def test_documents_have_the_same_layouts(tmp_path):
    for part in ("train", "test"):
        for label in ("pos", "neg"):
            for number in range(8):
                path = tmp_path / "imdb" / part / label / ("long" if number % 2 else "") / f"{number}.txt"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{label} {part} {number} is a film.")
    assert len(read_documents(tmp_path / "imdb" / "train")) == 16
    config = configs.configure(configs.find_config("classify"), {"data": {"path": str(tmp_path / "imdb")}}, "test")
    assert (config.data.valid, config.data.test) == (None, str(tmp_path / "imdb" / "test"))


def test_reduction_of_images_is_said_with_its_setting(tmp_path):
    classes(tmp_path / "data", size=96)
    said = train(tmp_path / "data", tmp_path / "run")
    (line,) = [line for line in said if "px" in line]
    assert all(part in line for part in ("images of 96 px", "reduced to 16 px", "data.image_size (--size)"))
    assert not [line for line in train(tmp_path / "data", tmp_path / "b", **{"data.image_size": 96}) if "px" in line]


@pytest.mark.parametrize("task", ["classify", "classify_images", "entail"])
def test_a_path_that_is_none_names_no_data(task):
    tables = configs.apply_changes({}, ["data.path=none"])
    assert configs.configure(configs.find_config(task), tables, "test").data.path is None


def test_the_encoding_is_refused_where_all_images_are_in_folders(tmp_path):
    classes(tmp_path / "data")
    classes(tmp_path / "mine", count=2)
    with pytest.raises(ConfigError, match="data.encoding is 'gb18030', but .*data is a folder of images.*Leave data"):
        train(tmp_path / "data", tmp_path / "run", **{"data.encoding": "gb18030"})
    table = tmp_path / "valid.csv"
    lines = ["image,label", *(f"mine/{label}/{number}.png,{label}" for label in ("cat", "dog") for number in range(2))]
    table.write_text("\n".join(lines), encoding="gb18030")
    train(tmp_path / "data", tmp_path / "run", **{"data.valid": str(table), "data.encoding": "gb18030"})


def test_names_of_classes_are_text(tmp_path):
    classes(tmp_path)
    (tmp_path / "cat").rename(tmp_path / os.fsdecode(b"c\xff"))
    with pytest.raises(DataError, match="the name of the class is not UTF-8. Rename the folder"):
        read_labeled_images(tmp_path)
