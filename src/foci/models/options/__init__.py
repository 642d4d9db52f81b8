"""Options of all models: frozen dataclasses, and presets of sizes by name. Importing them does not import torch.

Parts of which a model has one of several are unions of classes with a ``kind``: `TextEncoderOptions`,
`DecoderOptions`, `SpeechEncoderOptions`, …; `Seq2SeqOptions`, `CaptionerOptions` and `RecognizerOptions` compose them.
"""
