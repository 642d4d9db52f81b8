"""foci's own mechanisms on the tape, called or read."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from cases import any_inputs, make, tensors
from recorded import D, Decoder, L, Layers, Reader, S, close, randn
from torch import Tensor, nn

from foci.catalog import MECHANISMS
from foci.mechanisms.attention import Attention
from foci.mechanisms.heads.multi_head import MultiHeadAttention
from foci.outputs import AttentionOutput, PairOutput
from foci.recording import record
from foci.weights import Weights


class TwiceReader(Reader):
    def read(self, query: Tensor, memory: Tensor, state: Tensor | None = None) -> AttentionOutput:
        output, weights, state = super().read(2 * query, memory, state)
        return AttentionOutput(output, Weights.from_tensor(weights.dense()), state)


def test_a_read_that_calls_the_read_it_overrides_is_recorded_once():
    model = nn.ModuleList([Reader(), TwiceReader(), Reader()])
    with record(model) as tape:
        assert not hasattr(Reader.read.__wrapped__, "__wrapped__")
        output = model[1](randn(2, L, D), randn(2, S, D))
    assert list(tape) == ["1"]
    assert tape["1"] is output.weights


@pytest.mark.parametrize("mechanism", [Reader, TwiceReader])
def test_a_mechanism_is_recorded_once_whether_called_or_read(mechanism):
    model, query, key = mechanism(), randn(2, L, D), randn(2, S, D)
    with record(model) as tape:
        called = model(query, key)
        read = model.read(query, model.prepare(key))
    assert list(tape) == [".", ".#1"]
    assert torch.equal(tape["."].dense(), called.weights.dense())
    assert torch.equal(tape[".#1"].dense(), read.weights.dense())
    with record(model) as tape:
        pass
    assert model(query, key).weights not in tape.values()


def test_reads_of_a_decoder_are_numbered():
    for attention in (Reader(), Attention(5, 5, score="additive").double(), MultiHeadAttention(5, 5).double()):
        model, query, key = Decoder(attention), randn(2, L, D), randn(2, S, D)
        want = model(query, key)
        with record(model) as tape:
            got = model(query, key)
        assert torch.equal(got, want)
        assert list(tape) == ["attention", "attention#1", "attention#2"]
        for step, weights in enumerate(tape.calls("attention")):
            whole = attention(query, key).weights.dense()
            assert close(weights.dense(), whole[..., step : step + 1, :])


WITHIN = {"hierarchical": ["word_pool", "sentence_pool", "."], "cbam": ["channel", "spatial", "."]}


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_row_of_the_catalog(name):
    module, inputs = make(name), any_inputs(name)
    want = tensors(module(*inputs))
    with record(module) as tape:
        result = module(*inputs)
    assert all(torch.equal(got, wanted) for got, wanted in zip(tensors(result), want))
    if MECHANISMS[name].family == "memory":
        assert list(tape) == [".:read", ".:write"]
        assert torch.equal(tape[":read"].dense(), result[1].read_weights)
        assert torch.equal(tape[":write"].dense(), result[1].write_weights)
    else:
        further = [f".:{side}" for side in ("left", "right", "reverse") if getattr(result, side, None) is not None]
        assert list(tape) == WITHIN.get(name, ["."]) + further
        assert torch.equal(tape["."].dense(), result.weights.dense())


def test_mechanisms_within_a_mechanism_are_all_recorded():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.sentences = Reader(), Reader()

        def forward(self, x: Tensor) -> AttentionOutput:
            words = self.words(x, x).output
            F.scaled_dot_product_attention(x, x, x)
            return self.sentences(words, words)

    model = Two()
    with record(model) as tape:
        output = model(randn(2, S, D))
    assert list(tape) == ["words", "sentences", "."]
    assert tape["."] is output.weights


def test_a_model_that_returns_a_mechanisms_result_keeps_the_layers_below():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = Layers()
            self.pool = Reader()

        def forward(self, x: Tensor) -> AttentionOutput:
            x = self.encoder(x)
            return self.pool(x[:, :1], x)

    model = Model()
    with record(model) as tape:
        model(torch.randn(2, S, 5))
    assert list(tape) == [f"encoder.calls.{n}" for n in range(3)] + ["pool", "."]


def test_pairs_and_memories():
    class State(NamedTuple):
        memory: Tensor
        read_weights: Tensor
        write_weights: Tensor

    class Pair(nn.Module):
        def forward(self, x: Tensor) -> PairOutput:
            return PairOutput(x, Weights.from_tensor(x), left=Weights.from_tensor(x[0]))

    class Memory(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, State]:
            return x, State(x, x + 1, x + 2)

    model = nn.ModuleDict({"pair": Pair(), "memory": Memory()})
    x = randn(2, 3)
    with record(model) as tape:
        model["pair"](x)
        model["memory"](x)
        model["memory"](x + 5)
    assert list(tape) == [
        "pair", "pair:left", "memory:read", "memory:write", "memory:read#1", "memory:write#1",
    ]  # fmt: skip
    assert torch.equal(tape["memory:read", 1].dense(), x + 6)
    assert torch.equal(tape["memory:write"].dense(), x + 2)
    with record(model["memory"]) as tape:
        model["memory"](x)
    assert list(tape) == [".:read", ".:write"]
    assert tape[":read"] is tape[".:read"]
