"""Scores of classes: losses and calibration with and without a temperature, by torch and by hand."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from foci.metrics.calibration import calibration, expected_calibration_error
from foci.tasks.frame.scores import UNTRAINED, Scores


def measured(scores, targets, temperature=1.0):
    found = Scores(temperature)
    for start in range(0, len(targets), 7):
        found.add(scores[start : start + 7], targets[start : start + 7])
    return found


def test_metrics_are_those_of_torch():
    torch.manual_seed(0)
    scores, targets = 4 * torch.randn(100, 3), torch.randint(3, (100,))
    targets[5] = UNTRAINED
    found = measured(scores, targets, 2.5).metrics()
    for suffix, temperature in (("", 2.5), ("_uncalibrated", 1.0)):
        loss = F.cross_entropy(scores / temperature, targets, ignore_index=UNTRAINED)
        assert found[f"loss{suffix}"] == pytest.approx(loss.item(), rel=1e-5)
        shares, best = (scores / temperature).softmax(dim=1).max(dim=1)
        bins = calibration(shares.tolist(), (best == targets).tolist())
        assert found[f"ece{suffix}"] == pytest.approx(expected_calibration_error(bins), abs=1e-6)


def test_the_fitted_temperature_lowers_the_loss_and_keeps_the_answers():
    torch.manual_seed(1)
    scores = 9 * torch.randn(200, 4)
    targets = torch.where(torch.rand(200) < 0.5, scores.argmax(dim=1), torch.randint(4, (200,)))
    raw = measured(scores, targets)
    fitted = raw.fit()
    after = measured(scores, targets, fitted["calibration/temperature"])
    assert fitted["loss"] == raw.loss()
    assert fitted["calibrated_loss"] == pytest.approx(after.loss(), rel=1e-5)
    assert raw.chance == pytest.approx(np.log(4))
    assert fitted["calibrated_loss"] < raw.chance < fitted["loss"]
    assert after.metrics()["ece"] < after.metrics()["ece_uncalibrated"]
    assert after.best == raw.best
    assert "loss_uncalibrated" in after.notes()["chance"]
    assert "the temperature mends it" in after.notes()["chance"]
    assert "do not rely" in raw.notes()["chance"]
    assert measured(torch.zeros(5, 4), targets[:5]).notes() == {}


def test_batches_of_different_width_and_classes_that_are_missing():
    found = Scores()
    found.add(torch.tensor([[0.0, -torch.inf]]), torch.tensor([0]))
    found.add(torch.tensor([[1.0, 1.0, 1.0, -torch.inf]]), torch.tensor([2]))
    assert found.chance == pytest.approx(np.log(3) / 2)
    assert found.fit()["loss"] == pytest.approx(np.log(3) / 2)
