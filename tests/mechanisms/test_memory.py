"""The Neural Turing Machine's memory, against one head and one row at a time in plain Python."""

import math

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from foci.errors import ConfigError, ShapeError, UnknownNameError
from foci.mechanisms.memory import MemoryState, NeuralTuringMemory

B, D, N, M, READS, WRITES = 3, 11, 7, 5, 2, 3


def made(dtype: torch.dtype = torch.float64, **changes) -> NeuralTuringMemory:
    sizes = {"num_slots": N, "slot_dim": M, "num_read_heads": READS, "num_write_heads": WRITES, "shift_width": 5}
    return NeuralTuringMemory(D, **(sizes | changes)).to(dtype)


def inputs(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    drawn = torch.randn(*shape, dtype=torch.float64, device="cpu", generator=torch.Generator("cpu").manual_seed(seed))
    return drawn.to(dtype)


# The paper's machine for one row of the batch: lists and floats only.


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


def softmax(xs: list) -> list:
    total = sum(math.exp(x) for x in xs)
    return [math.exp(x) / total for x in xs]


def cosine(left: list, right: list) -> float:
    lengths = [max(math.sqrt(sum(x * x for x in vector)), 0.01) for vector in (left, right)]
    return sum(x * y for x, y in zip(left, right)) / (lengths[0] * lengths[1])


class PaperHead:
    """Takes its numbers off the front of the linear layer's output."""

    def __init__(self, numbers: list, slot_dim: int, width: int) -> None:
        self.key = [math.tanh(numbers.pop(0)) for _ in range(slot_dim)]
        self.kernel = softmax([numbers.pop(0) for _ in range(width)])
        self.strength = softplus(numbers.pop(0))
        self.gate = sigmoid(numbers.pop(0))
        self.gamma = 1 + softplus(numbers.pop(0))

    def address(self, memory: list, previous: list) -> list:
        slots, center = len(memory), len(self.kernel) // 2
        found = softmax([self.strength * cosine(self.key, slot) for slot in memory])
        mixed = [self.gate * c + (1 - self.gate) * w for c, w in zip(found, previous)]
        moved = [0.0] * slots
        for i in range(slots):
            for j in range(-center, center + 1):
                moved[i] += mixed[(i - j) % slots] * self.kernel[center + j]
        powers = [w**self.gamma for w in moved]
        return [power / sum(powers) for power in powers]


def paper_step(module: NeuralTuringMemory, vector: list, memory: list, read_weights: list, write_weights: list):
    weight, bias = module.commands.weight.tolist(), module.commands.bias.tolist()
    numbers = [sum(w * x for w, x in zip(row, vector)) + b for row, b in zip(weight, bias)]
    size, width = module.slot_dim, module.shift_width
    writers = [PaperHead(numbers, size, width) for _ in range(module.num_write_heads)]
    readers = [PaperHead(numbers, size, width) for _ in range(module.num_read_heads)]
    contents = []
    for _ in writers:
        erase = [sigmoid(numbers.pop(0)) for _ in range(size)]
        contents.append((erase, [math.tanh(numbers.pop(0)) for _ in range(size)]))
    assert not numbers

    write_weights = [head.address(memory, weights) for head, weights in zip(writers, write_weights)]
    memory = [list(slot) for slot in memory]
    for weights, (erase, _) in zip(write_weights, contents):
        for i in range(len(memory)):
            memory[i] = [x * (1 - weights[i] * e) for x, e in zip(memory[i], erase)]
    for weights, (_, add) in zip(write_weights, contents):
        for i in range(len(memory)):
            memory[i] = [x + weights[i] * a for x, a in zip(memory[i], add)]
    read_weights = [head.address(memory, weights) for head, weights in zip(readers, read_weights)]
    reads = [
        [sum(weights[i] * memory[i][m] for i in range(len(memory))) for m in range(size)] for weights in read_weights
    ]
    return memory, read_weights, write_weights, reads


@pytest.mark.parametrize("initial_memory", ["constant", "learned", "zero"])
@pytest.mark.parametrize(("reads", "writes", "width"), [(1, 1, 3), (READS, WRITES, 5), (3, 1, 1), (1, 2, 9)])
def test_the_paper_in_loops(initial_memory, reads, writes, width):
    changes = {"num_read_heads": reads, "num_write_heads": writes, "shift_width": width}
    module = made(initial_memory=initial_memory, **changes)
    sequence = inputs(B, 4, D) * 2
    state = module.initial_state(B)
    rows = [[part[b].tolist() for part in state[:3]] for b in range(B)]
    for step in range(4):
        output, state = module(sequence[:, step], state)
        for b in range(B):
            *rows[b], read = paper_step(module, sequence[b, step].tolist(), *rows[b])
            expected = [*rows[b], read]
            for ours, paper in zip(state, expected):
                assert torch.allclose(ours[b], torch.tensor(paper, dtype=torch.float64), rtol=0, atol=1e-10)
            assert output[b].tolist() == state.reads[b].flatten().tolist()


def test_shapes_and_start():
    module = made()
    output, state = module(inputs(B, D))
    assert output.shape == (B, READS * M)
    shapes = [part.shape for part in state]
    assert shapes == [(B, N, M), (B, READS, N), (B, WRITES, N), (B, READS, M)]
    start = module.initial_state(B)
    assert [part.shape for part in start] == shapes
    assert start.read_weights[..., 0].eq(1).all()
    assert start.write_weights.sum(-1).eq(1).all()
    again, _ = module(inputs(B, D), start)
    assert torch.equal(output, again)


@pytest.mark.parametrize(("initial_memory", "value"), [("constant", 1e-6), ("zero", 0.0)])
def test_the_initial_memory(initial_memory, value):
    assert made(initial_memory=initial_memory).initial_state(2).memory.eq(value).all()


def test_the_initial_memory_can_be_learned():
    module = made(initial_memory="learned")
    assert module.initial_state(2).memory[1].equal(module.first_memory)
    module(inputs(B, D))[0].sum().backward()
    assert module.first_memory.grad.abs().sum() > 0


def test_the_reads_are_always_what_the_weights_read():
    module = made(initial_memory="learned")
    state = module.initial_state(B)
    for step in range(3):
        assert torch.allclose(state.reads, state.read_weights @ state.memory)
        _, state = module(inputs(B, D, seed=step), state)
    assert torch.allclose(state.reads, state.read_weights @ state.memory)


def test_the_order_of_writing_heads_does_not_matter():
    module = made(num_write_heads=2)
    swapped = made(num_write_heads=2)
    swapped.load_state_dict(module.state_dict())
    place, content = M + 5 + 3, 2 * M
    heads = list(range(swapped.commands.out_features))
    first_content = (2 + READS) * place
    order = heads[place : 2 * place] + heads[:place] + heads[2 * place : first_content]
    order += heads[first_content + content :] + heads[first_content : first_content + content]
    with torch.no_grad():
        swapped.commands.weight.copy_(module.commands.weight[order])
        swapped.commands.bias.copy_(module.commands.bias[order])
    state = other = None
    for step in range(3):
        _, state = module(inputs(B, D, seed=step), state)
        _, other = swapped(inputs(B, D, seed=step), other)
    assert torch.allclose(state.memory, other.memory)
    assert torch.allclose(state.write_weights, other.write_weights.flip(1))


def test_rows_of_a_batch_do_not_meet():
    module = made()
    sequence = inputs(B, 3, D)
    state, alone = None, None
    for step in range(3):
        together, state = module(sequence[:, step], state)
        single, alone = module(sequence[1:2, step], alone)
    assert torch.allclose(together[1:2], single)


def test_a_state_is_reordered_by_one_tree_map():
    module = made()
    sequence = inputs(B, 2, D)
    _, state = module(sequence[:, 0])
    order = torch.tensor([2, 0, 0, 1])
    reordered = tree_map(lambda part: part[order], state)
    assert isinstance(reordered, MemoryState)
    output, _ = module(sequence[order, 1], reordered)
    assert torch.allclose(output, module(sequence[:, 1], state)[0][order])


def test_a_step_changes_neither_the_module_nor_the_old_state():
    module = made()
    before = dict(vars(module))
    _, state = module(inputs(B, D))
    kept = tree_map(torch.clone, state)
    module(inputs(B, D, seed=1), state)
    assert vars(module) == before
    assert all(torch.equal(now, then) for now, then in zip(state, kept))


@pytest.mark.parametrize("initial_memory", ["zero", "learned"])
@pytest.mark.parametrize("writes", [1, 2])
def test_gradients(initial_memory, writes):
    module = made(num_slots=3, slot_dim=2, num_read_heads=2, num_write_heads=writes, initial_memory=initial_memory)

    def two_steps(first: Tensor, second: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        names = dict(zip(dict(module.named_parameters()), parameters))
        _, state = torch.func.functional_call(module, names, (first,))
        output, state = torch.func.functional_call(module, names, (second, state))
        return output, state.memory, state.write_weights

    arguments = [inputs(2, D).requires_grad_(), inputs(2, D, seed=1).requires_grad_(), *module.parameters()]
    assert torch.autograd.gradcheck(two_steps, arguments, fast_mode=True)


@pytest.mark.slow
@pytest.mark.parametrize("initial_memory", ["zero", "constant"])
def test_finite_through_thousands_of_steps(initial_memory):
    module = made(torch.float32, initial_memory=initial_memory, num_write_heads=2)
    sequence = inputs(3000, B, D, dtype=torch.float32)
    sequence[1::3] *= 50
    sequence[2::7] = 0
    state = None
    with torch.no_grad():
        for step in range(3000):
            output, state = module(sequence[step], state)
            assert output.isfinite().all()
            for weights in (state.read_weights, state.write_weights):
                assert weights.min() >= 0
                assert (weights.sum(-1) - 1).abs().max() < 1e-5
    assert all(part.isfinite().all() for part in state)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.0, 1.0, 5.0, 50.0])
def test_gradients_are_finite_through_hundreds_of_steps(scale):
    module = made(torch.float32, initial_memory="zero")
    sequence = (inputs(300, B, D, dtype=torch.float32) * scale).requires_grad_()
    state, outputs = None, []
    for step in range(300):
        output, state = module(sequence[step], state)
        outputs.append(output)
    torch.stack(outputs).square().sum().backward()
    assert sequence.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())


def test_the_first_gradient_from_an_empty_memory_is_small():
    for initial_memory in ("zero", "constant"):
        module = made(torch.float32, initial_memory=initial_memory)
        state = None
        for step in range(3):
            output, state = module(inputs(B, D, dtype=torch.float32, seed=step), state)
        output.sum().backward()
        assert 0 < module.commands.weight.grad.abs().max() < 10


def test_bfloat16_autocast_and_an_empty_batch():
    module = made(torch.bfloat16)
    state = None
    for step in range(3):
        output, state = module(inputs(B, D, dtype=torch.bfloat16, seed=step), state)
    assert output.dtype == torch.bfloat16
    assert all(part.isfinite().all() for part in state)
    assert (state.read_weights.float().sum(-1) - 1).abs().max() < 0.02

    module, state = made(torch.float32), None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for step in range(3):
            output, state = module(inputs(B, D, dtype=torch.float32, seed=step), state)
    output.float().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())

    output, state = module(torch.empty(0, D))
    output, state = module(torch.empty(0, D), state)
    assert output.shape == (0, READS * M)
    assert state.memory.shape == (0, N, M)


@pytest.mark.parametrize("initial_memory", ["constant", "learned", "zero"])
def test_everything_is_made_where_the_parameters_are(initial_memory):
    module = made(initial_memory=initial_memory)
    with torch.device("meta"):  # a tensor made without a device would be here, and its use with the others an error
        start = module.initial_state(B)
        output, state = module(inputs(B, D), start)
    for part in (output, *start, *state):
        assert part.device.type == "cpu"
        assert part.dtype == torch.float64


@pytest.mark.slow
@pytest.mark.parametrize("writes", [1, 2])
def test_a_step_is_one_graph(writes):
    """With gradients, in a backend that needs no C++ compiler."""
    torch.compiler.reset()
    module = made(torch.float32, num_write_heads=writes)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    state = expected_state = module.initial_state(B)
    for step in range(2):
        output, state = compiled(inputs(B, D, dtype=torch.float32, seed=step), state)
        expected, expected_state = module(inputs(B, D, dtype=torch.float32, seed=step), expected_state)
    assert torch.allclose(output, expected, atol=1e-5)
    got = torch.autograd.grad(output.sum(), module.commands.weight)[0]
    assert torch.allclose(got, torch.autograd.grad(expected.sum(), module.commands.weight)[0], atol=1e-4)


@pytest.mark.slow
def test_a_compiled_step():
    torch.compiler.reset()
    module = made(torch.float32)
    compiled = torch.compile(module, fullgraph=True)
    with torch.no_grad():
        _, state = module(inputs(B, D, dtype=torch.float32))
        got = compiled(inputs(B, D, dtype=torch.float32, seed=1), state)
        expected = module(inputs(B, D, dtype=torch.float32, seed=1), state)
    assert torch.allclose(got[0], expected[0], atol=1e-5)
    assert all(torch.allclose(ours, plain, atol=1e-5) for ours, plain in zip(got[1], expected[1]))


def test_wrong_shapes_and_options_are_named():
    module = made()
    state = module.initial_state(B)
    for call, said in (
        (lambda: module(inputs(B, 2, D)), ["input", "(3, 2, 11)", "(batch, 11)"]),
        (lambda: module(inputs(B, 13)), ["input", "(3, 13)", "(batch, 11)"]),
        (lambda: module(inputs(2, D), state), ["state.memory", "(3, 7, 5)", "(2, 7, 5)", "initial_state(2)"]),
        (lambda: module(inputs(B, D), state._replace(memory=inputs(B, M, N))), ["state.memory", "(3, 5, 7)"]),
        (
            lambda: module(inputs(B, D), state._replace(read_weights=state.write_weights)),
            ["state.read_weights", "(3, 3, 7)", "(3, 2, 7)"],
        ),
        (
            lambda: module(inputs(B, D), state._replace(write_weights=state.read_weights)),
            ["state.write_weights", "(3, 2, 7)", "(3, 3, 7)"],
        ),
    ):
        with pytest.raises(ShapeError) as caught:
            call()
        assert all(part in str(caught.value) for part in ["NeuralTuringMemory", *said]), caught.value
    for changes, said in (
        ({"shift_width": 4}, "shift_width is 4"),
        ({"shift_width": -1}, "shift_width is -1"),
        ({"num_slots": 0}, "num_slots is 0"),
        ({"num_write_heads": 0}, "num_write_heads is 0"),
    ):
        with pytest.raises(ConfigError, match=said):
            made(**changes)
    with pytest.raises(UnknownNameError, match="constant"):
        made(initial_memory="constnat")


@pytest.mark.parametrize("state", [torch.zeros(2, 13, 7), (1, 2), "state"], ids=["tensor", "tuple", "text"])
def test_a_state_of_another_mechanism_is_refused(state):
    with pytest.raises(ConfigError, match=f"state is a {type(state).__name__}, expected a foci.MemoryState"):
        NeuralTuringMemory(5)(torch.randn(2, 5), state)
