"""Object detection: what is predicted is written and read again, and what is evaluated is what is there."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import foci
import foci_cli
from foci.data.images.files import read_scaled
from foci.errors import ConfigError, DataError
from foci.functional.boxes import to_corners
from foci.tasks.detect.config import DetectConfig
from foci.tasks.detect.task import Detect
from foci.tasks.frame import config as configs
from foci.tasks.frame.task import silent


def settings(**changes):
    return configs.put(DetectConfig.smallest, {name.replace("__", "."): value for name, value in changes.items()})


# ---- predictions


def test_boxes_are_pixels_of_the_image_itself(run, pictures):
    predictor = foci.load(run)
    name = str(pictures / "1.png")
    found = predictor(name, threshold=0.0)
    assert found.details["size"] == [96, 60]
    assert len(found.details["objects"]) == 6
    scaled = read_scaled(name, predictor.assets.canvas).pixels
    canvas = torch.zeros(1, 3, *predictor.assets.canvas, dtype=torch.uint8)
    canvas[0, :, : scaled.shape[0], : scaled.shape[1]] = torch.from_numpy(np.array(scaled)).permute(2, 0, 1)
    with torch.no_grad():
        output = predictor.model(canvas, torch.tensor([scaled.shape[:2]]))
    expected = to_corners(output.boxes[0]).clamp(0, 1) * torch.tensor([96, 60, 96, 60])
    scores = predictor.model.probabilities(output.logits)[0]
    order = scores.max(dim=-1).values.argsort(descending=True)
    boxes = torch.tensor([one["box"] for one in found.details["objects"]])
    assert torch.allclose(boxes, expected[order], atol=0.01)
    labels = [predictor.assets.labels[int(scores[query].argmax())] for query in order]
    assert [one["label"] for one in found.details["objects"]] == labels


def test_the_threshold_chooses_and_the_output_counts(run, pictures):
    predictor = foci.load(run)
    every = predictor(str(pictures / "0.png"), threshold=0.0)
    shares = [one["probability"] for one in every.details["objects"]]
    assert shares == sorted(shares, reverse=True)
    assert every.score == shares[0]
    some = predictor(str(pictures / "0.png"), threshold=shares[2])
    assert some.details["objects"] == every.details["objects"][:3]
    none = predictor(str(pictures / "0.png"), threshold=1.0, trace=True)
    assert (none.output, none.details["objects"], none.score) == ("nothing", [], every.score)
    assert [*none.trace.attentions] == ["encoder.0.self"]
    counts = [int(part.split()[0]) for part in every.output.split(", ")]
    assert sum(counts) == 6


def test_a_broken_picture_is_named_and_the_rest_goes_on(run, pictures, capsys):
    assert foci_cli.main(["predict", str(run), str(pictures), "--json", "--threshold", "0"]) == 1
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert [bool(line["objects"]) for line in lines] == [True, True, True, False]
    assert "broken.jpg: the image cannot be read" in err
    assert "1 of 4 inputs failed" in err


# ---- data


def jsonl(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def test_what_is_not_trained_on_is_said(pictures, tmp_path):
    box = [5, 5, 40, 40]
    train = [
        {
            "image": str(pictures / "0.png"),
            "objects": [{"label": "ring", "box": box}, {"label": "ring", "box": box, "crowd": True}],
        }
    ]
    train.append({"image": str(pictures / "1.png"), "objects": []})
    test = [
        {"image": str(pictures / "2.png"), "objects": [{"label": "cat", "box": box}, {"label": "ring", "box": box}]}
    ]
    paths = {name: jsonl(tmp_path / f"{name}.jsonl", some) for name, some in (("train", train), ("test", test))}
    data = {"path": paths["train"], "valid": paths["test"], "test": paths["test"], "batch_size": 2, "image_size": 32}
    tables = settings(data=data, training__max_steps=2)
    said = []
    foci.train("detect", tables, out=tmp_path / "run", log=said.append)
    text = "\n".join(said)
    assert "1 of 2 images to train on have no objects" in text
    assert "1 objects to train on are crowds or difficult" in text
    assert "warning: images to validate have classes that are not trained on, and left out: 'cat'" in text
    run = foci.load(tmp_path / "run")
    assert run.assets.canvas == (32, 32)
    evaluation = run.evaluate()
    assert "1 objects have classes that were not trained" in evaluation.notes["unknown_labels"]
    assert evaluation.metrics["objects"] == 1
    data |= {"path": jsonl(tmp_path / "none.jsonl", train[1:])}
    with pytest.raises(DataError, match="none of 1 images to train on has an object to learn"):
        foci.train("detect", settings(data=data), out=tmp_path / "other", log=silent)


def test_more_objects_than_queries_are_counted(pictures, tmp_path):
    objects = [{"label": "ring", "box": [n, n, n + 20, n + 20]} for n in range(9)]
    path = jsonl(tmp_path / "a.jsonl", [{"image": str(pictures / "0.png"), "objects": objects}])
    said = []
    tables = settings(data={"path": path, "valid": path, "image_size": 32}, training__max_steps=1)
    foci.train("detect", tables, out=tmp_path / "run", log=said.append)
    assert any("3 objects to train on are beyond the 6 queries" in text for text in said)
    assert foci.load(tmp_path / "run").evaluate(foci.load(tmp_path / "run").held_out()).metrics["beyond_queries"] == 3


def test_corners_are_settled_by_the_training_part(tmp_path, pictures):
    def write(folder, first):
        (folder / "Annotations").mkdir(parents=True)
        (folder / "JPEGImages").mkdir()
        Image.open(pictures / "0.png").save(folder / "JPEGImages" / "a.png")
        box = f"<bndbox><xmin>{first}</xmin><ymin>9</ymin><xmax>30</xmax><ymax>30</ymax></bndbox>"
        text = f"<annotation><object><name>x</name>{box}</object></annotation>"
        (folder / "Annotations" / "a.xml").write_text(text, encoding="utf-8")
        return str(folder)

    data = {"path": write(tmp_path / "train", 0), "valid": write(tmp_path / "valid", 1)}
    task = Detect(configs.configure(DetectConfig, {"data": data}, "test"))
    splits = task.read(silent)
    assert task.config.data.corners == 0
    assert splits.train[0].objects[0]["box"] == [0, 9, 30, 30]
    assert splits.valid[0].objects[0]["box"] == [1, 9, 30, 30]  # though it would be read from 1 by itself
    other = Detect(
        configs.configure(
            DetectConfig, {"data": {**data, "path": jsonl(tmp_path / "a.jsonl", []), "corners": 1}}, "test"
        )
    )
    with pytest.raises(DataError):
        other.read(silent)
    one = [{"image": str(pictures / "0.png"), "objects": []}]
    other = Detect(
        configs.configure(
            DetectConfig, {"data": {**data, "path": jsonl(tmp_path / "b.jsonl", one), "corners": 1}}, "test"
        )
    )
    with pytest.raises(ConfigError, match="data.corners is 1, but .* is no Pascal VOC"):
        other.read(silent)
