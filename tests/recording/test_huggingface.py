"""`foci.record` on models of Hugging Face, with their default attention, against their own eager weights.

Every model is tiny and comes from its configuration: nothing is downloaded. Its random weights are larger than usual,
so that attention is far from uniform.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from foci.recording import Recording, record

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow  # importing transformers takes seconds

VOCABULARY, PAD, END, START = 31, 0, 1, 2
B, L, S = 2, 5, 7
VALID = torch.tensor([[1] * 4 + [0] * 3, [1] * 7])
"""Padded on the right, as an encoder's input is."""


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def bert() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=12,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=17,
        max_position_embeddings=23,
        pad_token_id=PAD,
        initializer_range=0.5,
    )
    return transformers.BertModel(config).eval()


def marian() -> nn.Module:
    config = transformers.MarianConfig(
        vocab_size=VOCABULARY,
        d_model=12,
        encoder_layers=2,
        decoder_layers=3,
        encoder_attention_heads=2,
        decoder_attention_heads=3,
        encoder_ffn_dim=17,
        decoder_ffn_dim=17,
        max_position_embeddings=23,
        pad_token_id=PAD,
        eos_token_id=END,
        forced_eos_token_id=None,
        decoder_start_token_id=START,
        init_std=0.5,
    )
    return transformers.MarianMTModel(config).eval()


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=12,
        n_layer=3,
        n_head=2,
        n_positions=23,
        pad_token_id=PAD,
        bos_token_id=START,
        eos_token_id=END,
        initializer_range=0.5,
    )
    return transformers.GPT2LMHeadModel(config).eval()


def llama() -> nn.Module:
    """Six heads that share two heads of keys."""
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        intermediate_size=17,
        max_position_embeddings=23,
        pad_token_id=PAD,
        bos_token_id=START,
        eos_token_id=END,
        initializer_range=0.5,
    )
    return transformers.LlamaForCausalLM(config).eval()


def t5() -> nn.Module:
    """With a learned bias of the distance."""
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=12,
        d_kv=5,
        d_ff=17,
        num_layers=2,
        num_heads=3,
        pad_token_id=PAD,
        eos_token_id=END,
        decoder_start_token_id=START,
    )
    return transformers.T5ForConditionalGeneration(config).eval()


def eager(model: nn.Module) -> nn.Module:
    """The same model with attention written out, which can return its weights."""
    twin = type(model)._from_config(copy.deepcopy(model.config), attn_implementation="eager").eval()
    twin.load_state_dict(model.state_dict())
    return twin


def words(batch: int, length: int) -> Tensor:
    return torch.randint(3, VOCABULARY, (batch, length))


def close(got: Tensor, want: Tensor) -> bool:
    return got.shape == want.shape and torch.allclose(got, want, atol=1e-6)


def check_layers(tape: Recording, path: str, expected: tuple[Tensor, ...], rows: Tensor | None = None) -> None:
    """The tape holds what eager attention gave, in each layer, for the queries that exist."""
    assert expected
    for layer, want in enumerate(expected):
        got = tape[path.format(layer)].dense()
        if rows is not None:
            exists = rows.bool()[:, None, :, None]
            got, want = got * exists, want * exists
        assert close(got, want), path.format(layer)


@pytest.mark.parametrize("training", [False, True])
def test_bert_with_padding(training):
    model = bert().train(training)
    assert model.config._attn_implementation == "sdpa"
    ids = words(B, S)
    torch.manual_seed(1)
    want = model(ids, attention_mask=VALID).last_hidden_state
    torch.manual_seed(1)
    with record(model) as tape:
        got = model(ids, attention_mask=VALID).last_hidden_state
    assert torch.equal(got, want)
    assert list(tape) == [f"encoder.layer.{n}.attention.self" for n in range(3)]
    if not training:  # dropout would feed the layers something else
        expected = eager(model)(ids, attention_mask=VALID, output_attentions=True).attentions
        check_layers(tape, "encoder.layer.{}.attention.self", expected, VALID)


@pytest.mark.parametrize("build", [marian, t5])
def test_encoder_and_decoder_with_padding(build):
    model = build()
    inputs = {"input_ids": words(B, S), "attention_mask": VALID, "decoder_input_ids": words(B, L)}
    want = model(**inputs).logits
    with record(model) as tape:
        got = model(**inputs).logits
    assert torch.equal(got, want)
    expected = eager(model)(**inputs, output_attentions=True)
    encoder, decoder, cross = {
        marian: (
            "model.encoder.layers.{}.self_attn",
            "model.decoder.layers.{}.self_attn",
            "model.decoder.layers.{}.encoder_attn",
        ),
        t5: (
            "encoder.block.{}.layer.0.SelfAttention",
            "decoder.block.{}.layer.0.SelfAttention",
            "decoder.block.{}.layer.1.EncDecAttention",
        ),
    }[build]
    check_layers(tape, encoder, expected.encoder_attentions, VALID)
    check_layers(tape, decoder, expected.decoder_attentions)
    check_layers(tape, cross, expected.cross_attentions)
    assert len(tape) == len(expected.encoder_attentions) + 2 * len(expected.decoder_attentions)
    assert not tape[decoder.format(0)].dense().triu(1).any()


@pytest.mark.parametrize(("build", "path"), [(gpt2, "transformer.h.{}.attn"), (llama, "model.layers.{}.self_attn")])
@pytest.mark.parametrize("valid", [None, VALID.flip(1)])
def test_causal_models_with_and_without_padding(build, path, valid):
    model = build()
    ids = words(B, S)
    want = model(ids, attention_mask=valid).logits
    with record(model) as tape:
        got = model(ids, attention_mask=valid).logits
    assert torch.equal(got, want)
    expected = eager(model)(ids, attention_mask=valid, output_attentions=True).attentions
    assert len(tape) == len(expected) == 3
    check_layers(tape, path, expected, valid)


def generated(model: nn.Module, **inputs: Any) -> Any:
    return model.generate(
        **inputs, max_new_tokens=4, min_new_tokens=4, do_sample=False, num_beams=1, return_dict_in_generate=True
    )


def check_steps(tape: Recording, path: str, expected: tuple[tuple[Tensor, ...], ...]) -> None:
    """Step by step and layer by layer; `generate` gives a tuple of layers for each step."""
    for layer in range(len(expected[0])):
        calls = tape.calls(path.format(layer))
        assert len(calls) == len(expected) == 4
        for call, step in zip(calls, expected):
            assert call.shape == step[layer].shape
            assert close(call.rows(-1), step[layer][:, :, -1])


def test_marian_generates_with_a_cache():
    model = marian()
    inputs = {"input_ids": words(B, S), "attention_mask": VALID}
    want = generated(model, **inputs).sequences
    with record(model) as tape:
        got = generated(model, **inputs).sequences
    assert torch.equal(got, want)
    expected = generated(eager(model), **inputs, output_attentions=True)
    assert torch.equal(expected.sequences, want)
    check_layers(tape, "model.encoder.layers.{}.self_attn", expected.encoder_attentions, VALID)
    check_steps(tape, "model.decoder.layers.{}.self_attn", expected.decoder_attentions)
    check_steps(tape, "model.decoder.layers.{}.encoder_attn", expected.cross_attentions)
    steps = tape.calls("model.decoder.layers.0.self_attn")
    assert [tuple(weights.shape) for weights in steps] == [(B, 3, 1, n) for n in (1, 2, 3, 4)]


@pytest.mark.parametrize(("build", "path"), [(gpt2, "transformer.h.{}.attn"), (llama, "model.layers.{}.self_attn")])
def test_causal_models_generate_with_a_cache(build, path):
    model = build()
    inputs = {"input_ids": words(B, S), "attention_mask": VALID.flip(1)}
    want = generated(model, **inputs).sequences
    with record(model) as tape:
        got = generated(model, **inputs).sequences
    assert torch.equal(got, want)
    expected = generated(eager(model), **inputs, output_attentions=True)
    check_steps(tape, path, expected.attentions)
    assert [weights.shape[-2:] for weights in tape.calls(path.format(0))] == [(S, S), (1, 8), (1, 9), (1, 10)]


def test_a_static_cache_that_is_used_again_does_not_change_the_tape():
    model = llama()
    first, second = words(B, S), words(B, S)
    cache = transformers.StaticCache(config=model.config, max_cache_len=16)
    with record(model) as tape:
        generated(model, input_ids=first, past_key_values=cache)
    before = [weights.dense() for weights in tape.values()]
    cache.reset()
    generated(model, input_ids=second, past_key_values=cache)
    assert all(torch.equal(weights.dense(), want) for weights, want in zip(tape.values(), before))
    expected = generated(eager(model), input_ids=first, output_attentions=True).attentions
    for call, step in zip(tape.calls("model.layers.1.self_attn"), expected):
        size = step[1].shape[-1]
        assert close(call.rows(-1)[..., :size], step[1][:, :, -1])
        assert not call.rows(-1)[..., size:].any()
