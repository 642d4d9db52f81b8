"""The kernel that takes a whole step of a Transformer's decoder, against the modules in double precision."""

from copy import deepcopy

import pytest
import torch
from active_kernel import skip_unless_active
from torch import nn

from foci.decoding.selection import select
from foci.functional.kernels import decoder_step as kernel
from foci.layers.incremental import compiled_steps
from foci.layers.incremental.quantized_linear import QuantizedLinear
from foci.layers.interfaces import EncoderOutput
from foci.models.decoders.transformer import TransformerDecoder
from foci.models.options.decoders import TransformerDecoderOptions

VOCABULARY, SOURCE_DIM = 71, 13


@pytest.fixture(autouse=True)
def active():
    skip_unless_active(kernel)
    torch.manual_seed(3)


def make(source_dim=None, model_dim=14, num_heads=2, hidden_dim=37, positions="sinusoidal", logit_cap=None, **block):
    sizes = {"model_dim": model_dim, "num_heads": num_heads, "hidden_dim": hidden_dim, "num_layers": 2}
    options = {"positions": positions, "max_length": 40 if positions == "learned" else None, "tie_output": False}
    options = TransformerDecoderOptions(**sizes, **options, logit_cap=logit_cap, **block)
    decoder = TransformerDecoder(VOCABULARY, source_dim, options).eval()
    for parameter in decoder.parameters():  # biases and gains too, which begin as zeros and ones
        nn.init.normal_(parameter, mean=0.1 if parameter.dim() == 1 else 0.0, std=0.6 * model_dim**-0.5)
    return decoder


def encoded(sources, length=11):
    """Sources of several lengths, one without any cell."""
    valid = torch.arange(length) < torch.tensor([[length], [3], [0], [5]]).repeat(sources, 1)[:sources]
    return EncoderOutput(torch.randn(sources, length, SOURCE_DIM), valid, None)


def in_double(source):
    return None if source is None else source._replace(values=source.values.double())


@torch.no_grad()
def steps_alike(decoder, source, rows, *, width=3, count=19):
    """Take steps in both ways, with more hypotheses from the third on, which are reordered; return the memory."""
    plain = deepcopy(decoder).double()
    memory, state = decoder.start(source, rows)
    other_memory, other = plain.start(in_double(source), rows)
    other_memory = other_memory._replace(steps=None)
    for t in range(count):
        token = torch.randint(4, VOCABULARY, (state.rows,))
        found, expected = decoder.step(token, memory, state), plain.step(token, other_memory, other)
        torch.testing.assert_close(found.logits.double(), expected.logits, atol=2e-5, rtol=1e-4)
        if source is not None:
            weights = found.attention.dense(), expected.attention.dense()
            torch.testing.assert_close(weights[0].double(), weights[1], atol=1e-5, rtol=1e-4)
        state, other = found.state, expected.state
        if t >= 2:
            each = 1 if t == 2 else width
            index = torch.randint(0, each, (rows, width)) + each * torch.arange(rows).unsqueeze(1)
            state, other = select(state, index.flatten()), select(other, index.flatten())
    assert memory.steps.form == "compiled"
    return memory


OPTIONS = {
    "post-norm": {},
    "pre-norm and GELU": {"norm": "pre", "activation": "gelu"},
    "squared ReLU, RMSNorm, no biases": {"norm": "pre", "activation": "relu2", "rms_norm": True, "bias": False},
    "learned positions": {"positions": "learned"},
    "rotary positions, norms of query and key": {"positions": "rotary", "qk_norm": True, "model_dim": 24},
    "ALiBi": {"positions": "alibi", "num_heads": 7},
    "a window": {"window": (4, 0)},
    "a window and ALiBi": {"window": (4, 0), "positions": "alibi"},
    "bounded logits": {"logit_cap": 1.5, "norm": "pre"},
    "heads of whole vectors": {"model_dim": 96, "num_heads": 3, "hidden_dim": 67},
    "heads of seven vectors": {"model_dim": 112, "num_heads": 1, "hidden_dim": 64},
    "one feature per head": {"model_dim": 3, "num_heads": 3, "hidden_dim": 1},
}


@pytest.mark.parametrize("with_source", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_every_option(name, with_source):
    decoder = make(SOURCE_DIM if with_source else None, **OPTIONS[name])
    steps_alike(decoder, encoded(5) if with_source else None, 5)


@pytest.mark.parametrize("rows", [*range(1, 15), 23, 61])
def test_every_number_of_rows(rows):
    steps_alike(make(), None, rows, width=1, count=5)


@torch.no_grad()
def trace(decoder, source, rows, tokens):
    memory, state = decoder.start(source, rows)
    logits = []
    for token in tokens:
        found = decoder.step(token, memory, state)
        logits.append(found.logits)
        state = found.state
    assert memory.steps.form == "compiled"
    return torch.stack(logits[1:])  # the first is the modules'


def test_a_row_is_the_same_alone_and_among_others():
    decoder, source, tokens = make(SOURCE_DIM, norm="pre"), encoded(7), torch.randint(4, VOCABULARY, (9, 7))
    # The source is projected, and the first step taken, by torch, whose products may differ with the number of rows.
    together = trace(decoder, source, 7, tokens)
    for row in range(7):
        one = slice(row, row + 1)
        alone = trace(decoder, EncoderOutput(source.values[one], source.valid[one], None), 1, tokens[:, one])
        torch.testing.assert_close(alone[:, 0], together[:, row], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_threads_change_nothing():
    decoder = make(SOURCE_DIM, model_dim=96, num_heads=3, hidden_dim=512, norm="pre")
    tokens, before = torch.randint(4, VOCABULARY, (4, 13)), torch.get_num_threads()
    memory, state = decoder.start(encoded(13), 13)
    state = decoder.step(tokens[0], memory, state).state  # by the modules
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            now = state
            for token in tokens[1:]:
                logits, now, _ = decoder.step(token, memory, now)
            found.append(logits)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


@torch.no_grad()
def test_numbers_that_are_not_finite_stay_in_their_row():
    decoder = make(norm="pre", activation="gelu")
    tokens = torch.randint(5, VOCABULARY, (7, 3))
    expected = trace(decoder, None, 3, tokens)
    decoder.embedding.table.weight[4] = torch.nan
    tokens[3, 1] = 4
    found = trace(decoder, None, 3, tokens)
    torch.testing.assert_close(found[:, [0, 2]], expected[:, [0, 2]], atol=0, rtol=0)
    assert found[:2, 1].isfinite().all()
    assert found[2:, 1].isnan().all()


@torch.no_grad()
def test_a_state_continued_in_two_ways():
    decoder = make()
    memory, state = decoder.start(None, 2)
    tokens = torch.randint(4, VOCABULARY, (4, 2))
    for t in range(2):
        state = decoder.step(tokens[t], memory, state).state
    one = decoder.step(tokens[2], memory, state).state
    decoder.step(tokens[3], memory, state)  # must leave what `one` has kept alone
    found = decoder.step(tokens[3], memory, one).logits
    expected = decoder(None, tokens.t()).logits[:, -1]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_gelu_over_its_whole_range():
    """The inner layer's biases are the numbers, the outer layer returns them one by one, and all else is 0."""
    numbers = torch.cat([torch.linspace(-15, 15, 301), torch.tensor([0.0, 1e-30, -1e-30, 1e4, -1e4])])
    count = len(numbers)
    weights = [torch.zeros(3, 1), torch.zeros(1, 1), torch.zeros(count, 1), torch.ones(1, count), torch.ones(1, 1)]
    found = []
    for number in range(count):
        weights[3] = torch.eye(count)[number : number + 1]
        packed = [kernel.packed(weight, numbers if weight.shape[0] == count else None) for weight in weights]
        project, join, inner, outer, output = (product for product, _ in packed)
        cells = torch.zeros(2, 1)
        past = (cells[0].data_ptr(), cells[1].data_ptr(), 1, None, None)
        norm, nothing = kernel.Norm(None, None, 1, 1e-5), kernel.Product()
        layers = (kernel.Layer * 1)(
            kernel.Layer(norm, norm, norm, project, join, nothing, nothing, inner, outer, *past)
        )
        sizes = {"layers": 1, "sources": 1, "hypotheses": 1, "heads": 1, "size": 1, "cells": 1, "norm_first": 1}
        step = kernel.Step(**sizes, activation=kernel.ACTIVATIONS["gelu"], unit_epsilon=-1.0, output=output, threads=1)
        found.append(kernel.run(step, layers, torch.zeros(1, 1), count)[0].squeeze())
    exact = numbers.double() * 0.5 * torch.special.erfc(-numbers.double() / 2**0.5)  # 1 + erf would cancel
    torch.testing.assert_close(torch.stack(found).double(), exact, rtol=1e-5, atol=1e-18)


@pytest.mark.parametrize("change", ["quantized", "double", "many rows"])
@torch.no_grad()
def test_what_the_kernel_does_not_have_is_computed_by_torch(change, monkeypatch):
    decoder = make()
    if change == "quantized":
        decoder.output = QuantizedLinear(decoder.output).eval()
    elif change == "double":
        decoder.double()
    else:
        monkeypatch.setattr(compiled_steps, "MOST_ROWS", 2)
    memory, state = decoder.start(None, 3)
    for token in torch.randint(4, VOCABULARY, (3, 3)):
        state = decoder.step(token, memory, state).state
    assert memory.steps.form == "torch"


@torch.no_grad()
def test_a_search_takes_the_weights_of_its_beginning():
    decoder, tokens = make(), torch.randint(4, VOCABULARY, (4, 3))
    before = trace(decoder, None, 3, tokens)
    decoder.output.weight.mul_(2.0)
    torch.testing.assert_close(trace(decoder, None, 3, tokens), 2 * before)
