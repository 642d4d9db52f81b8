"""The public API in one page."""

import torch

import foci
from foci import masks


def test_tour():
    batch, queries, keys = 2, 3, 5
    query, key, value = torch.randn(batch, queries, 7), torch.randn(batch, keys, 11), torch.randn(batch, keys, 13)
    mask = masks.keys(masks.lengths([5, 2], keys))  # the second row has two cells

    # A mechanism by name: output, weights, state.
    attention = foci.build("additive", query_dim=7, key_dim=11, hidden_dim=17)
    output, weights, state = attention(query, key, value, mask)
    assert output.shape == (batch, queries, 13)
    assert state is None

    # Weights are a handle: nothing L×S is built until asked for.
    assert weights.shape == (batch, queries, keys)
    assert (weights.dense()[1, :, 2:] == 0).all()
    assert weights.topk(2)[1].shape == (batch, queries, 2)
    assert weights.entropy().shape == weights.argmax().shape == (batch, queries)

    # Everything combines: score, normalizer, focus.
    combined = foci.Attention(7, 11, score="general", normalize="entmax15", focus="local_p", radius=2)
    assert combined(query, key, value, mask).output.shape == output.shape

    # A decoder projects its source once and reads it step by step.
    memory = attention.prepare(key, value, mask)
    steps = [attention.read(query[:, t : t + 1], memory).output for t in range(queries)]
    torch.testing.assert_close(torch.cat(steps, dim=1), output)

    # The function below the modules.
    x = torch.randn(batch, 4, keys, 8)
    assert foci.attend(x, x, x, causal=True).weights.shape == (batch, 4, keys, keys)

    # What any model looked at.
    model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with foci.record(model) as tape:
        model(torch.randn(batch, keys, 8))
    assert tape["self_attn"].shape == (batch, 2, keys, keys)

    assert foci.list_mechanisms()["ntm"].family == "memory"
