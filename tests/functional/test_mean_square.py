"""Vectors of unit mean square, the square of ReLU, rotations: values and gradients; attention in half precision."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F

from foci.functional.attend import attend
from foci.functional.mean_square import EPSILON, squared_relu, unit_mean_square
from foci.functional.positions import rotary
from foci.functional.rotary_options import Rotary

FUNCTIONS = {
    "unit_mean_square": (unit_mean_square, lambda x: x / (x.square().mean(-1, keepdim=True) + EPSILON).sqrt()),
    "squared_relu": (squared_relu, lambda x: x.clamp_min(0) ** 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name):
    function, expected = FUNCTIONS[name]
    x = torch.randn(3, 5, 7, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(function(x), expected(x))
    assert torch.autograd.gradcheck(function, (x,))
    assert torch.autograd.gradgradcheck(function, (x,))
    turned = x.transpose(0, 2)  # not contiguous
    torch.testing.assert_close(function(turned), expected(turned))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_transforms_and_half_precision(name):
    function, expected = FUNCTIONS[name]
    x = torch.randn(3, 7, dtype=torch.float64)
    torch.testing.assert_close(torch.func.vmap(function)(x), expected(x))
    by_transform = torch.func.grad(lambda x: function(x).cos().sum())(x)
    x.requires_grad_()
    (by_autograd,) = torch.autograd.grad(function(x).cos().sum(), x)
    torch.testing.assert_close(by_transform, by_autograd)
    half = x.detach().bfloat16()
    assert function(half).dtype == torch.bfloat16
    torch.testing.assert_close(function(half).double(), expected(half.double()), atol=0.03, rtol=0.02)


def test_a_vector_of_zeros_stays_one_and_has_a_finite_gradient():
    x = torch.zeros(2, 3, requires_grad=True)
    y = unit_mean_square(x)
    y.sum().backward()
    assert torch.equal(y, torch.zeros(2, 3))
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("layout", ["plain", "transposed", "odd offset", "strided at an odd offset"])
def test_rotations_as_complex_numbers_are_those_of_pairs(layout):
    x = torch.randn(2, 5, 3, 8, dtype=torch.float64)
    if "odd offset" in layout:
        width = 9 if layout == "strided at an odd offset" else 8
        x = torch.randn(2 * 5 * 3 * width + 1, dtype=torch.float64)[1:].view(2, 5, 3, width)[..., :8]
    vectors = x.transpose(1, 2) if layout == "transposed" else x
    vectors = vectors.detach().requires_grad_()
    found = rotary(vectors, start=4)
    expected = torch.func.vmap(lambda one: rotary(one, start=4))(vectors)  # a transform takes the plain path
    torch.testing.assert_close(found, expected)
    direction = torch.randn_like(found)
    ours, plain = (torch.autograd.grad(one, vectors, direction)[0] for one in (found, expected))
    torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("start", [4, torch.tensor([[3], [11]])], ids=["number", "per row"])
def test_rotations_of_halves_are_those_of_single_features(start):
    how = Rotary(layout="half")
    vectors = torch.randn(2, 3, 5, 8, dtype=torch.float64, requires_grad=True)
    found = rotary(vectors, start=start, how=how)
    expected = torch.func.functionalize(lambda one: rotary(one, start=start, how=how))(vectors)  # the plain path
    torch.testing.assert_close(found, expected)
    function = partial(rotary, start=start, how=how)
    assert torch.autograd.gradcheck(function, (vectors,), check_batched_grad=True)
    assert torch.autograd.gradgradcheck(function, (vectors,))


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_rotations_kept_from_inference_mode_are_used_in_training(layout):
    how = Rotary(layout=layout, base=311.0)  # of no other test
    x = torch.randn(2, 3, 8)
    with torch.inference_mode():
        first = rotary(x, start=1, how=how)
    x.requires_grad_()
    again = rotary(x, start=1, how=how)
    again.sum().backward()
    assert torch.equal(again.detach(), first)


@pytest.mark.parametrize("kind", ["bfloat16", "autocast"])
def test_attention_trained_in_half_precision_on_a_cpu_has_the_digits_of_single_precision(kind):
    torch.manual_seed(4)
    tensors = [torch.randn(2, 3, 70, 8).bfloat16() for _ in range(3)]
    exact = [tensor.double().requires_grad_() for tensor in tensors]
    given = [tensor.clone().requires_grad_() for tensor in tensors]
    with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
        found = attend(*given, causal=True).output
    assert found.dtype == torch.bfloat16
    expected = F.scaled_dot_product_attention(*exact, is_causal=True)
    torch.testing.assert_close(found.double(), expected, atol=0.01, rtol=0.01)
    direction = torch.randn_like(expected)
    ours = torch.autograd.grad(found, given, direction.bfloat16())
    for one, other in zip(ours, torch.autograd.grad(expected, exact, direction)):
        torch.testing.assert_close(one.double(), other, atol=0.05, rtol=0.05)
