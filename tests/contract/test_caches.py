"""Caches of multi-head attention: with every option, steps with each form of cache equal the whole text at once."""

import pytest
import torch
from cases import arguments, cases, make
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.export import Dim, export

from foci import masks
from foci.errors import ConfigError, ShapeError

LENGTH, ROOM, WINDOW = 7, 11, (3, 0)
CHUNKS = (3, 1, 1, 2)
ORDER = torch.tensor([2, 0, 0])
"""Which rows are continued after the first half."""

FORMS = {"growing": {}, "preallocated": {"max_length": ROOM}, "sliding": {"sliding": True}}
OPTIONS = [case for case in cases("attend") if case.partition("/")[0] == "multi_head"]


def causal(case, form, dtype=torch.float64):
    """Causal self-attention with the options of this case; a sliding cache needs a window."""
    options = {"causal": True, "key_dim": arguments(case)["model_dim"]}
    if form == "sliding" and "window" not in arguments(case):
        options["window"] = WINDOW
    return make(case, dtype, **options)


def chunks(begin=0):
    for size in CHUNKS:
        yield begin, begin + size
        begin += size


def columns(form, table, end):
    """The keys of a mask or bias over the whole text that a step with this cache takes."""
    if table.shape[-1] == 1:
        return table
    if form == "preallocated":
        return nn.functional.pad(table, (0, ROOM - LENGTH), value=1)  # of slots that hold nothing
    return table[..., :end]


def compare(form, read, want, begin, end):
    torch.testing.assert_close(read.output, want.output[:, begin:end])
    weights, expected = read.weights.dense(), want.weights.dense()[..., begin:end, :end]
    if form == "preallocated":
        assert (weights[..., end:] == 0).all()
    if form == "sliding":  # what it dropped was out of reach, and it has slots before the first position
        slots = weights.shape[-1]
        assert (expected[..., :-slots] == 0).all()
        expected = nn.functional.pad(expected, (max(0, slots - end), 0))[..., -slots:]
    else:
        weights = weights[..., :end]
    torch.testing.assert_close(weights, expected)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", OPTIONS)
def test_steps_with_reordered_rows_equal_the_whole_text(case, form, gradients):
    module = causal(case, form)
    x = torch.randn(3, LENGTH, module.model_dim, dtype=torch.float64)
    valid = torch.arange(LENGTH) >= torch.tensor([[0], [2], [4]])  # padded on the left, as for generation
    mask = masks.keys(valid) & (torch.rand(1, LENGTH, LENGTH) > 0.2)
    bias = torch.randn(3, module.num_heads, LENGTH, LENGTH, dtype=torch.float64)
    with torch.set_grad_enabled(gradients):
        state = module.empty_cache(3, **FORMS[form])
        for begin, end in chunks():
            want = module(x, x, mask=mask, bias=bias)
            if begin == 4:
                x, mask, bias, state = x[ORDER], mask[ORDER], bias[ORDER], state.select(ORDER)
                want = module(x, x, mask=mask, bias=bias)
            new = x[:, begin:end]
            read = module(
                new,
                new,
                mask=columns(form, mask[:, begin:end], end),
                bias=columns(form, bias[:, :, begin:end], end),
                state=state,
            )
            state = read.state
            compare(form, read, want, begin, end)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_through_a_cache_are_those_of_the_whole_text(form):
    module = causal("multi_head/modern", form)
    x = torch.randn(2, LENGTH, module.model_dim, dtype=torch.float64)
    leaves = list(module.parameters())
    expected = torch.autograd.grad(module(x, x).output.square().sum(), leaves)
    state, total = module.empty_cache(2, **FORMS[form]), torch.zeros((), dtype=torch.float64)
    for begin, end in chunks():
        output, _, state = module(x[:, begin:end], x[:, begin:end], state=state)
        total = total + output.square().sum()
    torch.testing.assert_close(torch.autograd.grad(total, leaves), expected)


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_sizes_of_a_cache(form):
    module = causal("multi_head/grouped", form)
    x, state = torch.randn(2, LENGTH, 12, dtype=torch.float64), module.empty_cache(2, **FORMS[form])
    for begin, end in chunks():
        state = module(x[:, begin:end], x[:, begin:end], state=state).state
        slots = {"growing": end, "preallocated": ROOM, "sliding": WINDOW[0]}[form]
        assert state.key.shape == state.value.shape == (2, 3, slots, 2)


@torch.no_grad()
def test_what_does_not_fit_a_cache_is_an_error():
    module, x = causal("multi_head/rotary", "sliding"), torch.randn(2, 3, 12, dtype=torch.float64)
    state = module.empty_cache(2, ROOM)
    for size in (3, 3, 3, 2):
        state = module(x[:, :size], x[:, :size], state=state).state
    with pytest.raises(ShapeError, match="11 of 11 slots are in use, expected room for 3 more"):
        module(x, x, state=state)
    state = module.empty_cache(2, ROOM)
    module(x, x, state=state)
    with pytest.raises(ShapeError, match="was continued before"):
        module(x, x, state=state)
    state = module(x, x, state=module.empty_cache(2, sliding=True)).state
    for given in ({"mask": masks.keys(torch.ones(2, 4, dtype=torch.bool))}, {"bias": torch.zeros(1, 1, 1, 4)}):
        with pytest.raises(ShapeError, match=f"{next(iter(given))} has 4 keys, expected 6: the 3 positions so far"):
            module(x, x, state=state, **given)
    with pytest.raises(ConfigError, match="expected a window"):
        causal("multi_head", "growing").empty_cache(2, sliding=True)


class Step(nn.Module):
    """A step with a cache as a module: its state is an input and an output."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, x, state, mask=None):
        output, weights, state = self.attention(x, x, mask=mask, state=state)
        return output, weights.dense(), state


EXPORTED = ["rotary_yarn", "modern", "alibi", "t5", "shaw", "transformer_xl", "sparsemax"]
"""Those that go different ways."""


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("option", EXPORTED)
@torch.no_grad()
def test_an_exported_step_takes_every_length(option, form):
    module = Step(causal(f"multi_head/{option}", form, torch.float32)).eval()
    x = torch.randn(2, LENGTH + 1, module.attention.model_dim)
    want = module.attention(x, x)
    state = module.attention.empty_cache(2, **FORMS[form])
    for _ in range(2):
        state = module.attention(x[:, :2], x[:, :2], state=state).state
    sizes = {2: Dim.AUTO} if form == "growing" else None  # those of the others do not change
    shapes = type(state)(*(sizes for _ in state))
    program = export(module, (x[:, :1], state), dynamic_shapes=(None, shapes)).module()
    state = module.attention(x[:, :2], x[:, :2], state=module.attention.empty_cache(2, **FORMS[form])).state
    for place in range(2, LENGTH + 1):
        output, _, state = program(x[:, place : place + 1], state)
        torch.testing.assert_close(output, want.output[:, place : place + 1], atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("option", "masked"),
    [("rotary_yarn", False), ("modern", False), ("modern", True), ("alibi", False), ("shaw", False)],
)
@pytest.mark.filterwarnings("error:Dynamo detected")
@torch.no_grad()
def test_three_graphs_serve_all_lengths(option, form, masked):
    """Of the sizes here few are equal to another one: torch takes equal sizes for one size.

    A growing cache begins with 0 positions, and then has 1 where the prompt has, which torch compiles for themselves.
    """
    torch._dynamo.reset()
    module = Step(causal(f"multi_head/{option}", form, torch.float32)).eval()
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend=counter)
    valid = torch.arange(ROOM + 2) >= torch.tensor([[0], [3], [1], [2], [0]])  # masks are views of it at every step
    for prompt in (7, 8, 9) if form == "growing" else (7, 1, 9):
        x = torch.randn(5, ROOM, module.attention.model_dim)
        want = module.attention(x, x, mask=masks.keys(valid[:, :ROOM]) if masked else None)
        state = module.attention.empty_cache(5, **FORMS[form])
        for begin, end in [(0, prompt), *((place, place + 1) for place in range(prompt, ROOM))]:
            mask = masks.keys(valid[:, : ROOM if form == "preallocated" else end]) if masked else None
            output, _, state = compiled(x[:, begin:end], state, mask)
            torch.testing.assert_close(output, want.output[:, begin:end], atol=1e-5, rtol=1e-5)
    assert counter.frame_count <= 3
