"""Longformer's bands and global positions, against what its modules return and read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from foci.recording import record

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

B, L, H, W = 2, 12, 4, 2
GLOBAL = {"none": [[], []], "some": [[0, 5], [3]]}


def longformer() -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": H, "intermediate_size": 17}
    config = transformers.LongformerConfig(
        **sizes, vocab_size=31, attention_window=[2 * W] * 2, initializer_range=0.5, pad_token_id=1
    )
    return transformers.LongformerModel(config).eval()


@torch.no_grad()
@pytest.mark.parametrize("where", GLOBAL)
def test_the_rows_are_what_the_model_reads_with(where):
    model, ids = longformer(), torch.arange(2, 2 + B * L).reshape(B, L)
    mask, chosen = torch.ones(B, L, dtype=torch.long), torch.zeros(B, L, dtype=torch.long)
    mask[1, 10:] = 0
    for row, positions in zip(chosen, GLOBAL[where]):
        row[positions] = 1
    given: dict[str, Tensor] = {"input_ids": ids, "attention_mask": mask, "global_attention_mask": chosen}
    want, states = model(**given)[0], []
    attention = model.encoder.layer[1].attention.self
    hook = attention.register_forward_hook(lambda module, args, output: states.append((args[0], output[0])))
    with record(model) as tape:
        got = model(**given)[0]
    hook.remove()
    assert torch.equal(got, want)
    assert list(tape) == [f"encoder.layer.{n}.attention.self" for n in range(2)]
    assert not tape.missed
    handle, (hidden, read) = tape["encoder.layer.1.attention.self"], states[0]
    dense = handle.dense()
    assert dense.shape == (B, H, L, L)
    local, whole = (
        (dense @ values(hidden).unflatten(-1, (H, -1)).transpose(1, 2)).transpose(1, 2).flatten(2)
        for values in (attention.value, attention.value_global)
    )
    is_whole = chosen.bool().unsqueeze(-1)
    valid = mask.bool().unsqueeze(-1)
    assert torch.allclose(torch.where(is_whole, whole, local) * valid, read * valid, atol=1e-5)
    sums = dense.sum(-1)
    assert torch.allclose(sums, mask[:, None].float().expand_as(sums), atol=1e-5)
    assert torch.equal(handle.rows([0, 5]), dense[..., [0, 5], :])
    assert torch.allclose(handle.heads(2).rows(3), dense[:, 2, 3])
    assert torch.equal(handle[1, 1:3], dense[1, 1:3])
    assert torch.allclose(handle.column_sums(), dense.sum(-2), atol=1e-6)
    model.set_attn_implementation("eager")
    theirs = model(**given, output_attentions=True).attentions[1]
    for i in range(3, 8):  # a band that lies within the text
        local_part = dense[:, :, i, i - W : i + W + 1]
        rows = ~chosen[:, i].bool()
        columns = chosen[:, i - W : i + W + 1].bool()[:, None]
        assert torch.allclose(
            local_part.masked_fill(columns, 0.0)[rows], theirs[:, :, i, -2 * W - 1 :][rows], atol=2e-5
        )


@torch.no_grad()
def test_led_too():
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 31, "attention_window": 4}
    config = transformers.LEDConfig(**sizes, encoder_attention_heads=4, decoder_attention_heads=4)
    model, ids = transformers.LEDModel(config).eval(), torch.arange(3, 15).unsqueeze(0)
    with record(model) as tape:
        model(input_ids=ids, decoder_input_ids=ids[:, :7])
    assert tape.paths[0] == "encoder.layers.0.self_attn.longformer_self_attn"
    assert tape[tape.paths[0]].shape == (1, 4, 12, 12)
    assert len(tape) == 3
    assert not tape.missed
