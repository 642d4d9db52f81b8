"""Short sequences train without the fused kernel: both paths give the same values and gradients."""

import pytest
import torch
from dot_options import OPTIONS, B, D, H, L, S

from foci.functional import attend as module
from foci.functional.attend import attend_dots


@pytest.mark.parametrize("case", list(OPTIONS))
@pytest.mark.parametrize("key_heads", [H, 1])
def test_both_paths_agree(case, key_heads, monkeypatch):
    torch.manual_seed(5)
    inputs = [torch.randn(B, h, n, D, requires_grad=True) for h, n in ((H, L), (key_heads, S), (key_heads, S))]
    direction = torch.randn(B, H, L, D)
    found = []
    for short in (module._SHORT, 0):
        monkeypatch.setattr(module, "_SHORT", short)
        monkeypatch.setattr(module, "_SHORT_ALONE", short)
        output, weights, _ = attend_dots(*inputs, scale=0.5, **OPTIONS[case])
        assert (type(weights.source).__name__ == "Dense") == (short > 0)
        found.append((output, weights.dense(), *torch.autograd.grad(output, inputs, direction)))
    for one, other in zip(*found):
        torch.testing.assert_close(one, other)
