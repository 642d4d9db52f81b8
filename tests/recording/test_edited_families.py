"""`foci.edit` on families of Hugging Face, fused and eager, against models with masks and with zeroed projections.

The models are those of test_families: tiny, from their configurations, with random weights.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from foci.recording import Edits, edit, record

transformers = pytest.importorskip("transformers")
families = pytest.importorskip("families")
pytestmark = pytest.mark.slow

BASE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 101}
GROUPED = BASE | {"num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 101}
SMALL = {"bos_token_id": 1, "eos_token_id": 2}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 101}
FSMT = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "src_vocab_size": 101, "tgt_vocab_size": 101, "langs": ["en", "de"],
    "max_position_embeddings": 64,
}  # fmt: skip
TEXT = {"input_ids": torch.arange(3, 14).unsqueeze(0)}
PAIR = TEXT | {"decoder_input_ids": torch.arange(3, 10).unsqueeze(0)}

FAMILIES: dict[str, tuple[dict[str, Any], dict[str, Tensor], str, str]] = {
    "bert": (BASE, TEXT, "encoder.layer.1.attention.self", "encoder.layer.1.attention.output.dense"),
    "gpt2": (GPT2 | SMALL, TEXT, "h.1.attn", "h.1.attn.c_proj"),
    "llama": (GROUPED, TEXT, "layers.1.self_attn", "layers.1.self_attn.o_proj"),
    "gemma2": (GROUPED, TEXT, "layers.1.self_attn", "layers.1.self_attn.o_proj"),
    "gpt_oss": (
        GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2},
        TEXT,
        "layers.1.self_attn",
        "layers.1.self_attn.o_proj",
    ),
    "t5": (T5, PAIR, "decoder.block.1.layer.1.EncDecAttention", "decoder.block.1.layer.1.EncDecAttention.o"),
    "fsmt": (FSMT, PAIR, "decoder.layers.1.encoder_attn", "decoder.layers.1.encoder_attn.out_proj"),
}
"""Family -> its options, its inputs, an attention, and the linear layer that the heads of it go to."""


def model_of(family: str, kind: Any = transformers.AutoModel) -> Any:
    torch.manual_seed(0)
    model = kind.from_config(transformers.AutoConfig.for_model(family, **FAMILIES[family][0])).eval()
    for parameter in model.parameters():  # attention far from uniform
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def without_head(model: Any, family: str, prefix: str = "") -> Any:
    """The same model, whose second head of one attention goes nowhere."""
    twin = copy.deepcopy(model)
    weight = twin.get_submodule(prefix + FAMILIES[family][3]).weight
    with torch.no_grad():
        (weight.T if family != "gpt2" else weight)[8:16] = 0.0
    return twin


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_that_is_knocked_out_goes_nowhere(family):
    model, (_, inputs, path, _) = model_of(family), FAMILIES[family]
    with edit(model) as e, record(model) as tape:
        e.knock_out(path, head=1)
        got = model(**inputs)[0]
    assert torch.allclose(got, without_head(model, family)(**inputs)[0], atol=1e-5)
    assert not torch.allclose(got, model(**inputs)[0], atol=1e-2)
    assert not tape[path].dense()[:, 1].any()
    assert tape[path].dense()[:, 0].any()


CHANGES = {
    "again": lambda e: e.zero_values("*", []),
    "uniform": lambda e: e.uniform("*"),
    "block": lambda e: e.block("*", None, [1, 4], head=2),
    "permute": lambda e: e.permute("*", 1),
}


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("change", CHANGES)
def test_fused_and_eager_models_read_the_same(family, change):
    """Computed again without a change, the result is the model's."""
    model, inputs = model_of(family), FAMILIES[family][1]
    twin = model_of(family)
    twin.set_attn_implementation("eager")

    def edited(one: Any) -> Tensor:
        with edit(one) as e:
            CHANGES[change](e)
            return one(**inputs)[0]

    got = edited(model)
    assert torch.allclose(got, edited(twin), atol=1e-4)
    assert torch.allclose(got, model(**inputs)[0], atol=1e-4) == (change == "again")


@torch.no_grad()
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_a_key_that_is_blocked_everywhere_is_a_masked_word(family):
    model = model_of(family)
    mask = torch.ones_like(TEXT["input_ids"])
    mask[:, 4] = 0
    want = model(**TEXT, attention_mask=mask)[0]
    with edit(model) as e:
        e.block("*", keys=4)
        got = model(**TEXT)[0]
    others = [place for place in range(mask.shape[1]) if place != 4]
    assert torch.allclose(got[:, others], want[:, others], atol=1e-4)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_generated_texts_are_those_of_the_edited_model(family):
    model = model_of(family, transformers.AutoModelForCausalLM)
    prefix = "transformer." if family == "gpt2" else "model."
    options: dict[str, Any] = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    want = without_head(model, family, prefix).generate(**TEXT, **options)
    path = prefix + FAMILIES[family][2]
    with edit(model) as e, record(model) as tape:
        e.knock_out(path, head=1)
        assert torch.equal(model.generate(**TEXT, **options), want)
    assert not any(weights.dense()[:, 1].any() for weights in tape.calls(path))
    with edit(model) as e:
        e.knock_out(path, head=1, call=5)  # the last step alone
        last = model.generate(**TEXT, **options)
    assert torch.equal(last[:, :-1], model.generate(**TEXT, **options)[:, :-1])


def test_gradients_of_inputs_flow_through_edits():
    model = model_of("llama")
    embedded = model.get_input_embeddings()(TEXT["input_ids"]).detach()
    found = []
    for how in ("sdpa", "eager"):
        model.set_attn_implementation(how)
        given = embedded.clone().requires_grad_()
        with edit(model) as e:
            e.uniform("layers.0.self_attn")
            e.scale("layers.1.self_attn", 2, 0.5)
            model(inputs_embeds=given)[0].square().sum().backward()
        found.append(given.grad)
    assert torch.allclose(*found, rtol=1e-3, atol=1e-3)


def test_kernels_that_are_registered_are_edited():
    """A function of transformers in which nothing of torch is seen: its arguments say what it reads."""
    model, eager = model_of("llama"), model_of("llama")
    eager.set_attn_implementation("eager")

    def kernel(
        module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float, **options: Any
    ) -> Any:
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        closed = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).triu(1)
        with torch._C.DisableTorchFunction():
            scores = (query @ key.mT * scaling).masked_fill(closed, -torch.inf)
            return (scores.softmax(-1) @ value).transpose(1, 2).contiguous(), None

    transformers.AttentionInterface.register("unseen", kernel)
    model.set_attn_implementation("unseen")

    def edited(one: Any, change: Any) -> Tensor:
        with torch.no_grad(), edit(one) as e, record(one) as tape:
            change(e)
            found = one(**TEXT)[0]
        assert list(tape) == ["layers.0.self_attn", "layers.1.self_attn"]
        return found

    def both(e: Edits) -> None:
        e.uniform("layers.0.*", head=[0, 3])
        e.knock_out("layers.1.self_attn", head=1)

    assert torch.allclose(edited(model, both), edited(eager, both), atol=1e-4)


@torch.no_grad()
def test_heads_of_deformable_attention_are_heads():
    """Each of a batch of two; the model joins both in one axis."""
    settings = families.FAMILIES["deformable_detr"].settings
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model("deformable_detr", **settings, d_model=32, encoder_layers=1)
    model, picture = transformers.AutoModel.from_config(config).eval(), torch.randn(2, 3, 64, 64)
    path, twin = "encoder.layers.0.self_attn", copy.deepcopy(model)
    size = 32 // model.get_submodule(path).n_heads
    twin.get_submodule(path).output_proj.weight[:, size : 2 * size] = 0.0
    with edit(model) as e, record(model) as tape:
        e.knock_out(path, head=1)
        got = model(pixel_values=picture).encoder_last_hidden_state
    assert torch.allclose(got, twin(pixel_values=picture).encoder_last_hidden_state, atol=1e-6)
    assert not torch.allclose(got, model(pixel_values=picture).encoder_last_hidden_state, atol=1e-3)
    assert not tape[path].dense()[:, 1].any()
    assert tape[path].dense()[:, 0].any()
