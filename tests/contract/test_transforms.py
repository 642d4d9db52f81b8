"""What torch can do around a module, over every row of the catalog and every variant: alone, and in `foci.record`.

Each case has padding where its family takes a mask. `torch.func.grad` and `torch.func.vmap` without padding, and the
Jacobians, are in test_derivatives.py.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from cases import CHOOSING, EVERY_CASE, any_inputs, card, make, option, tensors
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.utils.checkpoint import checkpoint

import foci
from foci import masks
from foci.errors import ConfigError
from foci.functional.kernels import additive

RANDOM = [case for case in EVERY_CASE if option(case, "normalize") in ("sample", "gumbel") or option(case, "dropout")]
MASKED = {"attend": ("mask",), "pool": ("mask",), "pair": ("left_mask", "right_mask")}
AROUND = {"alone": nullcontext, "recorded": foci.record}


@pytest.fixture(autouse=True)
def kernels_for_small_sizes(monkeypatch):
    monkeypatch.setattr(additive, "SMALL", 0)


def padding(case: str, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """The masks of a case: the second row of the batch has three positions."""
    names = MASKED.get(card(case).family, ())
    padded = inputs[1:2] if names == ("mask",) and len(inputs) > 1 else inputs
    found = {}
    for name, tensor in zip(names, padded):
        valid = torch.ones(tensor.shape[:-1], dtype=torch.bool)
        valid[1, ..., 3:] = False
        found[name] = masks.keys(valid) if card(case).family == "attend" else valid
    return found


class Run:
    """A case with its inputs, as functions of tensors to tensors."""

    def __init__(self, case: str, dtype: torch.dtype = torch.float32, train: bool = False) -> None:
        self.module = make(case, dtype, train=train)
        self.inputs = any_inputs(case, dtype=dtype)
        self.masks = padding(case, self.inputs)
        self.parameters = dict(self.module.named_parameters())

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return numbers(self.module(*inputs, **self.masks))

    def leaves(self) -> tuple[Tensor, ...]:
        return tuple(tensor.clone().requires_grad_() for tensor in self.inputs)

    def one(self, parameters: dict[str, Tensor], inputs: tuple[Tensor, ...], given: dict[str, Tensor]) -> Tensor:
        """The loss of one example, without a batch axis."""
        alone = tuple(tensor.unsqueeze(0) for tensor in inputs)
        given = {name: mask.unsqueeze(0) for name, mask in given.items()}
        return loss(numbers(functional_call(self.module, parameters, alone, given)))


def numbers(result: object) -> tuple[Tensor, ...]:
    return tuple(tensor for tensor in tensors(result) if tensor.is_floating_point())


def loss(found: tuple[Tensor, ...]) -> Tensor:
    return sum(tensor.square().sum() for tensor in found)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("case", EVERY_CASE)
def test_checkpoint(case, around):
    run = Run(case, train=True)

    def values_and_gradients(call: Callable[..., tuple[Tensor, ...]]) -> list[Tensor]:
        torch.manual_seed(31)
        leaves = run.leaves()
        found = call(*leaves)
        wanted = [*leaves, *run.parameters.values()]
        run.module.zero_grad()
        loss(found).backward()
        return [*found, *(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in wanted)]

    expected = values_and_gradients(run)
    with AROUND[around](run.module):
        for reentrant in (True, False):
            found = values_and_gradients(partial(checkpoint, run, use_reentrant=reentrant))
            # The first pass of the reentrant form is without gradients, and may round as another kernel does.
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("case", EVERY_CASE)
def test_functional_call_and_gradients_of_each_sample(case, around):
    run = Run(case, torch.float64)
    others = {name: parameter.detach() * 0.7 + 0.1 for name, parameter in run.parameters.items()}
    with AROUND[around](run.module):
        called = numbers(functional_call(run.module, others, run.inputs, run.masks))
        each = vmap(grad(run.one, argnums=(0, 1)), in_dims=(None, 0, 0))(others, run.inputs, run.masks)
    run.module.load_state_dict({**run.module.state_dict(), **others})
    torch.testing.assert_close(called, run(*run.inputs))
    for number in range(len(run.inputs[0])):
        leaves = tuple(tensor[number].clone().requires_grad_() for tensor in run.inputs)
        run.one(run.parameters, leaves, {name: mask[number] for name, mask in run.masks.items()}).backward()
        for found, leaf in zip(each[1], leaves):
            torch.testing.assert_close(found[number], torch.zeros_like(leaf) if leaf.grad is None else leaf.grad)
        for name, parameter in run.parameters.items():
            expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(each[0][name][number], expected)
        run.module.zero_grad()


@pytest.mark.parametrize("case", RANDOM)
def test_random_choices_under_vmap_say_what_they_need(case):
    run = Run(case, train=True)

    def one(inputs: tuple[Tensor, ...], given: dict[str, Tensor]) -> tuple[Tensor, ...]:
        alone = tuple(tensor.unsqueeze(0) for tensor in inputs)
        return numbers(run.module(*alone, **{name: mask.unsqueeze(0) for name, mask in given.items()}))

    with pytest.raises(RuntimeError, match="'same' or 'different' randomness"):
        vmap(one)(run.inputs, run.masks)
    same = tuple(tensor[:1].expand_as(tensor) for tensor in run.inputs)
    found = vmap(one, randomness="same")(same, {})
    for tensor in found:  # rows of a product may differ in the last digit
        torch.testing.assert_close(tensor[0], tensor[1])
    many = tuple(tensor[:1].expand(64, *tensor.shape[1:]) for tensor in run.inputs)
    found = vmap(one, randomness="different")(many, {})
    assert any((tensor != tensor[0]).any() for tensor in found)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("case", EVERY_CASE)
def test_autocast(case, around):
    """In bfloat16 on a CPU: nearly the numbers of float32, and gradients in the parameters' dtype."""
    run = Run(case)
    exact = run(*run.inputs)
    with AROUND[around](run.module), torch.autocast("cpu", dtype=torch.bfloat16):
        leaves = run.leaves()
        found = run(*leaves)
    loss(found).backward()
    for tensor in (*leaves, *run.parameters.values()):
        assert tensor.grad is None or tensor.grad.isfinite().all()
    for ours, theirs in zip(found, exact):
        assert ours.isfinite().all()
        assert ours.shape == theirs.shape
    chooses = case in CHOOSING or option(case, "focus") == "median_window"
    if not chooses and card(case).family != "memory":  # a choice may flip; sums over steps add up the rounding
        assert (found[0].float() - exact[0]).abs().max() <= 0.05 * exact[0].abs().max()


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("case", EVERY_CASE)
def test_meta_tensors_have_the_shapes(case, around):
    run = Run(case)
    shapes = [(tensor.shape, tensor.dtype) for tensor in run(*run.inputs)]
    run.module.to("meta")
    run.inputs = tuple(tensor.to("meta") for tensor in run.inputs)
    run.masks = {name: mask.to("meta") for name, mask in run.masks.items()}
    with AROUND[around](run.module):
        leaves = run.leaves()
        found = run(*leaves)
    loss(found).backward()
    assert all(tensor.is_meta for tensor in found)
    assert [(tensor.shape, tensor.dtype) for tensor in found] == shapes
    assert all(leaf.grad is None or leaf.grad.shape == leaf.shape for leaf in leaves)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("case", EVERY_CASE)
def test_threads_share_a_module(case, around):
    run = Run(case)

    def scaled(factor: float) -> list[Tensor]:
        leaves = tuple((tensor * factor).requires_grad_() for tensor in run.inputs)
        with AROUND[around](run.module):
            found = run(*leaves)
        gradients = torch.autograd.grad(loss(found), leaves, materialize_grads=True, allow_unused=True)
        return [*found, *gradients]

    factors = (1.0, 0.5, -1.0, 1.5)
    expected = [scaled(factor) for factor in factors]
    with ThreadPoolExecutor(len(factors)) as pool:
        for found, alone in zip(pool.map(scaled, factors), expected):
            for ours, theirs in zip(found, alone):
                assert torch.equal(ours, theirs)


@pytest.mark.filterwarnings("ignore::Warning")  # torch's own: it is deprecated
@pytest.mark.parametrize("case", EVERY_CASE)
def test_torchscript_is_refused(case):
    """Alone, and inside of a model that returns tensors only: what sizes decide would be that of the example."""
    module, inputs = make(case), any_inputs(case)

    class Around(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *inputs: Tensor) -> Tensor:
            return numbers(self.inner(*inputs))[0]

    for model in (module, Around()):
        for compile_it in (torch.jit.script, lambda model: torch.jit.trace(model, inputs)):
            with pytest.raises(ConfigError, match=r"TorchScript.* expected torch\.compile or torch\.export"):
                compile_it(model)


@pytest.mark.filterwarnings("ignore::Warning")
def test_attend_in_torchscript_is_refused():
    query = torch.randn(1, 2, 3)
    with pytest.raises(ConfigError, match="attend: it is compiled to TorchScript"):
        torch.jit.trace(lambda query: foci.attend(query, query, query).output, query)
