"""Attention that is put together from its pieces, read position by position."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from foci.recording import record
from foci.recording.joined import Joined, Pieces
from foci.recording.written_out import Softmax
from foci.weights import Weights

B, H, L, S, K = 2, 3, 5, 5, 7


def loops(weights: Tensor, values: list[Tensor], chosen: Tensor) -> Tensor:
    found = torch.zeros(B, L, H * K, dtype=torch.float64)
    for b in range(B):
        for i in range(L):
            for h in range(H):
                part, of = slice(h * K, (h + 1) * K), values[0 if chosen[b, i] else -1]
                found[b, i, part] = sum(weights[b, h, i, j] * of[b, j, part] for j in range(S))
    return found


def test_chosen_queries_read_values_of_their_own():
    weights = torch.rand(B, H, L, S, dtype=torch.float64)
    values = [torch.randn(B, S, H * K, dtype=torch.float64) for _ in range(2)]
    chosen, kept = torch.rand(B, L) > 0.5, torch.rand(1, 1, 1, S, dtype=torch.float64)
    opened = torch.rand(B, 1, L, S) > 0.3
    joined = Joined(Weights.from_tensor(weights), lambda: opened, lambda: values, chosen=chosen)
    assert torch.allclose(joined.read_with(weights, None), loops(weights, values, chosen))
    assert torch.allclose(joined.read_with(weights, kept), loops(weights * kept, values, chosen))
    alone = Joined(joined.weights, lambda: opened, lambda: values[:1])
    assert torch.allclose(alone.read_with(weights, None), loops(weights, values[:1], chosen))
    call = joined.attended("path")
    assert torch.equal(call.open, opened.expand(B, H, L, S))
    assert torch.equal(call.weights, weights)


def test_weights_are_dropped_out_as_they_are_read():
    weights, values = torch.ones(B, H, L, S), torch.ones(B, S, H * K)
    read = Joined(Weights.from_tensor(weights), lambda: weights > 0, lambda: [values], 0.5).read_with(weights, None)
    assert set(read.unique().tolist()) <= {2.0 * count for count in range(S + 1)}
    assert len(read.unique()) > 1


def test_what_is_joined_was_read():
    softmax = Softmax(frozenset(), is_partly_read=True)
    Pieces(lambda module, pieces: None, [(softmax, torch.ones(1))]).are_read()
    assert softmax.was_read
    assert not softmax.is_partly_read


@pytest.mark.parametrize(
    "marker",
    ["one_sided_attn_window_size", "bigbird_block_sparse_attention", "compute_local_attention_representations"],
)
def test_a_module_of_another_form_is_recorded_as_any_other(marker):
    """Its class has the name that a family is known by, and its softmaxes are not those of the family."""

    class Other(nn.Module):
        def forward(self, *args: Tensor) -> Tensor:
            return (args[0] @ args[0].mT).softmax(dim=-1) @ args[0]

    setattr(Other, marker, 2 if "size" in marker else lambda self: None)
    model, x = Other(), torch.randn(B, L, K)
    with record(model) as tape:
        model(x)
    assert torch.equal(tape["."].dense(), (x @ x.mT).softmax(dim=-1))
