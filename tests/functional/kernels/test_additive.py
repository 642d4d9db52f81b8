"""Additive scores without the B×L×S×A tensor: every path against the plain form in float64."""

import contextlib
from unittest import mock

import pytest
import torch
from active_kernel import skip_unless_active
from hypothesis import example, given, settings
from hypothesis import strategies as st

from foci.errors import ShapeError
from foci.functional.kernels import additive as module
from foci.functional.kernels.additive import additive_scores, prepare_key

PATHS = ("compiled", "chunked")


@contextlib.contextmanager
def only(path, chunk=200):
    """Sends every problem, however small, down one path."""
    if path == "compiled":
        skip_unless_active(module)
    kernel = contextlib.nullcontext() if path == "compiled" else module._KERNEL.off()
    with mock.patch.multiple(module, SMALL=0, _CHUNK=chunk, _THREAD_ENTRIES=1), kernel:
        yield


def plain(query, key, vector):
    return torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3)) @ vector


def problem(*leading_and_sizes, key_leading=None, scale=1.0, dtype=torch.float32):
    *leading, L, S, A = leading_and_sizes
    key_leading = leading if key_leading is None else key_leading
    query = (scale * torch.randn(*leading, L, A)).to(dtype).requires_grad_()
    key = (scale * torch.randn(*key_leading, S, A)).to(dtype).requires_grad_()
    vector = torch.randn(A).to(dtype).requires_grad_()
    return query, key, vector


def values_and_gradients(function, inputs, grad):
    scores = function(*inputs)
    return scores.detach(), *torch.autograd.grad(scores, inputs, grad.to(scores.dtype))


def exact_values_and_gradients(inputs, grad):
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    return values_and_gradients(plain, exact, grad)


def assert_close(got, wanted, tolerance=2e-5):
    for name, one, other in zip(("scores", "query", "key", "vector"), got, wanted):
        assert one.shape == other.shape, name
        error = (one - other).abs().max().item() if one.numel() else 0.0
        size = other.abs().max().item() if one.numel() else 0.0
        assert error <= tolerance * (1 + size), f"{name}: off by {error}, largest {size}"


shapes = st.tuples(*[st.integers(1, 9)] * 2, st.integers(1, 70))
leadings = st.sampled_from(
    [((), ()), ((2,), (2,)), ((1,), (3,)), ((3,), (1,)), ((), (2,)), ((2,), ()), ((2, 1), (1, 3)), ((2, 3), (3,))]
)


@pytest.mark.parametrize("path", PATHS)
@given(sizes=shapes, leading=leadings, scale=st.sampled_from([1e-3, 1.0, 30.0]), prepared=st.booleans())
@settings(max_examples=40)
@example(sizes=(1, 1, 1), leading=((), ()), scale=1.0, prepared=True)
@example(sizes=(9, 8, 64), leading=((2,), (2,)), scale=1.0, prepared=False)
def test_every_path_equals_the_plain_form(path, sizes, leading, scale, prepared):
    inputs = problem(*leading[0], *sizes, key_leading=leading[1], scale=scale)
    grad = torch.randn(torch.broadcast_shapes(*leading) + sizes[:2])
    with only(path):
        key_exp = prepare_key(inputs[1]) if prepared else None
        got = values_and_gradients(lambda q, k, v: additive_scores(q, k, v, key_exp), inputs, grad)
    assert_close(got, exact_values_and_gradients(inputs, grad))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("sizes", [(2, 131, 67, 37), (1, 3, 300, 530), (3, 129, 8, 16)])
def test_blocks_tiles_and_slices_meet(path, sizes):
    inputs, grad = problem(*sizes), torch.randn(sizes[:3])
    with only(path, chunk=5000):
        got = values_and_gradients(additive_scores, inputs, grad)
    assert_close(got, exact_values_and_gradients(inputs, grad))


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 100.0])
def test_errors_are_those_of_float32(scale):
    inputs, grad = problem(2, 60, 70, 128, scale=scale), torch.randn(2, 60, 70)
    wanted = exact_values_and_gradients(inputs, grad)
    rounded = values_and_gradients(plain, inputs, grad)
    with only("compiled"):
        got = values_and_gradients(additive_scores, inputs, grad)
    units = (inputs[2].abs().sum(), inputs[2].abs().max() * 30, inputs[2].abs().max() * 30, grad.abs().sum().sqrt())
    for one, other, exact, unit in zip(got, rounded, wanted, units):
        error, usual = (one - exact).abs().max(), (other - exact).abs().max()
        assert error <= 2 * usual + 2e-7 * unit


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("prepared", [False, True])
def test_large_terms_of_opposite_sign_cancel(path, prepared):
    query, key, vector = problem(2, 5, 9, 19)
    with torch.no_grad():
        query[0, 2, 3], key[0, 4, 3] = 100.0, -99.5
        query[0, 1, 18], key[0, 7, 18] = -3e4, 3e4 + 1
        query[1, 0, 0], key[1, 8, 0] = 40.0, -40.0  # the last that are not large
    grad = torch.randn(2, 5, 9)
    with only(path):
        key_exp = prepare_key(key) if prepared else None
        got = values_and_gradients(lambda q, k, v: additive_scores(q, k, v, key_exp), (query, key, vector), grad)
    assert_close(got, exact_values_and_gradients((query, key, vector), grad))
    alone = problem(1, 1, 1)
    with torch.no_grad():
        alone[0].fill_(100.0), alone[1].fill_(-99.5), alone[2].fill_(1.0)
    with only(path):
        assert additive_scores(*alone).item() == pytest.approx(0.46211716, abs=3e-7)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_large_terms_that_nearly_cancel_keep_their_digits(path, sign):
    """Sums from 0 to 20, each of a term beyond 40 and one that takes most of it away: tanh there is not yet 1."""
    sums = sign * torch.arange(0, 20.5, 0.5)
    query, key, vector = (sums + 64).view(1, -1, 1), torch.tensor([[[-64.0]]]), torch.ones(1)
    inputs = [tensor.requires_grad_() for tensor in (query, key, vector)]
    grad = torch.ones(1, len(sums), 1)
    with only(path):
        scores, to_query, *_ = values_and_gradients(additive_scores, inputs, grad)
    wanted, wanted_to_query, *_ = exact_values_and_gradients(inputs, grad)
    torch.testing.assert_close(scores.double(), wanted, rtol=0.0, atol=3e-7)
    # 1 − tanh² is 2.5e-5 at 6 and 5e-7 at 8; it is 4 (r − r²), whose error is a few roundings of r.
    torch.testing.assert_close(to_query.double(), wanted_to_query, rtol=1e-5, atol=5e-7)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("large", ["query", "key"])
def test_one_side_may_be_large_alone(path, large):
    inputs = problem(2, 5, 9, 19)
    with torch.no_grad():
        inputs[large == "key"][0, 3, 3:9] = torch.tensor([45.0, 100.0, 1e4, -45.0, -100.0, -1e30])
    grad = torch.randn(2, 5, 9)
    with only(path):
        got = values_and_gradients(additive_scores, inputs, grad)
    assert_close(got, exact_values_and_gradients(inputs, grad))


@pytest.mark.parametrize("path", PATHS)
def test_infinities_saturate_and_nan_stays_nan(path):
    query, key, vector = (tensor.detach() for tensor in problem(4, 5, 11))
    query[0, 0], query[1, 10], query[2, 5], key[3, 10] = torch.inf, -torch.inf, torch.nan, -torch.inf
    with only(path):
        got = additive_scores(query, key, vector)
    wanted = plain(query, key, vector)
    assert torch.equal(got.isnan(), wanted.isnan())
    assert wanted.isnan().any()
    assert torch.allclose(got, wanted, atol=1e-5, equal_nan=True)


def test_prepared_keys_change_no_bit_and_can_be_reordered():
    query, key, vector = problem(3, 1, 7, 21)
    grad = torch.randn(3, 1, 7)
    with only("compiled"):
        key_exp = prepare_key(key)
        assert not key_exp.requires_grad
        one = values_and_gradients(additive_scores, (query, key, vector), grad)
        other = values_and_gradients(lambda q, k, v: additive_scores(q, k, v, key_exp), (query, key, vector), grad)
        assert all(torch.equal(a, b) for a, b in zip(one, other))
        beams = torch.tensor([2, 0, 0, 1])
        moved = additive_scores(query[beams], key[beams], vector, key_exp[beams])
        assert torch.equal(moved, one[0][beams])
        for some in (slice(2, 5), slice(1, 6, 2)):
            for rows in (key_exp[:, some], prepare_key(key[:, some])):
                assert torch.equal(additive_scores(query, key[:, some], vector, rows), one[0][..., some])


def test_torch_prepares_the_same_rows():
    key = torch.randn(2, 3, 21)
    key[1, 2, 20], key[0, 1, 5] = 41.0, torch.nan
    with only("compiled"):
        rows = prepare_key(key)
    by_torch = module._torch_prepare(key)
    assert rows.shape == by_torch.shape == (2, 3, 48)
    assert rows[..., -16].tolist() == by_torch[..., -16].tolist() == [[0, 1, 0], [0, 0, 1]]
    tame = rows[..., -16] == 0
    assert torch.allclose(rows[tame], by_torch[tame], rtol=3e-7, atol=0)


def test_no_kernel_prepares_nothing():
    key = torch.randn(2, 3, 5)
    with only("chunked"):
        assert prepare_key(key) is None
    assert prepare_key(key.double()) is None


@pytest.mark.parametrize("threads", [2, 3])
def test_scores_and_gradients_do_not_depend_on_the_threads(threads):
    inputs, grad = problem(6, 150, 133, 70), torch.randn(6, 150, 133)
    with only("compiled"):
        alone = values_and_gradients(additive_scores, inputs, grad)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            for _ in range(5):  # on a busy machine the threads do not always overlap
                together = values_and_gradients(additive_scores, inputs, grad)
                assert all(torch.equal(one, other) for one, other in zip(alone, together))
        finally:
            torch.set_num_threads(before)


@pytest.mark.parametrize("path", PATHS)
def test_inputs_need_not_be_contiguous(path):
    query = torch.randn(2, 11, 5).mT.requires_grad_()
    key = torch.randn(2, 7, 30)[..., 3:25:2].requires_grad_()
    vector = torch.randn(22)[::2].requires_grad_()
    grad = torch.randn(7, 5, 2).permute(2, 1, 0)
    with only(path):
        got = values_and_gradients(additive_scores, (query, key, vector), grad)
        rows = torch.randn(2, 7, 40)[..., 5:16]  # rows apart, entries side by side: taken as they are
        assert_close([additive_scores(query, rows, vector)], [plain(query, rows, vector)])
    assert_close(got, exact_values_and_gradients((query, key, vector), grad))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("sizes", [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5), (2, 3, 4, 0)])
def test_empty_sizes(path, sizes):
    inputs = problem(*sizes)
    with only(path):
        scores = additive_scores(*inputs, prepare_key(inputs[1]))
        scores.sum().backward()
    assert scores.shape == sizes[:3]
    assert not scores.any()
    for tensor in inputs:
        assert tensor.grad.shape == tensor.shape
        assert not tensor.grad.any()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_comes_back_as_it_was(path, dtype):
    inputs, grad = problem(2, 5, 7, 19, dtype=dtype), torch.randn(2, 5, 7).to(dtype)
    with only(path):
        got = values_and_gradients(additive_scores, inputs, grad)
    assert {tensor.dtype for tensor in got} == {dtype}
    assert_close(got, exact_values_and_gradients(inputs, grad), tolerance=torch.finfo(dtype).eps)


@pytest.mark.parametrize("path", PATHS)
def test_autocast_lowers_the_scores_as_it_does_in_the_plain_form(path):
    inputs = problem(2, 5, 7, 19)
    with only(path):
        wanted = additive_scores(*inputs).bfloat16()
        with torch.autocast("cpu", torch.bfloat16):
            assert plain(*inputs).dtype == torch.bfloat16
            scores = additive_scores(*inputs)
    assert torch.equal(scores, wanted)  # computed in float32 all the same
    scores.sum().backward()
    assert all(tensor.grad.dtype == torch.float32 for tensor in inputs)


@pytest.mark.parametrize("sizes", [(2, 3, 4, 3), (2, 1, 5, 3)])
def test_gradcheck_of_the_chunked_path(sizes):
    inputs = problem(*sizes, dtype=torch.float64)
    with only("chunked", chunk=20):
        assert torch.autograd.gradcheck(additive_scores, inputs)
        large = (inputs[0].detach().add(50).requires_grad_(), inputs[1].detach().sub(50).requires_grad_(), inputs[2])
        assert torch.autograd.gradcheck(additive_scores, large)


@pytest.mark.parametrize("path", PATHS)
def test_the_gradient_has_a_gradient(path):
    with only(path):
        inputs = problem(2, 3, 4, 5)
        small = [tensor.detach().double().requires_grad_() for tensor in inputs]
        assert torch.autograd.gradgradcheck(additive_scores, small)

        def twice(function, tensors):
            (first,) = torch.autograd.grad(function(*tensors).square().sum(), tensors[:1], create_graph=True)
            return torch.autograd.grad(first.square().sum(), tensors)

        for one, other in zip(twice(additive_scores, inputs), twice(plain, small)):
            assert torch.allclose(one.double(), other, rtol=1e-4, atol=1e-4)


def test_cells_without_a_gradient_are_passed_over():
    inputs, grad = problem(2, 6, 17, 19), torch.randn(2, 6, 17)
    grad[0, :, 9:], grad[1, 2:5], grad[1, :, 8:12] = 0, 0, 0
    with only("compiled"):
        got = values_and_gradients(additive_scores, inputs, grad)
    assert_close(got, exact_values_and_gradients(inputs, grad))


@pytest.mark.parametrize("path", PATHS)
def test_nothing_of_the_size_of_the_cells_is_kept(path):
    inputs = problem(2, 30, 40, 50)
    kept = []
    with only(path), torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        additive_scores(*inputs)
    assert max(kept) == 2 * 40 * 50


def test_a_chunk_never_holds_more_than_its_budget():
    for sizes in ((3, 5, 7, 11), (1, 1, 9, 100), (40, 1, 2, 3)):
        covered = torch.zeros(sizes[:3])
        for b, i, j in module._chunks(sizes, 60):
            covered[b, i, j] += 1
            assert covered[b, i, j].numel() * sizes[3] <= max(60, sizes[3])
        assert (covered == 1).all()


def test_prepared_rows_of_the_wrong_shape_are_refused():
    query, key, vector = (tensor.detach() for tensor in problem(2, 3, 5, 7))
    with only("compiled"):
        with pytest.raises(ShapeError, match=r"key_exp has shape \(2, 4, 32\).*expected \(…, 5, 32\).*prepare_key"):
            additive_scores(query, key, vector, prepare_key(key[:, 1:]))
        with pytest.raises(ShapeError, match=r"key_exp has shape \(2, 5, 7\)"):
            additive_scores(query, key, vector, key.exp())


@pytest.mark.parametrize("path", PATHS)
def test_sizes_that_do_not_fit_are_refused(path):
    query, key, vector = (tensor.detach() for tensor in problem(2, 3, 5, 7))
    with only(path):
        with pytest.raises(ShapeError, match=r"query \(2, 3, 7\), key \(2, 5, 7\) and vector \(6,\) do not fit"):
            additive_scores(query, key, vector[1:])
        with pytest.raises(ShapeError, match=r"key \(2, 5, 6\)"):
            additive_scores(query, key[..., 1:], vector)


def test_whoever_watches_sees_the_same_scores():
    query, key, vector = (tensor.detach() for tensor in problem(3, 5, 7, 11))
    wanted = plain(query, key, vector)
    with only("compiled"):
        assert torch.allclose(
            torch.func.vmap(lambda q, k: additive_scores(q, k, vector))(query, key), wanted, atol=1e-5
        )
        slope = torch.func.grad(lambda q: additive_scores(q, key, vector).sum())(query)
        _, tangent = torch.func.jvp(lambda q: additive_scores(q, key, vector), (query,), (torch.ones_like(query),))
        assert torch.allclose(tangent.sum(-1), slope.sum(-1), atol=1e-4)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(query, torch.ones_like(query))
            unpacked = torch.autograd.forward_ad.unpack_dual(additive_scores(dual, key, vector))
        assert torch.allclose(unpacked.tangent, tangent, atol=1e-5)
        traced = torch.fx.experimental.proxy_tensor.make_fx(lambda q: additive_scores(q, key, vector))(query)
        assert torch.allclose(traced(2 * query), plain(2 * query, key, vector), atol=1e-5)
        with torch._subclasses.FakeTensorMode() as fake:
            assert additive_scores(*(fake.from_tensor(t) for t in (query, key, vector))).shape == wanted.shape
        with torch.inference_mode():
            assert torch.allclose(additive_scores(query, key, vector), wanted, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("prepared", [False, True])
def test_operators_are_well_formed(dtype, prepared):
    query, key, vector = problem(1, 3, 5, key_leading=(2,), dtype=dtype)
    key_exp = prepare_key(key) if prepared else None
    torch.library.opcheck(torch.ops.foci.additive.default, (query, key, vector, key_exp))
    fixed = [tensor.detach() for tensor in (query, key, vector)]
    grad = torch.randn(2, 1, 3).to(dtype)
    torch.library.opcheck(torch.ops.foci.additive_backward.default, (grad, *fixed, key_exp))
    torch.library.opcheck(torch.ops.foci.additive_prepare.default, (fixed[1],))


@pytest.mark.slow
def test_compiles_whole_with_its_own_backward():
    inputs, grad = problem(2, 5, 7, 19), torch.randn(2, 5, 7)
    wanted = exact_values_and_gradients(inputs, grad)
    graphs = []

    def keep(graph, example_inputs):
        graphs.append(graph.code)
        return graph

    inspect = torch._dynamo.backends.common.aot_autograd(fw_compiler=keep, bw_compiler=keep)
    compiled = torch.compile(additive_scores, fullgraph=True, backend=inspect)
    assert_close(values_and_gradients(compiled, inputs, grad), wanted)
    assert "foci.additive.default" in graphs[0]
    assert "foci.additive_backward.default" in graphs[1]

    step = torch.compile(lambda q, k, v: additive_scores(q, k, v, prepare_key(k)), fullgraph=True)
    assert_close(values_and_gradients(step, inputs, grad), wanted)


@pytest.mark.slow
def test_exports_with_free_sizes():
    class Score(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.vector = torch.nn.Parameter(torch.randn(19))

        def forward(self, query, key):
            return additive_scores(query, key, self.vector)

    score = Score()
    batch, rows, keys = (torch.export.Dim(name) for name in ("batch", "rows", "keys"))
    sizes = ({0: batch, 1: rows}, {0: batch, 1: keys})
    program = torch.export.export(score, (torch.randn(2, 5, 19), torch.randn(2, 7, 19)), dynamic_shapes=sizes)
    query, key = torch.randn(3, 4, 19), torch.randn(3, 11, 19)
    assert torch.allclose(program.module()(query, key), plain(query, key, score.vector), atol=1e-5)
