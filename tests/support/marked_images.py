"""Three images with objects, written in each of the forms that data sets have."""

import json
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
from PIL import Image

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


def with_mistake(form, folder, name, old, new):
    path, file = form(folder), folder / name
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    return path
