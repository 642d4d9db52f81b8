"""Longformer's bands and global positions, against what its modules return and read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from foci.errors import ConfigError
from foci.recording import edit, record

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


def given_with(where: str) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Inputs of two texts, the second with padding, which of their words there are, and which are global."""
    mask, chosen = torch.ones(B, L, dtype=torch.long), torch.zeros(B, L, dtype=torch.long)
    mask[1, 10:] = 0
    for row, positions in zip(chosen, GLOBAL[where]):
        row[positions] = 1
    ids = torch.arange(2, 2 + B * L).reshape(B, L)
    return {"input_ids": ids, "attention_mask": mask, "global_attention_mask": chosen}, mask.bool(), chosen.bool()


def read(attention: Any, hidden: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    """What weights read, position by position."""
    found = torch.zeros_like(hidden)
    local, whole = attention.value(hidden), attention.value_global(hidden)
    size = hidden.shape[-1] // H
    for b in range(B):
        for i in range(L):
            values = whole if chosen[b, i] else local
            for h in range(H):
                part = slice(h * size, (h + 1) * size)
                found[b, i, part] = sum(weights[b, h, i, j] * values[b, j, part] for j in range(L))
    return found


@torch.no_grad()
@pytest.mark.parametrize("where", GLOBAL)
def test_edited_bands_are_read(where):
    """Longformer reads edited weights, from other values where a query is global, and nothing outside of its bands."""
    model, (given, mask, chosen) = longformer(), given_with(where)
    path, states = "encoder.layer.1.attention.self", []
    attention = model.get_submodule(path)
    with record(model) as tape:
        want = model(**given)[0]
    hook = attention.register_forward_hook(lambda module, args, output: states.append(args[0]))
    plain = tape[path].dense()
    near = (torch.arange(L) - torch.arange(L).unsqueeze(1)).abs() <= W
    opened = (near | chosen[:, None] | chosen[:, :, None]) & mask[:, None] & mask[:, :, None]
    opened = opened.unsqueeze(1).expand(plain.shape)
    assert not (plain.ne(0.0) & ~opened).any()

    closed = torch.zeros_like(plain)
    closed[:, :, [0, 3], 3] = 1
    blocked = plain.masked_fill(closed.bool(), 0.0)
    first = torch.tensor([True, False, False, False]).view(-1, 1, 1)
    for change, weights in (
        (lambda e: e.knock_out(path, 0), plain * ~first),
        (lambda e: e.uniform(path), opened / opened.sum(-1, keepdim=True).clamp_min(1)),
        (lambda e: e.block(path, [0, 3], 3), blocked / blocked.sum(-1, keepdim=True).clamp_min(1e-9)),
        (lambda e: e.weights(path, torch.square), plain.square()),
        (lambda e: e.scale(path, 0, 3.0), plain.where(~first, 3 * plain)),
    ):
        with edit(model) as e, record(model) as edited:
            change(e)
            states.clear()
            answer = model(**given)[0]
        assert torch.allclose(edited[path].dense(), weights, atol=1e-6)
        assert list(edited) == list(tape)
        after = model.encoder.layer[1].attention.output(read(attention, states[0], weights, chosen), states[0])
        layer = model.encoder.layer[1]
        after = layer.output(layer.intermediate(after), after)
        assert torch.allclose(answer * mask.unsqueeze(-1), after * mask.unsqueeze(-1), atol=1e-5)
        assert not torch.allclose(answer, want, atol=1e-3)
    hook.remove()
    with edit(model) as e:
        e.scale("*", None, 1.0)
        assert torch.equal(model(**given)[0], want)
    with edit(model) as e:
        e.zero_values(path, None)
        assert not torch.equal(model(**given)[0], want)
    assert torch.equal(model(**given)[0], want)


def test_a_key_that_is_blocked_in_all_bands_is_a_masked_word():
    model, (given, mask, _) = longformer(), given_with("some")
    closed = mask.long()
    closed[:, 6] = 0
    want = model(**{**given, "attention_mask": closed})[0]
    embedded = model.get_input_embeddings()(given.pop("input_ids")).detach().requires_grad_()
    with edit(model) as e:
        e.block("*", keys=6)
        e.block("*", queries=6)
        got = model(inputs_embeds=embedded, **given)[0]
    others = closed.bool()
    assert torch.allclose(got[others], want[others], atol=1e-5)
    (got[others] * torch.randn_like(got[others])).sum().backward()
    assert embedded.grad[:, 6].abs().max() < 1e-5 * embedded.grad[:, 5].abs().max()


@torch.no_grad()
def test_what_is_given_outside_of_the_bands_is_an_error():
    model, (given, _, _) = longformer(), given_with("none")

    def run() -> None:
        with edit(model) as e:
            e.weights("encoder.layer.0.attention.self", torch.full((L,), 1 / L))
            model(**given)

    with pytest.raises(ConfigError, match="weights are given to masked positions"):
        run()


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
    before = model(input_ids=ids, decoder_input_ids=ids[:, :7])[0]
    with edit(model) as e, record(model) as tape:
        e.knock_out(path := "encoder.layers.0.self_attn.longformer_self_attn", 1)
        after = model(input_ids=ids, decoder_input_ids=ids[:, :7])[0]
    assert not tape[path].dense()[:, 1].any()
    assert not torch.equal(before, after)
