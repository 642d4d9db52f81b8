"""The compiled step of the Neural Turing Machine's memory against the plain one in float64: values and gradients."""

from unittest import mock

import pytest
import torch
from active_kernel import WrongLibrary, skip_unless_active
from hypothesis import given, settings
from hypothesis import strategies as st

from foci.errors import ShapeError
from foci.functional import addressing
from foci.functional.kernels import ntm as kernel
from foci.functional.kernels import status
from foci.mechanisms.memory import MemoryState, NeuralTuringMemory

NAMES = ("memory", "read weights", "write weights", "reads")


def numbers_for(slots, size, readers, writers, width):
    return (readers + writers) * (size + width + 3) + 2 * writers * size


def made(batch=2, slots=7, size=5, readers=1, writers=1, width=3, seed=0, scale=1.0):
    """Arguments of a step: commands, memory, read weights and write weights."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    commands = scale * drawn(batch, numbers_for(slots, size, readers, writers, width))
    weights = [torch.softmax(2 * drawn(batch, heads, slots), dim=-1) for heads in (readers, writers)]
    return [commands, drawn(batch, slots, size), *weights]


def everything(step, arguments, width, wanted=(0, 1, 2, 3)):
    """All results of a step, and the gradients of all arguments from each of these results and from all of them."""
    leaves = [part.detach().clone().requires_grad_() for part in arguments]
    results = step(*leaves, width)
    found = dict(zip(NAMES, results))
    for chosen in [[one] for one in wanted] + [list(wanted)]:
        directions = [torch.linspace(-1, 2, results[n].numel(), dtype=results[n].dtype) for n in chosen]
        losses = [(results[n].flatten() * direction).sum() for n, direction in zip(chosen, directions)]
        gradients = torch.autograd.grad(
            sum(losses), leaves, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        for name, gradient in zip(("commands", *NAMES[:3]), gradients):
            found[f"{[NAMES[n] for n in chosen]} to {name}"] = gradient
    return found


def agree(arguments, width, tolerance=1e-5):
    """The kernel in both dtypes equals the plain path in float64, on the very same numbers."""
    for dtype, room in ((torch.float32, tolerance), (torch.float64, 1e-11)):
        narrow = [part.to(dtype) for part in arguments]
        have = everything(kernel.step, narrow, width)
        want = everything(addressing.step, [part.double() for part in narrow], width)
        for name, expected in want.items():
            scale = max(1.0, expected.abs().max().item()) if expected.numel() else 1.0
            torch.testing.assert_close(
                have[name].double(), expected, rtol=0, atol=room * scale, msg=lambda m, n=name: f"{n}: {m}"
            )


def test_it_is_listed():
    assert "ntm" in [one.name for one in status()]


@settings(max_examples=25, derandomize=True)
@given(
    batch=st.integers(0, 3),
    slots=st.sampled_from([1, 2, 3, 7, 8, 9, 17, 31, 64, 71]),
    size=st.sampled_from([1, 2, 5, 8, 13]),
    readers=st.integers(1, 3),
    writers=st.integers(1, 4),
    width=st.sampled_from([1, 3, 5, 9, 15]),
    seed=st.integers(0, 999),
)
def test_equals_the_plain_path(batch, slots, size, readers, writers, width, seed):
    skip_unless_active(kernel)
    agree(made(batch, slots, size, readers, writers, width, seed), width)


@pytest.mark.parametrize("width", [1, 3, 7, 9, 11, 31])
def test_shifts_wider_than_the_memory_go_around(active, width):
    agree(made(2, 4, 3, 2, 1, width), width)


@pytest.mark.parametrize("writers", [1, 2, 3])
def test_empty_cells(active, writers):
    commands, memory, *weights = made(3, 19, 4, 2, writers, 3)
    # A shut gate leaves the heads where they were: on one cell, on two, and nowhere.
    place = 4 + 3 + 3
    commands[:, 4 + 3 + 1 : (2 + writers) * place : place] = -1000.0
    for part in weights:
        part.zero_()
        part[0, :, 0] = 1.0
        part[1, :, 18] = part[1, :, 9] = 0.5
    memory[0] = 0
    memory[1, 5:] = 1e-6
    agree([commands, memory, *weights], 3)
    for dtype in (torch.float32, torch.float64):
        _, read_weights, write_weights, reads = kernel.step(*(x.to(dtype) for x in (commands, memory, *weights)), 3)
        for found in (read_weights, write_weights):
            assert (found > 0).sum(-1).tolist() == [[3] * found.shape[1], [6] * found.shape[1], [0] * found.shape[1]]
        assert (reads[2] == 0).all()


def test_shares_too_small_to_be_normal_numbers(active):
    commands, memory, *_ = made(1, 8, 3, 1, 1, 3)
    commands[:, [7, 16]] = -1000.0  # the gates
    tiny = torch.tensor([1e-39, 3e-40, 0.0, 0.0, 5e-40, 1e-39, 1e-41, 0.0]).view(1, 1, 8)
    narrow = [commands.float(), memory.float(), tiny, tiny]
    for have, want in zip(kernel.step(*narrow, 3), addressing.step(*(part.double() for part in narrow), 3)):
        torch.testing.assert_close(have.double(), want, rtol=0, atol=1e-5)


def test_full_erasure_by_several_heads_at_one_cell(active):
    """Where two heads erase everything a product divided by its factor would be 0 / 0."""
    commands, memory, *weights = made(1, 6, 2, 1, 3, 1)
    place, contents = 2 + 1 + 3, 4 * (2 + 1 + 3)
    commands[:, 2 + 1 + 1 : contents : place] = -1000.0
    for head in range(2):
        commands[:, contents + 4 * head : contents + 4 * head + 2] = 1000.0
    weights[1][:] = torch.eye(6, dtype=torch.float64)[2]
    agree([commands, memory, *weights], 1)


@pytest.mark.parametrize("scale", [5.0, 30.0, 300.0])
def test_wild_commands(active, scale):
    # Sharpening multiplies what float32 rounds by gamma.
    agree(made(2, 13, 4, 2, 2, 3, scale=scale), 3, tolerance=1e-5 * scale)


def test_nan_stays_in_its_row(active):
    arguments = made(3, 9, 4, 1, 1, 3)
    clean = kernel.step(*arguments, 3)
    arguments[1][1, 2, 3] = torch.nan
    spoilt, plain = kernel.step(*arguments, 3), addressing.step(*arguments, 3)
    for before, after, expected in zip(clean, spoilt, plain):
        assert torch.equal(before[[0, 2]], after[[0, 2]])
        assert torch.equal(after[1].isnan(), expected[1].isnan())


def test_gradcheck(active):
    arguments = [part.requires_grad_() for part in made(2, 5, 3, 2, 3, 3)]
    assert torch.autograd.gradcheck(lambda *parts: kernel.step(*parts, 3), arguments)


def test_gradcheck_of_vectors_shorter_than_the_floor(active):
    commands, memory, *weights = made(1, 5, 3, 1, 1, 3)
    commands[:, :3] *= 1e-3
    memory[:, :3] *= 1e-3
    arguments = [part.requires_grad_() for part in (commands, memory, *weights)]
    assert torch.autograd.gradcheck(lambda *parts: kernel.step(*parts, 3), arguments)


@pytest.mark.parametrize("initial_memory", ["constant", "learned", "zero"])
def test_a_sequence_of_steps(active, initial_memory):
    torch.manual_seed(0)
    module = NeuralTuringMemory(
        6, num_slots=11, slot_dim=4, num_read_heads=2, num_write_heads=2, initial_memory=initial_memory
    ).double()
    inputs = torch.randn(9, 3, 6, dtype=torch.float64)

    def run():
        state, outputs = None, []
        for step in inputs:
            output, state = module(step, state)
            outputs.append(output)
        loss = torch.stack(outputs).square().sum()
        return [*outputs, *state, *torch.autograd.grad(loss, list(module.parameters()))]

    have = run()
    with kernel._KERNEL.off():
        want = run()
    for one, other in zip(have, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


# --- how it is called


def test_a_training_step_keeps_arguments_and_results_alone(active):
    arguments = made(2, 31, 5, 2, 2, 3)
    arguments[0].requires_grad_()
    kept = {}

    def keep(tensor):
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        results = kernel.step(*arguments, 3)
    assert sum(kept.values()) == sum(part.numel() for part in (*arguments, *results[:3]))


def test_only_wanted_gradients_are_given(active):
    for wanted in range(4):
        arguments = made(2, 9, 4, 2, 1, 3)
        arguments[wanted].requires_grad_()
        results = kernel.step(*arguments, 3)
        (have,) = torch.autograd.grad(results[0].sum() + results[3].square().sum(), arguments[wanted])
        results = addressing.step(*arguments, 3)
        (want,) = torch.autograd.grad(results[0].sum() + results[3].square().sum(), arguments[wanted])
        torch.testing.assert_close(have, want)


def test_no_gradient_is_as_good_as_zeros(active):
    arguments = [part.requires_grad_() for part in made()]
    for result in kernel.step(*arguments, 3):
        undefined = torch._C._functions.UndefinedGrad()(result)
        found = torch.autograd.grad(undefined.sum(), arguments, allow_unused=True, retain_graph=True)
        assert all(gradient is None for gradient in found)


def test_any_layout_in_memory(active):
    commands, memory, *weights = made(3, 7, 5, 2, 2, 3)
    scattered = [
        commands.mT.contiguous().mT,
        memory.permute(2, 0, 1).contiguous().permute(1, 2, 0),
        *(part.repeat_interleave(2, dim=-1)[..., ::2] for part in weights),
    ]
    have, want = everything(kernel.step, scattered, 3), everything(kernel.step, [commands, memory, *weights], 3)
    for name in want:
        assert torch.equal(have[name], want[name]), name


def test_threads_change_nothing(active):
    arguments = [part.float() for part in made(7, 130, 37, 2, 2, 3)]
    one = everything(kernel.step, arguments, 3)
    try:
        torch.set_num_threads(2)
        two = everything(kernel.step, arguments, 3)
    finally:
        torch.set_num_threads(1)
    for name in one:
        assert torch.equal(one[name], two[name]), name


def test_other_dtypes_take_the_plain_path(active):
    commands, *state = (part.bfloat16() for part in made())
    with mock.patch.object(kernel, "_call", side_effect=AssertionError):
        for have, want in zip(kernel.step(commands, *state, 3), addressing.step(commands, *state, 3)):
            assert torch.equal(have, want)
        state = [part.float() for part in state]
        with torch.autocast("cpu", dtype=torch.bfloat16):  # whose linear layers give bfloat16
            for have, want in zip(kernel.step(commands, *state, 3), addressing.step(commands, *state, 3)):
                assert torch.equal(have, want)


def test_bad_operands_are_refused(active):
    commands, memory, read_weights, write_weights = made()
    for bad, message in [
        ((commands[:, :-1], memory, read_weights, write_weights), r"commands has shape \(2, 31\).*\(2, 32\)"),
        ((commands, memory, read_weights[:1], write_weights), r"read_weights \(1, 1, 7\)"),
        ((commands, memory, read_weights, write_weights[..., :-1]), r"write_weights \(2, 1, 6\)"),
    ]:
        with pytest.raises(ShapeError, match=message):
            torch.ops.foci.ntm_step(*bad, 3)
    arguments = (commands, memory, read_weights, write_weights)
    memory, *weights, reads = kernel.step(*arguments, 3)
    with pytest.raises(ShapeError, match=r"shape \(2, 1, 4\), expected \(2, 1, 5\)"):
        torch.ops.foci.ntm_step_backward(None, None, None, reads[..., :4], *arguments, 3, memory, *weights)
    with pytest.raises(ShapeError, match=r"shape \(2, 7, 4\), expected \(2, 7, 5\)"):
        torch.ops.foci.ntm_step_backward(None, None, None, reads, *arguments, 3, memory[..., :4], *weights)


def test_transforms_see_the_plain_path(active):
    arguments = made(3)
    rows = torch.func.vmap(lambda *parts: [x[0] for x in kernel.step(*(part.unsqueeze(0) for part in parts), 3)])
    for have, want in zip(rows(*arguments), kernel.step(*arguments, 3)):
        torch.testing.assert_close(have, want)
    commands, *state = arguments
    have = torch.func.grad(lambda x: kernel.step(x, *state, 3)[3].square().sum())(commands)
    leaf = commands.clone().requires_grad_()
    (want,) = torch.autograd.grad(kernel.step(leaf, *state, 3)[3].square().sum(), leaf)
    torch.testing.assert_close(have, want)
    _, slope = torch.func.jvp(lambda x: kernel.step(x, *state, 3)[3].square().sum(), (commands,), (commands,))
    torch.testing.assert_close(slope, (want * commands).sum())


def test_gradients_of_gradients(active):
    def second(step):
        leaves = [part.requires_grad_() for part in made(2, 4, 3, 1, 2, 3)]
        results = step(*leaves, 3)
        first = torch.autograd.grad(sum(x.square().sum() for x in results), leaves, create_graph=True)
        return torch.autograd.grad(sum((x**3).sum() for x in first), leaves)

    for have, want in zip(second(kernel.step), second(addressing.step)):
        torch.testing.assert_close(have, want)
    # The commands alone may be what is trained.
    commands, *state = made()
    commands.requires_grad_()
    (gradient,) = torch.autograd.grad(kernel.step(commands, *state, 3)[3].sum(), commands, create_graph=True)
    assert torch.autograd.grad(gradient.square().sum(), commands)[0].isfinite().all()


def test_the_operator_is_sound(active):
    arguments = [part.requires_grad_() for part in made(2, 5, 3, 2, 2, 3)]
    torch.library.opcheck(
        torch.ops.foci.ntm_step.default, (*arguments, 3), test_utils=["test_schema", "test_faketensor"]
    )
    operator = everything(torch.ops.foci.ntm_step, arguments, 3)
    eager = everything(kernel.step, arguments, 3)
    for name in eager:
        assert torch.equal(operator[name], eager[name]), name


# --- without the kernel


def test_without_the_kernel_the_plain_path_runs(missing):
    arguments = made(3, 7, 5, 2, 2, 5)
    have, want = everything(kernel.step, arguments, 5), everything(addressing.step, arguments, 5)
    for name in want:
        assert torch.equal(have[name], want[name]), name


def test_the_operator_works_without_the_kernel(missing):
    arguments = made(3, 7, 5, 2, 2, 5)
    have, want = everything(torch.ops.foci.ntm_step, arguments, 5), everything(addressing.step, arguments, 5)
    for name in want:
        torch.testing.assert_close(have[name], want[name])


def test_a_wrong_library_is_found_out(active):
    library = kernel._KERNEL.library
    assert kernel._self_check(library)

    def wrong(name):  # takes the reading heads' weights for the writing heads'
        return WrongLibrary(library, f"foci_ntm_{name}", 2)

    assert kernel._self_check(wrong("nothing"))
    for name in ("forward_float32", "backward_float32", "forward_float64", "backward_float64"):
        assert not kernel._self_check(wrong(name)), name


# --- tracers


@pytest.mark.slow
@torch._inductor.config.patch(force_disable_caches=True)  # a cached graph keeps the operators of its day
def test_compile_and_export_see_one_operator(active):
    torch.compiler.reset()
    torch.manual_seed(0)
    module = NeuralTuringMemory(6, num_slots=11, slot_dim=4, num_read_heads=2, num_write_heads=2)
    inputs = torch.randn(2, 3, 6, requires_grad=True)

    def two_steps(inputs):
        _, state = module(inputs[0])
        return module(inputs[1], state)

    compiled = torch.compile(two_steps, fullgraph=True)
    have, want = compiled(inputs), two_steps(inputs)
    torch.testing.assert_close(have, want)
    weight = module.commands.weight
    for one, other in zip(*(torch.autograd.grad(x[0].square().sum(), (inputs, weight)) for x in (have, want))):
        torch.testing.assert_close(one, other)

    state = module.initial_state(3)
    batch = torch.export.Dim("batch", min=2, max=64)
    axes = ({0: batch}, MemoryState(*({0: batch} for _ in state)))
    program = torch.export.export(module, (inputs[0].detach(), state), dynamic_shapes=axes)
    assert sum("foci.ntm_step" in str(node.target) for node in program.graph.nodes) == 1
    rows = torch.randn(5, 6)
    torch.testing.assert_close(program.module()(rows, module.initial_state(5)), module(rows))
