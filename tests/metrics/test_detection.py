"""Average precision and recall against pycocotools, over all that makes them differ."""

import contextlib
import io

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from scattered_boxes import scenes

from foci.errors import ConfigError, DataError, ShapeError
from foci.metrics.detection import Found, Marked, average_precision

NAMES = ["ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large"]
NAMES += ["ar_1", "ar_10", "ar_100", "ar_small", "ar_medium", "ar_large"]


def oracle(found, marked, num_classes):
    """Return COCO's evaluation; ids of categories and annotations start at 1 (cocoapi #332)."""
    objects, predicted = [], []
    for image, (boxes, truth) in enumerate(zip(found, marked)):
        for (left, top, right, bottom), label, crowd, area in zip(*truth):
            box = [float(left), float(top), float(right - left), float(bottom - top)]
            objects.append(
                {"id": len(objects) + 1, "image_id": image, "category_id": int(label) + 1, "bbox": box}
                | {"iscrowd": int(crowd), "area": float(area)}
            )
        for (left, top, right, bottom), label, score in zip(*boxes):
            box = [float(left), float(top), float(right - left), float(bottom - top)]
            predicted.append({"image_id": image, "category_id": int(label) + 1, "bbox": box, "score": float(score)})
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {
            "images": [{"id": image} for image in range(len(marked))],
            "categories": [{"id": label + 1, "name": str(label)} for label in range(num_classes)],
            "annotations": objects,
        }
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(predicted) if predicted else _nothing(truth), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation


def _nothing(truth):
    empty = COCO()
    empty.dataset = truth.dataset | {"annotations": []}
    empty.createIndex()
    return empty


def assert_equal_to_the_oracle(found, marked, num_classes):
    ours, theirs = average_precision(found, marked, num_classes), oracle(found, marked, num_classes)
    stats = dict(zip(NAMES, theirs.stats))
    assert set(ours.metrics()) == {name for name, value in stats.items() if value >= 0}
    for name, value in ours.metrics().items():
        assert value == pytest.approx(stats[name], abs=1e-12), name
    precision = theirs.eval["precision"][..., -1].mean(axis=1).transpose(0, 2, 1)  # (T, A, C)
    np.testing.assert_allclose(ours.precision, np.where(precision < 0, np.nan, precision), atol=1e-12)
    recall = theirs.eval["recall"].transpose(0, 2, 3, 1)
    np.testing.assert_allclose(ours.recall, np.where(recall < 0, np.nan, recall), atol=1e-12)
    return ours


@pytest.mark.parametrize("crowds", [0.0, 0.4])
@pytest.mark.parametrize("side", [23, 53, 311])
@pytest.mark.parametrize("scores", [3, 10_007])
def test_all_numbers_are_those_of_pycocotools(crowds, side, scores):
    for seed in range(3):
        found, marked = scenes(seed, crowds=crowds, side=side, scores=scores)
        ours = assert_equal_to_the_oracle(found, marked, 5)
        assert np.isnan(ours.precision[:, 0, -1]).all()  # a class without objects
        assert ours.objects[0].sum() == sum((~objects.crowd).sum() for objects in marked)


def test_only_the_best_boxes_of_a_class_in_an_image_count():
    found, marked = scenes(3, images=2, num_classes=2, side=31, scores=5, most=130)
    assert max(np.bincount(boxes.labels).max() for boxes in found) > 100
    assert_equal_to_the_oracle(found, marked, 2)


def test_real_numbers_and_half_the_precision():
    chance = np.random.default_rng(5)
    found, marked = scenes(5, side=211)
    found = [
        Found(
            (boxes + chance.random(boxes.shape) * [-1, -1, 0, 0]).astype(np.float32), labels, scores.astype(np.float32)
        )
        for boxes, labels, scores in found
    ]
    assert_equal_to_the_oracle(found, marked, 5)


@pytest.mark.parametrize("empty", ["found", "marked", "both"])
def test_images_without_boxes_or_objects(empty):
    found, marked = scenes(7)
    nothing = np.zeros((0, 4)), np.zeros(0, dtype=np.int64)
    if empty != "marked":
        found = [Found(*nothing, np.zeros(0)) for _ in found]
    if empty != "found":
        marked = [Marked.from_boxes(*nothing) for _ in marked]
    ours = assert_equal_to_the_oracle(found, marked, 5)
    assert ours.metrics().get("ap") == (0.0 if empty == "found" else None)


def test_areas_on_the_limits_of_sizes_count_on_both_sides():
    sides = np.array([32.0, 96.0])
    boxes = np.stack([sides * 0, sides * 0, sides, sides], axis=1)
    marked = [Marked.from_boxes(boxes, np.array([0, 0]))]
    found = [Found(boxes[::-1], np.array([0, 0]), np.array([0.5, 0.5]))]
    ours = assert_equal_to_the_oracle(found, marked, 1)
    assert ours.objects[:, 0].tolist() == [2, 1, 2, 1]
    assert all(value == 1 for name, value in ours.metrics().items() if name != "ar_1")


def test_classes_have_their_own_numbers():
    found, marked = scenes(11)
    ours = average_precision(found, marked, 5)
    theirs = oracle(found, marked, 5).eval["precision"][:, :, :, 0, -1]
    for name, values in (("ap", theirs), ("ap50", theirs[:1]), ("ap75", theirs[5:6])):
        np.testing.assert_allclose(ours.of_classes()[name][:4], values.mean(axis=(0, 1))[:4], atol=1e-12)
        assert np.isnan(ours.of_classes()[name][4])
    assert ours.metrics()["ap"] == pytest.approx(np.nanmean(ours.of_classes()["ap"]))


def test_what_cannot_be_is_refused():
    found, marked = scenes(13)
    boxes, labels, scores = found[0]
    with pytest.raises(DataError, match="boxes of 6 images and objects of 7, expected both of each image"):
        average_precision(found[1:], marked, 5)
    with pytest.raises(DataError, match=r"Found of image 0: labels from 0 to 9, expected 0 to 4"):
        average_precision([Found(boxes, np.where(labels > 0, 9, 0), scores), *found[1:]], marked, 5)
    with pytest.raises(ShapeError, match=r"Found of image 1: scores has shape \(1,\), expected"):
        average_precision([found[0], Found(*found[1][:2], np.ones(1)), *found[2:]], marked, 5)
    with pytest.raises(DataError, match="a score is not finite"):
        average_precision([Found(boxes, labels, scores * np.nan), *found[1:]], marked, 5)
    with pytest.raises(DataError, match="Found of image 0: a box is not left ≤ right"):
        average_precision([Found(boxes[:, [2, 1, 0, 3]], labels, scores), *found[1:]], marked, 5)
    with pytest.raises(ConfigError, match="num_classes is 0"):
        average_precision(found, marked, 0)
