"""The compiled CRF against the plain recursions in float64: values, gradients and their gradients, on any scores."""

import itertools
from unittest import mock

import pytest
import torch
from active_kernel import WrongLibrary, skip_unless_active
from hypothesis import given, settings
from hypothesis import strategies as st

from foci.errors import DataError, ShapeError
from foci.functional import crf
from foci.functional.crf import chain_plain as crf_plain
from foci.functional.crf import spans_plain as crf_spans_plain
from foci.functional.crf.chain_plain import Chain
from foci.functional.crf.spans import SpanTags
from foci.functional.kernels import crf as kernel
from foci.functional.kernels import status
from foci.mechanisms.structured import constraints
from foci.tasks.tag.schemes import tag_names

NEVER = -torch.inf


def make_chain(batch, steps, tags, seed=0, mask=None):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, steps, tags), (tags, tags), (tags,), (tags,)]
    return Chain(*(torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes), mask)


def in_dtype(chain, dtype):
    return Chain(*(scores.to(dtype) for scores in chain[:4]), chain.mask)


def everything(module, chain, tags, k):
    """All that a module computes, and all gradients, by name."""
    leaves = [scores.detach().clone().requires_grad_() for scores in chain[:4]]
    chain = Chain(*leaves, chain.mask)
    found = {
        "log Z": module.total(chain, None),
        "log p": module.total(chain, tags),
        "marginals": module.marginals(chain),
        "scores": module.best(chain, k)[1],
    }
    for name, value in list(found.items()):
        # Any gradient will do; impossible rows have a value that cannot be summed.
        weights = torch.linspace(-1, 2, value.numel(), dtype=value.dtype).view_as(value)
        loss = (weights * value.masked_fill(value == NEVER, 0.0)).sum()
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        for part, gradient in zip(("emissions", "transitions", "start", "end"), gradients):
            found[f"{name} to {part}"] = gradient
    return found


def agree(chain, tags, k=3, dtypes=(torch.float32, torch.float64)):
    """The kernel in both dtypes equals the plain path in float64, on the very same scores."""
    for dtype in dtypes:
        narrow = in_dtype(chain, dtype)
        have, want = (
            everything(kernel, narrow, tags, k),
            everything(crf_plain, in_dtype(narrow, torch.float64), tags, k),
        )
        for name in want:
            # Rounding at the end is all that float32 may cost; a gradient sums over rows and steps.
            tolerance = 1e-6 if dtype == torch.float32 else 1e-9
            torch.testing.assert_close(
                have[name].double(), want[name], rtol=tolerance, atol=10 * tolerance, msg=lambda m, n=name: f"{n}: {m}"
            )


def ways_of(chain):
    """Which way each row takes: 0 without a gradient, 1 by weights, 2 by scores."""
    return torch.ops.foci.crf_total(*chain, None, True)[1].tolist()


@settings(max_examples=40, derandomize=True)
@given(
    batch=st.integers(1, 3),
    steps=st.integers(1, 6),
    tags=st.sampled_from([1, 2, 3, 4, 5, 8, 9, 25, 29]),
    exist=st.integers(0, 10),
    allowed=st.integers(3, 10),
    spread=st.sampled_from([1.0, 30.0, 150.0, 2000.0]),
    seed=st.integers(0, 999),
)
def test_equals_the_plain_path(batch, steps, tags, exist, allowed, spread, seed):
    skip_unless_active(kernel)
    generator = torch.Generator().manual_seed(seed)

    def some(share, *shape):
        return torch.rand(shape, generator=generator) * 10 < share

    chain = make_chain(batch, steps, tags, seed, some(exist, batch, steps) if exist < 10 else None)
    scores = [(spread * x).masked_fill(~some(allowed, *x.shape), NEVER) for x in chain[:4]]
    agree(Chain(*scores, chain.mask), torch.randint(tags, (batch, steps), generator=generator))


# --- scores that leave the range of the exponential


def test_forbidden_by_a_large_number_stays_fast(active):
    chain = make_chain(3, 40, 5)
    chain.transitions[1:3, 2:] = -10_000.0
    chain.start[2] = chain.end[0] = -10_000.0
    chain.emissions[:, 7, 1:4] = -1e30
    assert ways_of(chain) == [1, 1, 1]
    agree(chain, torch.zeros(3, 40, dtype=torch.long))


def test_the_only_way_leads_through_what_is_out_of_range(active):
    chain = make_chain(2, 6, 4)
    chain.emissions[0, 3] = torch.tensor([0.0, -900.0, -1000.0, -1000.5])
    chain.transitions[:, 0] = NEVER  # the best tag of that step cannot be reached
    assert ways_of(chain) == [2, 1]
    assert kernel.total(chain, None)[0] < -800
    agree(chain, torch.ones(2, 6, dtype=torch.long))


def two_lanes(steps):
    """A chain of which a sequence is either all 0, or 2 and then all 1."""
    chain = make_chain(2, steps, 3)
    chain.transitions[:] = NEVER
    chain.transitions[0, 0] = chain.transitions[1, 1] = chain.transitions[2, 1] = 0.5
    chain.start[1] = NEVER
    return chain


def test_what_becomes_tiny_may_be_all_that_is_left(active):
    chain = two_lanes(120)
    chain.emissions[0, :100, 0] += 10  # far ahead for long,
    chain.emissions[0, 100:110, 0] -= 150  # and far behind in the end
    assert ways_of(chain) == [2, 1]
    assert kernel.marginals(chain)[0, 50, 1] > 0.99
    agree(chain, torch.zeros(2, 120, dtype=torch.long))


@pytest.mark.parametrize("place", ["emissions", "transitions", "start", "end"])
def test_what_was_dropped_may_be_all_that_is_left(active, place):
    chain = two_lanes(20)
    places = {
        "emissions": chain.emissions[:, 5, 1:],
        "transitions": chain.transitions[2],
        "start": chain.start[1:],
        "end": chain.end[1:],
    }
    places[place].sub_(300)  # one step that is out of range,
    chain.emissions[0, 5:15, 0] -= 100  # against ten that are not
    assert ways_of(chain) == [2, 1]
    assert kernel.marginals(chain)[0, 10, 1] > 0.99
    agree(chain, torch.zeros(2, 20, dtype=torch.long))


@pytest.mark.parametrize("ahead", [8.0, 12.0, 20.0, 30.0])
def test_what_was_dropped_must_be_negligible(active, ahead):
    """One of two lanes has a step at −201, which weights drop; the other is ahead of it by e^ahead only."""
    chain = two_lanes(4)
    for scores in chain[:4]:
        scores.masked_fill_(scores > NEVER, 0.0)
    chain.emissions[0, 1, 1:] = -201.0
    chain.emissions[0, 2:, 0] = (-201.0 + ahead) / 2
    assert ways_of(chain) == [2, 1]
    share = 1 / (1 + torch.tensor(ahead, dtype=torch.float64).exp())
    for dtype in (torch.float32, torch.float64):
        narrow, eps = in_dtype(chain, dtype), torch.finfo(dtype).eps
        log_z, behind = kernel.total(narrow, None)[0], kernel.marginals(narrow)[0, 1, 1]
        torch.testing.assert_close(log_z.double(), ahead - 201.0 - torch.log1p(-share), rtol=4 * eps, atol=0.0)
        torch.testing.assert_close(behind.double(), share, rtol=256 * eps, atol=0.0)


def test_what_cannot_be_reached_does_not_drown_the_rest(active):
    chain = two_lanes(100)
    chain.start[0] = NEVER
    chain.emissions[:, :, 0] += 10  # the best there is, were there a way to it
    assert ways_of(chain) == [1, 1]
    agree(chain, torch.ones(2, 100, dtype=torch.long))


@pytest.mark.parametrize("spread", [70.0, 400.0, 1e5])
def test_wild_scores(active, spread):
    chain = make_chain(2, 50, 7)
    chain = Chain(*(spread * x for x in chain[:4]), None)
    agree(chain, torch.randint(7, (2, 50)))


def test_many_tags_at_once(active):
    chain = make_chain(2, 5, 67)
    agree(chain, torch.randint(67, (2, 5)))


def test_more_rows_than_groups(active):
    mask = torch.arange(150).unsqueeze(1) % 4 > torch.arange(3)  # short ones, and empty ones
    agree(make_chain(150, 3, 2, mask=mask), torch.randint(2, (150, 3)))


def test_float32_is_nearer_to_the_truth_than_the_plain_path(active):
    chain, tags = make_chain(4, 200, 11), torch.randint(11, (4, 200))
    narrow = in_dtype(chain, torch.float32)
    truth = everything(crf_plain, in_dtype(narrow, torch.float64), tags, 1)
    have, plain = everything(kernel, narrow, tags, 1), everything(crf_plain, narrow, tags, 1)
    for name in ("log Z", "log p", "marginals", "log p to emissions", "log p to transitions", "marginals to emissions"):
        error, plain_error = ((x[name].double() - truth[name]).abs().max().item() for x in (have, plain))
        assert error * 4 < plain_error, name


def test_nan_and_infinity_spoil_their_row_alone(active):
    chain = make_chain(5, 4, 3, mask=torch.ones(5, 4, dtype=torch.bool))
    clean = kernel.total(chain, None), kernel.marginals(chain), kernel.best(chain, 1)[1], kernel.best(chain, 2)[1]
    chain.emissions[0, 2, 1] = chain.emissions[1, 1, 0] = torch.nan
    chain.emissions[2, 3, 2] = torch.inf
    chain.mask[1, 1] = False
    spoilt = kernel.total(chain, None), kernel.marginals(chain), kernel.best(chain, 1)[1], kernel.best(chain, 2)[1]
    for before, after in zip(clean, spoilt):
        assert after[0].isnan().all()
        assert after[1].isfinite().all()
        assert not after[2].isfinite().all()
        assert torch.equal(before[3:], after[3:])
    assert spoilt[2][2] == torch.inf
    best = kernel.best(chain, 2)[0]
    assert ((best >= 0) & (best < 3))[[0, 2, 3, 4]].all()

    scores = [x.clone().requires_grad_() for x in chain[:4]]
    kernel.total(Chain(*scores, chain.mask), None)[3:].sum().backward()
    assert all(x.grad.isfinite().all() for x in scores)
    chain.transitions[0, 0] = torch.nan
    only_one_step = torch.arange(4) == torch.tensor([3]).expand(5, 1)
    assert kernel.best(chain._replace(mask=only_one_step), 1)[1][0].isfinite().all()
    assert kernel.best(chain, 1)[1].isnan().all()


# --- the k best


def test_of_equal_scores_the_lowest_tags_come_first(active):
    nothing = Chain(torch.zeros(1, 3, 2), torch.zeros(2, 2), torch.zeros(2), torch.zeros(2), None)
    tags, scores = kernel.best(nothing, 9)
    assert scores.tolist() == [[0.0] * 8 + [NEVER]]
    # Read from the end, since that is where the choice begins.
    wanted = [list(reversed(choice)) for choice in itertools.product(range(2), repeat=3)]
    assert tags[0].tolist() == [*wanted, [-1, -1, -1]]


def test_equal_scores_are_settled_as_torch_max_settles_them(active):
    generator = torch.Generator().manual_seed(0)
    shapes = [(50, 7, 5), (5, 5), (5,), (5,)]
    chain = Chain(*(torch.randint(3, shape, generator=generator).float() for shape in shapes), None)
    tags, scores = kernel.best(chain, 1)
    wanted, best = crf_plain.best(chain, 1)
    assert torch.equal(tags, wanted)
    assert torch.equal(scores, best)
    several = kernel.best(chain, 6)
    assert torch.equal(several[0][:, :1], tags)
    assert torch.equal(several[1], crf_plain.best(chain, 6)[1])
    assert all(len({tuple(one) for one in row.tolist()}) == 6 for row in several[0])


# --- how it is called


def test_threads_change_nothing(active):
    chain, tags = make_chain(9, 90, 21), torch.randint(21, (9, 90))
    one = everything(kernel, chain, tags, 2)
    try:
        torch.set_num_threads(2)
        two = everything(kernel, chain, tags, 2)
    finally:
        torch.set_num_threads(1)
    for name in one:
        assert torch.equal(one[name], two[name]), name


def test_any_layout_in_memory(active):
    chain, tags = make_chain(4, 6, 5), torch.randint(5, (6, 4)).mT
    mask = (torch.arange(6) != 2).expand(4, 6)
    scattered = Chain(
        chain.emissions.permute(2, 1, 0).contiguous().permute(2, 1, 0),
        chain.transitions.mT.contiguous().mT,
        chain.start.repeat_interleave(2)[::2],
        chain.end.expand(2, 5)[1],
        mask,
    )
    have = everything(kernel, scattered, tags, 2)
    want = everything(kernel, chain._replace(mask=mask.contiguous()), tags.contiguous(), 2)
    for name in want:
        assert torch.equal(have[name], want[name]), name


def test_training_keeps_nothing_of_size_tags_squared(active):
    chain = make_chain(3, 50, 40)
    leaves = [x.float().requires_grad_() for x in chain[:4]]
    kept = {}

    def keep(tensor):
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        crf.log_likelihood(*leaves, None, torch.zeros(3, 50, dtype=torch.long))
    assert sum(kept.values()) <= 3 * (3 * 50 * 40)


def test_the_gradient_is_not_computed_for_rows_without_one(active):
    chain = make_chain(3, 4, 3)
    leaves = [x.requires_grad_() for x in chain[:4]]
    kernel.total(chain, None)[1].backward()
    assert (chain.emissions.grad[[0, 2]] == 0).all()
    alone = [x.detach().clone().requires_grad_() for x in leaves]
    crf_plain.total(Chain(alone[0][1:2], *alone[1:], None), None).backward()
    for one, other in zip(leaves, alone):
        torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("bad", [-1, 3, 1 << 40])
def test_bad_tags_are_refused(active, bad):
    chain, tags = make_chain(2, 4, 3, mask=torch.ones(2, 4, dtype=torch.bool)), torch.zeros(2, 4, dtype=torch.long)
    tags[1, 2] = bad
    with pytest.raises(DataError, match="tags lie outside 0 to 2"):
        kernel.total(chain, tags)
    with pytest.raises(DataError, match="tags lie outside 0 to 2"):
        torch.ops.foci.crf_total(*chain, tags, False)
    chain.mask[1, 2] = False
    assert kernel.total(chain, tags).isfinite().all()


def test_bad_operands_of_the_operators_are_refused(active):
    chain, tags = make_chain(2, 4, 3, mask=torch.ones(2, 4, dtype=torch.bool)), torch.zeros(2, 4, dtype=torch.long)
    for wrong, message in [
        ({"transitions": chain.transitions[:2]}, r"transitions has shape \(2, 3\).*expected \(3, 3\)"),
        ({"start": chain.start.float()}, r"start has shape \(3,\) and torch.float32, expected \(3,\), torch.float64"),
        ({"end": chain.end[:1]}, r"end has shape \(1,\)"),
        ({"mask": chain.mask[:1]}, r"mask has shape \(1, 4\).*expected \(2, 4\), torch.bool"),
    ]:
        with pytest.raises(ShapeError, match=message):
            torch.ops.foci.crf_marginals(*chain._replace(**wrong))
    for bad in (tags[:, :3], tags.int()):
        with pytest.raises(ShapeError, match=r"tags has shape .* expected \(batch, step\), torch.int64"):
            torch.ops.foci.crf_total(*chain, bad, False)


def test_transforms_see_the_plain_path(active):
    chain = make_chain(3, 4, 3)
    one = torch.func.vmap(lambda row: crf.log_partition(row.unsqueeze(0), *chain[1:4])[0])(chain.emissions)
    torch.testing.assert_close(one, crf.log_partition(*chain))
    gradient = torch.func.grad(lambda x: crf.log_partition(x, *chain[1:4]).sum())(chain.emissions)
    torch.testing.assert_close(gradient, crf.marginals(*chain))
    _, slope = torch.func.jvp(
        lambda x: crf.log_partition(x, *chain[1:4]), (chain.emissions,), (torch.ones_like(chain.emissions),)
    )
    torch.testing.assert_close(slope, torch.full_like(slope, 4.0))


def test_no_gradient_is_as_good_as_zeros(active):
    chain = make_chain(2, 3, 4)
    leaves = [x.requires_grad_() for x in chain[:4]]
    for value in (kernel.total(chain, None), kernel.marginals(chain), kernel.best(chain, 2)[1]):
        undefined = torch._C._functions.UndefinedGrad()(value)
        found = torch.autograd.grad(undefined.sum(), leaves, allow_unused=True)
        assert all(gradient is None for gradient in found)


def test_gradients_of_gradients(active):
    chain, tags = make_chain(2, 3, 3), torch.zeros(2, 3, dtype=torch.long)

    def second(module):
        leaves = [x.clone().requires_grad_() for x in chain[:4]]
        made = Chain(*leaves, None)
        for value in (module.total(made, tags), module.marginals(made).square(), module.best(made, 2)[1]):
            first = torch.autograd.grad(value.sum(), leaves, create_graph=True)
            loss = sum((x**3).sum() for x in first)
            if loss.requires_grad:  # a best score is linear
                yield from torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)

    for have, want in zip(second(kernel), second(crf_plain)):
        torch.testing.assert_close(have, want)
    # Transitions alone may be what is trained.
    transitions = chain.transitions.clone().requires_grad_()
    total = kernel.total(chain._replace(transitions=transitions), None).sum()
    (gradient,) = torch.autograd.grad(total, transitions, create_graph=True)
    assert torch.autograd.grad(gradient.square().sum(), transitions)[0].isfinite().all()


# --- without the kernel


def of_labels(count, scheme):
    """The tags of ``count`` labels and those of their spans."""
    names = tag_names([f"l{number}" for number in range(count)], scheme)
    number = {name: place for place, name in enumerate(names)}
    of = lambda prefix: torch.tensor([number[f"{prefix}-l{label}"] for label in range(count)])  # noqa: E731
    nothing = torch.full((count,), -1)
    parts = [of("B"), of("B"), of("I"), of("I"), of("I")] if scheme == "BIO" else [*map(of, "SBIE"), nothing]
    return names, SpanTags(*parts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("labels", "scheme", "scale"), [(1, "BIO", 1.0), (7, "BIOES", 30.0), (13, "BIO", 150.0)])
def test_spans_equal_the_plain_path(active, labels, scheme, scale, dtype):
    """Every log-probability, also of spans that are as good as impossible: e^-1000 is not 0 in logarithms."""
    names, tags = of_labels(labels, scheme)
    generator = torch.Generator().manual_seed(labels)
    count, rows, steps = len(names), 5, 11
    shapes = [(rows, steps, count), (count, count), (count,), (count,)]
    emissions, transitions, start, end = (scale * torch.randn(shape, generator=generator) for shape in shapes)
    allowed = constraints(names, scheme)
    transitions = transitions.masked_fill(~allowed.allowed_transitions, NEVER)
    mask = torch.rand(rows, steps, generator=generator) < 0.8
    mask[0], mask[1] = True, False
    built = Chain(*(part.to(dtype) for part in (emissions, transitions, start, end)), mask)
    have, want = kernel.span_messages(built, tags), crf_spans_plain.messages(built, tags)
    for name, one, other in zip(have._fields, have, want):
        at = mask.unsqueeze(-1).expand_as(one) if one.dim() == 3 else slice(None)
        torch.testing.assert_close(one[at], other[at], rtol=1e-12, atol=1e-10, msg=lambda text, n=name: f"{n}: {text}")
    terms = crf_spans_plain.terms(built, tags, have)
    with mock.patch.object(kernel, "_THREAD_MOVES", 1), mock.patch.object(torch, "get_num_threads", return_value=2):
        for one, other in zip(kernel.span_messages(built, tags), have):
            assert torch.equal(one, other)  # threads change nothing
        assert torch.equal(kernel.every_span(terms, 5), kernel.every_span(terms, steps)[:, :, :5])
    for width in (1, 3, steps):
        every = kernel.every_span(terms, width)
        torch.testing.assert_close(every, crf_spans_plain.every_span(terms, width), rtol=1e-12, atol=1e-9)
    assert (every[1] == NEVER).all()
    assert (every[0] > NEVER).sum() >= labels * steps


def test_without_the_kernel_the_plain_path_runs(missing):
    chain, tags = make_chain(3, 4, 5), torch.randint(5, (3, 4))
    have, want = everything(kernel, chain, tags, 2), everything(crf_plain, chain, tags, 2)
    for name in want:
        assert torch.equal(have[name], want[name]), name
    with pytest.raises(DataError, match="tags lie outside 0 to 4"):
        kernel.total(chain, tags + 5)


def test_the_operators_work_without_the_kernel(missing):
    chain, tags = make_chain(3, 4, 5), torch.randint(5, (3, 4))

    class Operators:
        total = staticmethod(lambda chain, tags: torch.ops.foci.crf_total(*chain, tags, True)[0])
        marginals = staticmethod(lambda chain: torch.ops.foci.crf_marginals(*chain))
        best = staticmethod(lambda chain, k: torch.ops.foci.crf_best(*chain, k)[::-1])

    have, want = everything(Operators, chain, tags, 2), everything(crf_plain, chain, tags, 2)
    for name in want:
        torch.testing.assert_close(have[name], want[name])


def test_a_wrong_library_is_found_out(active):
    library = kernel._KERNEL.library
    assert kernel._self_check(library)

    def wrong(name):  # takes the start for the end
        return WrongLibrary(library, f"foci_crf_{name}", 2)

    assert kernel._self_check(wrong("nothing"))
    for name in ("total", "gradients", "decode", "span_messages"):
        assert not kernel._self_check(wrong(f"{name}_float32"))
        assert not kernel._self_check(wrong(f"{name}_float64"))


def test_status_names_it():
    assert "crf" in {found.name for found in status()}


# --- tracers


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_operators_are_registered_rightly(dtype):
    mask = torch.tensor([[True, False, True, True], [False, False, False, False]])
    chain = Chain(*(x.to(dtype).requires_grad_() for x in make_chain(2, 4, 3)[:4]), mask)
    torch.library.opcheck(torch.ops.foci.crf_total.default, (*chain, torch.zeros(2, 4, dtype=torch.long), True))
    torch.library.opcheck(torch.ops.foci.crf_total.default, (*chain[:4], None, None, True))
    torch.library.opcheck(torch.ops.foci.crf_marginals.default, tuple(chain))
    torch.library.opcheck(torch.ops.foci.crf_best.default, (*chain, 2))


class Everything(torch.nn.Module):
    def forward(self, emissions, transitions, start, end, mask, tags):
        chain = (emissions, transitions, start, end, mask)
        tagged, scores = crf.viterbi(*chain, 2)
        return crf.log_partition(*chain), crf.log_likelihood(*chain, tags), crf.marginals(*chain), scores, tagged


def inputs(batch, steps):
    chain = make_chain(batch, steps, 3, seed=batch * steps)
    leaves = [x.float().requires_grad_() for x in chain[:4]]
    return [*leaves, torch.rand(batch, steps) < 0.7, torch.randint(3, (batch, steps))]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("without", [False, True])
def test_compiled_whole_for_any_number_of_steps(backend, without, request):
    if without:
        request.getfixturevalue("missing")
    torch._dynamo.reset()
    module, compiles = Everything(), torch._dynamo.testing.CompileCounterWithBackend(backend)
    compiled = torch.compile(module, fullgraph=True, backend=compiles, dynamic=True)
    for batch, steps in [(2, 5), (3, 7), (5, 11)]:
        arguments = inputs(batch, steps)
        have, want = compiled(*arguments), module(*arguments)
        for one, other in zip(have, want):
            torch.testing.assert_close(one, other)
        gradients = [
            torch.autograd.grad(sum((x * x.detach().cos()).sum() for x in found[:4]), arguments[:4])
            for found in (have, want)
        ]
        for one, other in zip(*gradients):
            torch.testing.assert_close(one, other)
    assert compiles.frame_count == 1


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True])
def test_exported_with_any_batch_and_any_number_of_steps(strict, tmp_path):
    batch, steps = torch.export.Dim("batch"), torch.export.Dim("steps")
    both = {0: batch, 1: steps}
    program = torch.export.export(
        Everything(), tuple(inputs(3, 5)), dynamic_shapes=(both, None, None, None, both, both), strict=strict
    )
    torch.export.save(program, tmp_path / "crf.pt2")
    loaded = torch.export.load(tmp_path / "crf.pt2")
    for sizes in [(2, 4), (7, 30)]:
        arguments = inputs(*sizes)
        for one, other in zip(loaded.module()(*arguments), Everything()(*arguments)):
            torch.testing.assert_close(one, other)
