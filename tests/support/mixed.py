"""A text with an image in it, as a vision-language model reads it."""

import numpy as np

from foci.viz.axis import Axis
from foci.viz.trace import Trace


def text_around_image():
    """A text around an image of 3 × 4 regions; "cat" reads the region (1, 2) and little else."""
    rng = np.random.default_rng(4)
    image = Axis.from_image(rng.integers(0, 256, (30, 40, 3), np.uint8), (3, 4))
    before, after = Axis.from_tokens(["<s>", "▁see"], "text"), Axis.from_tokens(["▁a", "▁ca", "t"], "text")
    axis = Axis.from_parts([before, image, after], "sequence")
    weights = rng.dirichlet(np.full(17, 0.4), size=(2, 17)) * np.tril(np.ones((17, 17))) + 1e-4 * np.eye(17)
    weights /= weights.sum(-1, keepdims=True)
    weights[:, 15] = 0.02
    weights[:, 15, 2 + 1 * 4 + 2] = 0.7
    weights[:, 15, 16] = 0
    return Trace.from_arrays(weights, axis, title="see a cat")
