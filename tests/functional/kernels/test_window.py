"""The compiled windows of local attention against the plain path: values, gradients and their gradients."""

from unittest import mock

import pytest
import torch
from active_kernel import skip_unless_active
from hypothesis import given, settings
from hypothesis import strategies as st

import foci
from foci import masks
from foci.errors import ShapeError
from foci.functional import kernels, window_plain, windows
from foci.functional.kernels import window as kernel
from foci.functional.window_plain import LocalWindow
from foci.weights import Weights
from foci.weights.sources import Dense, Windowed


def make_place(center, mask, radius, sigma):
    return LocalWindow(center, torch.ceil(center.detach() - radius).long(), mask, radius, sigma)


def make_problem(batch, queries, keys, size, values, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, queries, size), (batch, keys, size), (batch, keys, values)]
    q, k, v = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    # Some centers lie outside, some on a cell, some on the very edge of what a window reaches.
    center = torch.rand(batch, queries, generator=generator, dtype=torch.float64) * (keys + 8) - 4
    center = torch.where(torch.rand(center.shape, generator=generator) < 0.3, center.round(), center)
    return q, k, v, center


def everything(module, tensors, mask, radius, sigma, scale=0.7):
    """Output and weights, and the gradients of each and of both, by name."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    output, weights = module.read_dots(*leaves[:3], make_place(leaves[3], mask, radius, sigma), scale)
    found = {"output": output, "weights": weights}
    losses = {
        name: (one * torch.linspace(-1, 2, one.numel()).to(one).view_as(one)).sum() for name, one in found.items()
    }
    losses["both"] = losses["output"] + losses["weights"]
    for name, loss in losses.items():
        gradients = torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True, materialize_grads=True)
        for part, gradient in zip(("query", "key", "value", "center"), gradients):
            found[f"{name} to {part}"] = gradient
    return found


def agree(tensors, mask, radius, sigma):
    for numbers, positions in [(torch.float32, torch.float32), (torch.float64, torch.float64),
                               (torch.float64, torch.float32), (torch.float32, torch.float64)]:  # fmt: skip
        typed = [*(tensor.to(numbers) for tensor in tensors[:3]), tensors[3].to(positions)]
        have, want = (everything(module, typed, mask, radius, sigma) for module in (kernel, window_plain))
        single = torch.float32 in (numbers, positions)
        for name in want:
            assert have[name].dtype == want[name].dtype
            torch.testing.assert_close(
                have[name], want[name], rtol=1e-4 if single else 1e-10, atol=2e-5 if single else 1e-11,
                msg=lambda m, n=name: f"{n}: {m}",
            )  # fmt: skip


@settings(max_examples=40, derandomize=True)
@given(
    batch=st.integers(0, 3),
    queries=st.integers(0, 7),
    keys=st.sampled_from([0, 1, 2, 5, 11, 29]),
    size=st.sampled_from([1, 3, 4, 8, 19, 64, 67]),
    values=st.sampled_from([1, 5, 8, 33, 71]),
    radius=st.sampled_from([1, 2, 3, 7]),
    sigma=st.sampled_from([None, 0.5, 2.0]),
    axes=st.sampled_from([None, (1, 1, 1), (0, 1, 1), (1, 0, 1), (1, 1, 0), (0, 0, 1), (0, 0, 0)]),
    seed=st.integers(0, 999),
)
def test_equals_the_plain_path(batch, queries, keys, size, values, radius, sigma, axes, seed):
    skip_unless_active(kernel)
    tensors = make_problem(batch, queries, keys, size, values, seed)
    mask = None
    if axes is not None:
        shape = [count if whole else 1 for count, whole in zip((batch, queries, keys), axes)]
        mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    agree(tensors, mask, radius, sigma)


@pytest.mark.parametrize("sigma", [None, 2.5])
def test_long_sentences_and_any_number_of_threads(active, sigma):
    tensors = [tensor.float() for tensor in make_problem(2, 700, 600, 16, 24)]
    mask = masks.keys(masks.lengths([600, 311], 600))
    agree(tensors, mask, 5, sigma)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):  # one row per thread, then more threads than rows
            torch.set_num_threads(threads)
            found.append(everything(kernel, tensors, mask, 5, sigma))
    finally:
        torch.set_num_threads(before)
    for name, want in found[0].items():
        assert all(torch.equal(want, other[name]) for other in found[1:]), name


def test_strides_and_a_batch_that_counts_for_all(active):
    key = torch.randn(7, 1, 11).transpose(0, 1).requires_grad_()
    query = torch.randn(3, 11, 5).transpose(1, 2).requires_grad_()
    value = torch.randn(1, 7, 26)[..., ::2].requires_grad_()
    center = torch.rand(3, 5) * 7
    mask = torch.rand(3, 7, 5).transpose(1, 2) < 0.7
    assert not any(tensor.is_contiguous() for tensor in (query, value, mask))
    found = []
    for module in (kernel, window_plain):
        output, weights = module.read_dots(query, key, value, make_place(center, mask, 2, 1.0), 0.5)
        gradients = torch.autograd.grad(output.square().sum() + weights.square().sum(), (query, key, value))
        found.append((output, weights, *gradients))
    for have, want in zip(*found):
        torch.testing.assert_close(have, want)


def test_edges_are_those_of_the_centers_own_precision(active):
    """Centers one float32 step beside a whole number: in another precision the window would begin elsewhere."""
    whole = torch.arange(4.0, 9.0)
    up, down = (torch.nextafter(whole, torch.tensor(limit)) for limit in (torch.inf, -torch.inf))
    center = torch.cat([whole, up, down]).unsqueeze(0)
    query, key = torch.randn(1, 15, 3), torch.randn(1, 13, 3)
    for position in (torch.float32, torch.float64):
        place = make_place(center.to(position), None, 3, None)
        have, want = (module.read_dots(query, key, key, place, 1.0)[1] for module in (kernel, window_plain))
        assert torch.equal(have == 0, want == 0)
        torch.testing.assert_close(have, want)


def test_gradcheck_and_second_gradients(active):
    query, key, value, _ = make_problem(2, 3, 7, 5, 3)
    center = torch.tensor([[0.3, 3.6, 8.2], [-1.4, 2.7, 4.5]], dtype=torch.float64)  # windows jump at whole numbers
    tensors = [tensor.requires_grad_() for tensor in (query, key, value, center)]
    mask = masks.keys(masks.lengths([7, 4], 7))

    def run(query, key, value, center):
        return kernel.read_dots(query, key, value, make_place(center, mask, 2, 1.5), 0.8)

    assert torch.autograd.gradcheck(run, tensors)
    assert torch.autograd.gradgradcheck(run, tensors)


def test_far_and_lost_centers(active):
    query, key = torch.randn(1, 4, 5), torch.randn(1, 6, 5)
    center = torch.tensor([[1e18, -1e18, torch.inf, -torch.inf]])
    for sigma in (None, 1.0):
        output, weights = kernel.read_dots(query, key, key, make_place(center, None, 2, sigma), 1.0)
        assert (output == 0).all()
        assert (weights == 0).all()
    lost = make_place(torch.full((1, 4), torch.nan), None, 2, 1.0)
    assert kernel.read_dots(query, key, key, lost, 1.0)[0].isnan().all()
    query[0, 1] = torch.nan
    output, _ = kernel.read_dots(query, key, key, make_place(torch.full((1, 4), 2.0), None, 2, None), 1.0)
    assert output.isnan().any(dim=-1).tolist() == [[False, True, False, False]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(active, dtype):
    query, key, value, center = make_problem(2, 5, 9, 7, 3)
    place = make_place(center.float(), None, 2, 1.0)
    narrow = [tensor.to(dtype).requires_grad_() for tensor in (query, key, value)]
    output, weights = kernel.read_dots(*narrow, place, 0.5)
    wide, exact = window_plain.read_dots(*(tensor.float() for tensor in narrow), place, 0.5)
    assert output.dtype == weights.dtype == dtype
    torch.testing.assert_close(output, wide.to(dtype))
    torch.testing.assert_close(weights, exact.to(dtype))
    output.sum().backward()
    assert narrow[1].grad.dtype == dtype


# --- which path is taken


def counted(monkeypatch, name):
    calls = mock.Mock(side_effect=getattr(kernel, name))
    monkeypatch.setattr(kernel, name, calls)
    return calls


def modules():
    torch.manual_seed(3)
    for focus in ("local_m", "local_p"):
        for score in ("dot", "scaled_dot", "general", "cosine"):
            yield foci.Attention(5, 5, score=score, focus=focus, radius=2, sharpening=1.5).double()


def run_module(module, query, key, mask):
    read = module(query, key, mask=mask)
    loss = read.output.square().sum() + read.weights.entropy().sum()
    return [read.output, read.weights.dense(), *torch.autograd.grad(loss, [query, key, *module.parameters()])]


def test_modules_give_the_same_with_and_without(active, monkeypatch):
    query, key = (torch.randn(2, n, 5, dtype=torch.float64, requires_grad=True) for n in (4, 7))
    mask = masks.keys(masks.lengths([7, 3], 7))
    calls = counted(monkeypatch, "_READ")
    found = [run_module(module, query, key, mask) for module in modules()]
    assert calls.call_count == 8
    with kernel._KERNEL.off():
        for have, module in zip(found, modules()):
            for one, other in zip(have, run_module(module, query, key, mask)):
                torch.testing.assert_close(one, other)
    assert calls.call_count == 8


def test_other_choices_keep_the_plain_path(active, monkeypatch):
    calls = counted(monkeypatch, "_READ")
    x = torch.randn(1, 6, 5)
    for options in ({"score": "additive"}, {"normalize": "sparsemax"}, {"dropout": 0.5}):
        foci.Attention(5, 5, focus="local_m", radius=2, **options)(x, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert foci.Attention(5, 5, focus="local_m", radius=2)(x, x).output.dtype == torch.bfloat16
    windows.local_m(x, x, x, radius=1, score=foci.functional.scores.dot)
    assert not calls.called
    windows.local_m(x, x, x, radius=1)
    assert calls.called


def test_functional_transforms(active):
    query, key, value, center = make_problem(1, 3, 7, 5, 3)

    def loss(query):
        place = make_place(center, None, 2, 1.0)
        return kernel.read_dots(query, key, value, place, 1.0)[0].square().sum()

    leaf = query.clone().requires_grad_()
    loss(leaf).backward()
    torch.testing.assert_close(torch.func.grad(loss)(query), leaf.grad)
    rows = torch.stack([query, 2 * query])
    torch.testing.assert_close(torch.vmap(loss)(rows), torch.stack([loss(row) for row in rows]))


def test_operators_are_registered_well(active):
    tensors = [tensor.requires_grad_() for tensor in make_problem(2, 3, 7, 5, 3)]
    place = make_place(tensors[3], torch.rand(1, 3, 7) < 0.8, 2, 1.0)
    torch.library.opcheck(torch.ops.foci.window.default, (*tensors[:3], *place, 0.5))


def test_operators_without_the_kernel(missing):
    assert kernel._KERNEL.library is None
    tensors = make_problem(2, 3, 7, 5, 3)
    numbers = (*tensors, make_place(tensors[3], None, 2, 1.0).start, None, 2, 1.0, 0.5)
    output, weights = torch.ops.foci.window(*numbers)
    grads = (torch.ones_like(output), torch.ones_like(weights))
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    plain = window_plain.read_dots(*leaves[:3], make_place(leaves[3], None, 2, 1.0), 0.5)
    torch.testing.assert_close((output, weights), tuple(one.detach() for one in plain))
    want = torch.autograd.grad(plain, leaves, grads)
    torch.testing.assert_close(torch.ops.foci.window_backward(*grads, *numbers), want)


def test_compiled_code_never_reads_past_the_end(active):
    query, key, value, center = make_problem(2, 3, 7, 5, 3)
    place = make_place(center, None, 1, None)
    with pytest.raises(ShapeError, match=r"key has shape \(2, 7, 4\).*expected \(2, 7, 5\)"):
        kernel.read_dots(query, key[..., :4], value, place, 1.0)
    with pytest.raises(ShapeError, match=r"start has shape \(2, 2\).*expected \(2, 3\)"):
        kernel.read_dots(query, key, value, place._replace(start=place.start[:, :2]), 1.0)
    assert "window" in [found.name for found in kernels.status()]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local_m", "local_p"])
def test_compiles_and_exports(active, name):
    torch._dynamo.reset()
    torch.manual_seed(5)
    module = foci.build(name, query_dim=5, key_dim=5, radius=2)
    query, key = torch.randn(2, 4, 5, requires_grad=True), torch.randn(2, 9, 5, requires_grad=True)
    mask = masks.keys(masks.lengths([9, 4], 9))

    def run(query, key, mask):
        read = module(query, key, mask=mask)
        return read.output.square().sum() + read.weights.entropy().sum()

    want = torch.autograd.grad(run(query, key, mask), (query, key))
    have = torch.autograd.grad(torch.compile(run, fullgraph=True)(query, key, mask), (query, key))
    torch.testing.assert_close(have, want)
    program = torch.export.export(module, (query, key, None, mask))
    assert "foci.window" in program.graph_module.code
    torch.testing.assert_close(program.module()(query, key, None, mask).output, module(query, key, mask=mask).output)


# --- the handle


@pytest.mark.parametrize("width", [1, 3, 5, 13])
def test_the_handle_looks_at_the_window_only(width):
    torch.manual_seed(width)
    size = 7
    start = torch.randint(-width - 2, size + 3, (2, 29))
    weights = torch.rand(2, 29, width)
    weights[torch.rand(weights.shape) < 0.3] = 0.0
    weights[0, :5] = 0.0
    narrow = Weights(Windowed(weights, start, size))
    dense = Weights(Dense(narrow.dense()))
    assert torch.equal(narrow.argmax(), dense.argmax())
    torch.testing.assert_close(narrow.entropy(), dense.entropy())
    for shape in ((1, 1, size), (2, 29, 1), (2, 29, size)):
        chosen = torch.rand(shape) < 0.5
        torch.testing.assert_close(narrow.mass(chosen), dense.mass(chosen))
    for k in range(size + 1):
        values, found = narrow.topk(k)
        torch.testing.assert_close(values, dense.topk(k)[0])
        torch.testing.assert_close(dense.dense().gather(-1, found), values)
        assert all(len(set(row)) == k for row in found.flatten(0, 1).tolist())
    nothing = Weights(Windowed(weights, start, 0))
    assert nothing.entropy().tolist() == nothing.mass(torch.ones(1, 1, 1, dtype=torch.bool)).tolist()
    assert nothing.topk(0)[0].shape == (2, 29, 0)
