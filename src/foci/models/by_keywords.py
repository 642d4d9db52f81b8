"""Models by keyword arguments, for settings that list the options of all parts in one table."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import fields
from itertools import pairwise
from typing import Any, get_type_hints

from torch import nn

from foci.models.captioner import build_captioner
from foci.models.image_answerer import ImageAnswerer
from foci.models.language_model import build_language_model
from foci.models.options.attention import AttentionOptions
from foci.models.options.decoders import HistoryDecoderOptions, RecurrentDecoderOptions, TransformerDecoderOptions
from foci.models.options.images import (
    CaptionerOptions,
    FrozenAnnotationOptions,
    GridAnnotationOptions,
    ImageAnswererOptions,
    ImageGridOptions,
)
from foci.models.options.speech import (
    ConvolutionalSpeechEncoderOptions,
    DilatedSpeechEncoderOptions,
    NoDecoderOptions,
    PyramidalSpeechEncoderOptions,
    RecognizerOptions,
    TransformerSpeechEncoderOptions,
)
from foci.models.recognizer import Recognizer


def by_keywords(model: Callable[..., nn.Module], options: type[Any]) -> Callable[..., nn.Module]:
    """Return a function that takes the fields of the options as keyword arguments."""

    def build(*sizes: Any, **given: Any) -> nn.Module:
        return model(*sizes, options(**given))

    listed = [one for one in fields(options) if one.name != "kind"]
    hints, docs = get_type_hints(options), _docs(options)
    build.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default) for one in listed]
    )
    build.__annotations__ = {one.name: hints[one.name] for one in listed}
    build.__doc__ = "Build a model.\n\nArgs:\n" + "\n".join(f"    {one.name}: {docs[one.name]}" for one in listed)
    return build


def _docs(options: type[Any]) -> dict[str, str]:
    docs = {}
    for base in reversed(options.__mro__[:-1]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        for one, below in pairwise(getattr(definition, "body", [])):
            if isinstance(one, ast.AnnAssign) and isinstance(below, ast.Expr):
                docs[ast.unparse(one.target)] = " ".join(str(ast.literal_eval(below.value)).split())
    return docs


def recurrent_captioner(
    vocabulary: int,
    feature_dim: int | None = None,
    *,
    encoder: Any = "small",
    attention: Any = "soft",
    score: Any = "additive",
    normalize: Any = "softmax",
    focus: Any = "global",
    radius: int | None = None,
    reach: tuple[int, int] | None = None,
    sharpening: float = 1.0,
    num_heads: int | None = None,
    embedding_dim: int = 128,
    embedding_range: float = 0.1,
    hidden_dim: int = 256,
    annotation_dim: int | None = None,
    attention_dim: int | None = None,
    cell: Any = "lstm",
    region_dim: int = 64,
    num_stages: int = 3,
    depth: int = 1,
    stride: int = 1,
    block_attention: Any = "none",
    reduction: int = 4,
    kernel_size: int = 7,
    dropout: float = 0.0,
    double_weight: float = 0.0,
    reward_weight: float = 0.1,
    entropy_weight: float = 0.002,
    expectation_share: float = 0.5,
) -> nn.Module:
    """The captioner of the paper: an LSTM with attention to the regions of an image.

    Call it as ``model(CaptionedImages(images, image_of), None, target, targets)``; with images ``(I, 3, H, W)``, bytes,
    or features ``(I, h, w, D)``.

    Args:
        vocabulary: number of words.
        feature_dim: size of the features that were computed before; not used by the encoder "small".
        encoder: "small", a residual network that is trained with the rest; or the name of the network whose features
            the model gets.
        attention: "soft"; "hard", sampled regions trained by REINFORCE; or "gumbel", sampled regions with straight-
            through gradients.
        score, normalize, focus, radius, reach, sharpening: of the attention, as in `foci.Attention`; hard and gumbel
            have their own normalizers.
        num_heads: use multi-head attention, as in `foci.models.decoders.recurrent.RecurrentDecoder`.
        embedding_dim: size of the word embeddings.
        embedding_range: the embeddings start uniform within ± this.
        hidden_dim: size of the LSTM's state.
        annotation_dim: size of the annotations. Default: features and places as they are.
        attention_dim: size in which the state and the annotations are compared. Default: the state's.
        cell: "lstm" or "gru".
        region_dim: channels of the last stage of the small network.
        num_stages, depth, stride, reduction, kernel_size: of the small network, as in `ImageGridEncoder`.
        block_attention: attention in the blocks of the small network: "none", "squeeze_excitation",
            "efficient_channel", "cbam" or "spatial".
        dropout: on regions and word embeddings, and before the output layer.
        double_weight: λ of the doubly stochastic term, 1 in the paper.
        reward_weight: λ_r of hard attention.
        entropy_weight: λ_e of hard attention.
        expectation_share: share of the captions that read the weighted sum in training with hard attention.
    """
    decoder = RecurrentDecoderOptions(
        variant="xu",
        embedding_dim=embedding_dim,
        embedding_init_range=embedding_range,
        hidden_dim=hidden_dim,
        cell=cell,
        dropout=dropout,
    )
    options = AttentionOptions(
        score=score,
        normalize={"soft": normalize, "hard": "sample", "gumbel": "gumbel"}[attention],
        focus=focus,
        radius=radius,
        window=reach,
        sharpening=sharpening,
        num_heads=num_heads,
        hidden_dim=attention_dim,
        expectation_share=expectation_share if attention == "hard" else None,
    )
    grid = {"num_stages": num_stages, "depth": depth, "stride": stride, "block_attention": block_attention}
    annotations = _annotations(
        encoder, annotation_dim, dropout, hidden_dim=region_dim, reduction=reduction, kernel_size=kernel_size, **grid
    )
    return build_captioner(
        vocabulary,
        feature_dim,
        CaptionerOptions(
            encoder=annotations,
            decoder=decoder,
            attention=options,
            double_weight=double_weight,
            reward_weight=reward_weight,
            entropy_weight=entropy_weight,
        ),
    )


def _annotations(
    encoder: str, annotation_dim: int | None, dropout: float, **grid: Any
) -> GridAnnotationOptions | FrozenAnnotationOptions:
    if encoder == "small":
        return GridAnnotationOptions(annotation_dim=annotation_dim, dropout=dropout, **grid)
    return FrozenAnnotationOptions(network=encoder, annotation_dim=annotation_dim, dropout=dropout)


def transformer_captioner(
    vocabulary: int,
    feature_dim: int | None = None,
    *,
    encoder: Any = "small",
    model_dim: int = 256,
    annotation_dim: int | None = None,
    num_heads: int = 8,
    hidden_dim: int = 1024,
    num_layers: int = 3,
    norm: Any = "pre",
    score: Any = "scaled_dot",
    normalize: Any = "softmax",
    positions: Any = "sinusoidal",
    max_length: int | None = None,
    region_dim: int = 64,
    num_stages: int = 3,
    depth: int = 1,
    stride: int = 1,
    block_attention: Any = "none",
    reduction: int = 4,
    kernel_size: int = 7,
    dropout: float = 0.1,
    double_weight: float = 0.0,
) -> nn.Module:
    """The same encoder with a Transformer's decoder, whose every layer attends to the regions.

    Args:
        vocabulary: number of words.
        feature_dim: size of the features that were computed before; not used by the encoder "small".
        encoder: as in `RecurrentCaptioner`.
        model_dim: size of every position.
        annotation_dim: size of the annotations. Default: features and places as they are.
        num_heads: heads of every attention.
        hidden_dim: inner size of the feed-forward networks.
        num_layers: number of layers.
        norm: "post" (2017) or "pre".
        score, normalize: of every attention, as in `foci.models.transformer.Transformer`.
        positions: "sinusoidal", "learned", "rotary" or "alibi".
        max_length: the number of learned positions.
        region_dim: channels of the last stage of the small network.
        num_stages, depth, stride, block_attention, reduction, kernel_size: of the small network, as in
            `RecurrentCaptioner`.
        dropout: on regions and embeddings, and of every sublayer's output.
        double_weight: λ of the doubly stochastic term, for the mean over the heads of the last layer.
    """
    decoder = TransformerDecoderOptions(
        model_dim=model_dim,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        num_layers=num_layers,
        norm=norm,
        dropout=dropout,
        score=score,
        normalize=normalize,
        positions=positions,
        max_length=max_length,
    )
    grid = {"num_stages": num_stages, "depth": depth, "stride": stride, "block_attention": block_attention}
    annotations = _annotations(
        encoder, annotation_dim, dropout, hidden_dim=region_dim, reduction=reduction, kernel_size=kernel_size, **grid
    )
    attention = AttentionOptions(score=score, normalize=normalize)
    options = CaptionerOptions(encoder=annotations, decoder=decoder, attention=attention, double_weight=double_weight)
    return build_captioner(vocabulary, feature_dim, options)


def transformer_language_model(
    vocabulary: int,
    context: int,
    *,
    model_dim: int = 128,
    num_heads: int = 4,
    hidden_dim: int = 512,
    num_layers: int = 4,
    positions: Any = "rotary",
    norm: Any = "pre",
    rms_norm: bool = False,
    qk_norm: bool = True,
    activation: Any = "relu2",
    bias: bool = False,
    zero_residual: bool = True,
    logit_cap: float | None = None,
    tie_output: bool = False,
    scale_embeddings: bool = False,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    window: int | None = None,
    normalize: Any = "softmax",
) -> nn.Module:
    """The decoder of the Transformer alone.

    Args:
        vocabulary: number of tokens.
        context: the number of tokens of a window, and of learned positions.
        model_dim: size of every position.
        num_heads: heads of every attention.
        hidden_dim: inner size of the feed-forward networks.
        num_layers: number of layers.
        positions: "rotary", "alibi", "sinusoidal" or "learned".
        norm: "pre" or "post", where the norms stand.
        rms_norm: RMSNorm instead of LayerNorm.
        qk_norm: normalize queries and keys.
        activation: "relu2" (the square of ReLU), "gelu" or "relu".
        bias: give linear layers a bias.
        zero_residual: start the layers that end a sublayer at 0.
        logit_cap: keep the logits between −logit_cap and logit_cap. Default: no bound.
        tie_output: use the embedding table also as the matrix before the softmax.
        scale_embeddings: multiply embeddings by sqrt(model_dim).
        dropout: of embeddings and of every sublayer's output.
        attention_dropout: of the attention weights.
        window: how many earlier tokens each layer reads. Default: all of the context.
        normalize: of every attention: "softmax", "sparsemax", "entmax15", …
    """
    options = TransformerDecoderOptions(
        model_dim=model_dim,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        num_layers=num_layers,
        positions=positions,
        norm=norm,
        rms_norm=rms_norm,
        qk_norm=qk_norm,
        activation=activation,
        bias=bias,
        zero_residual=zero_residual,
        logit_cap=logit_cap,
        tie_output=tie_output,
        scale_embeddings=scale_embeddings,
        dropout=dropout,
        attention_dropout=attention_dropout,
        window=None if window is None else (window, 0),
        normalize=normalize,
    )
    return build_language_model(vocabulary, context, options)


def recurrent_language_model(
    vocabulary: int,
    context: int,
    *,
    embedding_dim: int = 64,
    hidden_dim: int = 256,
    num_layers: int = 1,
    cell: Any = "lstm",
    tie_output: bool = False,
    dropout: float = 0.0,
) -> nn.Module:
    """An LSTM or GRU.

    Args:
        vocabulary: number of tokens.
        context: the number of tokens of a window.
        embedding_dim: size of the embeddings.
        hidden_dim: size of the recurrent state.
        num_layers: number of recurrent layers.
        cell: "lstm" or "gru".
        tie_output: use the embedding table also as the matrix before the softmax.
        dropout: on embeddings, between layers, and before the output layer.
    """
    options = RecurrentDecoderOptions(
        embedding_dim=embedding_dim,
        hidden_dim=hidden_dim,
        num_layers=num_layers,
        cell=cell,
        tie_output=tie_output,
        dropout=dropout,
    )
    return build_language_model(vocabulary, context, options)


def history_language_model(
    vocabulary: int,
    context: int,
    *,
    embedding_dim: int = 64,
    hidden_dim: int = 255,
    num_layers: int = 1,
    span: int = 15,
    split: int = 3,
    dropout: float = 0.0,
) -> nn.Module:
    """An LSTM with attention over its own history.

    Args:
        vocabulary: number of tokens.
        context: the number of tokens of a window.
        embedding_dim: size of the embeddings.
        hidden_dim: size of the recurrent state.
        num_layers: number of recurrent layers.
        span: number of earlier tokens that are read.
        split: parts of the LSTM's output: 3 for key, value and prediction, 2 for a key and the rest, 1 for one vector.
        dropout: on embeddings, between layers, and before the output layer.
    """
    options = HistoryDecoderOptions(
        embedding_dim=embedding_dim,
        hidden_dim=hidden_dim,
        num_layers=num_layers,
        span=span,
        split=split,  # type: ignore[arg-type]
        dropout=dropout,
    )
    return build_language_model(vocabulary, context, options)


def recognizer(
    input_dim: int,
    vocabulary: int,
    *,
    encoder: Any = "conv",
    decoder: Any = "bahdanau",
    ctc: bool = True,
    hidden_dim: int = 192,
    encoder_dim: int | None = None,
    embedding_dim: int = 64,
    num_layers: int = 2,
    reduction: int = 4,
    cell: Any = "gru",
    encoder_heads: int = 4,
    score: Any = "location_aware",
    content: bool = True,
    num_filters: int = 10,
    width: int = 51,
    normalize: Any = "softmax",
    focus: Any = "global",
    sharpening: float = 1.0,
    reach: tuple[int, int] | None = None,
    start_at_first: bool = False,
    attention_dim: int | None = None,
    num_heads: int | None = None,
    dropout: float = 0.0,
) -> nn.Module:
    """A speech encoder with a recurrent decoder, CTC, or both.

    Args:
        input_dim: features per frame.
        vocabulary: number of tokens, those of BOS, EOS and padding included.
        encoder: "conv" (strided convolutions and a recurrent network), "dilated" (convolutions alone), "pyramid" or
            "transformer".
        decoder: "bahdanau" (attention before the recurrent step), "luong" (after it), or "none" for CTC alone.
        ctc: whether there is a CTC output.
        hidden_dim: size of the decoder's state.
        encoder_dim: size of the cells, both directions together. Default: the decoder's.
        embedding_dim: size of the embeddings.
        num_layers: layers of the encoder after its convolutions.
        reduction: frames per cell, a power of 2.
        cell: "lstm" or "gru".
        encoder_heads: heads of self-attention with encoder="transformer".
        score: "location_aware" (Chorowski), or any of `foci.Attention`: "additive", "general", "scaled_dot", "dot", …
        content: whether location_aware also compares content; without it, it reads by location alone.
        num_filters: filters over the previous weights, with location_aware.
        width: cells that a filter covers, odd.
        normalize, focus, sharpening, reach: as in `foci.Attention`: normalize="sigmoid" is Chorowski's smoothing,
            focus="median_window" with reach his windowing.
        start_at_first: begin to read at the first cell, with location_aware or median_window: for recordings that are
            longer than those of the training. Otherwise the first token may be found anywhere.
        attention_dim: hidden size of the score.
        num_heads: use multi-head attention, with score "scaled_dot", "dot" or "cosine".
        dropout: on features between layers, embeddings, and before the output layers.
    """
    size = hidden_dim if encoder_dim is None else encoder_dim
    sizes: dict[str, Any] = {"num_layers": num_layers, "subsampling_factor": reduction, "dropout": dropout}
    block: dict[str, Any] = {"model_dim": size, "num_heads": encoder_heads, "hidden_dim": 4 * size, "norm": "pre"}
    encoders: dict[str, Callable[[], Any]] = {
        "conv": lambda: ConvolutionalSpeechEncoderOptions(hidden_dim=size, cell=cell, **sizes),
        "dilated": lambda: DilatedSpeechEncoderOptions(hidden_dim=size, **sizes),
        "pyramid": lambda: PyramidalSpeechEncoderOptions(hidden_dim=size, cell=cell, **sizes),
        "transformer": lambda: TransformerSpeechEncoderOptions(**block, **sizes),
    }
    recurrent = RecurrentDecoderOptions(
        variant=None if decoder == "none" else decoder,
        embedding_dim=embedding_dim,
        hidden_dim=hidden_dim,
        cell=cell,
        dropout=dropout,
    )
    attention = AttentionOptions(
        score=score,
        content=content,
        num_filters=num_filters,
        kernel_size=width,
        normalize=normalize,
        focus=focus,
        sharpening=sharpening,
        window=reach,
        initial_alignment="first" if start_at_first else "none",
        hidden_dim=attention_dim,
        num_heads=num_heads,
    )
    options = RecognizerOptions(
        encoder=encoders[encoder](),
        decoder=NoDecoderOptions() if decoder == "none" else recurrent,
        attention=attention,
        ctc=ctc,
    )
    return Recognizer(input_dim, vocabulary, options)


def image_answerer(
    vocabulary: int,
    num_answers: int,
    *,
    embedding_dim: int = 64,
    hidden_dim: int = 128,
    attention_dim: int | None = None,
    num_hops: int = 2,
    score: Any = "additive",
    normalize: Any = "softmax",
    cell: Any = "lstm",
    region_dim: int = 64,
    num_stages: int = 3,
    depth: int = 1,
    stride: int = 1,
    attention: Any = "none",
    reduction: int = 4,
    kernel_size: int = 7,
    dropout: float = 0.0,
    fusion: Any = "concat",
) -> nn.Module:
    """Answers questions about images.

    Call it with ``images (I, 3, H, W)``, bytes from 0 to 255, and ``questions (B, T)``, word ids padded with 0;
    ``image_of (B)`` has the number of each question's image, where that is not its own number. Each image is encoded
    once, however many questions are about it.

    Args:
        vocabulary: number of word ids.
        num_answers: number of answers.
        embedding_dim: size of the word embeddings.
        hidden_dim: size of the question, and of a region as it is compared with it.
        attention_dim: size in which both are compared. Default: hidden_dim.
        num_hops: how often the image is looked at.
        score, normalize: of each hop, as in `foci.Attention`.
        cell: "lstm" or "gru", of the question.
        region_dim: channels of the last stage of the image network.
        num_stages, depth, stride, attention, reduction, kernel_size: of the image network, as in `ImageGridEncoder`.
        dropout: on word embeddings, and before the output layer.
        fusion: how the question and what was read meet before the answer: "concat", the hidden layer above, or
            "product", which multiplies them.
    """
    options = ImageAnswererOptions(
        embedding_dim=embedding_dim,
        hidden_dim=hidden_dim,
        num_hops=num_hops,
        cell=cell,
        dropout=dropout,
        fusion=fusion,
        encoder=ImageGridOptions(
            hidden_dim=region_dim,
            num_stages=num_stages,
            depth=depth,
            stride=stride,
            block_attention=attention,
            reduction=reduction,
            kernel_size=kernel_size,
        ),
        attention=AttentionOptions(score=score, normalize=normalize, hidden_dim=attention_dim),
    )
    return ImageAnswerer(vocabulary, num_answers, options)


CAPTIONER_PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {
        "embedding_dim": 32,
        "embedding_range": 1.7,
        "hidden_dim": 64,
        "region_dim": 32,
        "num_stages": 2,
        "stride": 2,
        "sharpening": 5.0,
    },
    "base": {"embedding_dim": 128, "hidden_dim": 256, "region_dim": 64, "num_stages": 2, "stride": 2},
    "xu": {
        "embedding_dim": 256,
        "hidden_dim": 512,
        "annotation_dim": 512,
        "attention_dim": 256,
        "region_dim": 128,
        "num_stages": 4,
        "dropout": 0.5,
        "double_weight": 1.0,
    },
}
TRANSFORMER_CAPTIONER_PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {
        "model_dim": 64,
        "num_heads": 4,
        "hidden_dim": 128,
        "num_layers": 2,
        "norm": "pre",
        "region_dim": 32,
        "num_stages": 2,
        "stride": 2,
        "dropout": 0.0,
    },
    "base": {
        "model_dim": 256,
        "num_heads": 8,
        "hidden_dim": 1024,
        "num_layers": 3,
        "norm": "pre",
        "region_dim": 64,
        "num_stages": 2,
        "stride": 2,
    },
}
LANGUAGE_MODEL_PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"model_dim": 128, "num_heads": 4, "hidden_dim": 512, "num_layers": 4},
    "small": {"model_dim": 256, "num_heads": 4, "hidden_dim": 1024, "num_layers": 6},
    "gpt2": {
        "model_dim": 128,
        "num_heads": 4,
        "hidden_dim": 512,
        "num_layers": 4,
        "positions": "learned",
        "activation": "gelu",
        "bias": True,
        "qk_norm": False,
        "zero_residual": False,
        "tie_output": True,
    },
}
RECURRENT_PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 64, "hidden_dim": 256},
    "small": {"embedding_dim": 128, "hidden_dim": 512, "num_layers": 2},
}
HISTORY_PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 64, "hidden_dim": 258},
    "small": {"embedding_dim": 128, "hidden_dim": 516, "num_layers": 2},
}
RECOGNIZER_PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {
        "encoder": "dilated",
        "hidden_dim": 64,
        "embedding_dim": 32,
        "num_layers": 4,
        "attention_dim": 48,
        "width": 31,
        "dropout": 0.1,
    },
    "small": {"hidden_dim": 192, "embedding_dim": 64, "num_layers": 2, "attention_dim": 128, "dropout": 0.2},
    "base": {"hidden_dim": 320, "embedding_dim": 96, "num_layers": 3, "attention_dim": 192, "dropout": 0.3},
    "chorowski": {
        "hidden_dim": 256,
        "encoder_dim": 512,
        "num_layers": 3,
        "attention_dim": 512,
        "width": 201,
        "reduction": 1,
        "ctc": False,
    },
    "las": {
        "encoder": "pyramid",
        "cell": "lstm",
        "hidden_dim": 512,
        "encoder_dim": 512,
        "num_layers": 4,
        "reduction": 8,
        "score": "general",
        "ctc": False,
    },
}
ANSWERER_PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 32, "hidden_dim": 64, "region_dim": 32, "stride": 2},
    "base": {"embedding_dim": 64, "hidden_dim": 128, "region_dim": 64, "stride": 2},
    "yang": {"embedding_dim": 500, "hidden_dim": 500, "attention_dim": 512, "region_dim": 128, "num_stages": 4},
}
