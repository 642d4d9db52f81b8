"""`torch.func` and second derivatives, over every row of the catalog and every variant."""

import pytest
import torch
from cases import CHOOSING, EVERY_CASE, any_inputs, make, tensors
from torch.autograd import gradgradcheck
from torch.nn.attention import SDPBackend, sdpa_kernel

ROWS = 2


def prepared(name):
    """A function from the inputs to every tensor the case gives, and its inputs."""
    module = make(name, torch.float64)

    def run(*inputs):
        return tuple(tensor for tensor in tensors(module(*inputs)) if tensor.is_floating_point())

    return run, any_inputs(name, batch=ROWS, dtype=torch.float64)


@pytest.mark.parametrize("name", EVERY_CASE)
def test_func_grad_equals_autograd(name):
    run, inputs = prepared(name)

    def loss(*inputs):
        return sum(tensor.square().sum() for tensor in run(*inputs))

    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    expected = torch.autograd.grad(loss(*leaves), leaves, materialize_grads=True, allow_unused=True)
    found = torch.func.grad(loss, argnums=tuple(range(len(inputs))))(*inputs)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", EVERY_CASE)
def test_vmap_equals_a_batch(name):
    run, inputs = prepared(name)

    def one(*inputs):
        return tuple(tensor.squeeze(0) for tensor in run(*(tensor.unsqueeze(0) for tensor in inputs)))

    torch.testing.assert_close(torch.func.vmap(one)(*inputs), run(*inputs))


@pytest.mark.parametrize("name", EVERY_CASE)
def test_jacobians_in_both_modes_equal_autograd(name):
    run, inputs = prepared(name)
    generator = torch.Generator().manual_seed(5)
    weights = [torch.randn(3, *tensor.shape, generator=generator, dtype=tensor.dtype) for tensor in run(*inputs)]

    def projected(first):
        """Three numbers of all there is: enough to see a wrong derivative, and cheap."""
        found = run(first, *inputs[1:])
        return sum((weight * tensor).flatten(1).sum(dim=1) for weight, tensor in zip(weights, found))

    expected = torch.autograd.functional.jacobian(projected, inputs[0])
    torch.testing.assert_close(torch.func.jacrev(projected)(inputs[0]), expected)
    with sdpa_kernel(SDPBackend.MATH):  # the fused kernel of torch has no forward mode
        torch.testing.assert_close(torch.func.jacfwd(projected)(inputs[0]), expected)


@pytest.mark.parametrize("name", [name for name in EVERY_CASE if name not in CHOOSING])
def test_second_derivatives_are_right(name):
    run, inputs = prepared(name)
    inputs = [tensor.requires_grad_() for tensor in inputs]
    with sdpa_kernel(SDPBackend.MATH):  # nor a second derivative
        assert gradgradcheck(run, inputs, fast_mode=True)
