"""The gradients of a source that many steps of location-aware attention read, added up in one buffer."""

import weakref

import pytest
import torch
from active_kernel import skip_unless_active

import foci
from foci import masks
from foci.functional.kernels import location_aware as kernel
from foci.functional.kernels import source_gradients

B, L, S, D, A, V = 3, 5, 23, 7, 19, 11


@pytest.fixture(autouse=True)
def active():
    skip_unless_active(kernel)
    torch.manual_seed(3)


@pytest.fixture
def passes(monkeypatch):
    """How often a step asked for the sums of its backward pass."""
    found, sums_of = [], source_gradients.sums_of
    monkeypatch.setattr(source_gradients, "sums_of", lambda node: found.append(1) or sums_of(node))
    return found


def example(dtype=torch.float32):
    """An attention, and the leaves query, key and value; the same numbers in every dtype."""
    generator = torch.Generator().manual_seed(5)
    torch.manual_seed(7)
    attention = foci.Attention(D, D, A, score="location_aware").to(dtype)
    shapes = (B, L, D), (B, S, D), (B, S, V)
    return attention, *(torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes)


def decode(attention, query, memory, steps=L):
    """What the steps read, one by one, and the last weights."""
    outputs, state = [], None
    for one in query[:, :steps].split(1, dim=1):
        read = attention.read(one, memory, state)
        outputs.append(read.output)
        state = read.state
    return torch.cat(outputs, dim=1), state


def assert_alike(have, want, tolerance=2e-5):
    for one, other in zip(have, want, strict=True):
        scale = max(1.0, other.abs().max().item())
        torch.testing.assert_close(one.double(), other.double(), atol=tolerance * scale, rtol=0)


def test_steps_give_the_gradients_of_the_loop(passes):
    mask = masks.keys(masks.lengths([S, 3, 0], S))

    def gradients(dtype):
        attention, query, key, value = example(dtype)
        output, state = decode(attention, query, attention.prepare(key, value, mask))
        loss = (
            output.square().sum() + state.sin().sum() + (key.sum(dim=2) * value.sum(dim=2)).sum()
        )  # used elsewhere too
        return torch.autograd.grad(loss, [query, key, value, *attention.parameters()])

    have = gradients(torch.float32)
    assert len(passes) == L
    assert_alike(have, gradients(torch.float64))
    assert len(passes) == L  # float64 takes the loop


def test_each_backward_pass_has_its_own_sums():
    attention, query, key, value = example()
    memory = attention.prepare(key, value)
    output, _ = decode(attention, query, memory)
    leaves = [query, key, value]
    first = torch.autograd.grad(output.square().sum(), leaves, retain_graph=True)
    part = torch.autograd.grad(output[:, :2].square().sum(), leaves, retain_graph=True)
    again = torch.autograd.grad(output.square().sum(), leaves, retain_graph=True)
    for one, other in zip(first, again):
        assert torch.equal(one, other)
    assert not memory.prepared.grad_fn.sums  # as large as the source: of no pass that is over
    alone, _ = decode(attention, query, attention.prepare(key, value), steps=2)
    assert_alike(part, torch.autograd.grad(alone.square().sum(), leaves))


def test_a_pass_that_fails_leaves_nothing_behind():
    attention, query, key, value = example()
    output, _ = decode(attention, query, attention.prepare(key, value))
    want = torch.autograd.grad(output.sum(), [key, value], retain_graph=True)
    fails = query[:, 1:2].expand(-1, -1, -1)
    output, _ = decode(attention, query, attention.prepare(key, value))
    failing = [True]

    def fail(grad):
        if failing:
            raise RuntimeError("on purpose")

    key.register_hook(fail)
    fails.register_hook(fail)
    with pytest.raises(RuntimeError, match="on purpose"):
        torch.autograd.grad(output.sum(), [key, value], retain_graph=True)
    failing.clear()
    for one, other in zip(torch.autograd.grad(output.sum(), [key, value]), want):
        assert torch.equal(one, other)


def test_gradients_of_the_prepared_source_are_whole():
    attention, query, key, value = example()
    memory = attention.prepare(key, value)
    output, _ = decode(attention, query, memory)
    have = torch.autograd.grad(output.square().sum(), [memory.key, memory.value])
    plain = memory._replace(prepared=None)
    output, _ = decode(attention, query, plain)
    assert_alike(have, torch.autograd.grad(output.square().sum(), [plain.key, plain.value]))


@pytest.mark.parametrize("asked", ["query", "key", "value"])
def test_one_gradient_alone(asked):
    attention, query, key, value = example()
    leaves = {"query": query, "key": key, "value": value}
    output, _ = decode(attention, query, attention.prepare(key, value))
    every = dict(zip(leaves, torch.autograd.grad(output.square().sum(), list(leaves.values()), retain_graph=True)))
    alone = torch.autograd.grad(output.square().sum(), leaves[asked])[0]
    assert torch.equal(alone, every[asked])


@pytest.mark.parametrize("fixed", ["key", "value"])
def test_a_source_of_which_one_part_needs_no_gradient(fixed):
    attention, query, key, value = example()
    key, value = (key.detach(), value) if fixed == "key" else (key, value.detach())
    attention.score.key_layer.requires_grad_(False)
    output, _ = decode(attention, query, attention.prepare(key, value))
    learned = value if fixed == "key" else key
    have = torch.autograd.grad(output.square().sum(), learned)
    plain = attention.prepare(key, value)._replace(prepared=None)
    output, _ = decode(attention, query, plain)
    assert_alike(have, torch.autograd.grad(output.square().sum(), learned))


def test_rows_of_the_source_that_were_selected():
    """A search that repeats its source in training reads other tensors than those that share their gradients."""
    attention, query, key, value = example()
    rows = torch.tensor([2, 0, 2])
    memory = attention.prepare(key, value)
    chosen = memory._replace(**{name: getattr(memory, name)[rows] for name in ("key", "value", "prepared")})
    output, _ = decode(attention, query, chosen)
    have = torch.autograd.grad(output.square().sum(), [key, value])
    output, _ = decode(attention, query, attention.prepare(key[rows], value[rows]))
    assert_alike(have, torch.autograd.grad(output.square().sum(), [key, value]))


@pytest.mark.parametrize("changed", ["key", "value"])
@pytest.mark.parametrize("how", ["in place", "other data", "needs gradients"])
def test_a_source_that_changes_after_it_was_prepared(changed, how):
    """The gradients are those of the source that is read, and go where its own go."""
    found = []
    for shares in (True, False):
        attention, query, key, value = example()
        if how == "in place":
            memory, learned = attention.prepare(key, value * 1), [key, value]
            getattr(memory, changed).mul_(1.5)
        elif how == "other data":
            memory, learned = attention.prepare(key, value * 1), [key, value]
            getattr(memory, changed).data = getattr(memory, changed).data * 1.5
        else:
            attention.score.key_layer.requires_grad_(False)
            key, value = (key.detach(), value) if changed == "key" else (key, value.detach())
            memory = attention.prepare(key, value)
            learned = [getattr(memory, changed).requires_grad_()]
        memory = memory if shares else memory._replace(prepared=None)
        output, _ = decode(attention, query, memory)
        found.append(torch.autograd.grad(output.square().sum(), learned))
    assert_alike(*found)


def test_steps_that_were_read_before_a_change_in_place_are_refused():
    attention, query, key, value = example()
    memory = attention.prepare(key, value)
    output, _ = decode(attention, query, memory)
    with torch.no_grad():
        memory.key.mul_(1.5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_a_graph_without_its_buffers_does_not_hold_the_source():
    """As elsewhere in torch, a loss that is kept after its backward pass keeps no more than the graph's nodes."""
    attention, query, key, value = example()
    memory = attention.prepare(key, value * 1)
    held = [weakref.ref(one) for one in (memory.key, memory.value)]
    loss = decode(attention, query, memory)[0].sum()
    loss.backward()
    del memory
    assert [one() for one in held] == [None, None]


def test_second_derivatives():
    def second(dtype):
        attention, query, key, value = example(dtype)
        output, _ = decode(attention, query, attention.prepare(key, value), steps=2)
        leaves = [query, key, value, *attention.parameters()]
        first = torch.autograd.grad(output.square().sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in first), leaves)

    assert_alike(second(torch.float32), second(torch.float64), tolerance=1e-3)


def test_nothing_is_shared_without_gradients():
    attention, _, key, value = example()
    with torch.no_grad():
        assert attention.prepare(key, value).prepared is None
    attention.requires_grad_(False)
    assert attention.prepare(key.detach(), value.detach()).prepared is None
