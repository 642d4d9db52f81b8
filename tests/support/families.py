"""Families of Hugging Face as tiny random models, what `foci.record` gets of each, and the table of docs/families.md.

    python tests/support/families.py              measures all families and writes the table
    python tests/support/families.py bert olmo3   prints the rows of some, also of others, as readers of a text

Nothing is downloaded. A family's configuration is its own with the sizes of `SMALL`, where it has settings of these
names, and with those of its row here.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.utils._pytree import tree_leaves

from foci.recording import Recording, record

TOLERANCE = 2e-5
PAGE = Path(__file__).parents[2] / "docs" / "families.md"
STATE = "no attention weights: recurrent state"
UNREAD = "its softmax was not multiplied with values in a way that is recognized"
UNSEEN = "neither a softmax nor a call of a known attention was seen in it"
DIFFERENCE = "recorded are its softmaxes; it reads with a difference of two, which tape.difference(path) returns"

_SIZES = {
    1: "mamba_n_groups num_global_layers n_groups",
    2: "num_hidden_layers num_layers n_layer n_layers num_encoder_layers num_decoder_layers encoder_layers "
    "decoder_layers depth num_key_value_heads num_experts_per_tok linear_num_key_heads type_vocab_size",
    4: "num_attention_heads num_heads n_head n_heads encoder_attention_heads decoder_attention_heads num_experts "
    "num_local_experts n_routed_experts linear_num_value_heads sliding_window window_size",
    8: "head_dim d_kv d_head patch_size num_mel_bins qk_rope_head_dim qk_nope_head_dim v_head_dim linear_key_head_dim "
    "linear_value_head_dim mamba_d_state mamba_n_heads mamba_d_head state_size",
    16: "q_lora_rank kv_lora_rank qk_head_dim",
    32: "hidden_size d_model dim n_embd emb_dim embed_dim embedding_size image_size moe_intermediate_size "
    "projection_dim shared_expert_intermediate_size pooler_hidden_size text_embed_dim",
    64: "intermediate_size d_ff encoder_ffn_dim decoder_ffn_dim ffn_dim hidden_dim d_inner dff n_inner mlp_dim "
    "max_source_positions max_target_positions",
    128: "vocab_size max_position_embeddings n_positions n_words",
}
SMALL = {name: size for size, names in _SIZES.items() for name in names.split()}
SMALL |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


def ramp(*shape: int) -> Tensor:
    """Return numbers from -1 to 1."""
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape)


TEXT = {"input_ids": torch.arange(3, 14).unsqueeze(0)}
PAIR = TEXT | {"decoder_input_ids": torch.arange(3, 10).unsqueeze(0)}
PICTURE = {"pixel_values": ramp(1, 3, 32, 32)}
LARGER_PICTURE = {"pixel_values": ramp(1, 3, 64, 64)}
VIDEO = {"pixel_values": ramp(1, 4, 3, 16, 16)}
WAVE = {"input_values": ramp(1, 1600)}
LONG = {"input_ids": (torch.arange(96) % 90 + 3).unsqueeze(0)}
BOXES = {"bbox": torch.zeros(1, 11, 4, dtype=torch.long)}
SERIES = {
    "past_values": ramp(1, 15), "past_time_features": ramp(1, 15, 1), "past_observed_mask": torch.ones(1, 15),
    "future_values": ramp(1, 4), "future_time_features": ramp(1, 4, 1),
}  # fmt: skip

FORECAST = {"prediction_length": 4, "context_length": 12, "lags_sequence": [1, 2, 3], "num_time_features": 1}
UNGROUPED = {"num_key_value_heads": 4}
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
LATENT = UNGROUPED | {"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
LINEAR = {"layer_types": ["linear_attention", "full_attention"]}
PYRAMID = {
    "image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4,
}  # fmt: skip
SIDES = {
    "text_config": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64},
    "vision_config": {"hidden_size": 64, "num_hidden_layers": 2, "image_size": 32, "patch_size": 8},
}  # fmt: skip
BACKBONE = {
    "model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 8, 8, 8], "depths": [1, 1, 1, 1],
    "layer_type": "basic", "out_features": ["stage4"],
}  # fmt: skip
LEVELS = BACKBONE | {"out_features": ["stage2", "stage3", "stage4"]}
SPARSE = {
    "attention_type": "block_sparse", "block_size": 8, "num_random_blocks": 2, "dropout": 0.0, "attention_dropout": 0.0,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
DETECTION = {
    "use_timm_backbone": False, "backbone": None, "use_pretrained_backbone": False, "backbone_config": BACKBONE,
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """How a family is built, and what has to be recorded of it.

    Attributes:
        inputs: what the model is called with.
        count: the attentions that are recorded.
        settings: of its configuration, beside `SMALL`.
        missed: why modules of it are named as not recorded, and how many. None: nothing is.
        kind: what transformers calls it, if that is another name.
        trains: whether it is measured in training, without dropout.
    """

    inputs: Mapping[str, Tensor]
    count: int = 2
    settings: Mapping[str, Any] = field(default_factory=dict)
    missed: tuple[str, int] | None = None
    kind: str = ""
    trains: bool = False


ISSUE = {
    "bert": Family(TEXT),
    "roberta": Family(TEXT),
    "gpt2": Family(TEXT),
    "llama": Family(TEXT),
    "qwen3": Family(TEXT),
    "gemma2": Family(TEXT),
    "gemma3_text": Family(TEXT),
    "gpt_oss": Family(TEXT),
    "deepseek_v3": Family(TEXT, 2, LATENT),
    "qwen3_next": Family(TEXT, 1, LINEAR, (STATE, 1)),
    "mamba2": Family(TEXT, 0, {"expand": 2, "num_heads": 8}, (STATE, 2)),
    "rwkv": Family(TEXT, 0, {"attention_hidden_size": 32, "context_length": 32}, (STATE, 2)),
    "diffllama": Family(TEXT, 2, UNGROUPED, (DIFFERENCE, 2)),
    "bloom": Family(TEXT),
    "deberta-v2": Family(TEXT, 2, {"relative_attention": True, "pos_att_type": "p2c|c2p"}),
    "longformer": Family(TEXT, 2, {"attention_window": [4, 4], "pad_token_id": 1}),
    "big_bird": Family(TEXT, 2, {"attention_type": "original_full"}),
    "xlnet": Family(TEXT),
    "t5": Family(PAIR, 6),
    "bart": Family(PAIR, 6),
    "whisper": Family({"input_features": ramp(1, 8, 128), "decoder_input_ids": PAIR["decoder_input_ids"]}, 6),
    "vit": Family(PICTURE),
    "swin": Family(PICTURE, 2, PYRAMID),
    "clip": Family(TEXT | PICTURE, 4),
    "perceiver": Family(
        {"inputs": ramp(1, 11, 16)},
        3,
        {"num_latents": 7, "d_latents": 32, "d_model": 16, "num_blocks": 1, "num_self_attends_per_block": 2}
        | {"num_self_attention_heads": 4, "num_cross_attention_heads": 4},
    ),
}
"""The families that the issue names."""

FURTHER = {
    "texts": {
        "albert": Family(TEXT),
        "big_bird-sparse": Family(LONG, 2, SPARSE, None, "big_bird", True),
        "canine": Family(TEXT, 4, {"vocab_size": None}),
        "convbert": Family(TEXT, 4),
        "ctrl": Family(TEXT),
        "deberta": Family(TEXT),
        "distilbert": Family(TEXT),
        "electra": Family(TEXT),
        "esm": Family(TEXT, 2, {"vocab_size": 128, "mask_token_id": 5, "pad_token_id": 1}),
        "falcon": Family(TEXT),
        "gpt_bigcode": Family(TEXT),
        "gpt_neo": Family(TEXT, 2, {"attention_types": [[["global", "local"], 1]], "window_size": 4}),
        "gpt_neox": Family(TEXT),
        "gptj": Family(TEXT, 2, {"rotary_dim": 4}),
        "ibert": Family(TEXT),
        "layoutlmv3": Family(
            TEXT | BOXES, 2, {"coordinate_size": 6, "shape_size": 4, "input_size": 32, "visual_embed": False}
        ),
        "luke": Family(TEXT, 2, {"entity_vocab_size": 11, "entity_emb_size": 16}),
        "mistral": Family(TEXT),
        "mobilebert": Family(TEXT),
        "modernbert": Family(TEXT),
        "mpnet": Family(TEXT),
        "mpt": Family(TEXT),
        "nystromformer": Family(TEXT, 2, {"num_landmarks": 11, "segment_means_seq_len": 11}),
        "olmo2": Family(TEXT),
        "opt": Family(TEXT),
        "phi3": Family(TEXT),
        "reformer": Family(
            {"input_ids": torch.arange(3, 19).unsqueeze(0)},
            2,
            {"attn_layers": ["local", "lsh"], "axial_pos_shape": [4, 4], "axial_pos_embds_dim": [16, 16]}
            | {"attention_head_size": 8, "local_attn_chunk_length": 4, "lsh_attn_chunk_length": 4, "num_buckets": 2}
            | {"num_hashes": 1, "feed_forward_size": 64, "hash_seed": 0, "is_decoder": True},
        ),
        "roformer": Family(TEXT),
        "stablelm": Family(TEXT),
        "xlm": Family(TEXT),
    },
    "experts": {
        "deepseek_v32": Family(TEXT, 2, LATENT | {"index_n_heads": 2, "index_head_dim": 16, "index_topk": 4}),
        "llama4_text": Family(TEXT),
        "mixtral": Family(TEXT),
        "olmoe": Family(TEXT),
        "qwen2_moe": Family(TEXT),
        "switch_transformers": Family(PAIR, 6),
    },
    "recurrent layers too": {
        "bamba": Family(TEXT, 1, {"attn_layer_indices": [1]}, (STATE, 1)),
        "falcon_h1": Family(TEXT, 2, {"mamba_d_ssm": 64}, (STATE, 2)),
        "granitemoehybrid": Family(TEXT, 1, {"layer_types": ["mamba", "attention"]}, (STATE, 1)),
        "jamba": Family(
            TEXT, 1, {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 4}, (STATE, 1)
        ),
        "lfm2": Family(TEXT, 2),
        "mamba": Family(TEXT, 0, {}, (STATE, 2)),
        "recurrent_gemma": Family(TEXT, 1, {"num_hidden_layers": 3}, (STATE, 2)),
    },
    "encoder and decoder": {
        "bigbird_pegasus": Family(LONG | {"decoder_input_ids": PAIR["decoder_input_ids"]}, 6, SPARSE, trains=True),
        "fsmt": Family(PAIR, 6, {"src_vocab_size": 128, "tgt_vocab_size": 128, "langs": ["en", "de"]}),
        "led": Family(
            {"input_ids": torch.arange(3, 15).unsqueeze(0), "decoder_input_ids": PAIR["decoder_input_ids"]},
            6,
            {"attention_window": [4, 4], "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64},
        ),
        "longt5": Family(PAIR, 6),
        "m2m_100": Family(PAIR, 6),
        "mvp": Family(PAIR, 6),
        "pegasus": Family(PAIR, 6),
        "pegasus_x": Family(
            {"input_ids": torch.arange(3, 19).unsqueeze(0), "decoder_input_ids": PAIR["decoder_input_ids"]},
            6,
            {"block_size": 4, "num_global_tokens": 3},
        ),
        "t5gemma": Family(PAIR, 6),
        "udop": Family(PAIR | {"bbox": torch.zeros(1, 11, 4)}, 6),
    },
    "images and video": {
        "beit": Family(PICTURE),
        "deformable_detr": Family(
            LARGER_PICTURE,
            6,
            DETECTION
            | {"backbone_config": LEVELS, "num_feature_levels": 3, "num_queries": 7}
            | {"encoder_n_points": 2, "decoder_n_points": 2},
        ),
        "deit": Family(PICTURE),
        "detr": Family(LARGER_PICTURE, 6, DETECTION),
        "dinov2": Family(PICTURE),
        "dpt": Family(PICTURE),
        "hiera": Family(
            PICTURE,
            2,
            {"image_size": [32, 32], "patch_size": [7, 7], "embed_dim": 16, "depths": [1, 1], "num_heads": [1, 2]}
            | {"query_stride": [2, 2], "masked_unit_size": [4, 4], "num_query_pool": 1, "patch_stride": [4, 4]},
        ),
        "pvt_v2": Family(PICTURE, 8),
        "rt_detr": Family(
            LARGER_PICTURE,
            6,
            {"backbone_config": LEVELS | {"model_type": "rt_detr_resnet"}, "encoder_hidden_dim": 32, "num_queries": 7}
            | {"encoder_in_channels": [8, 8, 8], "decoder_in_channels": [32, 32, 32], "decoder_n_points": 2}
            | {"num_denoising": 0},
        ),
        "segformer": Family(PICTURE, 8),
        "swinv2": Family(PICTURE, 2, PYRAMID),
        "timesformer": Family(VIDEO, 4, {"image_size": 16, "num_frames": 4}),
        "videomae": Family(VIDEO, 2, {"image_size": 16, "num_frames": 4, "tubelet_size": 2}),
    },
    "speech and series": {
        "audio-spectrogram-transformer": Family(
            {"input_values": ramp(1, 32, 16)},
            2,
            {"max_length": 32, "num_mel_bins": 16, "frequency_stride": 8, "time_stride": 8},
        ),
        "autoformer": Family(SERIES, 0, FORECAST | {"moving_average": 3}, (UNREAD, 6)),
        "hubert": Family(WAVE),
        "informer": Family(SERIES, 6, FORECAST),
        "moonshine": Family(
            {"input_values": ramp(1, 4000), "decoder_input_ids": PAIR["decoder_input_ids"]},
            6,
            {"encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 2},
        ),
        "patchtst": Family(
            {"past_values": ramp(1, 16, 2)},
            2,
            {"context_length": 16, "patch_length": 4, "patch_stride": 4, "num_input_channels": 2},
        ),
        "sew-d": Family(WAVE),
        "speech_to_text": Family(
            {"input_features": ramp(1, 40, 8), "decoder_input_ids": PAIR["decoder_input_ids"]},
            6,
            {"input_feat_per_channel": 8, "num_conv_layers": 2, "conv_kernel_sizes": [3, 3], "conv_channels": 16},
        ),
        "wav2vec2-conformer": Family(WAVE),
    },
    "several modalities": {
        "altclip": Family(TEXT | PICTURE, 4),
        "bridgetower": Family(TEXT | PICTURE, 12, SIDES | {"hidden_size": 32, "num_hidden_layers": 2}),
        "git": Family(TEXT | PICTURE, 4, {"vision_config": {"hidden_size": 32, "num_hidden_layers": 2} | {
            "num_attention_heads": 4, "intermediate_size": 64, "image_size": 32, "patch_size": 8}}),
        "llava": Family(
            PICTURE | {"input_ids": torch.tensor([[3, 4] + [5] * 16 + [6, 7, 8]])}, 4, {"image_token_id": 5}
        ),
        "lxmert": Family(
            TEXT | {"visual_feats": ramp(1, 5, 8), "visual_pos": ramp(1, 5, 4)},
            6,
            {"l_layers": 1, "x_layers": 1, "r_layers": 1, "visual_feat_dim": 8},
        ),
        "mllama": Family(
            TEXT
            | {"pixel_values": ramp(1, 1, 1, 3, 32, 32), "aspect_ratio_ids": torch.ones(1, 1, dtype=torch.long)}
            | {"aspect_ratio_mask": torch.ones(1, 1, 1, dtype=torch.long)}
            | {"cross_attention_mask": torch.ones(1, 11, 1, 1, dtype=torch.long)},
            7,
            {
                "text_config": {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 128}
                | {"num_key_value_heads": 2, "intermediate_size": 64, "cross_attention_layers": [1, 3]}
                | {"pad_token_id": 0},
                "vision_config": {"hidden_size": 32, "num_hidden_layers": 2, "num_global_layers": 1}
                | {"num_attention_heads": 4, "intermediate_size": 64, "image_size": 32, "patch_size": 8}
                | {"max_num_tiles": 1, "vision_output_dim": 64, "intermediate_layers_indices": [1]}
                | {"supported_aspect_ratios": [[1, 1]]},
            },
        ),
        "owlvit": Family(TEXT | PICTURE, 4),
        "siglip": Family(TEXT | PICTURE, 5),
        "vilt": Family(TEXT | PICTURE),
        "visual_bert": Family(TEXT | {"visual_embeds": ramp(1, 5, 8)}, 2, {"visual_embedding_dim": 8}),
    },
}  # fmt: skip
"""Others, each for what is its own, by what they read."""

FAMILIES = ISSUE | {name: family for families in FURTHER.values() for name, family in families.items()}


@dataclass(frozen=True)
class Measured:
    """What was found of a family.

    Attributes:
        tape: the recording of the model as the library builds it.
        eager_tape: that of its twin with the library's own eager attention.
        is_unchanged: whether both models gave the same numbers with and without recording.
        compared: how many weights the library returns itself.
        distance: the largest difference of any of them from the nearest weights of its shape on either tape.
    """

    tape: Recording
    eager_tape: Recording
    is_unchanged: bool
    compared: int
    distance: float

    @property
    def is_compared(self) -> bool:
        """Whether the library returns weights of the form of those on the tape."""
        return self.compared > 0 and self.distance < 1


def measure(name: str) -> Measured:
    """Build a family twice, as the library does and with its eager attention, and record both."""
    family = FAMILIES.get(name, Family(TEXT))
    model, twin = _model(name, None), _model(name, "eager")
    twin.load_state_dict(model.state_dict())
    tape, same = _recorded(model, family.inputs)
    eager_tape, eager_same = _recorded(twin, family.inputs)
    with torch.no_grad():
        wanted = _returned(_run(twin, {**family.inputs, "output_attentions": True}))
    distances = [_distance(found, want) for want in wanted for found in (tape, eager_tape)]
    return Measured(tape, eager_tape, same and eager_same, len(wanted), max(distances, default=0.0))


def _distance(tape: Recording, want: Tensor) -> float:
    """Return the largest difference from the nearest weights of this shape, 1 if there are none."""
    forms = [want]
    if want.dim() == 5:  # perhaps points of deformable attention, (B, L, H, levels, points)
        forms.append(want.flatten(3).transpose(1, 2))
    pairs = ((got, form) for got in tape.values() for form in forms if got.shape == form.shape)
    return min((float((got.dense() - form).abs().max()) for got, form in pairs), default=1.0)


def row(name: str, found: Measured) -> str:
    """Return the line of the table."""
    missed = sorted(set(found.tape.missed.values()))
    words = "; ".join(f"{list(found.tape.missed.values()).count(reason)} × {reason}" for reason in missed) or "all"
    distance = f"{found.distance:.1g}" if found.is_compared else "–"
    return f"| {name} | {len(found.tape)} | {words} | {distance} | {'yes' if found.is_unchanged else 'NO'} |"


def main(names: list[str]) -> None:
    """Print the rows of these families, or write all into the page."""
    warnings.filterwarnings("ignore", message="record: No attention was recorded")
    transformers.logging.set_verbosity_error()
    if names:
        print("\n".join(row(name, measure(name)) for name in names))
        return
    head = "| family | recorded | of its attentions | largest difference | results unchanged |\n|---|---|---|---|---|"
    text = ""
    for group, families in {"families that were asked for first": ISSUE, **FURTHER}.items():
        found = {name: measure(name) for name in families}
        equal = sum(one.is_compared and one.distance <= TOLERANCE for one in found.values())
        named = sum(bool(one.tape.missed) for one in found.values())
        rows = "\n".join(row(name, one) for name, one in found.items())
        text += (
            f"### {group.capitalize()}\n\n{len(found)} families: {equal} have the weights that the library returns, "
        )
        text += f"to {TOLERANCE:g}; modules without weights are named in {named}.\n\n{head}\n{rows}\n\n"
    start, end = "<!-- families: start -->\n", "<!-- families: end -->\n"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(start)
    PAGE.write_text(before + start + text.rstrip("\n") + "\n" + end + rest.partition(end)[2], encoding="utf-8")


def _model(name: str, implementation: str | None) -> Any:
    torch.manual_seed(0)
    family = FAMILIES.get(name, Family(TEXT))
    config = transformers.AutoConfig.for_model(family.kind or name)
    settings = {**_shrunk(config), **family.settings}
    settings = {key: value for key, value in settings.items() if value is not None}
    config = transformers.AutoConfig.for_model(family.kind or name, **settings)
    model = transformers.AutoModel.from_config(config, attn_implementation=implementation).train(family.trains)
    for parameter in model.parameters():  # attention far from uniform
        if 1 < parameter.dim() < 4:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


def _shrunk(config: Any) -> dict[str, Any]:
    """Return the settings of the configuration, and of those inside of it, that make its model tiny."""
    settings: dict[str, Any] = {}
    for name, value in vars(config).items():
        if isinstance(value, transformers.PreTrainedConfig):
            settings[name] = _shrunk(value)
        elif name in SMALL and value is not None and not isinstance(value, list | tuple):
            settings[name] = SMALL[name]
    return settings


def _run(model: Any, inputs: Mapping[str, Any]) -> Any:
    torch.manual_seed(1)  # of models that draw
    return model(**inputs)


@torch.no_grad()
def _recorded(model: Any, inputs: Mapping[str, Tensor]) -> tuple[Recording, bool]:
    want = _tensors(_run(model, inputs))
    with record(model, detach=True) as tape:
        got = _tensors(_run(model, inputs))
    return tape, all(torch.equal(mine, theirs) for mine, theirs in zip(got, want, strict=True))


def _tensors(output: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(dict(output)) if isinstance(leaf, Tensor)]


def _returned(output: Any) -> list[Tensor]:
    """Return the weights that the library gives, also those of the models inside of a model."""
    found: list[Tensor] = []
    for name, value in output.items():
        if name.endswith("attentions"):
            found += [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
        elif hasattr(value, "items"):
            found += _returned(value)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
