"""Options of all models: frozen dataclasses, and presets of sizes by name. Importing them does not import torch.

Parts of which a model has one of several are unions of classes with a ``kind``: `TextEncoderOptions`,
`DecoderOptions`, `SpeechEncoderOptions`, …; `Seq2SeqOptions`, `CaptionerOptions` and `RecognizerOptions` compose them.
"""

from typing import TYPE_CHECKING

from foci.lazy import attach

__all__ = ["attention", "decoders", "detection", "images", "memory", "seq2seq", "speech", "text_encoders", "words"]

if TYPE_CHECKING:
    from foci.models.options import (
        attention,
        decoders,
        detection,
        images,
        memory,
        seq2seq,
        speech,
        text_encoders,
        words,
    )
else:
    __getattr__, __dir__ = attach(__name__, dict.fromkeys(__all__, __name__))
