"""COCO: its tree of files, and mistakes with file and number."""

from pathlib import Path

import pytest
from marked_images import OBJECTS, coco, plain, with_mistake

from foci.errors import DataError
from foci.tasks.detect.reader import parts_of, read_marked_images


def test_the_original_tree_of_coco(tmp_path):
    for part in ("train", "val"):
        path = coco(tmp_path / f"{part}2017")
        (tmp_path / "annotations").mkdir(exist_ok=True)
        path.rename(tmp_path / "annotations" / f"instances_{part}2017.json")
        (tmp_path / "annotations" / f"captions_{part}2017.json").write_text("{}", encoding="utf-8")
    parts = parts_of(str(tmp_path))
    assert {part: Path(path).name for part, path in parts.items()} == {
        "train": "instances_train2017.json",
        "valid": "instances_val2017.json",
    }
    assert plain(read_marked_images(parts["valid"]).images) == OBJECTS
    assert plain(read_marked_images(tmp_path).images) == OBJECTS


MISTAKES = [
    (
        coco,
        "_annotations.coco.json",
        '"category_id": 90',
        '"category_id": 5',
        "json, line 1: annotation 1 .* category_id is 5",
    ),
    (coco, "_annotations.coco.json", '"bbox": [0, ', '"bbox": [', "annotation 1 of the file: bbox is \\[5, 31, 42\\]"),
    (coco, "_annotations.coco.json", '"id": 15, ', '"id": 10, ', "json, line 1: 1 ids of image occur twice"),
    (coco, "_annotations.coco.json", '"file_name": "a.png", ', "", "json, line 1: an image or a category is not as"),
    (
        coco,
        "_annotations.coco.json",
        ".png",
        ".bmp",
        "its images, such as a.bmp, are not in .* Name their folder: data.images",
    ),
    (coco, "_annotations.coco.json", "}", "", "json, line 1: not a JSON object"),
]


@pytest.mark.parametrize(("form", "name", "old", "new", "message"), MISTAKES)
def test_mistakes_are_named_with_file_and_line(tmp_path, form, name, old, new, message):
    path = with_mistake(form, tmp_path, name, old, new)
    with pytest.raises(DataError, match=message):
        read_marked_images(path)


def test_a_file_without_images_is_empty(tmp_path):
    (tmp_path / "a.json").write_text('{"images": [], "annotations": [], "categories": []}', encoding="utf-8")
    with pytest.raises(DataError, match=r"a.json, line 1: no images, the file or folder is empty"):
        read_marked_images(tmp_path / "a.json")
