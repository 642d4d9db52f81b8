"""`foci.record` on families of Hugging Face: every attention, with the weights of their own eager code, or a reason.

The models are tiny, come from their configurations and have random weights; nothing is downloaded.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from foci.recording import Recording, record

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

BASE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 101}
GROUPED = BASE | {"num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
BOTH_SIDES = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 101,
}  # fmt: skip
LATENT = {
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 32,
    "first_k_dense_replace": 2,
}  # fmt: skip
LINEAR = {
    "num_hidden_layers": 4, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}  # fmt: skip
IMAGE = {"image_size": 32, "patch_size": 8}
UNREAD = "its softmax was not multiplied with values in a way that is recognized"
DIFFERENCE = "recorded are its two softmaxes, as heads; it reads with the first minus a multiple of the second"
RELATIVE = {"relative_attention": True, "pos_att_type": "p2c|c2p", "max_relative_positions": 16}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
SOUND = {"input_features": torch.linspace(-1, 1, 480).reshape(1, 8, 60)}
TWO_SIDES = {"src_vocab_size": 101, "tgt_vocab_size": 101, "langs": ["en", "de"], "max_position_embeddings": 64}
STATE = "no attention weights: recurrent state"

TEXT = {"input_ids": torch.arange(3, 14).unsqueeze(0)}
PAIR = TEXT | {"decoder_input_ids": torch.arange(3, 10).unsqueeze(0)}
PICTURE = {"pixel_values": torch.linspace(-1, 1, 3 * 32 * 32).reshape(1, 3, 32, 32)}

WHOLE: dict[str, tuple[dict[str, Any], dict[str, Tensor], int]] = {
    # the families of the issue
    "bert": (BASE, TEXT, 2),
    "roberta": (BASE, TEXT, 2),
    "gpt2": ({"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 101}, TEXT, 2),
    "llama": (GROUPED, TEXT, 2),
    "qwen3": (GROUPED, TEXT, 2),
    "gemma2": (GROUPED, TEXT, 2),
    "gemma3_text": (GROUPED, TEXT, 2),
    "gpt_oss": (GROUPED | EXPERTS, TEXT, 2),
    "deepseek_v3": (BASE | {"num_key_value_heads": 4} | LATENT, TEXT, 2),
    "bloom": ({"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 101}, TEXT, 2),
    "deberta-v2": (BASE | RELATIVE, TEXT, 2),
    "big_bird": (BASE | {"attention_type": "original_full"}, TEXT, 2),
    "xlnet": ({"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, "vocab_size": 101}, TEXT, 2),
    "t5": ({"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 101}, PAIR, 6),
    "bart": (BOTH_SIDES, PAIR, 6),
    "whisper": (
        BOTH_SIDES | SPECIAL | {"max_source_positions": 30, "num_mel_bins": 8},
        SOUND | {"decoder_input_ids": PAIR["decoder_input_ids"]},
        6,
    ),
    "vit": (BASE | IMAGE, PICTURE, 2),
    "swin": (
        {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4},
        PICTURE,
        2,
    ),
    "perceiver": (
        {"num_latents": 7, "d_latents": 32, "d_model": 16, "num_blocks": 1, "num_self_attends_per_block": 2}
        | {"num_self_attention_heads": 4, "num_cross_attention_heads": 4},
        {"inputs": torch.linspace(-1, 1, 176).reshape(1, 11, 16)},
        3,
    ),
    # others, each for what is its own
    "ctrl": ({"n_embd": 32, "n_layer": 2, "n_head": 4, "dff": 64, "vocab_size": 101}, TEXT, 2),
    "distilbert": ({"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 101}, TEXT, 2),
    "fsmt": (BOTH_SIDES | TWO_SIDES, PAIR, 6),
    "gptj": ({"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "vocab_size": 101}, TEXT, 2),
    "ibert": (BASE, TEXT, 2),
    "mpnet": (BASE, TEXT, 2),
    "mvp": (BOTH_SIDES, PAIR, 6),
    "nystromformer": (BASE | {"num_landmarks": 11, "segment_means_seq_len": 11}, TEXT, 2),
    "xlm": ({"emb_dim": 32, "n_layers": 2, "n_heads": 4, "n_words": 101, "n_langs": 1}, TEXT, 2),
}  # fmt: skip
OTHERWISE: dict[str, tuple[dict[str, Any], int, dict[str, str]]] = {
    "qwen3_next": (GROUPED | LINEAR, 1, {f"layers.{n}.linear_attn": STATE for n in range(3)}),
    "mamba2": (
        {"hidden_size": 32, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 8, "expand": 2, "state_size": 8}
        | {"vocab_size": 101, "n_groups": 1},
        0,
        {f"layers.{n}.mixer": STATE for n in range(2)},
    ),
    "rwkv": (
        BASE | {"attention_hidden_size": 32, "context_length": 32},
        0,
        {f"blocks.{n}.attention": STATE for n in range(2)},
    ),
    "diffllama": (
        BASE | {"num_key_value_heads": 4, "pad_token_id": 0},
        2,
        {f"layers.{n}.self_attn": DIFFERENCE for n in range(2)},
    ),
    "longformer": (
        BASE | {"attention_window": [4, 4], "pad_token_id": 1},
        0,
        {f"encoder.layer.{n}.attention.self": UNREAD for n in range(2)},
    ),
}


def model_of(family: str, options: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(family, **options)).eval()
    for parameter in model.parameters():  # attention far from uniform
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def eager_weights(output: Any) -> list[Tensor]:
    names = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
    return [weights for name in names for weights in output.get(name) or () if weights is not None]


@torch.no_grad()
def recorded(model: Any, inputs: dict[str, Tensor]) -> Recording:
    want = model(**inputs)
    with record(model, detach=True) as tape:
        got = model(**inputs)
    assert torch.equal(got[0], want[0])
    return tape


@pytest.mark.parametrize("family", WHOLE)
def test_every_attention_has_the_weights_of_the_familys_own_code(family):
    options, inputs, count = WHOLE[family]
    model = model_of(family, options)
    tape = recorded(model, inputs)
    assert len(tape) == count
    assert not tape.missed
    twin = model_of(family, options)
    twin.load_state_dict(model.state_dict())
    twin.set_attn_implementation("eager")
    with torch.no_grad():
        want = eager_weights(twin(**inputs, output_attentions=True))
    got = [handle.dense() for handle in tape.values()]
    for weights in want:
        assert any(mine.shape == weights.shape and torch.allclose(mine, weights, atol=2e-5) for mine in got)


@pytest.mark.filterwarnings("ignore:record. No attention was recorded")
@pytest.mark.parametrize("family", OTHERWISE)
def test_what_has_no_weights_is_named(family):
    options, count, missed = OTHERWISE[family]
    tape = recorded(model_of(family, options), TEXT)
    assert len(tape.paths) == count
    assert {path: reason for path, reason in tape.missed.items() if path in missed} == missed
    assert all(path in repr(tape) for path in missed)
