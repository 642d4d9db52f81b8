"""Short sequences train without the fused kernel: both paths give the same values and gradients."""

import pytest
import torch

from foci import masks
from foci.functional import attend as module
from foci.functional.attend import attend_dots

B, H, L, S, D = 2, 3, 5, 7, 4


def cases():
    mask = masks.keys(masks.lengths([0, 4], S)).unsqueeze(1)
    return {
        "all": {},
        "masked": {"mask": mask},
        "causal": {"window": (None, 0)},
        "window and bias": {"window": (2, 1), "bias": torch.linspace(-1, 1, L * S).view(1, 1, L, S)},
        "slopes": {"slopes": torch.tensor([0.5, 0.25, 0.125])},
    }


@pytest.mark.parametrize("case", list(cases()))
@pytest.mark.parametrize("key_heads", [H, 1])
def test_both_paths_agree(case, key_heads, monkeypatch):
    torch.manual_seed(5)
    inputs = [torch.randn(B, h, n, D, requires_grad=True) for h, n in ((H, L), (key_heads, S), (key_heads, S))]
    direction = torch.randn(B, H, L, D)
    found = []
    for short in (module._SHORT, 0):
        monkeypatch.setattr(module, "_SHORT", short)
        monkeypatch.setattr(module, "_SHORT_ALONE", short)
        output, weights, _ = attend_dots(*inputs, scale=0.5, **cases()[case])
        assert (type(weights.source).__name__ == "Dense") == (short > 0)
        found.append((output, weights.dense(), *torch.autograd.grad(output, inputs, direction)))
    for one, other in zip(*found):
        torch.testing.assert_close(one, other)
