"""Objects in images in every form become the same examples; what is wrong is named with its file and line."""

import json
import os
from pathlib import Path
from xml.sax.saxutils import escape
from zipfile import ZipFile

import numpy as np
import pytest
from PIL import Image
from real_data import real

from foci.data.images.files import read_scaled
from foci.errors import ConfigError, DataError
from foci.tasks.detect.reader import implied_parts, parts_of, read_marked_images

SIZES = {"a": (70, 50), "b": (30, 110), "c": (40, 40)}
"""Width and height."""
OBJECTS = {
    "a": [("dog & cat", (0, 5, 31, 47)), ("狗", (33, 0, 70, 50))],
    "b": [("狗", (7, 11, 29, 102))],
    "c": [],
}
CLASSES = ["unused", "dog & cat", "狗"]


def write_images(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, (width, height) in SIZES.items():
        Image.fromarray(np.full((height, width, 3), 99, np.uint8)).save(folder / f"{name}.png")


def coco(folder):
    write_images(folder)
    numbers = dict(zip(CLASSES, (3, 90, 7)))  # with gaps
    marks = [(name, label, box) for name, objects in OBJECTS.items() for label, box in objects]
    content = {
        "images": [
            {"id": 10 + 5 * place, "file_name": f"{name}.png", "width": size[0], "height": size[1]}
            for place, (name, size) in enumerate(SIZES.items())
        ],
        "annotations": [
            {
                "id": number,
                "image_id": 10 + 5 * [*SIZES].index(name),
                "category_id": numbers[label],
                "bbox": [box[0], box[1], box[2] - box[0], box[3] - box[1]],
                "iscrowd": 0,
            }
            for number, (name, label, box) in enumerate(marks, start=1)
        ],
        "categories": [{"id": number, "name": label} for label, number in numbers.items()],
    }
    (folder / "_annotations.coco.json").write_text(json.dumps(content), encoding="utf-8")
    return folder / "_annotations.coco.json"


def xml(name, objects, size, base=1):
    found = "".join(
        f"<object>\n<name>{escape(label)}</name>\n<bndbox><xmin>{box[0] + base}</xmin><ymin>{box[1] + base}</ymin>"
        f"<xmax>{box[2]}</xmax>\n<ymax>{box[3]}</ymax></bndbox></object>\n"
        for label, box in objects
    )
    sides = f"<size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size>"
    return f"<annotation><filename>{name}.png</filename>{sides}\n{found}</annotation>"


def voc(folder, base=1):
    write_images(folder / "JPEGImages")
    (folder / "Annotations").mkdir()
    for name, objects in OBJECTS.items():
        (folder / "Annotations" / f"{name}.xml").write_text(xml(name, objects, SIZES[name], base), encoding="utf-8")
    return folder


def yolo(folder):
    write_images(folder / "images")
    (folder / "labels").mkdir()
    for name, objects in OBJECTS.items():
        width, height = SIZES[name]
        lines = [
            f"{CLASSES.index(label)} {(box[0] + box[2]) / 2 / width} {(box[1] + box[3]) / 2 / height} "
            f"{(box[2] - box[0]) / width} {(box[3] - box[1]) / height}\n"
            for label, box in objects
        ]
        if lines:
            (folder / "labels" / f"{name}.txt").write_text("".join(lines), encoding="utf-8")
    (folder / "data.yaml").write_text(f"nc: 3  # classes\nnames: {CLASSES}\n", encoding="utf-8")
    return folder


def jsonl(folder):
    write_images(folder)
    lines = [
        json.dumps({"image": f"{name}.png", "objects": [{"label": label, "box": box} for label, box in objects]})
        for name, objects in OBJECTS.items()
    ]
    (folder / "data.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder / "data.jsonl"


def csv(folder):
    write_images(folder)
    rows = ["filename,width,class,xmin,ymin,xmax,ymax"]
    for name, objects in OBJECTS.items():
        rows += [f"{name}.png,7,{label},{','.join(map(str, box))}" for label, box in objects] or [f"{name}.png,7,,,,,"]
    (folder / "data.csv").write_text("\n".join(rows), encoding="utf-8")
    return folder / "data.csv"


def plain(images):
    return {
        Path(one.image).stem: [(item["label"], tuple(round(edge, 6) for edge in item["box"])) for item in one.objects]
        for one in images
    }


@pytest.mark.parametrize("form", [coco, voc, yolo, jsonl, csv])
def test_every_form_is_recognized_and_read_alike(tmp_path, form):
    said = []
    found = read_marked_images(form(tmp_path / "data"), log=said.append)
    assert plain(found.images) == OBJECTS
    assert all(os.path.exists(one.image) for one in found.images)
    assert found.corners == (1 if form is voc else None)
    assert any("pixels from 1" in text for text in said) == (form is voc)


def test_corners_of_voc_are_guessed_or_given(tmp_path):
    zero = voc(tmp_path / "zero", base=0)
    said = []
    found = read_marked_images(zero, log=said.append)
    assert (plain(found.images), found.corners) == (OBJECTS, 0)
    assert "edges from 0: 0 boxes touch 1" in said[0]
    one = voc(tmp_path / "one")
    assert plain(read_marked_images(one, corners=1).images) == OBJECTS
    assert plain(read_marked_images(one, corners=0).images)["b"] == [("狗", (8, 12, 29, 102))]
    assert read_marked_images(jsonl(tmp_path / "other"), corners=1).corners is None


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


def test_lists_of_voc(tmp_path):
    folder = voc(tmp_path / "VOCdevkit" / "VOC2012")
    sets = folder / "ImageSets" / "Main"
    sets.mkdir(parents=True)
    for name, content in {"train": "a\nc\n", "val": "b\n", "dog_train": "a 1\n"}.items():
        (sets / f"{name}.txt").write_text(content, encoding="utf-8")
    assert parts_of(str(tmp_path / "VOCdevkit")) == {"train": str(sets / "train.txt"), "valid": str(sets / "val.txt")}
    assert [*plain(read_marked_images(tmp_path / "VOCdevkit").images)] == ["a", "c"]
    assert [*plain(read_marked_images(sets / "val.txt").images)] == ["b"]
    with pytest.raises(DataError, match=r"dog_train.txt, line 1: 2 words, expected one name"):
        read_marked_images(sets / "dog_train.txt")
    (sets / "train.txt").write_text("a\nzebra\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"train.txt, line 2: .*zebra.xml: there is no such file"):
        read_marked_images(tmp_path / "VOCdevkit")


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


YAMLS = [
    "names: ['unused', \"dog & cat\", 狗]",
    "names:\n- unused\n- dog & cat\n- 狗  # the last\n",
    "names:\n  0: unused\n  1: dog & cat\n  2: '狗'\nroboflow:\n  license: x",
    "names: {0: unused, 1: dog & cat, 2: 狗}",
    "names: [unused,\n   dog & cat,\n   狗]\nnc: 3",
]


@pytest.mark.parametrize("text", YAMLS)
@pytest.mark.parametrize(
    "base", ["path: .\ntrain: pictures/images\nval: pictures/images\n", "train: ../pictures/images\n"]
)
def test_yaml_of_yolo(tmp_path, text, base):
    yolo(tmp_path / "pictures")
    (tmp_path / "pictures" / "data.yaml").unlink()
    (tmp_path / "my.yaml").write_text(f"# pets\n{base}{text}", encoding="utf-8")
    for path in (tmp_path, tmp_path / "my.yaml"):
        assert plain(read_marked_images(path).images) == OBJECTS
    assert ("valid" in parts_of(str(tmp_path))) == ("val:" in base)


def test_names_of_yolo_in_a_list_and_labels_beside_the_images(tmp_path):
    folder = yolo(tmp_path / "data")
    (folder / "data.yaml").unlink()
    with pytest.raises(DataError, match=r"labels of YOLO are numbers, and their names are in none of .*classes.txt"):
        read_marked_images(folder)
    (folder / "classes.txt").write_text("\n".join(CLASSES), encoding="utf-8")
    assert plain(read_marked_images(folder).images) == OBJECTS
    for path in [*(folder / "images").iterdir(), *(folder / "labels").iterdir()]:
        path.rename(folder / path.name)
    (folder / "images").rmdir()
    assert plain(read_marked_images(folder).images) == OBJECTS
    (folder / "list.txt").write_text("a.png\nc.png\n", encoding="utf-8")
    assert [*plain(read_marked_images(folder / "list.txt").images)] == ["a", "c"]


def test_an_outline_of_yolo_is_its_box(tmp_path):
    folder = yolo(tmp_path)
    (folder / "labels" / "c.txt").write_text("2 0.25 0.5 0.75 0.25 0.5 1.0\n", encoding="utf-8")
    assert plain(read_marked_images(folder).images)["c"] == [("狗", (10, 10, 30, 40))]


# ---- mistakes

MISTAKES = [
    (voc, "Annotations/a.xml", ">31<", ">x31<", r"a.xml, line 4: <xmax> of 'dog & cat' is 'x31', expected a number"),
    (voc, "Annotations/a.xml", "<ymax>47</ymax>", "", r"a.xml, line 2: 'dog & cat' has no <ymax>"),
    (voc, "Annotations/a.xml", "</annotation>", "", r"a.xml, line \d+: no XML that can be read"),
    (voc, "Annotations/a.xml", "annotation>", "html>", r"a.xml, line 1: the file holds <html>"),
    (voc, "Annotations/b.xml", "<name>狗</name>", "<name> </name>", r"b.xml, line 2: <object> has no <name>"),
    (yolo, "labels/b.txt", "2 ", "3 ", r"b.txt, line 1: the class is 3, but there are the classes 0 to 2"),
    (yolo, "labels/b.txt", "2 ", "2 x", r"b.txt, line 1: .*is not all numbers"),
    (yolo, "labels/b.txt", "2 ", "2 0.5 ", r"b.txt, line 1: 6 numbers, expected 5"),
    (yolo, "labels/b.txt", "2 0.", "2 150.", r"b.txt, line 1: a number is far from 0 to 1"),
    (yolo, "data.yaml", "[", "dogs [", r"data.yaml: names is .* expected a list"),
    (
        coco,
        "_annotations.coco.json",
        '"category_id": 90',
        '"category_id": 5',
        r"json, line 1: annotation 1 .* category_id is 5",
    ),
    (coco, "_annotations.coco.json", '"bbox": [0, ', '"bbox": [', r"annotation 1 of the file: bbox is \[5, 31, 42\]"),
    (coco, "_annotations.coco.json", '"id": 15, ', '"id": 10, ', r"json, line 1: 1 ids of image occur twice"),
    (coco, "_annotations.coco.json", '"file_name": "a.png", ', "", r"json, line 1: an image or a category is not as"),
    (
        coco,
        "_annotations.coco.json",
        ".png",
        ".bmp",
        r"its images, such as a.bmp, are not in .* Name their folder: data.images",
    ),
    (coco, "_annotations.coco.json", "}", "", r"json, line 1: not a JSON object"),
    (jsonl, "data.jsonl", '"objects"', '"things"', r"data.jsonl, line 1: no field 'objects', expected \{"),
    (jsonl, "data.jsonl", "[7, 11, 29, 102]", "[7, 11, 29]", r"data.jsonl, line 2: the box of '狗' is \[7, 11, 29\]"),
    (jsonl, "data.jsonl", '"label": "dog & cat", ', "", r"data.jsonl, line 1: an object has no label"),
    (csv, "data.csv", "b.png,7,狗,7", "b.png,7,狗,x7", r"data.csv, line 4: class '狗' with the box 'x7, 11, 29, 102'"),
    (csv, "data.csv", "xmin", "xmim", r"data.csv, line 1: no column 'left' or 'xmin' or 'x1'"),
    (csv, "data.csv", "c.png,7,,", "c.png,7,狗,", r"data.csv, line 5: class '狗' with the box ', , , '"),
]


@pytest.mark.parametrize(("form", "name", "old", "new", "message"), MISTAKES)
def test_mistakes_are_named_with_file_and_line(tmp_path, form, name, old, new, message):
    path = form(tmp_path)
    file = tmp_path / name
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_marked_images(path)


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
