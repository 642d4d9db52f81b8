"""Weights of regions at each pixel, and images with fewer pixels."""

import numpy as np
import pytest

from foci.viz.regions import reduced, smooth


def test_weights_are_linear_between_the_middles_of_regions():
    weights = np.random.default_rng(0).random((3, 5)).astype(np.float32)
    spread = smooth(weights, 9, 25)
    np.testing.assert_allclose(spread[1::3, 2::5], weights, rtol=1e-6)  # the pixels in the middles
    np.testing.assert_allclose(spread[1, 3], 0.8 * weights[0, 0] + 0.2 * weights[0, 1], rtol=1e-6)
    assert (spread[0] == spread[1]).all()  # beyond the middles there is nothing to go to


@pytest.mark.parametrize("shape", [(7, 11), (1, 3), (301, 2)])
def test_a_small_image_stays_as_it_is(shape):
    image = np.zeros((*shape, 3), np.uint8)
    assert reduced(image, 301) is image


def test_a_pixel_is_the_mean_of_those_it_stands_for():
    image = np.arange(5 * 1000 * 3).reshape(5, 1000, 3).astype(np.uint8)
    small = reduced(image, 300)
    assert small.shape == (1, 250, 3)
    np.testing.assert_array_equal(small[0, 1], np.rint(image[:4, 4:8].mean(axis=(0, 1))))
