"""Decoding

A Transformer with random weights, the same for both sides, translates sentences of 25 tokens into 40 (presets `base`
and `tiny`, batch 1 and 32, greedy search and a beam of 5), the encoder included. Greedy searches must give the same
tokens, beams the same best score; in 8-bit integers, where both sides round differently, the same lengths. The goals
against CTranslate2 are those of a prototype of `base`: 0.68, 0.72, 1.41 and 1.01 of its speed in float32, and 1.66,
2.19, 3.95 and 2.35 of its float32 speed with our 8-bit layers. They come from another machine, on which its own 8-bit
layers gave it 1.73, 1.41, 3.60 and 2.42 of its float32 speed; how much a processor gains by 8 bits depends on its
instructions, so the rows `int8`, where both sides have them, say more: the prototype had 0.96, 1.55, 1.10 and 0.97.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.groups.heads import copy_projections
from benchmarks.harness import Call, Case, call
from foci.decoding import GenerationConstraints, beam, encode_source, greedy
from foci.functional.positions import sinusoid
from foci.layers.incremental.quantized_linear import quantize
from foci.mechanisms.heads import MultiHeadAttention
from foci.models.build import build_seq2seq
from foci.models.options.seq2seq import Seq2SeqOptions, seq2seq_preset
from foci.options import from_tables

SOURCE, TARGET = 25, 40
VOCABULARY = 8000
FLOAT, INTEGER, MIXED = "float32", "int8", "int8, theirs float32"
GOALS = {
    FLOAT: {(1, 1): 0.68, (1, 5): 0.72, (32, 1): 1.41, (32, 5): 1.01},
    MIXED: {(1, 1): 1.66, (1, 5): 2.19, (32, 1): 3.95, (32, 5): 2.35},
}


def cases(peer: str, quick: bool) -> Iterator[Case]:
    """The cases against one peer."""
    measures = {"transformers": (FLOAT,), "ctranslate2": (FLOAT, INTEGER, MIXED)}[peer]
    for preset in ("tiny",) if quick else ("base", "tiny"):
        for batch in (1, 32):
            for width in (1, 5):
                for measure in measures:
                    yield _case(peer, preset, batch, width, measure)


def _case(peer: str, preset: str, batch: int, width: int, measure: str) -> Case:
    search = "greedy" if width == 1 else f"beam {width}"

    def inputs() -> tuple[Any, Tensor]:
        tables = {**seq2seq_preset(preset, "transformer", "transformer"), "share_embeddings": True}
        model = build_seq2seq(VOCABULARY, VOCABULARY, from_tables(Seq2SeqOptions, tables)).eval()
        return model, torch.randint(4, VOCABULARY, (batch, SOURCE))

    def ours(model: Any, source: Tensor) -> Call:
        ready = model if measure == FLOAT else quantize(model)
        valid = torch.ones_like(source, dtype=torch.bool)
        constraints = GenerationConstraints(min_length=TARGET, max_length=TARGET, banned=())

        def translate() -> object:
            start = encode_source(ready, source, valid)
            if width == 1:
                return _result([row[0].tokens for row in greedy(ready, start, constraints=constraints)], [], measure)
            found = beam(ready, start, size=width, length_penalty=1.0, length_form="average", constraints=constraints)
            return _result([row[0].tokens for row in found], [row[0].score for row in found], measure)

        return call(measure, translate)

    def theirs(model: Any, source: Tensor) -> Call:
        rival = {"transformers": _transformers, "ctranslate2": _ctranslate2}[peer]
        return call(measure, rival(model, source, width, measure))

    return Case(
        name=f"{preset}, batch {batch}, {search}",
        against={"transformers": "MarianMTModel.generate", "ctranslate2": "Translator"}[peer],
        measure=measure,
        inputs=inputs,
        ours=ours,
        theirs=theirs,
        goal=1.0
        if peer == "transformers"
        else GOALS.get(measure, {}).get((batch, width))
        if preset == "base"
        else None,
    )


def _result(tokens: Sequence[Sequence[int]], scores: Sequence[float], measure: str) -> Tensor:
    """Return the part of the results that both sides have to agree on."""
    if measure != FLOAT:
        return torch.tensor([len(row) for row in tokens])
    return torch.tensor(scores) if scores else torch.tensor(tokens)


def _transformers(model: Any, source: Tensor, width: int, measure: str) -> Call:
    from transformers import MarianConfig, MarianMTModel

    size, layers = model.decoder.output.in_features, len(model.encoder.layers)
    heads, hidden = _shape(model)
    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=size,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=hidden,
        decoder_ffn_dim=hidden,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        forced_eos_token_id=None,
        max_position_embeddings=256,
    )
    peer: Any = MarianMTModel(config).eval()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        peer.model.shared.weight.copy_(model.decoder.output.weight)
        for stack in (peer.model.encoder, peer.model.decoder):
            stack.embed_positions.weight.copy_(sinusoid(256, size))  # Marian's own have another order
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    for our, their in zip(
        [*model.encoder.layers, *model.decoder.layers], [*peer.model.encoder.layers, *peer.model.decoder.layers]
    ):
        copy_projections(our.self_attention, their.self_attn, names)
        their.self_attn_layer_norm.load_state_dict(our.around_self.norm.state_dict())
        if hasattr(our, "cross_attention"):
            copy_projections(our.cross_attention, their.encoder_attn, names)
            their.encoder_attn_layer_norm.load_state_dict(our.around_cross.norm.state_dict())
        their.fc1.load_state_dict(our.feed_forward.inner_layer.state_dict())
        their.fc2.load_state_dict(our.feed_forward.outer_layer.state_dict())
        their.final_layer_norm.load_state_dict(our.around_feed_forward.norm.state_dict())
    peer.tie_weights()

    def translate() -> object:
        found = peer.generate(
            source,
            attention_mask=torch.ones_like(source),
            num_beams=width,
            do_sample=False,
            min_new_tokens=TARGET,
            max_new_tokens=TARGET,
            return_dict_in_generate=True,
            output_scores=width > 1,
        )
        scores = found.sequences_scores.tolist() if width > 1 else []
        return _result(found.sequences[:, 1:].tolist(), scores, measure)

    return translate


def _ctranslate2(model: Any, source: Tensor, width: int, measure: str) -> Call:
    import ctranslate2
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    heads, _ = _shape(model)
    layers = len(model.encoder.layers)
    spec = TransformerSpec.from_config((layers, layers), heads, pre_norm=False, activation=Activation.RELU)
    for stack in (spec.encoder, spec.decoder):
        embeddings = stack.embeddings[0] if isinstance(stack.embeddings, list) else stack.embeddings
        embeddings.weight = _array(model.decoder.output.weight)
        stack.scale_embeddings = True
        stack.position_encodings.encodings = _array(sinusoid(256, model.decoder.output.in_features))
    spec.decoder.projection.weight = _array(model.decoder.output.weight)
    for our, their in zip([*model.encoder.layers, *model.decoder.layers], [*spec.encoder.layer, *spec.decoder.layer]):
        itself = our.self_attention
        _set_linear(their.self_attention.linear[0], itself.query_layer, itself.key_layer, itself.value_layer)
        _set_linear(their.self_attention.linear[1], itself.output_layer)
        _set_norm(their.self_attention.layer_norm, our.around_self.norm)
        if hasattr(our, "cross_attention"):
            cross: MultiHeadAttention = our.cross_attention
            _set_linear(their.attention.linear[0], cross.query_layer)
            _set_linear(their.attention.linear[1], cross.key_layer, cross.value_layer)
            _set_linear(their.attention.linear[2], cross.output_layer)
            _set_norm(their.attention.layer_norm, our.around_cross.norm)
        _set_linear(their.ffn.linear_0, our.feed_forward.inner_layer)
        _set_linear(their.ffn.linear_1, our.feed_forward.outer_layer)
        _set_norm(their.ffn.layer_norm, our.around_feed_forward.norm)
    words = ["<blank>", "<s>", "</s>", "<unk>", *(str(number) for number in range(4, VOCABULARY))]
    numbers = {word: number for number, word in enumerate(words)}
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.decoder_start_token = "<s>"
    with tempfile.TemporaryDirectory() as folder:
        spec.validate()
        spec.optimize()
        spec.save(folder)
        translator = ctranslate2.Translator(
            folder,
            compute_type="int8" if measure == INTEGER else "float32",
            inter_threads=1,
            intra_threads=torch.get_num_threads(),
        )
    sentences = [[words[number] for number in row] for row in source.tolist()]

    def translate() -> object:
        found = translator.translate_batch(
            sentences,
            beam_size=width,
            length_penalty=1.0,
            min_decoding_length=TARGET,
            max_decoding_length=TARGET,
            return_scores=width > 1,
        )
        tokens = [[numbers[word] for word in one.hypotheses[0]] for one in found]
        return _result(tokens, [one.scores[0] for one in found] if width > 1 else [], measure)

    return translate


def _shape(model: Any) -> tuple[int, int]:
    layer: Any = model.encoder.layers[0]
    return layer.self_attention.num_heads, layer.feed_forward.inner_layer.out_features


def _set_linear(spec: Any, *layers: nn.Linear) -> None:
    spec.weight = _array(torch.cat([layer.weight for layer in layers]))
    spec.bias = _array(torch.cat([layer.bias for layer in layers]))


def _set_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> Any:
    return tensor.detach().numpy()
