"""The kernel of location-aware attention against the loop of its steps, in values and all gradients."""

from functools import partial

import pytest
import torch
from active_kernel import WrongLibrary, skip_unless_active

import foci
from foci import masks
from foci.errors import ShapeError
from foci.functional import stepwise
from foci.functional.kernels import location_aware as kernel
from foci.functional.kernels.location_aware import LocationInputs, LocationOptions
from foci.functional.stepwise import StepOptions, over_steps

B, L, S, A, F, W = 3, 5, 23, 19, 7, 11
SHAPES = [
    (B, L, S, A, F, W),
    (2, 3, 71, 16, 10, 101),  # the convolution is split once
    (2, 2, 211, 48, 6, 149),  # and twice
    (2, 1, 5, 37, 1, 1),
    (1, 2, 131, 101, 4, 13),
    (1, 3, 1, 1, 2, 3),
]
NAMES = ("previous", "query", "key", "vector", "filters", "projection")


@pytest.fixture(autouse=True)
def active():
    skip_unless_active(kernel)
    torch.manual_seed(3)


def example(batch=B, steps=L, cells=S, size=A, count=F, width=W):
    """The arguments by name, in float64."""
    given = {
        "previous": torch.softmax(torch.randn(batch, cells), dim=-1),
        "query": torch.randn(batch, steps, size),
        "key": torch.randn(batch, cells, size),
        "vector": torch.randn(size) / size**0.5,
        "filters": torch.randn(count, 1, width),
        "projection": torch.randn(size, count) / count**0.5,
    }
    return {name: one.double() for name, one in given.items()}


def example_mask(kind, batch, steps, cells):
    """A mask with a row that may read nothing, or None."""
    if kind == "none":
        return None
    mask = torch.rand(batch, 1 if kind == "keys" else steps, cells) < 0.7
    mask[0, -1:] = False
    return mask


def run(given, mask, options, dtype):
    """Weights, state and gradients of a random direction, by `over_steps` in this dtype."""
    leaves = [one.to(dtype).requires_grad_() for one in given.values()]
    previous, query, *shared = leaves
    inputs = (query,)
    if mask is not None and mask.shape[1] != 1:
        inputs = (query, mask)
    elif mask is not None:
        shared = (*shared, mask)
    state, (weights,) = over_steps("location_aware", previous, inputs, tuple(shared), options)
    generator = torch.Generator().manual_seed(5)
    directions = [torch.randn(one.shape, generator=generator) for one in (weights, state)]
    loss = (weights * directions[0]).sum() + (state * directions[1]).sum()
    return [weights, state, *torch.autograd.grad(loss, leaves)]


def assert_alike(given, mask=None, options=None, tolerance=5e-5):
    """float32 takes the kernel, float64 the loop."""
    options = StepOptions() if options is None else options
    have, want = run(given, mask, options, torch.float32), run(given, mask, options, torch.float64)
    for name, one, other in zip(("weights", "state", *NAMES), have, want, strict=True):
        scale = max([1.0, *other.abs().flatten().tolist()])
        torch.testing.assert_close(
            one.double(), other, atol=tolerance * scale, rtol=0, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert torch.equal(have[0] == 0, want[0] == 0)


@pytest.fixture
def calls(monkeypatch):
    """The number of calls of the kernel's forward."""
    found, forward = [], kernel._forward
    monkeypatch.setattr(kernel, "_forward", lambda *args, **options: found.append(1) or forward(*args, **options))
    return found


@pytest.mark.parametrize("kind", ["none", "keys", "per query"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_size(shape, kind, calls):
    assert_alike(example(*shape), example_mask(kind, *shape[:3]))
    assert calls == [1]


@pytest.mark.parametrize("kind", ["none", "keys", "per query"])
@pytest.mark.parametrize("reach", [None, (3, 4), (0, 0)])
@pytest.mark.parametrize(("normalize", "sharpening"), [("softmax", 2.0), ("sigmoid", 1.0), ("sigmoid", 3.0)])
def test_options(normalize, sharpening, reach, kind, calls):
    given = example()
    assert_alike(given, example_mask(kind, B, L, S), StepOptions(normalize, sharpening, reach), tolerance=2e-4)
    assert len(calls) == (1 if reach is None else L)


@pytest.mark.parametrize("normalize", ["sparsemax", "entmax15"])
def test_other_normalizers_take_the_loop(normalize, calls):
    run(example(), None, StepOptions(normalize), torch.float32)
    assert calls == []


def test_the_first_step_has_no_location():
    given = example()
    given["previous"].zero_()
    assert_alike(given)


@pytest.mark.parametrize("normalize", ["softmax", "sigmoid"])
@pytest.mark.parametrize("size", [30.0, 1e4])
def test_scores_far_apart(size, normalize):
    given = example()
    given["vector"] *= size
    if size > 100:  # gradients are then differences of large numbers
        options = StepOptions(normalize)
        have, want = run(given, None, options, torch.float32), run(given, None, options, torch.float64)
        assert all(one.isfinite().all() for one in have)
        torch.testing.assert_close(have[0][:, 0].argmax(dim=-1), want[0][:, 0].argmax(dim=-1))
    else:
        assert_alike(given, None, StepOptions(normalize), tolerance=5e-3)


def test_large_numbers_of_opposite_signs_cancel():
    given = example(steps=1)
    given["query"][..., 4] = 1000.25
    given["key"][..., 4] = -1000.0
    given["query"][..., 5] = -300.0
    given["key"][..., 6] = 1e6
    assert_alike(given, tolerance=1e-4)


def test_rows_that_may_read_nothing():
    given = {name: one.float().requires_grad_() for name, one in example().items()}
    previous, query, *shared = given.values()
    mask = torch.zeros(B, 1, S, dtype=torch.bool)
    state, (weights,) = over_steps("location_aware", previous, (query,), (*shared, mask))
    assert (weights == 0).all()
    for one in torch.autograd.grad(weights.sum() + state.square().sum(), list(given.values())):
        assert (one == 0).all()


def test_nan_stays_in_its_row_of_the_batch():
    previous, query, *shared = (one.float() for one in example().values())
    query[2, 0, 5] = torch.nan
    _, (weights,) = over_steps("location_aware", previous, (query,), tuple(shared))
    assert weights[2].isnan().all()
    assert weights[:2].isfinite().all()


def test_a_source_that_all_rows_share(calls):
    """A beam reads one source: without gradients by the kernel, with them by the loop."""
    given = example()
    given["key"] = given["key"][:1]
    previous, query, *shared = (one.float() for one in given.values())
    with torch.no_grad():
        _, (weights,) = over_steps("location_aware", previous, (query,), tuple(shared))
    assert calls == [1]
    want = run(given, None, StepOptions(), torch.float64)[0]
    torch.testing.assert_close(weights.double(), want, atol=1e-5, rtol=0)
    run(given, None, StepOptions(), torch.float32)
    assert calls == [1]


@pytest.mark.parametrize("kind", ["none", "keys"])
@pytest.mark.parametrize("reach", [None, (3, 4)])
@pytest.mark.parametrize("size", [1, 16, 37, 150, 256])
def test_reading_in_the_same_call(size, reach, kind):
    previous, query, *shared = (one.float() for one in example(steps=1).values())
    mask, value = example_mask(kind, B, 1, S), torch.randn(B, S, size)
    shared, options = (*shared, *(() if mask is None else (mask,))), StepOptions("sigmoid", 2.0, reach)
    output, weights = stepwise.read_location_aware(previous, query, shared, value, options)
    _, (wanted,) = over_steps("location_aware", previous, (query,), shared, options)
    assert torch.equal(weights, wanted)
    torch.testing.assert_close(output, wanted @ value, atol=1e-6, rtol=1e-5)


def test_reading_where_all_rows_share_the_source():
    previous, query, key, *parameters = (one.float() for one in example(steps=1).values())
    value = torch.randn(1, S, 5)
    output, weights = stepwise.read_location_aware(previous, query, (key[:1], *parameters), value, StepOptions())
    torch.testing.assert_close(output, weights @ value, atol=1e-6, rtol=1e-5)


def test_reading_a_source_without_cells():
    """Nothing is read, which is 0; memory that was not written to would be NaN here."""
    attention, query, key = foci.Attention(3, 5, A, score="location_aware"), torch.randn(B, 1, 3), torch.randn(B, 0, 5)
    torch.use_deterministic_algorithms(True)
    try:
        with torch.no_grad():
            assert (attention(query, key).output == 0).all()
        output = attention(query.requires_grad_(), key).output
    finally:
        torch.use_deterministic_algorithms(False)
    assert (output == 0).all()
    assert (torch.autograd.grad(output.sum(), query)[0] == 0).all()


@pytest.mark.parametrize("kind", ["none", "keys"])
@pytest.mark.parametrize(("normalize", "reach"), [("softmax", None), ("sigmoid", (3, 4))])
@pytest.mark.parametrize("size", [1, 16, 37, 150])
def test_gradients_of_reading_in_the_same_call(size, normalize, reach, kind):
    """Two steps, each reading what the kernel weighed; float64 takes the loop."""
    given, mask = {**example(), "value": torch.randn(B, S, size).double()}, example_mask(kind, B, 1, S)
    options = StepOptions(normalize, 2.0, reach)

    def gradients(dtype):
        leaves = [one.to(dtype).requires_grad_() for one in given.values()]
        state, query, *shared, value = leaves
        shared = (*shared, *(() if mask is None else (mask,)))
        outputs = []
        for one in query[:, :2].split(1, dim=1):
            read = stepwise.read_location_aware(state, one, shared, value, options)
            if read is None:
                _, (weights,) = over_steps("location_aware", state, (one,), shared, options)
                read = weights @ value, weights
            outputs.append(read[0])
            state = read[1].squeeze(1)
        output = torch.cat(outputs, dim=1)
        direction = torch.arange(output.numel()).sin().view_as(output)
        return [output, *torch.autograd.grad((output * direction).sum() + state.square().sum(), leaves)]

    for name, have, want in zip(("output", *given), gradients(torch.float32), gradients(torch.float64), strict=True):
        scale = max(1.0, want.abs().max().item())
        torch.testing.assert_close(
            have.double(), want, atol=1e-4 * scale, rtol=0, msg=lambda text, n=name: f"{n}: {text}"
        )


def test_gradients_of_reading_without_those_of_the_weights_or_the_value():
    """What nobody needs is not computed, and the rest stays the same."""
    previous, query, *shared = (one.float() for one in example(steps=1).values())
    value = torch.randn(B, S, 5)
    found = []
    for needs_value in (True, False):
        asked, read_from = query.clone().requires_grad_(), value.clone().requires_grad_(needs_value)
        output, weights = stepwise.read_location_aware(previous, asked, tuple(shared), read_from, StepOptions())
        found.append(torch.autograd.grad(output.square().sum(), asked, retain_graph=True)[0])
        assert torch.autograd.grad(weights.square().sum(), asked)[0].abs().max() > 0
    assert torch.equal(*found)


def test_second_derivatives_of_reading_are_those_of_the_loop():
    given, value = example(2, 1, 5, 7, 2, 3), torch.randn(2, 5, 3)

    def second(dtype):
        leaves = [one.to(dtype).requires_grad_() for one in (*given.values(), value)]
        state, query, *shared, read_from = leaves
        read = stepwise.read_location_aware(state, query, tuple(shared), read_from, StepOptions())
        if read is None:
            _, (weights,) = over_steps("location_aware", state, (query,), tuple(shared))
            read = weights @ read_from, weights
        first = torch.autograd.grad(read[0].square().sum() + read[1].sin().sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in first), leaves)

    for have, want in zip(second(torch.float32), second(torch.float64)):
        torch.testing.assert_close(have.double(), want, atol=1e-3 * max(1.0, want.abs().max().item()), rtol=0)


def test_reading_in_the_same_call_serves_float32_only():
    previous, query, *shared = (one.float() for one in example(steps=1).values())
    read = partial(stepwise.read_location_aware, previous, query)
    value, options = torch.randn(B, S, 5), StepOptions()
    assert read(tuple(shared), value, options) is not None
    assert read(tuple(shared), value.double(), options) is None
    assert read(tuple(shared), value, StepOptions("sparsemax")) is None
    key, *parameters = shared
    assert read((key[:1], *parameters), value[:1].requires_grad_(), options) is None  # rows share the source
    with torch.no_grad():
        assert read((key[:1], *parameters), value[:1], options) is not None


def test_other_layouts():
    given = example()
    given["key"], given["query"] = given["key"].mT.contiguous().mT, given["query"].mT.contiguous().mT
    given["projection"] = given["projection"].mT.contiguous().mT
    assert_alike(given, example_mask("keys", B, S, S).mT[:, :S].expand(B, S, S)[:, :L])


def test_threads_do_not_change_the_result():
    given, threads = example(5, 3, 131, 101, 4, 13), torch.get_num_threads()
    found = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(run(given, None, StepOptions(), torch.float32))
    finally:
        torch.set_num_threads(threads)
    for one, other in zip(*found):
        torch.testing.assert_close(one, other, atol=0, rtol=1e-6)
    assert torch.equal(found[0][0], found[1][0])


def test_steps_one_by_one_are_the_steps_at_once():
    previous, query, *shared = (one.float() for one in example().values())
    _, (at_once,) = over_steps("location_aware", previous, (query,), tuple(shared))
    for t in range(L):
        previous, (weights,) = over_steps("location_aware", previous, (query[:, t : t + 1],), tuple(shared))
        assert torch.equal(weights[:, 0], at_once[:, t])


@pytest.mark.parametrize("normalize", ["softmax", "sigmoid"])
def test_gradients_by_finite_differences(normalize):
    """The kernel's gradients along random directions, against differences of the equations in float64."""
    given, options = example(2, 2, 11, 5, 3, 5), StepOptions(normalize, 2.0)
    have = run(given, None, options, torch.float32)
    generator = torch.Generator().manual_seed(5)
    directions = [torch.randn(one.shape, generator=generator).double() for one in have[:2]]
    for number, name in enumerate(NAMES):
        along = torch.randn(given[name].shape, dtype=torch.float64)

        def moved(distance, name=name, along=along):
            weights, state, *_ = run({**given, name: given[name] + distance * along}, None, options, torch.float64)
            return (weights * directions[0]).sum() + (state * directions[1]).sum()

        slope = (moved(1e-5) - moved(-1e-5)) / 2e-5
        torch.testing.assert_close((have[2 + number].double() * along).sum(), slope.detach(), atol=2e-4, rtol=1e-3)


def test_second_derivatives_are_those_of_the_loop():
    given = example(2, 2, 5, 7, 2, 3)

    def second(dtype):
        leaves = [one.to(dtype).requires_grad_() for one in given.values()]
        _, (weights,) = over_steps("location_aware", leaves[0], (leaves[1],), tuple(leaves[2:]))
        first = torch.autograd.grad(weights.square().sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in first), leaves)

    for have, want in zip(second(torch.float32), second(torch.float64)):
        torch.testing.assert_close(have.double(), want, atol=1e-3 * max(1.0, want.abs().max().item()), rtol=0)


def test_sizes_that_do_not_fit_are_refused():
    inputs, how = LocationInputs(*(one.float() for one in example().values())), LocationOptions()
    with pytest.raises(ShapeError, match=r"previous has shape \(3, 22\)"):
        kernel.location_aware(inputs._replace(previous=inputs.previous[:, 1:]), None, options=how, plain=pytest.fail)
    none = inputs._replace(filters=inputs.filters[:0], projection=inputs.projection[:, :0])
    with pytest.raises(ShapeError, match="at least one filter"):
        kernel.location_aware(none, None, options=how, plain=pytest.fail)


@pytest.mark.parametrize(("name", "first"), [("forward", 7), ("backward", 3)])
def test_the_self_check_catches_exchanged_arguments(name, first):
    assert kernel._self_check(kernel._KERNEL.library)
    assert not kernel._self_check(WrongLibrary(kernel._KERNEL.library, f"foci_location_aware_{name}", first))


@pytest.mark.parametrize("options", [{}, {"normalize": "sigmoid", "sharpening": 2.0}, {"window": (4, 4)}])
def test_the_mechanism_uses_it(options, calls):
    window = {"focus": "median_window"} if "window" in options else {}
    attention = foci.Attention(3, 5, A, score="location_aware", **options, **window)
    query, key, mask = torch.randn(B, L, 3), torch.randn(B, S, 5), masks.keys(masks.lengths([S, 0, 3], S))
    read = attention(query, key, mask=mask)
    read.output.sum().backward()
    assert len(calls) == (L if window else 1)
    with torch.no_grad():
        memory, state = attention.prepare(key, mask=mask), None
        for t in range(L):
            step = attention.read(query[:, t : t + 1], memory, state)
            state = step.state
            torch.testing.assert_close(step.output, read.output[:, t : t + 1], atol=1e-6, rtol=1e-5)
    count = len(calls)
    double = attention.double()(query.double(), key.double(), mask=mask)
    torch.testing.assert_close(double.output.float(), read.output, atol=1e-5, rtol=1e-4)
    assert len(calls) == count


def test_the_operator_for_torch_compile_runs_it(calls):
    previous, query, *shared = (one.float() for one in example().values())
    state, weights = stepwise._steps_op(previous, [query], shared, "location_aware", "softmax", 1.0, None)
    assert calls == [1]
    assert torch.equal(state, weights[:, -1])
