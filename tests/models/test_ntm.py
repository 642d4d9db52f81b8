"""The Neural Turing Machine and its baseline: the paper's equations as loops, states in parts, shapes and gradients."""

import math

import pytest
import torch

from foci.errors import ConfigError, ShapeError, UnknownNameError
from foci.mechanisms.memory.ntm import MemoryState
from foci.models.ntm import MachineState, NeuralTuringMachine, RecurrentBaseline
from foci.models.options.memory import MEMORY_MODEL_PRESETS, NTMOptions, RecurrentBaselineOptions

B, T, IN, OUT = 2, 5, 3, 7


PRESETS, BASELINE_PRESETS = MEMORY_MODEL_PRESETS["ntm"], MEMORY_MODEL_PRESETS["lstm"]


def baseline():
    return RecurrentBaseline(IN, OUT, RecurrentBaselineOptions(hidden_dim=4)).double()


def make(controller="lstm", **options):
    sizes = {"hidden_dim": 4, "num_slots": 11, "slot_dim": 5, "num_read_heads": 2, "num_write_heads": 3}
    torch.manual_seed(1)
    return NeuralTuringMachine(IN, OUT, NTMOptions(controller=controller, **{**sizes, **options})).double()


def inputs(batch=B, time=T):
    return torch.randn(batch, time, IN, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def numbers(weight, bias, vector):
    """A linear layer by loops."""
    return [sum(w * x for w, x in zip(row, vector)) + b for row, b in zip(weight.tolist(), bias.tolist(), strict=True)]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def softplus(x):
    return math.log1p(math.exp(x))


def softmax(values):
    powers = [math.exp(value) for value in values]
    return [power / sum(powers) for power in powers]


def length_of(vector):
    return max(math.sqrt(sum(x * x for x in vector)), 0.01)


def address(commands, memory, previous, width):
    """Eqs. 5-9 for one head."""
    size, slots = len(memory[0]), len(memory)
    key = [math.tanh(x) for x in commands[:size]]
    kernel = softmax(commands[size : size + width])
    strength, gate, gamma = commands[size + width :]
    cosines = [sum(a * b for a, b in zip(key, slot)) / (length_of(key) * length_of(slot)) for slot in memory]
    content = softmax([softplus(strength) * cosine for cosine in cosines])
    gated = [sigmoid(gate) * c + (1 - sigmoid(gate)) * p for c, p in zip(content, previous)]
    moved = [
        sum(gated[(i - j) % slots] * kernel[j + width // 2] for j in range(-(width // 2), width // 2 + 1))
        for i in range(slots)
    ]
    sharp = [weight ** (1 + softplus(gamma)) for weight in moved]
    return [weight / sum(sharp) for weight in sharp]


def by_loops(machine, sequence):
    """Logits, read weights and write weights of one sequence, step by step and head by head."""
    memory_module = machine.memory
    readers, writers = memory_module.num_read_heads, memory_module.num_write_heads
    slots, size, width = memory_module.num_slots, memory_module.slot_dim, memory_module.shift_width
    place = size + width + 3
    if memory_module.initial_memory == "learned":
        memory = memory_module.first_memory.tolist()
    else:
        memory = [[1e-6] * size for _ in range(slots)]
    read_at = [[1.0] + [0.0] * (slots - 1) for _ in range(readers)]
    write_at = [[1.0] + [0.0] * (slots - 1) for _ in range(writers)]
    reads = list(memory[0]) * readers
    hidden, cell = [0.0] * machine.hidden_dim, [0.0] * machine.hidden_dim
    logits, all_reads, all_writes = [], [], []
    for step in sequence.tolist():
        if isinstance(machine.controller, torch.nn.LSTMCell):
            lstm = machine.controller
            one = numbers(lstm.weight_ih, lstm.bias_ih, step + reads)
            two = numbers(lstm.weight_hh, lstm.bias_hh, hidden)
            gates = [a + b for a, b in zip(one, two)]
            n = machine.hidden_dim
            for i in range(n):
                cell[i] = sigmoid(gates[n + i]) * cell[i] + sigmoid(gates[i]) * math.tanh(gates[2 * n + i])
            hidden = [sigmoid(gates[3 * n + i]) * math.tanh(cell[i]) for i in range(n)]
        else:
            hidden = [math.tanh(x) for x in numbers(machine.controller.weight, machine.controller.bias, step + reads)]
        commands = numbers(memory_module.commands.weight, memory_module.commands.bias, hidden)
        where = [commands[h * place : (h + 1) * place] for h in range(writers + readers)]
        what = commands[(writers + readers) * place :]
        write_at = [address(where[h], memory, write_at[h], width) for h in range(writers)]
        new = []
        for i in range(slots):
            row = []
            for m in range(size):
                kept, added = memory[i][m], 0.0
                for h in range(writers):
                    erase, add = what[h * 2 * size + m], what[h * 2 * size + size + m]
                    kept *= 1 - write_at[h][i] * sigmoid(erase)
                    added += write_at[h][i] * math.tanh(add)
                row.append(kept + added)
            new.append(row)
        memory = new
        read_at = [address(where[writers + h], memory, read_at[h], width) for h in range(readers)]
        reads = [sum(read_at[h][i] * memory[i][m] for i in range(slots)) for h in range(readers) for m in range(size)]
        logits.append(numbers(machine.output.weight, machine.output.bias, hidden + reads))
        all_reads.append(read_at)
        all_writes.append(write_at)
    return tuple(torch.tensor(found, dtype=torch.float64) for found in (logits, all_reads, all_writes))


@pytest.mark.parametrize("controller", ["lstm", "feed_forward"])
@pytest.mark.parametrize("options", [{}, {"initial_memory": "learned", "shift_width": 5, "num_read_heads": 1}])
def test_the_papers_equations(controller, options):
    machine, sequences = make(controller, **options), inputs()
    logits, attentions, _ = machine(sequences)
    for row in range(B):
        wanted, reads, writes = by_loops(machine, sequences[row])
        torch.testing.assert_close(logits[row], wanted)
        torch.testing.assert_close(attentions["read"].dense()[row], reads.transpose(0, 1))
        torch.testing.assert_close(attentions["write"].dense()[row], writes.transpose(0, 1))


@pytest.mark.parametrize("model", [make(), make("feed_forward"), baseline()])
def test_a_sequence_in_two_parts_gives_what_it_gives_in_one(model):
    sequences = inputs()
    whole = model(sequences)
    first = model(sequences[:, :2])
    second = model(sequences[:, 2:], first.state)
    torch.testing.assert_close(torch.cat([first.logits, second.logits], dim=1), whole.logits)
    for name, weights in whole.attentions.items():
        parts = [part.attentions[name].dense() for part in (first, second)]
        torch.testing.assert_close(torch.cat(parts, dim=2), weights.dense())
    torch.testing.assert_close(second.state, whole.state)
    assert not torch.allclose(model(sequences[:, 2:]).logits, second.logits)


@pytest.mark.parametrize("model", [make(), make("feed_forward"), baseline()])
def test_rows_do_not_touch_each_other_and_the_future_not_the_past(model):
    sequences = inputs()
    logits = model(sequences).logits
    torch.testing.assert_close(model(sequences[1:]).logits, logits[1:])
    changed = sequences.clone()
    changed[:, 3] += 1
    torch.testing.assert_close(model(changed).logits[:, :3], logits[:, :3])
    assert not torch.allclose(model(changed).logits[:, 3], logits[:, 3])


@pytest.mark.parametrize(("batch", "time"), [(0, T), (B, 0), (0, 0)])
@pytest.mark.parametrize("model", [make(), baseline()])
def test_nothing_in_nothing_out(model, batch, time):
    logits, attentions, state = model(inputs(batch, time))
    assert logits.shape == (batch, time, OUT)
    for name, heads in (("read", 2), ("write", 3)):
        if name in attentions:
            assert attentions[name].shape == (batch, heads, time, 11)
    assert model(inputs(batch, 2), state).logits.shape == (batch, 2, OUT)


@pytest.mark.parametrize("controller", ["lstm", "feed_forward"])
def test_gradients(controller):
    machine = make(controller, num_slots=3, slot_dim=2, hidden_dim=2, num_write_heads=1, initial_memory="learned")
    sequences = inputs(1, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, *_: machine(x).logits, (sequences, *machine.parameters()))
    machine(inputs(1, 3)).logits.sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in machine.parameters())


def test_a_long_constant_sequence_stays_finite():
    machine = make(num_read_heads=1, num_write_heads=1).float()
    for parameter in machine.parameters():
        parameter.data.mul_(30)  # strengths, gates and gammas far out
    logits, attentions, _ = machine(torch.ones(1, 150, IN))
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in machine.parameters())
    torch.testing.assert_close(attentions["write"].dense().sum(-1), torch.ones(1, 1, 150))


@pytest.mark.parametrize("controller", ["lstm", "feed_forward"])
def test_the_gradient_that_a_step_hands_back_is_bounded(controller):
    bound, steps = 0.01, inputs(time=2)
    machine = make(controller, gradient_bound=bound, initial_memory="learned")

    def gradients():
        found = [parameter.grad.clone() for parameter in machine.parameters()]
        machine.zero_grad()
        return found

    machine(steps).logits.sum().backward()
    together = gradients()
    first = machine(steps[:, :1])
    reached = (*first.state.memory, *first.state.controller)
    parts = [tensor.detach().requires_grad_() for tensor in reached]
    machine(steps[:, 1:], MachineState(MemoryState(*parts[:4]), tuple(parts[4:]))).logits.sum().backward()
    handed = [part.grad for part in parts]
    assert max(grad.abs().max() for grad in handed) > bound
    cut = [grad.clamp(-bound, bound) for grad in handed]
    torch.autograd.backward([first.logits.sum(), *reached], [None, *cut])
    torch.testing.assert_close(gradients(), together)
    free = make(controller, gradient_bound=None, initial_memory="learned")
    assert torch.equal(free(steps).logits, machine(steps).logits)
    machine.eval()(steps).logits.sum().backward()  # which leaves the gradient whole
    whole = gradients()
    free(steps).logits.sum().backward()
    torch.testing.assert_close(whole, [parameter.grad for parameter in free.parameters()])


def test_half_precision():
    assert make().bfloat16()(inputs().bfloat16()).logits.dtype == torch.bfloat16


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name):
    assert NeuralTuringMachine(IN, OUT, NTMOptions(**PRESETS[name]))(torch.zeros(1, 1, IN)).logits.shape == (1, 1, OUT)


def test_the_feed_forward_preset_has_the_tight_bound():
    bounds = {
        name: NeuralTuringMachine(IN, OUT, NTMOptions(**PRESETS[name])).gradient_bound
        for name in ("base", "feed_forward")
    }
    assert bounds == {"base": 1e4, "feed_forward": 10.0}


@pytest.mark.parametrize("name", BASELINE_PRESETS)
def test_baseline_presets(name):
    assert RecurrentBaseline(IN, OUT, RecurrentBaselineOptions(**BASELINE_PRESETS[name]))(
        torch.zeros(1, 1, IN)
    ).logits.shape == (1, 1, OUT)


def test_wrong_shapes_are_named():
    machine = make()
    with pytest.raises(ShapeError, match=r"NeuralTuringMachine: inputs has shape \(2, 5, 4\), expected .*time, 3\)"):
        machine(torch.zeros(2, 5, 4))
    with pytest.raises(ShapeError, match=r"RecurrentBaseline: inputs has shape \(5, 3\), expected"):
        RecurrentBaseline(IN, OUT, RecurrentBaselineOptions())(torch.zeros(5, 3))
    with pytest.raises(
        ShapeError, match=r"reads has shape \(3, 2, 5\), expected \(2, 2, 5\)\. Start from initial_state"
    ):
        machine(inputs(), machine.initial_state(3))
    state = machine.initial_state(B)
    with pytest.raises(ShapeError, match=r"state\.controller\[1\] has shape \(2, 5\), expected \(2, 4\)"):
        machine(inputs(), state._replace(controller=(state.controller[0], torch.zeros(B, 5))))
    with pytest.raises(ShapeError, match=r"state\.controller has 0 tensors, expected 2"):
        machine(inputs(), make("feed_forward").initial_state(B))
    with pytest.raises(UnknownNameError, match="Did you mean 'lstm'"):
        make("lstn")
    with pytest.raises(ConfigError, match="hidden_dim is 0"):
        make(hidden_dim=0)


@pytest.mark.slow
@pytest.mark.parametrize("controller", ["lstm", "feed_forward"])
def test_compiles_as_one_graph(controller):
    machine, sequences = make(controller), inputs(time=3)
    compiled = torch.compile(lambda x: machine(x).logits, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(sequences), machine(sequences).logits)
