"""`torch.func` and second derivatives, over every row of the catalog, every variant and every option."""

import inspect
from functools import partial

import pytest
import torch
from cases import CHOOSING, EVERY_CASE, any_inputs, arguments, card, make, tensors
from torch.autograd import gradgradcheck
from torch.nn.attention import SDPBackend, sdpa_kernel

from foci.functional.attend import NORMALIZERS
from foci.mechanisms.focus import FOCUSES
from foci.mechanisms.scores import SCORES

ROWS = 2


def squared(query, read):
    """A stage after reading."""
    return read._replace(output=read.output.square())


def others_only(query, key):
    """A focus: all positions but the one of the query's number."""
    return ~torch.eye(query.shape[1], key.shape[1], dtype=torch.bool).unsqueeze(0)


def running_sum(sentences, exists):
    """A sentence encoder."""
    return (sentences * exists.unsqueeze(-1)).cumsum(dim=1)


OPTIONS = {
    "dot: after": {"after": squared},
    "pool: hidden_dim": {"hidden_dim": None},
    "hierarchical: sentence_encoder": {"sentence_encoder": running_sum, "sentence_dim": 5},
    "crf: allowed": {
        "allowed_transitions": ~torch.eye(5, dtype=torch.bool),
        "allowed_start": torch.arange(5) > 0,
        "allowed_end": torch.arange(5) < 4,
    },
    "multi_head: value_dim": {"value_dim": 7, "key_dim": 7},
    "multi_head: dot": {"score": "dot", "qk_norm": True, "rotary": True, "num_heads": 3, "num_key_heads": 1},
    "multi_head: sigmoid": {"normalize": "sigmoid", "qk_norm": True},
    "multi_head: entmax15": {"normalize": "entmax15", "qk_norm": True},
    "multi_head: own parts": {"focus": others_only, "after": squared},
}
"""Options that are no variants of the catalog."""

EVERY_OPTION = [*EVERY_CASE, *OPTIONS]


def options(name):
    """The row of a case, and what builds it."""
    row = name.partition(":")[0]
    return row, {**arguments(row), **OPTIONS.get(name, {})}


def prepared(name):
    """A function from the inputs to every tensor the case gives, and its inputs."""
    row, given = options(name)
    module = make(row, torch.float64, **given)

    def run(*inputs):
        return tuple(tensor for tensor in tensors(module(*inputs)) if tensor.is_floating_point())

    return run, any_inputs(row, batch=ROWS, dtype=torch.float64), module


def test_every_option_of_every_mechanism_is_here():
    tried, choices = {}, {"score": set(), "normalize": set(), "focus": set()}
    for name in EVERY_OPTION:
        row, given = options(name)
        builder = card(row).builder
        own = builder.keywords if isinstance(builder, partial) else {}
        given = {**own, **given}
        tried.setdefault(getattr(builder, "func", builder), set()).update(given)
        for option, seen in choices.items():
            seen.add(given.get(option))
    for builder, seen in tried.items():
        assert seen == set(inspect.signature(builder).parameters), builder
    assert choices["score"] >= set(SCORES)
    assert choices["normalize"] >= set(NORMALIZERS) - {"softmax"}
    assert choices["focus"] >= set(FOCUSES) - {"global"}


@pytest.mark.parametrize("name", EVERY_OPTION)
def test_func_grad_equals_autograd(name):
    run, inputs, _ = prepared(name)

    def loss(*inputs):
        return sum(tensor.square().sum() for tensor in run(*inputs))

    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    expected = torch.autograd.grad(loss(*leaves), leaves, materialize_grads=True, allow_unused=True)
    found = torch.func.grad(loss, argnums=tuple(range(len(inputs))))(*inputs)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", EVERY_OPTION)
def test_vmap_equals_a_batch(name):
    run, inputs, _ = prepared(name)

    def one(*inputs):
        return tuple(tensor.squeeze(0) for tensor in run(*(tensor.unsqueeze(0) for tensor in inputs)))

    torch.testing.assert_close(torch.func.vmap(one)(*inputs), run(*inputs))


@pytest.mark.parametrize("name", EVERY_OPTION)
def test_jacobians_in_both_modes_equal_autograd(name):
    run, inputs, _ = prepared(name)
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


@pytest.mark.parametrize("name", [name for name in EVERY_OPTION if name not in CHOOSING])
def test_second_derivatives_are_right(name):
    """Those by the parameters too."""
    run, inputs, module = prepared(name)
    leaves = [tensor.requires_grad_() for tensor in (*inputs, *module.parameters())]
    with sdpa_kernel(SDPBackend.MATH):  # nor a second derivative
        assert gradgradcheck(lambda *leaves: run(*leaves[: len(inputs)]), leaves, fast_mode=True)
