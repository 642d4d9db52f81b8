"""Stretches of a recording, and the positions and frames of each."""

import numpy as np
import pytest
import torch

from foci.tasks.frame.probing.sound import erasable_sound
from foci.viz.axis import Axis


@pytest.mark.parametrize(("seconds", "size"), [(0.04, 2), (0.03, 3), (0.5, 1), (None, 1)])
def test_a_stretch_is_about_a_tenth_of_a_second(seconds, size):
    source, groups = erasable_sound(torch.zeros(1, 22, 3), Axis.from_frames(11, seconds=seconds), factor=2)
    assert groups.tolist() == [place // size for place in range(11)]
    assert len(source.tokens) == groups[-1] + 1
    assert source.eraser.owner.flatten().tolist() == [groups[frame // 2] for frame in range(22)]


def test_frames_after_the_last_position_belong_to_the_last_stretch():
    source, groups = erasable_sound(torch.randn(1, 25, 3), Axis.from_frames(11, seconds=0.04), factor=2)
    assert source.eraser.owner[0, 22:, 0].tolist() == [groups[-1]] * 3
    assert source.unit == "sound"


def test_labels_are_times_in_the_recording():
    source, _ = erasable_sound(torch.zeros(1, 10, 3), Axis.from_frames(5, seconds=0.04, start=2.0), factor=2)
    assert source.tokens == ("2.00–2.08 s", "2.08–2.16 s", "2.16–2.24 s")


def test_an_erased_stretch_is_the_mean_of_the_recording():
    features = torch.randn(1, 12, 3)
    source, _ = erasable_sound(features, Axis.from_frames(6, seconds=0.04), factor=2)
    with source.eraser.erased(torch.nn.Identity(), {0: features}, 0, [(1,)], differentiate=False) as reading:
        found = reading.inputs[0][0].numpy()
    assert found[4:8] == pytest.approx(np.repeat(features[0].mean(dim=0, keepdim=True).numpy(), 4, axis=0), abs=1e-6)
    assert np.array_equal(found[:4], features[0, :4].numpy())
