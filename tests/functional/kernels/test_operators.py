"""The fake results of each ``foci::`` operator match its real ones: sizes, dtypes and strides, on every layout.

Every result of an operator is contiguous, whatever the layout of its arguments, with the C++ kernel and without it.
A compiled graph is laid out by this promise; inductor stops where it is broken.
"""

import contextlib
from types import SimpleNamespace

import pytest
import torch
from active_kernel import skip_unless_active
from cases import any_inputs, make, tensors
from flat_models import transformer
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses import CrossRefFakeMode, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

import foci
from foci import masks
from foci.functional.kernels import KERNELS

WITH_OPERATORS = [row.kernel for row in KERNELS if row.kernel is not None and row.operators]

# --- layouts


def contiguous(shape):
    return torch.randn(shape)


def transposed(shape):
    """The last two axes swapped, as ``tensor.mT`` leaves them."""
    return torch.randn(*shape[:-2], shape[-1], shape[-2]).mT if len(shape) > 1 else torch.randn(shape)


def reversed_axes(shape):
    return torch.randn(shape[::-1]).permute(*range(len(shape))[::-1])


def split_heads(shape):
    """``(B, H, L, D)`` as `MultiHeadAttention._split` makes it from ``(B, L, H, D)``."""
    if len(shape) < 3:
        return torch.randn(shape)
    return torch.randn(shape[0], shape[2], shape[1], *shape[3:]).transpose(1, 2)


def expanded_batch(shape):
    """A broadcast batch of 1: its stride is 0."""
    return torch.randn(1, *shape[1:]).expand(shape)


def expanded_number(shape):
    """What ``sum().backward()`` passes back: one number, all strides 0."""
    return torch.randn(()).expand(shape)


def every_second(shape):
    return torch.randn(*shape[:-1], 2 * shape[-1])[..., ::2]


def part_of_wider_rows(shape):
    """As ``split`` or ``chunk`` of a joint projection leaves it."""
    return torch.randn(*shape[:-1], shape[-1] + 5)[..., 3 : 3 + shape[-1]]


LAYOUTS = [
    contiguous,
    transposed,
    reversed_axes,
    split_heads,
    expanded_batch,
    expanded_number,
    every_second,
    part_of_wider_rows,
]


# --- arguments of every operator; `new(*shape)` makes numbers in the layout that is tried


def additive_cases(new):
    query, key, vector = new(2, 3, 5, 7), new(2, 3, 11, 7), new(7)
    shared = new(1, 3, 11, 7)  # leading axes broadcast
    for one in (key, shared):
        rows = torch.ops.foci.additive_prepare(one)
        yield "additive_prepare", (one,)
        for key_exp in (None, rows):
            yield "additive", (query, one, vector, key_exp)
            yield "additive_backward", (new(2, 3, 5, 11), query, one, vector, key_exp)
    yield "additive", (new(5, 7), new(11, 7), vector, None)
    yield "additive_backward", (new(5, 11), new(5, 7), new(11, 7), vector, None)
    yield "additive_backward", (new(1, 1, 1), new(1, 1, 1), new(1, 1, 1), new(1), None)


def band_cases(new):
    for batch, heads, groups, L, S in ((2, 4, 2, 5, 7), (1, 1, 1, 1, 1), (2, 3, 3, 70, 67)):
        query, key, value = new(batch, heads, L, 3), new(batch, groups, S, 3), new(batch, groups, S, 5)
        for valid in (None, new(batch, S) > 0):
            others = (query, key, value, valid, 2, 1, 0.5)
            yield "attend_band", others
            yield "attend_band_backward", (new(batch, heads, L, 5), *others, torch.ops.foci.attend_band(*others))


def window_cases(new):
    for batch, L, S in ((2, 3, 7), (1, 1, 1)):
        query, key, value = new(batch, L, 5), new(batch, S, 5), new(batch, S, 3)
        for center in (new(batch, L).abs(), new(batch, L).double()):
            start = torch.ceil(center - 1).long()
            for mask in (None, new(batch, 1, S) > 0, new(batch, L, S) > 0):
                others = (query, key, value, center, start, mask, 1, 0.5, 0.7)
                yield "window", others
                for grads in ((new(batch, L, 3), new(batch, L, 3)), (None, new(batch, L, 3)), (new(batch, L, 3), None)):
                    yield "window_backward", (*grads, *others)


def crf_cases(new):
    for batch, steps, num_tags in ((2, 3, 5), (1, 1, 1), (1, 1, 3), (2, 1, 2)):
        for mask in (None, new(batch, steps) > -1):
            chain = (new(batch, steps, num_tags), new(num_tags, num_tags), new(num_tags), new(num_tags), mask)
            tags = (new(batch, steps) * 0).long()
            for given in (None, tags):
                for keep in (False, True):
                    yield "crf_total", (*chain, given, keep)
                _, ways, kept = torch.ops.foci.crf_total(*chain, given, True)
                yield "crf_total_backward", (new(batch), *chain, given, True, ways, kept)
            yield "crf_marginals", chain
            yield "crf_marginals_backward", (new(batch, steps, num_tags), *chain)
            for k in (1, 2):
                yield "crf_best", (*chain, k)
                _, best = torch.ops.foci.crf_best(*chain, k)
                yield "crf_best_backward", (new(batch, k), *chain, k, best)


def ntm_cases(new):
    for batch, slots, size, readers, writers, width in ((2, 7, 3, 2, 3, 3), (1, 1, 1, 1, 1, 1), (3, 5, 2, 1, 1, 7)):
        numbers = (writers + readers) * (size + width + 3) + 2 * writers * size
        state = new(batch, slots, size), new(batch, readers, slots).abs(), new(batch, writers, slots).abs()
        arguments = (new(batch, numbers), *state)
        yield "ntm_step", (*arguments, width)
        results = torch.ops.foci.ntm_step(*arguments, width)
        grads = [new(*one.shape) for one in results]
        yield "ntm_step_backward", (*grads, *arguments, width, *results[:3])
        yield "ntm_step_backward", (None, None, None, grads[3], *arguments, width, *results[:3])


def steps_cases(new):
    softmax = ("softmax", 1.0, None)
    for batch, L, S in ((2, 3, 7), (1, 2, 1)):
        weights, query, key = new(batch, S).abs(), new(batch, L, 5), new(batch, S, 5)
        location = [key, new(5), new(3, 1, 3), new(5, 3)]
        valid, exists = new(batch, S) > -1, new(batch, L) > -1
        pair = [new(batch, S, 5), key, valid, new(5), new(5, 5), new(5, 5)]
        scores, per_query = new(batch, L, S), new(batch, L, S) > -1
        for case in (
            (weights, [query], location, "location_aware", *softmax),
            (weights, [query], [*location, valid.unsqueeze(1)], "location_aware", "sparsemax", 2.0, None),
            (weights, [query, per_query], location, "location_aware", *softmax),
            (weights, [scores], [], "median_window", "sigmoid", 0.5, [1, 2]),
            (new(batch, 1, 5), [query, exists], pair, "word_by_word", *softmax),
        ):
            yield "steps", case
            grads = [new(*one.shape) for one in torch.ops.foci.steps(*case)]
            yield "steps_backward", (grads, *case)


CASES = [additive_cases, band_cases, window_cases, crf_cases, ntm_cases, steps_cases]


@pytest.fixture(params=["compiled", "without kernels"])
def path(request):
    """Both paths of every operator: the C++ kernel, and what runs where there is no compiler."""
    with contextlib.ExitStack() as stack:
        for kernel in WITH_OPERATORS:
            if request.param == "compiled":
                skip_unless_active(SimpleNamespace(_KERNEL=kernel))
            else:
                stack.enter_context(kernel.off())
        yield


def flat(results):
    return [results] if isinstance(results, torch.Tensor) else list(results)


def memory_of(tensors):
    return [one.untyped_storage().data_ptr() for one in tensors if one.numel()]


def tensors_of(arguments):
    """The tensors of an operator's arguments, which may be in lists."""
    return [one for one in tree_leaves(arguments) if isinstance(one, torch.Tensor)]


def layout_of(tensor):
    """Shape, dtype, and the strides of the axes along which there is more than one entry."""
    strides = [stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1]
    return tuple(tensor.shape), tensor.dtype, strides if tensor.numel() else []


def check(name, arguments, fake):
    operator = getattr(torch.ops.foci, name)
    with fake:
        told = flat(operator(*tree_map_only(torch.Tensor, fake.from_tensor, arguments)))
    found = flat(operator(*arguments))
    assert [layout_of(one) for one in found] == [layout_of(one) for one in told], name
    assert all(one.is_contiguous() for one in told), name
    # A graph may write over a result that it no longer needs: none may share memory with another, or an argument.
    memory, given = memory_of(found), set(memory_of(tensors_of(arguments)))
    assert len({*memory, *given}) == len(memory) + len(given), name
    # The layout of the arguments changes no number.
    plain = tree_map_only(torch.Tensor, torch.Tensor.contiguous, arguments)
    for one, other in zip(found, flat(operator(*plain))):
        torch.testing.assert_close(one, other, equal_nan=True, msg=lambda m: f"{name}: {m}")


by_operator = pytest.mark.parametrize("cases", CASES, ids=lambda cases: cases.__name__.removesuffix("_cases"))


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(layout, id=layout.__name__, marks=() if layout is transposed else pytest.mark.slow)
        for layout in LAYOUTS
    ],
)
@by_operator
def test_results_are_laid_out_as_promised(path, cases, layout):
    fake = FakeTensorMode()
    for name, arguments in cases(lambda *shape: layout(shape)):
        check(name, arguments, fake)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cases", "dtype"),
    [(cases, torch.float64) for cases in CASES]
    # The others are called in float32 for half precision.
    + [
        (cases, dtype) for cases in (additive_cases, band_cases, ntm_cases) for dtype in (torch.bfloat16, torch.float16)
    ],
    ids=lambda value: str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else value.__name__,
)
def test_in_every_dtype_that_an_operator_takes(path, cases, dtype):
    fake = FakeTensorMode()
    for name, arguments in cases(lambda *shape: transposed(shape).to(dtype)):
        check(name, arguments, fake)


def test_every_operator_is_tried():
    tried = {name for cases in CASES for name, _ in cases(lambda *shape: torch.randn(shape))}
    registered = {name.removeprefix("foci::") for name in torch._C._dispatch_get_all_op_names()}
    assert tried == {name for name in registered if hasattr(torch.ops.foci, name)}
    assert tried == {name for row in KERNELS for name in row.operators}


@pytest.mark.slow
@by_operator
def test_torch_agrees(path, cases):
    """torch's own checks of a custom operator: schema, autograd, fake, and tracing with symbolic sizes."""
    tried = set()
    for name, arguments in cases(lambda *shape: transposed(shape)):
        if name not in tried:
            torch.library.opcheck(getattr(torch.ops.foci, name), arguments)
            tried.add(name)


# --- in plain torch operators


@pytest.mark.slow
@pytest.mark.parametrize("tracing", ["real", "symbolic"])
@by_operator
def test_every_operator_decomposes(cases, tracing):
    """Traced with foci's table of decompositions, no operator of foci is left, and the numbers are the same."""
    table, tried = foci.decompositions(), set()
    for name, arguments in cases(lambda *shape: torch.randn(shape)):
        kind = name, tuple(one is None for one in arguments)
        if kind in tried:
            continue
        tried.add(kind)
        operator = getattr(torch.ops.foci, name)
        given, structure = tree_flatten(arguments)
        places = [place for place, one in enumerate(given) if isinstance(one, torch.Tensor)]

        def run(*traced, operator=operator, given=given, places=places, structure=structure):
            traced = dict(zip(places, traced))
            return operator(*tree_unflatten([traced.get(place, one) for place, one in enumerate(given)], structure))

        graph = make_fx(run, decomposition_table=table, tracing_mode=tracing)(*tensors_of(arguments))
        assert not [node for node in graph.graph.nodes if "foci" in str(node.target)], name
        have, want = flat(graph(*tensors_of(arguments))), flat(operator(*arguments))
        # What a chain keeps for its own backward pass is not the same in both forms.
        some = 1 if name == "crf_total" else len(want)
        torch.testing.assert_close(have[:some], want[:some], msg=lambda m, n=name: f"{n}: {m}")


def test_operators_are_not_in_the_table_of_torch():
    """Where CI is set, inductor refuses an operator that it finds there; no fake is called with symbolic sizes."""
    known = torch._decomp.decomposition_table
    assert not [operator for operator in known if str(operator).startswith("foci")]


# --- the layouts that modules pass


class Compared(CrossRefFakeMode):
    """Runs each operator and compares its results with the fake ones; records which operators ran."""

    def __init__(self):
        super().__init__(lambda operator: operator.namespace != "foci")
        self.met = set()

    def __torch_dispatch__(self, operator, *others, **named):
        if operator.namespace == "foci":
            self.met.add(operator._opname)
        return super().__torch_dispatch__(operator, *others, **named)


def train(module, *inputs, mask=None):
    result = tensors(module(*inputs) if mask is None else module(*inputs, mask=mask))
    torch.stack([one.square().sum() for one in result if one.requires_grad]).sum().backward()


ADDITIVE = {"additive", "additive_backward"}
WINDOW = {"window", "window_backward"}
BAND = {"attend_band", "attend_band_backward"}
MET = {
    "additive": ADDITIVE | {"additive_prepare"},
    "concat": ADDITIVE | {"additive_prepare"},
    "location_aware": ADDITIVE,
    "local_m": WINDOW,
    "local_p": WINDOW,
    "word_by_word": ADDITIVE,
    "ntm": {"ntm_step", "ntm_step_backward"},
    "crf": {"crf_marginals", "crf_marginals_backward"},
}


@pytest.mark.parametrize("name", MET)
def test_modules_pass_layouts_that_keep_the_promise(path, name):
    with Compared() as mode:
        train(make(name, train=True), *any_inputs(name))
    assert mode.met == MET[name]


@pytest.mark.parametrize("batch", [1, 2])  # a batch of 1 broadcasts
@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_windows_pass_layouts_that_keep_the_promise(batch, key_heads):
    query, source = torch.randn(2, 513, 8), torch.randn(batch, 523, 8)
    for options in ({}, {"rotary": True}, {"bias": False}):
        module = foci.build("multi_head", model_dim=8, num_heads=4, num_key_heads=key_heads, window=(2, 1), **options)
        with Compared() as mode:
            train(module, query, source)
        assert mode.met == BAND
    mask = masks.keys(masks.lengths([523, 37][:batch], 523))
    for given in (None, mask):
        with Compared() as mode:
            train(make("sliding_window", train=True), query[..., :7].requires_grad_(), source[..., :7], mask=given)
        assert mode.met == BAND


def test_chains_pass_layouts_that_keep_the_promise(path):
    chain = make("crf", train=True)
    emissions, tags = any_inputs("crf")[0].mT.contiguous().mT.requires_grad_(), torch.randint(5, (3, 7))
    with Compared() as mode:
        (chain.log_likelihood(emissions, tags).sum() + chain.viterbi(emissions, k=2).scores.sum()).backward()
    assert mode.met == {"crf_total", "crf_total_backward", "crf_best", "crf_best_backward"}


# --- compiled, they train


class Asserting(torch.fx.Interpreter):
    """Runs a compiled graph as it is and stops, as inductor does, where a result is laid out unlike its description."""

    def run_node(self, node):
        result = super().run_node(node)
        if getattr(node.target, "namespace", "") == "foci":
            MET_IN_GRAPHS.add(node.target._opname)
            assert [layout_of(one) for one in flat(result)] == [layout_of(one) for one in flat(node.meta["val"])]
        return result


MET_IN_GRAPHS = set()


def keep_promises(graph, example_inputs):
    return make_boxed_func(Asserting(graph).run)


def gradients(run, module):
    return torch.autograd.grad(run(), list(module.parameters()))


@pytest.mark.slow
def test_compiled_models_with_windows_train():
    torch._dynamo.reset()
    MET_IN_GRAPHS.clear()
    model = transformer(11, 13, model_dim=8, num_heads=2, hidden_dim=16, num_layers=1, dropout=0.0, radius=2)
    source, target = torch.randint(3, 11, (2, 6)), torch.randint(3, 13, (2, 7))

    def run():
        return model(source, source > 0, target).logits.square().sum()

    want = gradients(run, model)
    model.compile(backend=aot_autograd(fw_compiler=keep_promises))  # as training.compile = true, but for the backend
    torch.testing.assert_close(gradients(run, model), want)
    assert MET_IN_GRAPHS == BAND


@pytest.mark.slow
@torch._inductor.config.patch(force_disable_caches=True)  # a cached graph would not ask the operators
def test_compiled_windows_train_by_inductor():
    torch._dynamo.reset()
    attention = foci.build("multi_head", model_dim=8, num_heads=2, window=(2, 1))
    x = torch.randn(2, 16, 8)
    want = gradients(lambda: attention(x, x).output.square().sum(), attention)
    compiled = torch.compile(attention, fullgraph=True)
    have = gradients(lambda: compiled(x, x).output.square().sum(), attention)
    torch.testing.assert_close(have, want)
