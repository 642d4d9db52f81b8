"""Object detection: what is predicted is written and read again, and what is evaluated is what is there."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import foci
import foci_cli
from foci.data.images.drawn import SIDE, draw, find_scene
from foci.data.images.files import read_scaled
from foci.errors import ConfigError, DataError
from foci.functional.boxes import to_corners
from foci.metrics.detection import Marked, average_precision
from foci.tasks.detect.answers import Answer, Outcomes
from foci.tasks.detect.baseline import mean_boxes
from foci.tasks.detect.config import DetectConfig
from foci.tasks.detect.reader import drawn_objects, read_marked_images
from foci.tasks.detect.task import Detect
from foci.tasks.frame import config as configs
from foci.tasks.frame.task import silent


def settings(**changes):
    return configs.put(DetectConfig.smallest, {name.replace("__", "."): value for name, value in changes.items()})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("detect") / "run"
    foci.train("detect", settings(), out=folder, log=silent)
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


def test_crops_are_the_parts_of_the_picture(run, pictures, tmp_path):
    found = foci.load(run)(str(pictures / "0.png"), threshold=0.0, crops=str(tmp_path / "crops"))
    whole = np.asarray(Image.open(pictures / "0.png"))
    assert len([*(tmp_path / "crops").iterdir()]) == len(found.details["objects"]) == 6
    for one in found.details["objects"]:
        left, top, right, bottom = one["box"]
        part = whole[int(top) : int(np.ceil(bottom)), int(left) : int(np.ceil(right))]
        assert (np.asarray(Image.open(one["crop"])) == part).all()


def test_a_broken_picture_is_named_and_the_rest_goes_on(run, pictures, capsys):
    assert foci_cli.main(["predict", str(run), str(pictures), "--json", "--threshold", "0"]) == 1
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert [bool(line["objects"]) for line in lines] == [True, True, True, False]
    assert "broken.jpg: the image cannot be read" in err
    assert "1 of 4 inputs failed" in err


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


# ---- evaluation


def test_average_precision_is_that_of_the_predictions(run):
    predictor = foci.load(run)
    records = predictor.held_out()[:9]
    evaluation = predictor.evaluate(records)
    predictor.task.calibration = {}
    found, marked = [], []
    for record in records:
        with torch.no_grad():
            scene = torch.from_numpy(draw(find_scene(record["image"]), 32)).permute(2, 0, 1)[None]
            output = predictor.model(scene)
        scores = predictor.model.probabilities(output.logits)[0].double().numpy()
        answer = Answer(to_corners(output.boxes[0].double()).clamp(0, 1).numpy() * SIDE, scores)
        found.append(answer.ranked())
        boxes = np.array([one["box"] for one in record["objects"]], np.float64)
        labels = [predictor.assets.labels.index(one["label"]) for one in record["objects"]]
        marked.append(Marked.from_boxes(boxes, np.array(labels)))
    expected = average_precision(found, marked, 5).metrics()
    assert {name: evaluation.metrics[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert evaluation.metrics["objects"] == sum(len(record["objects"]) for record in records)
    rows = evaluation.tables["confusion"].rows
    assert sum(sum(row[1:]) for row in rows[:-1]) == evaluation.metrics["objects"]


def test_second_boxes_for_an_object_are_wrong_and_crowds_count_nothing():
    marked = Marked(
        np.array([[0.0, 0, 10, 10], [20, 20, 30, 30]]),
        np.array([0, 1]),
        np.array([False, True]),
        np.array([100.0, 100]),
    )
    boxes = np.array([[0.0, 0, 10, 10], [0, 0, 10, 9], [20, 20, 25, 25], [50, 50, 60, 60]])
    scores = np.array([[0.9, 0.0], [0.8, 0.0], [0.0, 0.7], [0.6, 0.0]])
    outcomes = Outcomes()
    outcomes.add(Answer(boxes, scores), marked)
    assert outcomes.scores == [0.9, 0.8, 0.6]
    assert outcomes.right == [True, False, False]


def test_mean_boxes_are_the_means_of_groups():
    left, right = [0.0, 0.0, 0.2, 0.2], [0.7, 0.0, 0.9, 0.2]
    near = [[edge + 0.02 for edge in box] for box in (left, right)]
    found = mean_boxes([[left, right, left], near, []], [["a", "a", "b"], ["a", "a"], []])
    assert found["label"] == "a"
    assert found["boxes"] == [[0.36, 0.01, 0.56, 0.21]]  # one per image on average: the mean of all
    found = mean_boxes([[left, right], near], [["a", "a"], ["a", "a"]])
    assert np.allclose(found["boxes"], [[0.01, 0.01, 0.21, 0.21], [0.71, 0.01, 0.91, 0.21]])


def test_mistakes_are_drawn_and_other_files_refused_at_once(run, tmp_path):
    predictor = foci.load(run)
    records = predictor.held_out()[:3]
    predictor.evaluate(records, options={"mistakes": str(tmp_path / "a.png")})
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="mistakes"):
        predictor.evaluate(records, options={"mistakes": str(tmp_path / "a.txt")})


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


def test_defaults_suit_the_data(pictures, tmp_path):
    objects = [{"label": "ring", "box": [n, n, n + 20, n + 10]} for n in range(30)]
    path = jsonl(tmp_path / "a.jsonl", [{"image": str(pictures / "1.png"), "objects": objects}])
    task = Detect(configs.configure(DetectConfig, {"data": {"path": path, "valid": path}}, "test"))
    chosen = task.suited(task.read(silent))
    assert chosen["model.num_queries"].value == 45
    assert "up to 30 objects" in chosen["model.num_queries"].reason
    assert chosen["data.image_size"].value == 96  # of 20 × 10 px, 14 are left of them, but no more than the image has
    assert chosen["training.max_steps"].value == 1500
    wide = Detect(configs.configure(DetectConfig, {"data": {"path": path, "valid": path, "image_size": 256}}, "test"))
    assert wide.suited(wide.read(silent))["model.encoder.stages"].value == (16, 32, 64, 96)


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
