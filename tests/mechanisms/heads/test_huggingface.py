"""Attention layers of transformers' models, taken over by `from_huggingface`: whole texts, padding, windows, caches.

The models are tiny and random. A hook reads what a layer gets and what it returns; foci's layer gets the same.
"""

import pytest
import torch
import transformers
from torch import nn

from foci import masks
from foci.errors import ConfigError, UnknownNameError
from foci.mechanisms.heads import MultiHeadAttention
from foci.weights import Weights

B, LENGTHS, FIRST, VOCABULARY = 2, [11, 7], 7, 37
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2}
DECODER = SIZES | {"num_key_value_heads": 2, "intermediate_size": 16, "max_position_embeddings": 64}
DECODER |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
MIXED = {"head_dim": 10, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "original_max_position_embeddings": 32}
LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 16}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
EXPERTS |= {"shared_expert_intermediate_size": 16}
PHI = DECODER | {"sliding_window": 5}

MODELS = {
    "Llama": ("Llama", DECODER | {"attention_bias": True, "rope_parameters": LLAMA3}),
    "Llama, YaRN": (
        "Llama",
        DECODER | {"head_dim": 8, "rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 1.1}},
    ),
    "Mistral": ("Mistral", DECODER | {"sliding_window": 4, "head_dim": 6}),
    "Qwen2": ("Qwen2", DECODER | {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0}}),
    "Qwen3": ("Qwen3", DECODER | {"head_dim": 10, "rope_parameters": {"rope_type": "default", "rope_theta": 1e7}}),
    "Gemma 2": ("Gemma2", DECODER | MIXED | {"attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 7}),
    "Gemma 3": ("Gemma3Text", DECODER | MIXED | {"query_pre_attn_scalar": 7}),
    "GPT-OSS": ("GptOss", DECODER | MIXED | EXPERTS | {"attention_bias": True}),
    "Qwen3-Next": ("Qwen3Next", DECODER | EXPERTS | {"head_dim": 8, "layer_types": ["full_attention"] * 2}),
    "Phi-3": (
        "Phi3",
        PHI | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.7}},
    ),
    "GPT-2": ("GPT2", SIZES | {"scale_attn_by_inverse_layer_idx": True}),
}


def build(name, sizes, dtype=torch.float32, **more):
    torch.manual_seed(5)
    config = getattr(transformers, f"{name}Config")(**sizes, **more)
    model = getattr(transformers, f"{name}Model")(config).eval()
    model.set_attn_implementation("eager")
    for parameter in model.parameters():  # as initialized, the scores would hardly differ from one another
        nn.init.normal_(parameter, std=0.3)
    return model.to(dtype)


def attention_of(layer):
    return next(getattr(layer, name) for name in ("self_attn", "attn", "attention") if hasattr(layer, name))


def watch(layer):
    """The hidden states that the layer's attention gets, its output, and its weights, call by call."""
    calls = []

    def keep(module, args, kwargs, result):
        calls.append((args[0] if args else kwargs["hidden_states"], result[0], result[-1]))

    layer.register_forward_hook(keep, with_kwargs=True)
    return calls


def agree(read, output, weights, rows=slice(None), **tolerance):
    """Compare at the positions that exist: what padded queries read is not defined there and zeros or not here."""
    tolerance = tolerance or {"atol": 1e-6, "rtol": 1e-5}
    torch.testing.assert_close(read.output[rows], output[rows], **tolerance)
    torch.testing.assert_close(read.weights.dense().transpose(1, 2)[rows], weights.transpose(1, 2)[rows], **tolerance)


def padded(side):
    """Which positions exist: padded on the right, as in training, or on the left, as for generation."""
    right = masks.lengths(LENGTHS, max(LENGTHS))
    return right if side == "right" else right.flip(1)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    ("name", "number"),
    [(name, number) for name in MODELS for number in ([0, 1] if "layer_types" in MODELS[name][1] else [1])],
)
@torch.no_grad()
def test_a_decoder_layer_agrees_with_padding_windows_and_a_cache(name, number, side):
    model = build(*MODELS[name])
    layers = model.h if hasattr(model, "h") else model.layers
    theirs = attention_of(layers[number])
    ours, calls = MultiHeadAttention.from_huggingface(theirs), watch(theirs)
    length, valid = max(LENGTHS), padded(side)
    places = (valid.long().cumsum(dim=-1) - 1).clamp(min=0)  # as `generate` counts them
    tokens = torch.randint(3, VOCABULARY, (B, length)).masked_fill(~valid, 0)
    model(input_ids=tokens, attention_mask=valid.long(), position_ids=places)
    x, output, weights = calls.pop()
    agree(ours(x, x, mask=masks.keys(valid)), output, weights, valid)

    past, forms = None, [ours.empty_cache(B), ours.empty_cache(B, length)]
    if ours.window is not None:
        forms.append(ours.empty_cache(B, sliding=True))
    for begin, end in [(0, FIRST), *((step, step + 1) for step in range(FIRST, length))]:
        result = model(
            input_ids=tokens[:, begin:end],
            attention_mask=valid[:, :end].long(),
            position_ids=places[:, begin:end],
            past_key_values=past,
            use_cache=True,
        )
        past = result.past_key_values
        x, output, weights = calls.pop()
        rows = valid[:, begin:end]
        for place, state in enumerate(forms):
            covered = valid[:, : length if place == 1 else end]
            read = ours(x, x, mask=masks.keys(covered), state=state)
            forms[place] = read.state
            found = read.weights.dense()[..., : length if place != 1 else end]
            slots = min(weights.shape[-1], found.shape[-1])  # caches of a window have the last positions only
            agree(read._replace(weights=Weights.from_tensor(found[..., -slots:])), output, weights[..., -slots:], rows)


@pytest.mark.parametrize("name", ["Llama", "Gemma 3", "GPT-OSS"])
@torch.no_grad()
def test_in_half_precision(name):
    model = build(*MODELS[name], dtype=torch.bfloat16)
    theirs = attention_of(model.layers[0])
    ours, calls = MultiHeadAttention.from_huggingface(theirs), watch(theirs)
    model(input_ids=torch.randint(3, VOCABULARY, (B, 9)))
    x, output, weights = calls.pop()
    read = ours(x, x)
    assert read.output.dtype == torch.bfloat16
    agree(read, output, weights, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("number", [0, 1])
@torch.no_grad()
def test_t5_both_sides(number):
    sizes = {"vocab_size": VOCABULARY, "d_model": 24, "d_kv": 5, "num_heads": 4, "d_ff": 16, "num_layers": 2}
    model = build("T5", sizes, relative_attention_num_buckets=8, relative_attention_max_distance=9)
    source, target = torch.randint(3, VOCABULARY, (B, 11)), torch.randint(3, VOCABULARY, (B, 13))
    valid = masks.lengths(LENGTHS, 11)
    of_source = model.encoder.block[number].layer[0].SelfAttention
    of_target = model.decoder.block[number].layer[0].SelfAttention
    across = model.decoder.block[number].layer[1].EncDecAttention
    watched = {layer: watch(layer) for layer in (of_source, of_target, across)}
    model(input_ids=source, attention_mask=valid.long(), decoder_input_ids=target)
    firsts = {
        side: MultiHeadAttention.from_huggingface(side.block[0].layer[0].SelfAttention)
        for side in (model.encoder, model.decoder)
    }
    for layer, side, mask in ((of_source, model.encoder, masks.keys(valid)), (of_target, model.decoder, None)):
        x, output, weights = watched[layer].pop()
        ours = MultiHeadAttention.from_huggingface(layer)
        bias = None
        if number:  # the first layer's bias serves the others too
            bias = firsts[side].relative.bias(x.shape[1], x.shape[1])
        rows = valid if mask is not None else slice(None)
        agree(ours(x, x, mask=mask, bias=bias), output, weights, rows)
    x, output, weights = watched[across].pop()
    encoded = model.encoder(input_ids=source, attention_mask=valid.long()).last_hidden_state
    ours = MultiHeadAttention.from_huggingface(across)
    agree(ours(x, encoded, mask=masks.keys(valid)), output, weights)


@torch.no_grad()
def test_a_decoder_of_t5_step_by_step():
    sizes = {"vocab_size": VOCABULARY, "d_model": 24, "d_kv": 5, "num_heads": 4, "d_ff": 16, "num_layers": 2}
    model = build("T5", sizes, relative_attention_num_buckets=8, relative_attention_max_distance=9)
    layers = [block.layer[0].SelfAttention for block in model.decoder.block]
    calls, ours = [watch(layer) for layer in layers], [MultiHeadAttention.from_huggingface(layer) for layer in layers]
    source, target = torch.randint(3, VOCABULARY, (B, 7)), torch.randint(3, VOCABULARY, (B, 11))
    encoded, past = model.encoder(input_ids=source), None
    states = [[one.empty_cache(B), one.empty_cache(B, 11)] for one in ours]
    for begin, end in ((0, 4), (4, 5), (5, 6), (6, 11)):
        result = model(
            encoder_outputs=encoded, decoder_input_ids=target[:, begin:end], past_key_values=past, use_cache=True
        )
        past = result.past_key_values
        for number, one in enumerate(ours):
            x, output, weights = calls[number].pop()
            for form, size in enumerate((end, 11)):
                bias = None
                if number:  # the first layer's bias serves the others too
                    bias = nn.functional.pad(ours[0].relative.bias(end, end)[:, :, begin:], (0, size - end))
                read = one(x, x, state=states[number][form], bias=bias)
                states[number][form] = read.state
                agree(read._replace(weights=Weights.from_tensor(read.weights.dense()[..., :end])), output, weights)


@pytest.mark.parametrize(
    ("name", "more"), [("Bert", {"intermediate_size": 16, "is_decoder": True}), ("GPT2", {"add_cross_attention": True})]
)
@torch.no_grad()
def test_other_layers_of_decoders(name, more):
    """BERT's with a cache, and GPT-2's attention to an encoder."""
    model, x, encoded = build(name, SIZES | more), torch.randn(B, 8, 24), torch.randn(B, 7, 24)
    theirs = model.encoder.layer[0].attention if name == "Bert" else model.h[0].crossattention
    ours, calls, past = MultiHeadAttention.from_huggingface(theirs), watch(theirs), None
    state = ours.empty_cache(B) if name == "Bert" else None
    for begin, end in ((0, 4), (4, 5), (5, 8)):
        about = {} if name == "Bert" else {"encoder_hidden_states": encoded}
        result = model(inputs_embeds=x[:, begin:end], past_key_values=past, use_cache=True, **about)
        past = result.past_key_values
        hidden, output, weights = calls.pop()
        read = ours(hidden, encoded if about else hidden, state=state)
        state = read.state
        if name == "Bert":
            read = read._replace(output=theirs.output.LayerNorm(read.output + hidden))
        agree(read, output, weights)


@torch.no_grad()
def test_bert():
    model = build("Bert", SIZES | {"intermediate_size": 16})
    theirs = model.encoder.layer[1].attention
    ours, calls, valid = MultiHeadAttention.from_huggingface(theirs), watch(theirs), masks.lengths(LENGTHS, 11)
    model(input_ids=torch.randint(3, VOCABULARY, (B, 11)), attention_mask=valid.long())
    x, output, weights = calls.pop()
    read = ours(x, x, mask=masks.keys(valid))
    agree(read._replace(output=theirs.output.LayerNorm(read.output + x)), output, weights, valid)


def test_what_foci_does_not_have_is_refused():
    older = type("LlamaAttention", (nn.Module,), {})()  # transformers 4 keeps other attributes
    with pytest.raises(ConfigError, match=r"a LlamaAttention that cannot be read \(.*'q_proj'\), expected .*formers 5"):
        MultiHeadAttention.from_huggingface(older)
    with pytest.raises(UnknownNameError, match="unknown attention layer of transformers 'Linear'"):
        MultiHeadAttention.from_huggingface(nn.Linear(2, 3))
    dynamic = DECODER | {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}
    with pytest.raises(ConfigError, match="rope_type is 'dynamic', expected default, linear, yarn or llama3"):
        MultiHeadAttention.from_huggingface(build("Llama", dynamic).layers[0].self_attn)
    both = DECODER | MIXED | {"query_pre_attn_scalar": 7, "use_bidirectional_attention": True}
    with pytest.raises(ConfigError, match="use_bidirectional_attention"):
        MultiHeadAttention.from_huggingface(build("Gemma3Text", both).layers[0].self_attn)
