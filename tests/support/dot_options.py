"""Options of `attend_dots` for the tests of its paths, by name."""

import torch

from foci import masks

B, H, L, S, D = 2, 3, 5, 7, 4
"""batch, heads, queries, keys, features"""

OPTIONS = {
    "all": {},
    "masked": {"mask": masks.keys(masks.lengths([0, 4], S)).unsqueeze(1)},
    "causal": {"window": (None, 0)},
    "window and bias": {"window": (2, 1), "bias": torch.linspace(-1, 1, L * S).view(1, 1, L, S)},
    "slopes": {"slopes": torch.tensor([0.5, 0.25, 0.125])},
}
