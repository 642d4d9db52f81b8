"""The kernel of word-by-word attention against the loop of its steps, in values and all gradients."""

import pytest
import torch
from active_kernel import WrongLibrary, skip_unless_active

import foci
from foci import masks
from foci.functional.kernels import word_by_word as kernel
from foci.functional.stepwise import _plain_word_by_word

B, R, S, D = 3, 5, 7, 19
NAMES = ("memory", "query", "exists", "value", "key", "valid", "vector", "to_score", "carry")


@pytest.fixture(autouse=True)
def active():
    skip_unless_active(kernel)
    torch.manual_seed(3)


def example(batch=B, steps=R, cells=S, size=D, dtype=torch.float64):
    """The arguments by name, with steps and cells that do not exist, a row without either among them."""
    exists, valid = torch.rand(batch, steps) < 0.8, torch.rand(batch, cells) < 0.8
    exists[:1], valid[-1:] = True, True
    if batch > 2:
        exists[1], valid[0] = False, False
    floats = {
        "memory": torch.randn(batch, 1, size),
        "query": torch.randn(batch, steps, size),
        "value": torch.randn(batch, cells, size),
        "key": torch.randn(batch, cells, size),
        "vector": torch.randn(size) / size**0.5,
        "to_score": torch.randn(size, size) / size**0.5,
        "carry": torch.randn(size, size) / size**0.5,
    }
    given = {name: one.to(dtype) for name, one in floats.items()} | {"exists": exists, "valid": valid}
    return {name: given[name] for name in NAMES}


def run(step, given, dtype, with_weights=True):
    """Results and gradients of a random direction, in this dtype."""
    leaves = {name: one if one.dtype is torch.bool else one.to(dtype).requires_grad_() for name, one in given.items()}
    memory, weights = step(*leaves.values())
    generator = torch.Generator().manual_seed(5)
    loss = (memory * torch.randn(memory.shape, generator=generator)).sum()
    if with_weights:
        loss = loss + (weights * torch.randn(weights.shape, generator=generator)).sum()
    wanted = [one for one in leaves.values() if one.requires_grad]
    return [memory, weights, *torch.autograd.grad(loss, wanted)]


def fused(*arguments):
    return kernel.word_by_word(*arguments, plain=pytest.fail)


def assert_alike(given, tolerance=2e-5, **options):
    have, want = run(fused, given, torch.float32, **options), run(_plain_word_by_word, given, torch.float64, **options)
    names = ("memory", "weights", *(f"gradient of {name}" for name in NAMES if given[name].is_floating_point()))
    for name, one, other in zip(names, have, want, strict=True):
        scale = max([1.0, *other.abs().flatten().tolist()])
        torch.testing.assert_close(
            one.double(), other, atol=tolerance * scale, rtol=0, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert torch.equal(have[1] == 0, want[1] == 0)


@pytest.mark.parametrize("size", [1, 7, 16, 19, 37, 101])
@pytest.mark.parametrize("cells", [1, 2, 7, 8, 17, 53])
def test_every_size(size, cells):
    assert_alike(example(cells=cells, size=size))


@pytest.mark.parametrize("with_weights", [False, True])
def test_with_and_without_a_gradient_of_the_weights(with_weights):
    assert_alike(example(), with_weights=with_weights)


@pytest.mark.parametrize("large", ["query", "key"])
@pytest.mark.parametrize("number", [-300.0, 45.0, 1e6])
def test_large_numbers_take_the_exact_path(large, number):
    given = example()
    given[large][0, 1, 2] = number
    given[large][2, 0, 3] = number
    assert_alike(given, tolerance=1e-4)


def test_large_numbers_of_opposite_signs_cancel():
    given = example()
    given["query"][..., 4] = 1000.25
    given["key"][..., 4] = -1000.0
    assert_alike(given, tolerance=1e-4)


def test_scores_far_apart():
    given = example()
    given["vector"] *= 50
    assert_alike(given, tolerance=1e-3)


def test_nan_stays_in_its_row_of_the_batch():
    given = {name: one.float() if one.is_floating_point() else one for name, one in example().items()}
    given["exists"][2, 0] = True
    given["query"][2, 0, 5] = torch.nan
    memory, weights = fused(*given.values())
    assert memory[2].isnan().all()
    assert weights[2, 0][given["valid"][2]].isnan().all()
    assert (weights[2, 0][~given["valid"][2]] == 0).all()
    assert memory[:2].isfinite().all()
    assert weights[:2].isfinite().all()


@pytest.mark.parametrize("shape", [(0, R, S), (B, R, 0), (1, 2, 1)])
def test_empty_and_smallest(shape):
    assert_alike(example(*shape))


def test_other_layouts():
    given = example()
    for name in ("query", "value", "key"):
        given[name] = given[name].mT.contiguous().mT
    given["to_score"], given["carry"] = given["to_score"].mT, given["carry"].mT
    assert_alike(given)


def test_threads_do_not_change_the_result():
    given, threads = example(batch=5, steps=11, cells=31, size=101), torch.get_num_threads()
    found = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(run(fused, given, torch.float32))
    finally:
        torch.set_num_threads(threads)
    for one, other in zip(*found):
        torch.testing.assert_close(one, other, atol=0, rtol=1e-6)
        assert torch.equal(found[0][0], found[1][0])


def test_rows_of_the_batch_do_not_affect_each_other():
    """Rows that share products give what each gives alone, to the bit; some have steps that others do not have."""
    given = {name: one.float() if one.is_floating_point() else one for name, one in example(batch=13).items()}
    shared = ("vector", "to_score", "carry")

    def gradients(given):
        leaves = [one.clone().requires_grad_() if one.is_floating_point() else one for one in given.values()]
        memory, weights = fused(*leaves)
        wanted = [one for name, one in zip(given, leaves) if one.requires_grad and name not in shared]
        return [memory, weights, *torch.autograd.grad(memory.square().sum() + weights.square().sum(), wanted)]

    together = gradients(given)
    for row in range(13):
        alone = gradients({name: one if name in shared else one[row : row + 1] for name, one in given.items()})
        for one, other in zip(together[:4] + together[5:], alone[:4] + alone[5:]):
            assert torch.equal(one[row : row + 1], other)
        torch.testing.assert_close(together[4][row : row + 1], alone[4], atol=1e-6, rtol=1e-5)  # torch's product


def test_second_derivatives_are_those_of_the_loop():
    given = example(batch=2, steps=3, cells=5, size=7)

    def second(step, dtype):
        leaves = [one if one.dtype is torch.bool else one.to(dtype).requires_grad_() for one in given.values()]
        floats = [one for one in leaves if one.requires_grad]
        memory, weights = step(*leaves)
        first = torch.autograd.grad(memory.square().sum() + weights.square().sum(), floats, create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in first), floats)

    def with_plain(*arguments):
        return kernel.word_by_word(*arguments, plain=_plain_word_by_word)

    for have, want in zip(second(with_plain, torch.float32), second(_plain_word_by_word, torch.float64)):
        torch.testing.assert_close(have.double(), want, atol=1e-3 * max(1.0, want.abs().max().item()), rtol=0)


def test_the_mechanism_uses_it(monkeypatch):
    calls = []
    forward = kernel._forward
    monkeypatch.setattr(kernel, "_forward", lambda *arguments: calls.append(1) or forward(*arguments))
    match = foci.build("word_by_word", model_dim=D)
    left, right = torch.randn(B, S, D), torch.randn(B, R, D)
    matched = match(left, right, masks.lengths([7, 0, 3], S), masks.lengths([5, 2, 0], R))
    matched.output.sum().backward()
    assert calls == [1]
    assert match.double()(left.double(), right.double()).output.dtype == torch.float64
    assert calls == [1]


@pytest.mark.parametrize(("name", "first"), [("forward", 3), ("forward", 7), ("backward", 3), ("backward", 6)])
def test_the_self_check_catches_exchanged_arguments(name, first):
    """Value and key, then both matrices: they have the same sizes."""
    assert kernel._self_check(kernel._KERNEL.library)
    assert not kernel._self_check(WrongLibrary(kernel._KERNEL.library, f"foci_word_by_word_{name}", first))
