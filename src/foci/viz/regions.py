"""Images and their regions: weights that are spread over the pixels, and images with fewer pixels."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, UInt8
from numpy.typing import NDArray


def smooth(weights: Float[NDArray[np.float32], "R S"], height: int, width: int) -> Float[NDArray[np.float64], "H W"]:
    """Return the weights of a grid of regions at each pixel, linear between the middles of the regions.

    Example:
        >>> smooth(np.array([[0.0, 1.0]], np.float32), 1, 4).tolist()
        [[0.0, 0.25, 0.75, 1.0]]
    """
    down, across = weights.shape
    rows = (np.arange(height) + 0.5) * down / height - 0.5
    columns = (np.arange(width) + 0.5) * across / width - 0.5
    wide = np.stack([np.interp(columns, np.arange(across), line) for line in weights])
    return np.stack([np.interp(rows, np.arange(down), line) for line in wide.T], axis=1)


def reduced(image: UInt8[NDArray[np.uint8], "H W 3"], most: int) -> UInt8[NDArray[np.uint8], "h w 3"]:
    """Return the image with at most ``most`` pixels a side, each the mean of those it stands for.

    Example:
        >>> reduced(np.array([[[0, 0, 0], [9, 9, 90]]], np.uint8).repeat(2, axis=0), 1).tolist()
        [[[4, 4, 45]]]
    """
    factor = -(-max(image.shape[:2]) // most)
    if factor <= 1:
        return image
    down, across = (min(factor, size) for size in image.shape[:2])
    height, width = image.shape[0] // down, image.shape[1] // across
    tiles = image[: height * down, : width * across].reshape(height, down, width, across, 3)
    mean: UInt8[NDArray[np.uint8], "h w 3"] = np.rint(tiles.mean(axis=(1, 3))).astype(np.uint8)
    return mean
