"""What is evaluated is what is there."""

import numpy as np
import pytest
import torch

import foci
from foci.data.images.drawn import SIDE, draw, find_scene
from foci.errors import ConfigError
from foci.functional.boxes import to_corners
from foci.metrics.detection import Marked, average_precision
from foci.tasks.detect.answers import Answer


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


def test_mistakes_are_drawn_and_other_files_refused_at_once(run, tmp_path):
    predictor = foci.load(run)
    records = predictor.held_out()[:3]
    predictor.evaluate(records, options={"mistakes": str(tmp_path / "a.png")})
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="mistakes"):
        predictor.evaluate(records, options={"mistakes": str(tmp_path / "a.txt")})
