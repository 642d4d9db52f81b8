"""Whole networks, one per file.

`encoders` return `foci.layers.interfaces.EncoderOutput`, `decoders` take it (or nothing, as language models),
`encoder_decoder.EncoderDecoder` combines any two of them. The interfaces are in `foci.layers.interfaces`.
"""

from typing import TYPE_CHECKING

from foci.lazy import attach

__all__ = [
    "attention",
    "build",
    "captioner",
    "cloze_reader",
    "decoders",
    "decomposable",
    "detector",
    "encoder_decoder",
    "encoders",
    "entailer",
    "hierarchical",
    "image_answerer",
    "image_classifier",
    "language_model",
    "ntm",
    "options",
    "recognizer",
    "tagger",
    "word_aligner",
    "word_inputs",
]

if TYPE_CHECKING:
    from foci.models import (
        attention,
        build,
        captioner,
        cloze_reader,
        decoders,
        decomposable,
        detector,
        encoder_decoder,
        encoders,
        entailer,
        hierarchical,
        image_answerer,
        image_classifier,
        language_model,
        ntm,
        options,
        recognizer,
        tagger,
        word_aligner,
        word_inputs,
    )
else:
    __getattr__, __dir__ = attach(__name__, dict.fromkeys(__all__, __name__))
