"""The addressing of the Neural Turing Machine, against the paper's equations as plain loops."""

import math

import pytest
import torch
from torch import Tensor

from foci.errors import ShapeError
from foci.functional import addressing

B, H, N, M = 2, 3, 7, 5


def numbers(*shape: int, seed: int = 0, positive: bool = False) -> Tensor:
    made = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return made.abs() + 0.1 if positive else made


def shares(*shape: int, seed: int = 0) -> Tensor:
    return torch.softmax(numbers(*shape, seed=seed), dim=-1)


def close(ours: Tensor, paper: list) -> bool:
    return torch.allclose(ours, torch.tensor(paper, dtype=ours.dtype), rtol=0, atol=1e-12)


# The paper, one row at a time.


def content_of(key: list, memory: list, strength: float) -> list:
    def length(vector: list) -> float:
        return math.sqrt(sum(x * x for x in vector))

    scores = []
    for slot in memory:
        scores.append(strength * sum(k * m for k, m in zip(key, slot)) / (length(key) * length(slot)))
    total = sum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]


def shift_of(weights: list, kernel: list) -> list:
    slots, center = len(weights), len(kernel) // 2
    shifted = [0.0] * slots
    for i in range(slots):
        for j in range(-center, center + 1):
            shifted[i] += weights[(i - j) % slots] * kernel[center + j]
    return shifted


def sharpen_of(weights: list, gamma: float) -> list:
    total = sum(w**gamma for w in weights)
    return [w**gamma / total for w in weights]


def read_of(memory: list, weights: list) -> list:
    return [sum(weights[i] * memory[i][m] for i in range(len(memory))) for m in range(len(memory[0]))]


def write_of(memory: list, weights: list, erase: list, add: list) -> list:
    return [
        [slot[m] * (1 - weight * erase[m]) + weight * add[m] for m in range(len(slot))]
        for slot, weight in zip(memory, weights)
    ]


def test_content_is_the_papers():
    key, memory, strength = numbers(B, M), numbers(B, N, M, seed=1), numbers(B, seed=2, positive=True)
    paper = [content_of(key[b].tolist(), memory[b].tolist(), strength[b].item()) for b in range(B)]
    assert close(addressing.content(key, memory, strength), paper)


def test_interpolate_is_the_papers():
    now, before, gate = shares(B, N), shares(B, N, seed=1), torch.sigmoid(numbers(B, seed=2))
    paper = [[(gate[b] * now[b, i] + (1 - gate[b]) * before[b, i]).item() for i in range(N)] for b in range(B)]
    assert close(addressing.interpolate(now, before, gate), paper)


@pytest.mark.parametrize("width", [1, 3, 5, 7, 9, 23])
def test_shift_is_the_papers_at_any_odd_width(width):
    weights, kernel = shares(B, N), shares(B, width, seed=1)
    paper = [shift_of(weights[b].tolist(), kernel[b].tolist()) for b in range(B)]
    ours = addressing.shift(weights, kernel)
    assert close(ours, paper)
    assert torch.allclose(ours.sum(-1), torch.ones(B, dtype=ours.dtype))


@pytest.mark.parametrize("move", [-2, -1, 0, 1, 2])
def test_a_kernel_with_one_entry_moves_all_attention_that_far(move):
    weights = torch.eye(N)[[1, N - 1]]
    kernel = torch.zeros(5)
    kernel[2 + move] = 1.0
    assert addressing.shift(weights, kernel).argmax(-1).tolist() == [(1 + move) % N, (N - 1 + move) % N]


def test_a_move_of_more_than_all_cells_goes_round():
    weights, kernel = shares(B, 3), torch.zeros(11, dtype=torch.float64)
    kernel[5 + 4] = 1.0
    assert torch.equal(addressing.shift(weights, kernel), weights.roll(1, -1))


@pytest.mark.parametrize("gamma", [1.0, 1.7, 9.0])
def test_sharpen_is_the_papers(gamma):
    weights = shares(B, N)
    paper = [sharpen_of(weights[b].tolist(), gamma) for b in range(B)]
    assert close(addressing.sharpen(weights, torch.full((B,), gamma, dtype=torch.float64)), paper)


def test_read_and_write_are_the_papers():
    memory, weights = numbers(B, N, M), shares(B, N, seed=1)
    erase, add = torch.sigmoid(numbers(B, M, seed=2)), numbers(B, M, seed=3)
    rows = [(memory[b].tolist(), weights[b].tolist(), erase[b].tolist(), add[b].tolist()) for b in range(B)]
    before = memory.clone()
    assert close(addressing.read(memory, weights), [read_of(m, w) for m, w, _, _ in rows])
    assert close(addressing.write(memory, weights, erase, add), [write_of(*row) for row in rows])
    assert torch.equal(memory, before)


def test_leading_axes_broadcast():
    """Several heads on one memory, and no leading axis at all, give what each alone gives."""
    memory, key, strength = numbers(B, N, M), numbers(B, H, M, seed=1), numbers(B, H, seed=2, positive=True)
    weights, kernel, erase = shares(B, H, N, seed=3), shares(1, H, 3, seed=4), torch.sigmoid(numbers(H, M, seed=5))
    shared = memory.unsqueeze(1)
    found = addressing.content(key, shared, strength)
    mixed = addressing.interpolate(found, weights, torch.sigmoid(strength))
    moved = addressing.shift(mixed, kernel)
    sharp = addressing.sharpen(moved, 1 + strength)
    read = addressing.read(shared, sharp)
    written = addressing.write(shared, sharp, erase, key)
    assert written.shape == (B, H, N, M)
    for b in range(B):
        for h in range(H):
            alone = addressing.content(key[b, h], memory[b], strength[b, h])
            assert torch.allclose(found[b, h], alone)
            alone = addressing.interpolate(alone, weights[b, h], torch.sigmoid(strength[b, h]))
            assert torch.allclose(mixed[b, h], alone)
            alone = addressing.shift(alone, kernel[0, h])
            assert torch.allclose(moved[b, h], alone)
            alone = addressing.sharpen(alone, 1 + strength[b, h])
            assert torch.allclose(sharp[b, h], alone)
            assert torch.allclose(read[b, h], addressing.read(memory[b], alone))
            assert torch.allclose(written[b, h], addressing.write(memory[b], alone, erase[h], key[b, h]))


def test_gradients():
    def wants(*tensors: Tensor) -> list[Tensor]:
        return [tensor.requires_grad_() for tensor in tensors]

    key, memory, strength = wants(numbers(B, M), numbers(B, N, M, seed=1), numbers(B, seed=2, positive=True))
    weights, kernel, gate = wants(shares(B, N, seed=3), shares(B, 3, seed=4), torch.sigmoid(numbers(B, seed=5)))
    erase, add = wants(torch.sigmoid(numbers(B, M, seed=6)), numbers(B, M, seed=7))
    before, faint = wants(shares(B, N, seed=8), numbers(B, N, M, seed=9) * 1e-3)
    assert torch.autograd.gradcheck(addressing.content, (key, memory, strength))
    assert torch.autograd.gradcheck(addressing.content, (key, faint, strength))  # below the floor of the cosine
    assert torch.autograd.gradcheck(addressing.interpolate, (weights, before, gate))
    assert torch.autograd.gradcheck(addressing.shift, (weights, kernel))
    assert torch.autograd.gradcheck(lambda w, s: addressing.sharpen(w, 1 + s), (weights, strength))
    assert torch.autograd.gradcheck(addressing.read, (memory, weights))
    assert torch.autograd.gradcheck(addressing.write, (memory, weights, erase, add))


@pytest.mark.parametrize("key_scale", [0.0, 1.0])
@pytest.mark.parametrize("memory_scale", [0.0, 1e-30, 1e-6])
def test_content_is_tame_at_an_empty_memory(key_scale, memory_scale):
    """Values are uniform, and no gradient is larger than 1 / 0.01 times the strength."""
    key = (numbers(B, M).float() * key_scale).requires_grad_()
    memory = (numbers(B, N, M, seed=1).float() * memory_scale).requires_grad_()
    strength = torch.full((B,), 2.0, requires_grad=True)
    weights = addressing.content(key, memory, strength)
    assert torch.allclose(weights, torch.full((B, N), 1 / N), atol=1e-3)
    weights[:, 0].sum().backward()
    for tensor in (key, memory, strength):
        assert tensor.grad.isfinite().all()
        assert tensor.grad.abs().max() <= 2.0 / 0.01
    # An empty slot can still learn to be like the key.
    assert (memory.grad.abs().max() > 0) == (key_scale > 0)


def test_the_floor_leaves_short_cells_exact():
    key, memory = numbers(M), torch.nn.functional.normalize(numbers(N, M, seed=1), dim=-1) * 0.011
    paper = content_of(key.tolist(), memory.tolist(), 3.0)
    assert close(addressing.content(key, memory, torch.tensor(3.0, dtype=torch.float64)), paper)


@pytest.mark.parametrize("gamma", [1.0, 2.0, 1000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_sharpen_is_finite_with_zeros_and_large_gamma(gamma, dtype):
    rows = [[0.0, 0.5, 0.5, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.375, 0.125]]
    weights = torch.tensor(rows, dtype=dtype, requires_grad=True)
    gammas = torch.full((4,), gamma, dtype=dtype, requires_grad=True)
    sharp = addressing.sharpen(weights, gammas)
    assert sharp[0].tolist() == [0.0, 0.5, 0.5, 0.0]
    assert sharp[1].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert sharp[2].tolist() == [0.0, 0.0, 0.0, 0.0]
    assert abs(sharp[3].sum().item() - 1) < 0.01
    if gamma == 1000.0:
        assert torch.allclose(sharp[3], torch.tensor([0.0, 0.0, 1.0, 0.0], dtype=dtype), atol=1e-30)
    sharp.square().sum().backward()
    assert weights.grad.isfinite().all()
    assert gammas.grad.isfinite().all()
    assert weights.grad[2].eq(0).all()


def test_sharpen_where_the_power_itself_underflows():
    weights = torch.tensor([0.02, 0.03, 0.025]).requires_grad_()
    sharp = addressing.sharpen(weights, torch.tensor(200.0))  # 0.03^200 is 1e-305
    assert torch.allclose(sharp, torch.tensor([0.0, 1.0, 0.0]), atol=1e-6)
    sharp[1].backward()
    assert weights.grad.isfinite().all()


def test_empty_batch_and_bfloat16():
    for leading, dtype in ((0, torch.float32), (B, torch.bfloat16)):
        memory, key = numbers(leading, N, M).to(dtype), numbers(leading, M).to(dtype)
        one = torch.ones(leading, dtype=dtype)
        weights = addressing.content(key, memory, one)
        weights = addressing.interpolate(weights, weights, one)
        weights = addressing.sharpen(addressing.shift(weights, shares(leading, 3).to(dtype)), one)
        assert weights.shape == (leading, N)
        assert weights.dtype == dtype
        assert addressing.read(memory, weights).shape == (leading, M)
        written = addressing.write(memory, weights, key, key)
        assert written.shape == memory.shape
        assert written.isfinite().all()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: addressing.content(numbers(2, 5), numbers(2, 7, 3), numbers(2)), ["memory", "(2, 7, 3)", "slots, 5"]),
        (lambda: addressing.content(numbers(2, 5), numbers(3, 7, 5), numbers(2)), ["key", "(2, 5)", "(3, 7, 5)"]),
        (lambda: addressing.content(numbers(2, 5), numbers(2, 7, 5), numbers(2, 1)), ["strength", "(2, 1)", "squeeze"]),
        (lambda: addressing.content(numbers(2, 5), numbers(2, 7, 5), numbers(3)), ["strength", "(3,)", "(2, 5)"]),
        (lambda: addressing.content(numbers(2, 5), numbers(7, 5), 2.0), ["strength", "float", "Tensor"]),
        (lambda: addressing.interpolate(numbers(2, 7), numbers(2, 5), numbers(2)), ["previous", "(2, 5)", "(…, 7)"]),
        (lambda: addressing.interpolate(numbers(2, 7), numbers(2, 7), numbers(2, 1)), ["gate", "(2, 1)", "squeeze"]),
        (lambda: addressing.interpolate(numbers(2, 7), numbers(3, 7), numbers(1)), ["content", "(2, 7)", "(3, 7)"]),
        (lambda: addressing.shift(numbers(2, 7), numbers(2, 4)), ["kernel", "(2, 4)", "odd", "width 5"]),
        (lambda: addressing.shift(numbers(2, 7), numbers(3, 3)), ["kernel", "(3, 3)", "(2, 7)"]),
        (lambda: addressing.sharpen(numbers(2, 7), numbers(2, 1)), ["gamma", "(2, 1)", "(2, 7)"]),
        (lambda: addressing.sharpen(numbers(2, 7), numbers(3)), ["gamma", "(3,)", "(2, 7)"]),
        (lambda: addressing.read(numbers(2, 7, 5), numbers(2, 5)), ["weights", "(2, 5)", "(…, 7)"]),
        (lambda: addressing.read(numbers(2, 7, 5), numbers(3, 7)), ["weights", "(3, 7)", "(2, 7, 5)"]),
        (
            lambda: addressing.write(numbers(2, 7, 5), numbers(2, 7), numbers(2, 3), numbers(2, 5)),
            ["erase", "(2, 3)", "(…, 5)"],
        ),
        (
            lambda: addressing.write(numbers(2, 7, 5), numbers(2, 7), numbers(2, 5), numbers(2, 7)),
            ["add", "(2, 7)", "(…, 5)"],
        ),
        (
            lambda: addressing.write(numbers(2, 7, 5), numbers(2, 7), numbers(3, 5), numbers(2, 5)),
            ["(3, 5)", "weights", "(2, 7)"],
        ),
        (lambda: addressing.read(numbers(2, 7, 5).long(), numbers(2, 7)), ["memory", "int64", "floating"]),
    ],
)
def test_wrong_shapes_are_named(call, said):
    with pytest.raises(ShapeError) as caught:
        call()
    for part in said:
        assert part in str(caught.value)
