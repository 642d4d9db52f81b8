"""Every part of torch without a public name does what foci expects of it; a failure here names what to replace."""

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

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


def test_submodules_are_those_that_are_attributes():
    block = nn.Sequential(nn.Linear(2, 3))
    block[0] = nn.Linear(2, 5)
    block.extra = nn.Linear(5, 7)
    assert torch_private.submodules(block) == {"0": block[0], "extra": block.extra}


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
    weight = torch_private.quantized_per_row(numbers, scales)
    torch.testing.assert_close(weight.dequantize(), numbers.float() * scales.float().unsqueeze(1))
    x = torch.randint(0, 128, (3, 7)).float()
    x[:, 0], x[:, 1] = 0.0, 127.0  # the range of every row is the whole of it
    packed = torch.ops.quantized.linear_prepack(weight, None)
    found = torch_private.dynamic_quantized_linear(x, packed)
    torch.testing.assert_close(found, x @ weight.dequantize().T, rtol=1e-5, atol=1e-2)


def test_a_hook_with_kwargs_is_forgotten():
    hook = register_module_forward_hook(lambda *call: None, with_kwargs=True)
    hook.remove()
    torch_private.forget_hook_with_kwargs(hook.id)
    assert hook.id not in torch.nn.modules.module._global_forward_hooks_with_kwargs


def test_the_function_mode_that_is_on():
    assert torch_private.current_function_mode() is None
    mode = TorchFunctionMode()
    with mode:
        assert torch_private.current_function_mode() is mode


def test_a_backward_pass_is_seen():
    seen = []
    x = torch.ones(3, requires_grad=True)
    x.register_hook(lambda grad: seen.append(torch_private.is_backward_running()))
    assert not torch_private.is_backward_running()
    x.sum().backward()
    assert seen == [True]


def test_a_backward_pass_has_a_number_of_its_own():
    numbers = []
    x = torch.ones(3, requires_grad=True)
    x.register_hook(lambda grad: numbers.append(torch_private.backward_pass()))
    for _ in range(2):
        x.sum().backward()
    assert torch_private.backward_pass() == -1
    assert -1 not in numbers
    assert len(set(numbers)) == 2


def test_nodes_that_a_backward_pass_does_not_run_are_seen():
    x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    left, right, seen = x * 2, y * 3, []
    product = left * right
    product.register_hook(
        lambda grad: seen.append([torch_private.runs_in_this_pass(one.grad_fn) for one in (left, right)])
    )
    torch.autograd.grad(product.sum(), x, retain_graph=True)
    torch.autograd.grad(product.sum(), (x, y))
    assert seen == [[True, False], [True, True]]


def test_dispatch_modes_and_transforms_are_seen():
    assert not torch_private.has_dispatch_modes()
    with FakeTensorMode():
        assert torch_private.has_dispatch_modes()
    seen = []

    def look(x):
        seen.append(torch_private.is_transformed())
        return x.sum()

    look(torch.ones(2))
    torch.func.grad(look)(torch.ones(2))
    torch.func.vmap(look)(torch.ones(2, 3))
    torch.func.jvp(look, (torch.ones(2),), (torch.ones(2),))
    assert seen == [False, True, True, True]


def test_autograd_records_inside_an_operator():
    gradients = []

    def inside(x: torch.Tensor) -> torch.Tensor:
        with torch_private.record_inside_operator(), torch.enable_grad():
            leaf = x.detach().requires_grad_()
            gradients.append(torch.autograd.grad(leaf.square().sum(), leaf)[0])
        return x.clone()

    operator = torch.library.custom_op("foci_test::inside", inside, mutates_args=())
    operator(torch.tensor([2.0, 3.0]))
    assert gradients[0].tolist() == [4.0, 6.0]


@pytest.mark.slow
def test_sizes_that_hold_for_all_and_scan_in_an_exported_program():
    asked = []

    class Sums(nn.Module):
        def forward(self, x):
            asked.append((torch_private.statically_true(x.shape[0] == x.shape[0]),
                          torch_private.statically_true(x.shape[0] == 3)))  # fmt: skip
            return torch_private.scan(lambda carry, at: (carry + at, carry * at), torch.zeros(5), x)

    length = torch.export.Dim("length", min=2, max=31)
    program = torch.export.export(Sums(), (torch.ones(3, 5),), dynamic_shapes=({0: length},)).module()
    assert asked == [(True, False)]
    x = torch.arange(35.0).view(7, 5)
    total, products = program(x)
    before = torch.cat([torch.zeros(1, 5), x.cumsum(dim=0)[:-1]])
    torch.testing.assert_close(total, x.sum(dim=0))
    torch.testing.assert_close(products, before * x)


def test_what_a_transform_wraps_is_found_during_and_after_it():
    kept = []

    def look(x):
        kept.append(x)
        assert torch_private.level_of(x) == torch_private.transform_level() == 2
        return x.sum()

    rows = torch.arange(6.0).reshape(2, 3)
    torch.func.vmap(torch.func.grad(look), in_dims=1)(rows)
    assert torch_private.transform_level() == 0
    assert torch_private.level_of(rows) is None
    assert torch_private.level_of(kept[0]) < 0
    mapped, axis = torch_private.without_transform(kept[0])
    assert (axis, torch_private.level_of(mapped)) == (None, 1)
    plain, axis = torch_private.without_transform(mapped)
    assert axis == 1
    assert plain is rows or torch.equal(plain, rows)


def test_outside_of_transforms_is_as_if_there_were_none():
    def look(x):
        with torch_private.outside_transforms():
            assert torch_private.transform_level() == 0
            y = torch.ones(3, requires_grad=True)
            (y * y).sum().backward()
        assert torch_private.transform_level() == 2
        return x.sum() * y.grad.sum()

    found = torch.func.vmap(torch.func.grad(look))(torch.arange(6.0).reshape(2, 3))
    assert torch.equal(found, torch.full((2, 3), 6.0))
