"""Options of models: presets build, wrong values are refused, and torch is not imported."""

import subprocess
import sys
from dataclasses import fields, is_dataclass
from typing import get_args

import pytest

from foci.errors import ConfigError
from foci.layers.feed_forward import ACTIVATIONS
from foci.models.options import attention, decoders, images, memory, seq2seq, speech, text_encoders, words
from foci.models.options.attention import AttentionOptions
from foci.models.options.decoders import (
    ConvolutionalDecoderOptions,
    HistoryDecoderOptions,
    RecurrentDecoderOptions,
    TransformerDecoderOptions,
)
from foci.models.options.seq2seq import SEQ2SEQ_KINDS, Seq2SeqOptions, seq2seq_preset
from foci.models.options.text_encoders import (
    RecurrentTextEncoderOptions,
    SmoothedTextEncoderOptions,
    TransformerTextEncoderOptions,
)
from foci.options import Options

MODULES = (attention, decoders, images, memory, seq2seq, speech, text_encoders, words)
CLASSES = [
    found
    for module in MODULES
    for found in vars(module).values()
    if isinstance(found, type) and issubclass(found, Options) and found.__module__ == module.__name__
]


def of_kind(union, kind, table):
    (found,) = (one for one in get_args(union) if one.kind == kind)
    return found(**table)


def as_options(table, union):
    return of_kind(union, table["kind"], table)


def test_options_import_no_torch():
    names = ", ".join(module.__name__ for module in MODULES)
    code = f"import sys, {names}; sys.exit('torch' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("kind", CLASSES)
def test_defaults_fit_together(kind):
    made = kind()
    assert is_dataclass(made)
    assert all(field.kw_only for field in fields(made))


def test_choices_are_those_of_the_mechanisms():
    hints = TransformerTextEncoderOptions.__mro__[1].__annotations__
    assert all(repr(name)[1:-1] in hints["activation"] for name in ACTIVATIONS)


@pytest.mark.parametrize("name", SEQ2SEQ_KINDS)
def test_every_preset_of_a_sequence_model(name):
    encoder, decoder = SEQ2SEQ_KINDS[name]
    assert "tiny" in text_encoders.TEXT_ENCODER_PRESETS[encoder]
    for preset in text_encoders.TEXT_ENCODER_PRESETS[encoder]:
        tables = seq2seq_preset(preset, encoder, decoder)
        Seq2SeqOptions(
            encoder=as_options(tables["encoder"], text_encoders.TextEncoderOptions),
            decoder=as_options(tables["decoder"], decoders.DecoderOptions),
            attention=AttentionOptions(**tables["attention"]),
            share_embeddings=tables.get("share_embeddings", False),
        )


@pytest.mark.parametrize("encoder", text_encoders.TEXT_ENCODER_PRESETS)
@pytest.mark.parametrize("decoder", decoders.DECODER_PRESETS)
def test_tiny_is_a_preset_of_any_two_kinds(encoder, decoder):
    tables = seq2seq_preset("tiny", encoder, decoder)
    Seq2SeqOptions(
        encoder=as_options(tables["encoder"], text_encoders.TextEncoderOptions),
        decoder=as_options(tables["decoder"], decoders.DecoderOptions),
    )


def test_other_presets():
    for presets, union in (
        (decoders.LANGUAGE_MODEL_PRESETS, decoders.LanguageModelOptions),
        (words.ENTAILER_PRESETS, words.EntailerOptions),
        (memory.MEMORY_MODEL_PRESETS, memory.MemoryModelOptions),
        (speech.SPEECH_ENCODER_PRESETS["dilated"], None),
    ):
        for kind, tables in presets.items():
            for table in tables.values() if union is not None else ():
                of_kind(union, kind, table)
    for presets, kind in (
        (words.TAGGER_PRESETS, words.TaggerOptions),
        (words.READER_PRESETS, words.ReaderOptions),
        (words.HIERARCHICAL_PRESETS, words.HierarchicalClassifierOptions),
        (images.IMAGE_CLASSIFIER_PRESETS, images.ImageClassifierOptions),
    ):
        for table in presets.values():
            kind(**table)
    for preset in speech.RECOGNIZER_PRESETS:
        tables = speech.recognizer_preset(preset)
        as_options(tables["encoder"], speech.SpeechEncoderOptions)
        RecurrentDecoderOptions(**tables["decoder"])
        AttentionOptions(**tables["attention"])
    for decoder, presets in images.CAPTION_DECODER_PRESETS.items():
        for preset in presets:
            for encoder in images.ANNOTATION_PRESETS:
                tables = images.captioner_preset(preset, encoder, decoder)
                as_options(tables["encoder"], images.AnnotationOptions)
                AttentionOptions(**tables["attention"])
    with pytest.raises(ConfigError, match="preset of a smoothed encoder with a recurrent decoder 'luong'.*tiny"):
        seq2seq_preset("luong", "smoothed", "recurrent")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AttentionOptions(score="genral"), "unknown score of AttentionOptions 'genral'.*general"),
        (lambda: AttentionOptions(focus="local_p"), "radius is None with score None and focus 'local_p', expected it"),
        (lambda: AttentionOptions(radius=2), "radius is 2 with score None and focus 'global'"),
        (
            lambda: AttentionOptions(focus="median_window", window=(-1, 2)),
            r"window is \(-1, 2\), expected \(left, right",
        ),
        (lambda: AttentionOptions(kernel_size=4), "kernel_size is 4, expected an odd number"),
        (lambda: AttentionOptions(initial_alignment="first"), "expected an attention that depends on the previous"),
        (lambda: AttentionOptions(num_heads=2, score="additive"), "num_heads is 2, score is 'additive'"),
        (lambda: AttentionOptions(expectation_share=0.5), "expected normalize='sample' and one head"),
        (lambda: RecurrentDecoderOptions(hidden_dim=0), "RecurrentDecoderOptions: hidden_dim is 0, expected a whole"),
        (lambda: RecurrentDecoderOptions(dropout=1.0), "dropout is 1.0, expected a number from 0 to below 1"),
        (lambda: RecurrentDecoderOptions(tie_output=True, readout_dim=3), "tied with readout_dim 3"),
        (lambda: RecurrentDecoderOptions(variant="cho", copy=True), "copy is True with variant 'cho'"),
        (lambda: TransformerDecoderOptions(window=(3, 3)), r"window is \(3, 3\), expected \(3, 0\)"),
        (lambda: TransformerDecoderOptions(max_length=7), "expected a max_length for learned positions alone"),
        (lambda: TransformerTextEncoderOptions(num_heads=3), "model_dim is 512 and num_heads is 3"),
        (lambda: HistoryDecoderOptions(hidden_dim=512), "split is 3 and hidden_dim is 512"),
        (lambda: SmoothedTextEncoderOptions(smoothing=-1), "smoothing is -1, expected 0 or more"),
        (lambda: ConvolutionalDecoderOptions(layers=()), "layers is empty"),
        (lambda: speech.PyramidalSpeechEncoderOptions(num_layers=2), "num_layers is 2 with a subsampling_factor of 4"),
        (lambda: speech.DilatedSpeechEncoderOptions(subsampling_factor=3), "expected a power of 2"),
        (lambda: words.ReaderOptions(shared=True, hops=1), "shared is True with 1 hops"),
        (
            lambda: speech.RecognizerOptions(decoder=speech.NoDecoderOptions(), ctc=False),
            "there is neither a decoder nor CTC",
        ),
        (
            lambda: Seq2SeqOptions(decoder=ConvolutionalDecoderOptions(embedding_dim=3)),
            "decoder.embedding_dim is 3 and the encoder's positions have size 512",
        ),
        (
            lambda: Seq2SeqOptions(share_embeddings=True, decoder=RecurrentDecoderOptions(embedding_dim=3)),
            "embeddings of size 256 in the encoder and 3 in the decoder",
        ),
        (
            lambda: Seq2SeqOptions(share_embeddings=True, decoder=TransformerDecoderOptions()),
            "encoder.kind 'recurrent' and decoder.kind 'transformer'",
        ),
        (
            lambda: Seq2SeqOptions(decoder=TransformerDecoderOptions(), attention=AttentionOptions(score="additive")),
            "attention.score is 'additive', expected a score of several heads",
        ),
        (
            lambda: Seq2SeqOptions(
                encoder=RecurrentTextEncoderOptions(hidden_dim=256),
                decoder=ConvolutionalDecoderOptions(),
                attention=AttentionOptions(score="dot"),
            ),
            "score is 'dot', expected it to be left out",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
