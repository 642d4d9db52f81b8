"""Every part of torch without a public name does what foci expects of it; a failure here names what to replace."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from foci import torch_private


def test_hooks_of_a_module_are_seen():
    for register in ("register_forward_hook", "register_forward_pre_hook"):
        layer = nn.Linear(2, 3)
        assert not torch_private.has_forward_hooks(layer)
        hook = getattr(layer, register)(lambda *call: None)
        assert torch_private.has_forward_hooks(layer)
        hook.remove()
        assert not torch_private.has_forward_hooks(layer)


def test_hooks_of_all_modules_are_seen():
    for register in (register_module_forward_hook, register_module_forward_pre_hook):
        assert not torch_private.has_global_forward_hooks()
        hook = register(lambda *call: None)
        try:
            assert torch_private.has_global_forward_hooks()
        finally:
            hook.remove()
        assert not torch_private.has_global_forward_hooks()


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
@pytest.mark.parametrize("rows", [2, 5, 13])
def test_a_reordered_weight_gives_the_same_product(rows):
    torch.manual_seed(0)
    weight, bias, x = torch.randn(29, 17), torch.randn(29), torch.randn(rows, 17)
    for with_bias in (bias, None):
        product = torch_private.blocked_linear(weight, with_bias, rows)
        torch.testing.assert_close(product(x), F.linear(x, weight, with_bias))
        torch.testing.assert_close(product(x[:1]), F.linear(x[:1], weight, with_bias))


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.skipif(torch.backends.quantized.engine == "none", reason="torch was built without 8-bit kernels")
def test_a_product_of_integers_is_exact_where_the_numbers_are_integers():
    """Inputs from 0 to 127 in steps of 1 are rounded without loss, and so are the weights: every sum must be exact."""
    torch.manual_seed(0)
    numbers = torch.randint(-127, 128, (5, 7), dtype=torch.int8)
    scales = torch.tensor([1.0, 2.0, 0.5, 4.0, 1.0], dtype=torch.float64)
    weight = torch_private.quantised_per_row(numbers, scales)
    torch.testing.assert_close(weight.dequantize(), numbers.float() * scales.float().unsqueeze(1))
    x = torch.randint(0, 128, (3, 7)).float()
    x[:, 0], x[:, 1] = 0.0, 127.0  # the range of every row is the whole of it
    packed = torch.ops.quantized.linear_prepack(weight, None)
    found = torch_private.dynamic_quantised_linear(x, packed)
    torch.testing.assert_close(found, x @ weight.dequantize().T, rtol=1e-5, atol=1e-2)
