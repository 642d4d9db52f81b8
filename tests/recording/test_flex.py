"""The weights of `flex_attention`, against its scores written out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from recorded import close
from torch import Tensor, nn

from foci.recording import record

B, H, S, K = 2, 3, 7, 11


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*flex_attention called without")
def test_flex_attention_with_functions_of_scores_and_masks():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    bias = torch.randn(H)

    class Flexible(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Any:
            return flex_attention(q, k, v, lambda s, b, h, i, j: s * 0.5 + bias[h] * (i - j), mask, enable_gqa=True)

    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, S, S, device="cpu", BLOCK_SIZE=S)
    q, k = torch.randn(B, 2 * H, S, K), torch.randn(B, H, S, K)
    bias = torch.randn(2 * H)
    model = Flexible()
    want = model(q, k, k)
    with record(model) as tape:
        got = model(q, k, k)
    assert torch.equal(got, want)
    scores = q @ k.repeat_interleave(2, dim=1).mT / K**0.5 * 0.5
    places = torch.arange(S)
    scores = scores + bias[:, None, None] * (places[:, None] - places)
    weights = scores.masked_fill(places[:, None] < places, -torch.inf).softmax(-1)
    handle = tape["."]
    assert close(handle.dense(), weights)
    assert close(handle.rows([1, 4]), weights[..., [1, 4], :])
    assert close(handle.heads(3).rows(2), weights[:, 3, 2])
    assert close(handle[1, 2:4], weights[1, 2:4])
    assert close(handle.topk(2)[0], weights.topk(2)[0])
