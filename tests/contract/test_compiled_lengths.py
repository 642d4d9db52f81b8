"""Compiled once, a mechanism takes other batch sizes and lengths: at most one more compilation, with gradients."""

import pytest
import torch
from cases import CHOOSING, make
from flat_models import transformer
from sized_cases import CASES, MASKED_OR_NOT, NAMES
from torch._dynamo.testing import CompileCounterWithBackend

SIZES = [(3, 5, 7), (2, 11, 13), (5, 4, 17), (7, 13, 6)]
"""Batch, queries (or cells of the right side, or height) and keys (or width); more queries than keys at the end."""


def run(module, inputs):
    """Output, weights, and the gradients of all floating inputs and parameters."""
    inputs = [one.clone().requires_grad_() if one.is_floating_point() else one for one in inputs]
    result = module(*inputs)
    leaves = [one for one in inputs if one.requires_grad] + [*module.parameters()]
    loss = result.output.square().mean()  # of a sum, the gradients are so large that their rounding would show
    found = torch.autograd.grad(loss, leaves, materialize_grads=True, allow_unused=True)
    return [result.output, result.weights.dense(), *found]


VARIANTS = [
    "additive/causal",
    "additive/sliding_window",
    "additive/median_window",
    "location_aware/median_window",
    "sparsemax/location_aware",
    "entmax/local_p",
    "local_m/additive",
    "sliding_window/one_sided",
    "multi_head/causal",
    "multi_head/window",
    "multi_head/causal_window",
    "multi_head/grouped",
    "multi_head/rotary",
    "multi_head/alibi_causal",
    "multi_head/grouped_sparsemax",
    "multi_head/grouped_keep_weights",
]
"""Variants that branch on sizes, or go another way to the kernel than their row."""


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name", "masked"), MASKED_OR_NOT, ids=NAMES)
def test_other_sizes_compile_once_more(family, name, masked):
    check_other_sizes(family, name, masked)


@pytest.mark.slow
@pytest.mark.parametrize("case", VARIANTS)
def test_other_sizes_of_variants_compile_once_more(case):
    check_other_sizes("attend", case, masked=False)


def check_other_sizes(family, name, masked):
    torch._dynamo.reset()
    module = make(name, train=name not in CHOOSING)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(module, fullgraph=True, backend=counter)
    for sizes in SIZES:
        inputs = CASES[family](name, *sizes)
        if not masked:
            inputs = tuple(one for one in inputs if one.dtype != torch.bool)
        for ours, theirs in zip(run(compiled, inputs), run(module, inputs)):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    assert counter.frame_count <= 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "name"),
    [("attend", "location_aware"), ("attend", "multi_head"), ("attend", "sliding_window"), ("pair", "word_by_word")],
)
def test_the_default_backend_gives_the_same_gradients(family, name):
    """Of the steps of a recurrence inductor's own scan gave wrong ones, where the other backends were right."""
    torch._dynamo.reset()
    module, inputs = make(name, train=True), CASES[family](name, *SIZES[0])
    inputs = tuple(one for one in inputs if one.dtype != torch.bool)
    for ours, theirs in zip(run(torch.compile(module, fullgraph=True), inputs), run(module, inputs)):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_a_whole_model_compiles_without_a_break():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(3)
    model = transformer(11, 13, model_dim=8, num_heads=2, hidden_dim=16, num_layers=1, dropout=0.0)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, backend=counter)
    for batch, length in ((2, 5), (3, 7), (4, 6), (2, 11)):
        source, target = torch.randint(3, 11, (batch, length + 1)), torch.randint(3, 13, (batch, length))
        grads = []
        for one in (model, compiled):
            model.zero_grad()
            logits = one(source, source > 3, target).logits
            logits.square().sum().backward()
            grads.append([logits, *(parameter.grad for parameter in model.parameters())])
        for ours, theirs in zip(*grads):
            torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    assert not torch._dynamo.utils.counters["graph_break"]
    assert counter.frame_count <= 2
