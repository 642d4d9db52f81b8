"""Small models from one list of options: what encoder and decoder have in common is given once."""

from foci.models.build import build_seq2seq
from foci.models.captioner import build_captioner
from foci.models.image_answerer import ImageAnswerer
from foci.models.language_model import build_language_model
from foci.models.options.attention import AttentionOptions
from foci.models.options.decoders import (
    LANGUAGE_MODEL_PRESETS,
    ConvolutionalDecoderOptions,
    DecoderOptions,
    FeedForwardDecoderOptions,
    RecurrentDecoderOptions,
    TransformerDecoderOptions,
)
from foci.models.options.images import (
    CaptionerOptions,
    FrozenAnnotationOptions,
    GridAnnotationOptions,
    ImageAnswererOptions,
    ImageGridOptions,
)
from foci.models.options.seq2seq import SEQ2SEQ_KINDS, Seq2SeqOptions, seq2seq_preset
from foci.models.options.speech import NoDecoderOptions, RecognizerOptions, SpeechEncoderOptions
from foci.models.options.text_encoders import (
    ConvolutionalTextEncoderOptions,
    RecurrentTextEncoderOptions,
    SmoothedTextEncoderOptions,
    TextEncoderOptions,
    TransformerTextEncoderOptions,
)
from foci.models.recognizer import Recognizer

ATTENTION = [
    "score",
    "normalize",
    "focus",
    "sharpening",
    "radius",
    "window",
    "num_heads",
    "expectation_share",
    "initial_alignment",
    "content",
]
ATTENTION += ["num_filters", "kernel_size"]
BOTH_RECURRENT = ["embedding_dim", "embedding_init_range", "hidden_dim", "num_layers", "cell", "dropout"]


def _take(flat, names, **renamed):
    """Take these options out of ``flat``; ``renamed`` maps a field to its name there."""
    taken = {name: flat.pop(name) for name in names if name in flat}
    return taken | {field: flat.pop(name) for field, name in renamed.items() if name in flat}


def seq2seq_by_preset(source_vocabulary, target_vocabulary, kind, name):
    """A model by its kind (rnn, transformer, conv, abs) and the name of its preset."""
    tables = seq2seq_preset(name, *SEQ2SEQ_KINDS[kind])
    (encoder,) = (one for one in TextEncoderOptions.__args__ if one.kind == tables["encoder"]["kind"])
    (decoder,) = (one for one in DecoderOptions.__args__ if one.kind == tables["decoder"]["kind"])
    options = Seq2SeqOptions(
        encoder=encoder(**tables["encoder"]),
        decoder=decoder(**tables["decoder"]),
        attention=AttentionOptions(**tables["attention"]),
    )
    return build_seq2seq(source_vocabulary, target_vocabulary, options)


def recurrent_seq2seq(source_vocabulary, target_vocabulary, **flat):
    """A recurrent encoder and decoder; ``decoder`` is its variant."""
    both = {name: flat[name] for name in BOTH_RECURRENT if name in flat}
    for name in both:
        del flat[name]
    share = flat.pop("share_embeddings", False)
    size = {name: value for name, value in _take(flat, [], hidden_dim="encoder_dim").items() if value is not None}
    encoder = {**both, **_take(flat, ["bidirectional"]), **size}
    attention = _take(flat, ATTENTION, hidden_dim="attention_dim", max_length="max_length")
    decoder = {**both, "variant": flat.pop("decoder", "luong"), **flat}
    return build_seq2seq(
        source_vocabulary,
        target_vocabulary,
        Seq2SeqOptions(
            encoder=RecurrentTextEncoderOptions(**encoder),
            decoder=RecurrentDecoderOptions(**decoder),
            attention=AttentionOptions(**attention),
            share_embeddings=share,
        ),
    )


def conv_seq2seq(source_vocabulary, target_vocabulary, **flat):
    """A convolutional encoder and decoder."""
    embedding_dim, layers = flat.pop("embedding_dim", 256), ((256, 3),)
    encoder_layers, decoder_layers = flat.pop("encoder_layers", layers * 4), flat.pop("decoder_layers", layers * 3)
    share = flat.pop("share_embeddings", False)
    both = _take(flat, ["max_length", "dropout"])
    return build_seq2seq(
        source_vocabulary,
        target_vocabulary,
        Seq2SeqOptions(
            encoder=ConvolutionalTextEncoderOptions(embedding_dim=embedding_dim, layers=tuple(encoder_layers), **both),
            decoder=ConvolutionalDecoderOptions(layers=tuple(decoder_layers), **both, **flat),
            share_embeddings=share,
        ),
    )


def transformer(source_vocabulary, target_vocabulary, **flat):
    """The encoder and decoder of the Transformer; ``score`` and ``normalize`` are of every attention."""
    share, radius = flat.pop("share_embeddings", False), flat.pop("radius", None)
    own = _take(flat, ["tie_output", "copy"])
    layers = flat.pop("num_layers", 6)
    after = flat.pop("num_decoder_layers", layers)
    attention = {name: flat[name] for name in ("score", "normalize") if name in flat}
    windows = ({}, {}) if radius is None else ({"window": (radius, radius)}, {"window": (radius, 0)})
    return build_seq2seq(
        source_vocabulary,
        target_vocabulary,
        Seq2SeqOptions(
            encoder=TransformerTextEncoderOptions(num_layers=layers, **windows[0], **{"dropout": 0.1, **flat}),
            decoder=TransformerDecoderOptions(num_layers=after, **windows[1], **own, **{"dropout": 0.1, **flat}),
            attention=AttentionOptions(**attention),
            share_embeddings=share,
        ),
    )


def abs_summarizer(source_vocabulary, target_vocabulary, **flat):
    """The smoothed encoder with the feed-forward decoder."""
    both = _take(flat, ["dropout", "embedding_init_range"])
    encoder = _take(flat, ["smoothing"], embedding_dim="source_dim")
    attention = _take(flat, ["score", "normalize"])
    return build_seq2seq(
        source_vocabulary,
        target_vocabulary,
        Seq2SeqOptions(
            encoder=SmoothedTextEncoderOptions(**both, **encoder),
            decoder=FeedForwardDecoderOptions(**both, **flat),
            attention=AttentionOptions(**attention),
        ),
    )


def _annotations(flat):
    grid = _take(flat, ["num_stages", "depth", "stride", "block_attention", "reduction"], hidden_dim="region_dim")
    both = {**_take(flat, ["annotation_dim"]), **{name: flat[name] for name in ["dropout"] if name in flat}}
    network = flat.pop("encoder", "small")
    return (
        GridAnnotationOptions(**grid, **both)
        if network == "small"
        else FrozenAnnotationOptions(network=network, **both)
    )


def recurrent_captioner(vocabulary, feature_dim=None, **flat):
    """The captioner of Xu et al.; ``attention`` is soft, hard or gumbel."""
    encoder = _annotations(flat)
    kind = flat.pop("attention", "soft")
    options = {"score": "additive", **_take(flat, ATTENTION, hidden_dim="attention_dim")}
    if kind != "soft":
        options["normalize"] = {"hard": "sample", "gumbel": "gumbel"}[kind]
    losses = _take(flat, ["double_weight", "reward_weight", "entropy_weight"])
    decoder = {"variant": "xu", "cell": "lstm", "embedding_dim": 128, "hidden_dim": 256, **flat}
    return build_captioner(
        vocabulary,
        feature_dim,
        CaptionerOptions(
            encoder=encoder,
            decoder=RecurrentDecoderOptions(**decoder),
            attention=AttentionOptions(**options),
            **losses,
        ),
    )


def transformer_captioner(vocabulary, feature_dim=None, **flat):
    """The encoder of images with a Transformer's decoder."""
    encoder = _annotations(flat)
    losses = _take(flat, ["double_weight"])
    options = {"norm": "pre", **flat}
    return build_captioner(
        vocabulary,
        feature_dim,
        CaptionerOptions(encoder=encoder, decoder=TransformerDecoderOptions(**options), **losses),
    )


def recognizer(input_dim, vocabulary, **flat):
    """A recognizer; ``encoder`` and ``decoder`` are their kinds."""
    kind, variant, ctc = flat.pop("encoder", "convolutional"), flat.pop("decoder", "bahdanau"), flat.pop("ctc", True)
    size = flat.get("hidden_dim", 192)
    attention = {"score": "location_aware", "kernel_size": 51, **_take(flat, ATTENTION, hidden_dim="attention_dim")}
    encoder = {"hidden_dim": flat.pop("encoder_dim", size), "num_layers": flat.pop("num_layers", 2)}
    encoder |= _take(flat, ["subsampling_factor"]) | {name: flat[name] for name in ["dropout"] if name in flat}
    if kind in ("convolutional", "pyramidal"):
        encoder["cell"] = flat.get("cell", "gru")
    if kind == "transformer":
        model_dim = encoder.pop("hidden_dim")
        encoder |= {
            "model_dim": model_dim,
            "hidden_dim": 4 * model_dim,
            "norm": "pre",
            **_take(flat, [], num_heads="encoder_heads"),
        }
        encoder.setdefault("num_heads", 4)
    (speech,) = (one for one in SpeechEncoderOptions.__args__ if one.kind == kind)
    decoder = RecurrentDecoderOptions(
        variant=None if variant == "none" else variant, **{"hidden_dim": size, "embedding_dim": 64, **flat}
    )
    options = RecognizerOptions(
        encoder=speech(**encoder),
        decoder=NoDecoderOptions() if variant == "none" else decoder,
        attention=AttentionOptions(**attention),
        ctc=ctc,
    )
    return Recognizer(input_dim, vocabulary, options)


def image_answerer(vocabulary, num_answers, **flat):
    """Stacked attention; ``region_dim`` and the like are of the image network."""
    grid = _take(flat, ["num_stages", "depth", "stride", "block_attention"], hidden_dim="region_dim")
    attention = {"score": "additive", **_take(flat, ["score", "normalize"], hidden_dim="attention_dim")}
    options = ImageAnswererOptions(encoder=ImageGridOptions(**grid), attention=AttentionOptions(**attention), **flat)
    return ImageAnswerer(vocabulary, num_answers, options)


def transformer_language_model(vocabulary, context, **flat):
    """The decoder of the Transformer alone, with the options of the preset tiny but for what is given."""
    tiny = LANGUAGE_MODEL_PRESETS["transformer"]["tiny"]
    return build_language_model(vocabulary, context, TransformerDecoderOptions(**{**tiny, **flat}))
