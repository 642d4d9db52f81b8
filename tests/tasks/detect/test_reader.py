"""Objects in images in every form become the same examples; what is wrong is named with its file and line."""

import json
import os
from pathlib import Path
from zipfile import ZipFile

import pytest
from marked_images import OBJECTS, coco, csv, jsonl, plain, voc, write_images, yolo
from real_data import real

from foci.errors import ConfigError, DataError
from foci.tasks.detect.reader import implied_parts, parts_of, read_marked_images


@pytest.mark.parametrize("form", [coco, voc, yolo, jsonl, csv])
def test_every_form_is_recognized_and_read_alike(tmp_path, form):
    said = []
    found = read_marked_images(form(tmp_path / "data"), log=said.append)
    assert plain(found.images) == OBJECTS
    assert all(os.path.exists(one.image) for one in found.images)
    assert found.corners == (1 if form is voc else None)
    assert any("pixels from 1" in text for text in said) == (form is voc)


def test_what_is_difficult_or_a_crowd_is_kept_as_such(tmp_path):
    folder = voc(tmp_path / "voc")
    path = folder / "Annotations" / "b.xml"
    path.write_text(path.read_text(encoding="utf-8").replace("<bndbox>", "<difficult>1</difficult><bndbox>"), "utf-8")
    by_name = {Path(one.image).stem: one.objects for one in read_marked_images(folder).images}
    assert [one.get("crowd", False) for one in (*by_name["a"], *by_name["b"])] == [False, False, True]
    path = coco(tmp_path / "coco")
    content = json.loads(path.read_text(encoding="utf-8"))
    content["annotations"][2] |= {"iscrowd": 1, "area": 321.5}
    path.write_text(json.dumps(content), encoding="utf-8")
    crowd = read_marked_images(path).images[1].objects[0]
    assert (crowd["crowd"], crowd["area"]) == (True, 321.5)


# ---- parts


def shuffled_parts(folder, form):
    for part in ("train", "valid", "test"):
        form(folder / part)
    return folder


@pytest.mark.parametrize("form", [coco, voc, yolo])
def test_folders_of_parts(tmp_path, form):
    folder = shuffled_parts(tmp_path / "set", form)
    parts = parts_of(str(folder))
    assert [*parts] == ["train", "valid", "test"]
    for path in parts.values():
        assert plain(read_marked_images(path).images) == OBJECTS
    said = []
    assert plain(read_marked_images(folder, log=said.append).images) == OBJECTS
    assert said[0] == f"{folder}: {parts['train']} is read"
    assert implied_parts({"data": {"path": str(folder)}}) == {"data": {"valid": parts["valid"], "test": parts["test"]}}


def test_other_folders_and_files_are_errors(tmp_path):
    write_images(tmp_path)
    with pytest.raises(DataError, match="holds no annotations that are known, expected a COCO .json file"):
        read_marked_images(tmp_path)
    with pytest.raises(DataError, match="there is no such file or folder"):
        read_marked_images(tmp_path / "nothing")
    with pytest.raises(ConfigError, match=r"expected a .csv, .tsv or .jsonl file .* a COCO .json file"):
        read_marked_images(tmp_path / "a.png")


def test_blood_cells(tmp_path):
    with ZipFile(real("bccd/bccd.zip")) as archive:
        archive.extractall(tmp_path)
    said = []
    parts = parts_of(str(tmp_path))
    counts = [len(read_marked_images(parts[part], log=said.append).images) for part in ("train", "valid", "test")]
    assert counts == [205, 87, 72]
    assert sum("pixels from 1" in text for text in said) == 3
