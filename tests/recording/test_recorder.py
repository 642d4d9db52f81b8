"""Blocks: several on one model, inside of a forward, of a part of a model; a model copied in a block is clean."""

from __future__ import annotations

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from recorded import Decoder, L, Layers, S
from torch import Tensor, nn

from foci.mechanisms.heads.multi_head import MultiHeadAttention
from foci.recording import Recording, record


@pytest.mark.filterwarnings("ignore:record. No attention was recorded")
def test_a_model_copied_or_saved_in_the_block_is_clean():
    model, query, key = Decoder(MultiHeadAttention(6, 2)), torch.randn(2, L, 6), torch.randn(2, S, 6)
    with record(model) as tape:
        twin = copy.deepcopy(model)
        torch.save(model, io.BytesIO())
        twin(query, key)
    assert len(tape) == 0
    assert vars(twin.attention).keys() == vars(model.attention).keys()
    with torch.no_grad():
        twin.attention.query_layer.weight.zero_()
    assert not torch.equal(twin(query, key), model(query, key))


def test_two_tapes_at_once():
    model, x = nn.Sequential(Layers(), Layers()), torch.randn(2, S, 5)
    with record(model) as whole, record(model[1]) as part:
        model(x)
    assert len(whole) == 6
    assert list(part) == ["calls.0", "calls.1", "calls.2"]
    assert part["calls.1"] is whole["1.calls.1"]
    first, second = record(model), record(model)
    one = first.__enter__()
    two = second.__enter__()
    model(x)
    first.__exit__(None, None, None)  # not the last to come
    model(x)
    second.__exit__(None, None, None)
    model(x)
    assert (len(one), len(two)) == (6, 12)


def test_a_block_inside_forward():
    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Layers()

        def forward(self, x: Tensor) -> Recording:
            with record(self) as tape:
                self.inner(x)
            return tape

    model = Looks()
    with record(model) as outer:
        inner = model(torch.randn(2, S, 5))
    assert list(inner) == list(outer) == [f"inner.calls.{n}" for n in range(3)]
    assert list(Looks()(torch.randn(2, S, 5))) == list(inner)


@pytest.mark.filterwarnings("ignore:record. No attention was recorded")
def test_attention_outside_the_model_is_not_recorded():
    model, other, x = Layers(), Layers(), torch.randn(2, S, 5)
    with record(model) as tape:
        F.scaled_dot_product_attention(x, x, x)
        other(x)
    assert len(tape) == 0
