"""Predictions as one document are read again as data."""

import json

import numpy as np

import foci
import foci_cli
from foci.tasks.detect.config import DetectConfig
from foci.tasks.detect.reader import read_marked_images
from foci.tasks.detect.task import Detect
from foci.tasks.frame import config as configs
from foci.tasks.frame.task import silent


def test_the_form_of_coco_is_read_again(run, pictures, tmp_path, capsys):
    assert foci_cli.main(["predict", str(run), str(pictures), "--form", "coco", "--threshold", "0"]) == 1
    (tmp_path / "found.json").write_text(capsys.readouterr().out, encoding="utf-8")
    content = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert [one["file_name"] for one in content["images"]] == [str(pictures / f"{n}.png") for n in range(3)]
    assert [one["id"] for one in content["images"]] == [0, 1, 2]  # as the files are called
    assert [one["id"] for one in content["annotations"]] == [*range(1, 19)]
    again = read_marked_images(tmp_path / "found.json", images="/").images
    predictor = foci.load(run)
    for one in again:
        expected = predictor(one.image, threshold=0.0).details["objects"]
        assert [item["label"] for item in one.objects] == [item["label"] for item in expected]
        boxes, wanted = ([item["box"] for item in items] for items in (one.objects, expected))
        assert np.allclose(boxes, wanted, atol=0.02)


def test_the_form_of_boxes_is_read_again(run, pictures, tmp_path, capsys):
    assert foci_cli.main(["predict", str(run), str(pictures), "--form", "boxes", "--threshold", "0"]) == 1
    (tmp_path / "found.tsv").write_text(capsys.readouterr().out, encoding="utf-8")
    found = {one.image: one.objects for one in read_marked_images(tmp_path / "found.tsv").images}
    for name in (str(pictures / f"{n}.png") for n in range(3)):
        expected = foci.load(run)(name, threshold=0.0).details["objects"]
        assert found[name] == [{"label": one["label"], "box": one["box"]} for one in expected]
    assert foci_cli.main(["predict", str(run), str(pictures / "0.png"), "--form", "boxes", "--threshold", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"{pictures / '0.png'}" + "\t" * 6
    assert foci_cli.main(["predict", str(run), str(pictures / "0.png"), "--form", "cocoa"]) == 2
    assert "unknown form 'cocoa'. Did you mean 'coco'" in capsys.readouterr().err
    assert foci_cli.main(["predict", str(run), str(pictures / "0.png"), "--form", "coco", "--json"]) == 2


def test_numbers_of_coco_come_back(pictures, tmp_path):
    names = ["ring", "cross"]
    content = {
        "images": [{"id": n, "file_name": str(pictures / "0.png"), "width": 96, "height": 96} for n in range(1)],
        "annotations": [
            {"id": 1, "image_id": 0, "category_id": 44, "bbox": [10, 10, 30, 30]},
            {"id": 2, "image_id": 0, "category_id": 7, "bbox": [40, 40, 30, 30]},
        ],
        "categories": [{"id": 44, "name": names[0]}, {"id": 7, "name": names[1]}],
    }
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    task = Detect(configs.configure(DetectConfig, {"data": {"path": str(path), "valid": str(path)}}, "test"))
    splits = task.read(silent)
    assets = task.assets(splits, silent)
    assert (assets.labels, assets.numbers) == (("cross", "ring"), (7, 44))
