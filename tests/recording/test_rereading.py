"""Edits of foci's own mechanisms: every row of the catalog that attends, whole and step by step, and foci.attend."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import foci
from foci import catalog
from foci.mechanisms.sampled import SampledAttention
from foci.recording import edit, record

B, L, S = 2, 5, 5
ROWS = [
    (name, variant)
    for name, row in catalog.MECHANISMS.items()
    if row.family == "attend"
    for variant in (None, *row.variants)
]


class Model(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, *args: Any, **options: Any) -> Any:
        return self.attention(*args, **options)


def built(name: str, variant: str | None) -> tuple[Model, Tensor, Tensor]:
    row = catalog.card(name)
    options = row.arguments(variant)
    model = Model(row.builder(**options)).double().eval()
    query = torch.randn(B, L, options.get("query_dim", options.get("model_dim")), dtype=torch.float64)
    size = options.get("key_dim", options.get("model_dim"))
    return model, query, torch.randn(B, S, size, dtype=torch.float64)


def padded() -> Tensor:
    mask = torch.ones(B, L, S, dtype=torch.bool)
    mask[0, :, -1] = False
    return mask


@pytest.mark.parametrize(("name", "variant"), [row for row in ROWS if row[1] != "scale_by_length"])
def test_every_mechanism_that_attends(name, variant):
    """A blocked edge is a masked position, uniform is over what was open, and without a change the bits are the same.

    A multi-step attention whose output is scaled by the number of positions is left out: that number is the mask's.
    """
    model, query, key = built(name, variant)
    mask = padded()
    base, closed = model(query, key, key, mask), mask.clone()
    closed[:, 2, 1] = False
    want = model(query, key, key, closed)
    with edit(model) as e:
        e.block("attention", 2, 1)
        got = model(query, key, key, mask)
    assert torch.allclose(got.output, want.output, atol=1e-12)
    assert torch.allclose(got.weights.dense(), want.weights.dense(), atol=1e-12)

    with edit(model) as e:
        e.uniform("*")
        got = model(query, key, key, mask).weights.dense()
    opened = got != 0.0
    assert not (opened & ~(mask if got.dim() == 3 else mask.unsqueeze(1))).any()
    assert torch.allclose(got, opened.double() / opened.sum(dim=-1, keepdim=True).clamp_min(1))
    assert bool((base.weights.dense() != 0.0).logical_and(~opened).sum() == 0) or variant == "median_window"

    with edit(model) as e:
        e.scale("attention", None, 1.0)
        assert torch.equal(model(query, key, key, mask).output, base.output)


@pytest.mark.parametrize("name", ["general", "location_aware", "local_p", "multi_head", "multi_step", "hard"])
def test_what_is_knocked_out_reads_zero(name):
    model, query, key = built(name, None)
    with edit(model) as e:
        e.knock_out("attention")
        output, weights, _ = model(query, key)
    bias = model.attention.output_layer.bias if name == "multi_head" else 0.0
    assert torch.allclose(output, torch.zeros_like(output) + bias)
    assert not weights.dense().any()


@pytest.mark.parametrize("variant", ["shaw", "gate", "sink", "grouped", "modern"])
def test_a_head_that_is_knocked_out_is_zero_before_the_projection(variant):
    model, query, key = built("multi_head", variant)
    with edit(model) as e:
        e.knock_out("attention", 1)
        got = model(query, key).output
    size = model.attention.output_layer.in_features // model.attention.num_heads
    with torch.no_grad():
        model.attention.output_layer.weight[:, size : 2 * size] = 0.0
    assert torch.allclose(got, model(query, key).output, atol=1e-12)


@pytest.mark.parametrize(("name", "variant"), [("location_aware", None), ("additive", "median_window")])
def test_steps_go_on_from_edited_weights(name, variant):
    """All queries at once, or each in a call of its own: what is remembered is what was read."""
    model, query, key = built(name, variant)
    with edit(model) as e:
        e.block("attention", None, 2)
        e.scale("attention", None, 0.5)
        whole = model(query, key)
    with edit(model) as e:
        e.block("attention", None, 2)
        e.scale("attention", None, 0.5)
        state, steps = None, []
        for row in range(L):
            steps.append(model(query[:, row : row + 1], key, state=state))
            state = steps[-1].state
    assert torch.allclose(whole.output, torch.cat([step.output for step in steps], dim=1), atol=1e-12)
    assert torch.allclose(whole.state, state)


def test_a_decoder_is_edited_step_by_step():
    attention = foci.build("additive", query_dim=3, key_dim=5, hidden_dim=7).double()

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, query: Tensor, key: Tensor) -> list[Tensor]:
            memory = self.attention.prepare(key)
            return [self.attention.read(query[:, t : t + 1], memory).output for t in range(query.shape[1])]

    model = Decoder()
    query, key = torch.randn(B, L, 3, dtype=torch.float64), torch.randn(B, S, 5, dtype=torch.float64)
    want = model(query, key)
    with edit(model) as e, record(model) as tape:
        e.uniform("attention", call=[1, 3])
        got = model(query, key)
    mean = key.mean(dim=1, keepdim=True)
    for step in range(L):
        assert torch.allclose(got[step], mean if step in (1, 3) else want[step])
    assert len(tape.calls("attention")) == L
    assert torch.allclose(tape["attention", 3].dense(), torch.full((B, 1, S), 1 / S, dtype=torch.float64))


@pytest.mark.parametrize("normalize", ["softmax", "sparsemax"])
def test_attend_in_a_model(normalize):
    class Reader(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return foci.attend(x, x, x, mask, causal=True, normalize=normalize).output

    model, x, mask = Reader(), torch.randn(B, L, 7, dtype=torch.float64), padded()
    closed = mask.clone()
    closed[:, 3, 1] = False
    with edit(model) as e, record(model) as tape:
        e.block("", 3, 1)
        got = model(x, mask)
    assert torch.allclose(got, model(x, closed))
    assert len(tape) == 1
    assert not tape["."].dense()[:, 3, 1].any()


def test_a_pool_is_edited():
    pool = Model(foci.build("pool", value_dim=5, hidden_dim=7).double())
    value, valid = torch.randn(B, S, 5, dtype=torch.float64), foci.masks.lengths(torch.tensor([3, 5]), S)
    closed = valid.clone()
    closed[:, 1] = False
    want = pool(value, closed)
    with edit(pool) as e:
        e.block("attention", keys=1)
        got = pool(value, valid)
    assert torch.allclose(got.output, want.output)
    assert got.weights.shape == (B, S)
    assert torch.allclose(got.weights.dense(), want.weights.dense())


@pytest.mark.parametrize("name", ["attention_over_attention", "word_by_word"])
def test_a_blocked_word_of_a_pair_is_a_masked_word(name):
    """For all words of the right side: the mask of attention over attention also closes the other direction."""
    model = Model(catalog.card(name).builder(**catalog.card(name).arguments()).double())
    left, right = torch.randn(B, 7, 5, dtype=torch.float64), torch.randn(B, 3, 5, dtype=torch.float64)
    valid, heard = foci.masks.lengths(torch.tensor([7, 4]), 7), foci.masks.lengths(torch.tensor([3, 2]), 3)
    closed = valid.clone()
    closed[:, 1] = False
    want = model(left, right, closed, heard)
    with edit(model) as e, record(model) as tape:
        e.block("attention", keys=1)
        got = model(left, right, valid, heard)
    assert torch.allclose(got.weights.dense(), want.weights.dense())
    assert torch.equal(tape["attention"].dense(), got.weights.dense())
    if name == "word_by_word":
        assert torch.allclose(got.output, want.output)
    else:
        share = got.right.dense().unsqueeze(1) @ got.weights.dense()
        assert torch.allclose(got.left.dense(), share.squeeze(1))


def test_zeroed_values_are_forgotten_word_by_word():
    """What is remembered of the premise is what was read of it: with all values zeroed, nothing."""
    model = Model(foci.build("word_by_word", model_dim=5).double())
    left, right = torch.randn(B, 7, 5, dtype=torch.float64), torch.randn(B, 3, 5, dtype=torch.float64)
    with edit(model) as e:
        e.zero_values("attention", None)
        got = model(left, right).output
    last = torch.tanh(
        model.attention.from_memory(torch.zeros(B, 5).double()) + model.attention.from_right(right[:, -1])
    )
    assert torch.allclose(got, last)


def test_the_levels_of_a_hierarchy_are_edited_apart():
    pool = Model(foci.build("hierarchical", value_dim=5, hidden_dim=7).double())
    value = torch.randn(B, 3, 4, 5, dtype=torch.float64)
    with edit(pool) as e:
        e.uniform("attention.word_pool")
        e.uniform("attention.sentence_pool")
        output, weights, _ = pool(value)
    assert torch.allclose(output, value.mean(dim=(1, 2)))
    assert torch.allclose(weights.dense(), torch.full((B, 12), 1 / 12, dtype=torch.float64))


def test_an_attention_that_samples_is_edited_before_it_samples():
    attention = SampledAttention(3, 5, score="general").double().eval()
    query, key = torch.randn(B, L, 3, dtype=torch.float64), torch.randn(B, S, 5, dtype=torch.float64)
    model = Model(attention)
    best = model(query, key).weights.argmax()
    with edit(model) as e:
        e.weights("attention", lambda weights: weights.square())
        assert torch.equal(model(query, key).weights.argmax(), best)
    with edit(model) as e:
        e.block("attention", keys=[0, 1, 2, 3])
        weights = model(query, key).weights
    assert torch.equal(weights.argmax(), torch.full((B, L), 4))
