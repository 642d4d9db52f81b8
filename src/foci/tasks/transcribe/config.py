"""The settings of speech recognition: of a training, and of what is transcribed and evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import Field

from foci.errors import ConfigError
from foci.files import FilePath
from foci.models.options.decoders import RecurrentDecoderOptions
from foci.models.options.speech import (
    ConvolutionalSpeechEncoderOptions,
    NoDecoderOptions,
    RecognizerOptions,
    SpeechEncoderOptions,
    recognizer_preset,
)
from foci.settings import settings
from foci.tasks.frame.config import Promise, TaskConfig, kind_of
from foci.tasks.frame.data_settings import DATA_FLAGS, Columns, HeldOutData
from foci.training.options import TrainingOptions

MORSE_FEATURES = {"sample_rate": 8000, "bins": 1, "lowest": 300.0, "highest": 1200.0}
"""One filter over all pitches: with several, each sign has to be learned anew at every pitch."""
BUILT_IN = 4000
"""How many Morse messages are trained on where no data is named."""


OutputFormat = Literal["text", "ctm", "srt"]


@settings
class DataConfig(HeldOutData):
    """The recordings with their transcripts: a manifest, or built-in Morse code."""

    path: FilePath | None = None
    """A manifest: .jsonl with audio and text, .tsv or .csv with two columns (also .gz, .xz), or a folder with Kaldi's
    wav.scp and text. Audio is wav, flac, ogg, mp3, or features (.npy, Sphinx .mfc). Without data, Morse code is used.
    """
    columns: Columns | None = None
    """Columns (numbers from 0, or names) of audio and text in a table, or their fields in a JSONL file."""
    builtin: Annotated[int, Ge(2)] | None = None
    """Train on this many built-in messages in Morse code instead, rendered as sound."""
    morse_words: Annotated[int, Ge(1)] = 2
    """Words of the longest of these messages."""
    max_seconds: Annotated[float, Gt(0), Le(86_400)] = 30.0
    """Longer recordings are not trained on; they are listed and counted."""
    batch_frames: Annotated[int, Ge(1)] = 20_000
    """Frames per batch, padding included."""
    batch_size: Annotated[int, Ge(1)] = 32
    """Utterances per batch."""
    speeds: Annotated[tuple[Annotated[float, Ge(0.5), Le(2.0)], ...], MinLen(1)] = (1.0,)
    """Speeds at which each training utterance is played, such as 0.9, 1.0, 1.1 for three times the data."""
    sort_by_length_epochs: Annotated[int, Ge(0)] = 1
    """Epochs at the beginning that go from short utterances to long ones."""


@settings
class FeatureConfig:
    """How sound becomes features: Kaldi's log-mel filter banks. Files of features are taken as they are."""

    sample_rate: Annotated[int, Ge(1000), Le(96_000)] = 16_000
    """Samples per second; recordings at other rates are resampled."""
    bins: Annotated[int, Ge(1), Le(1000)] = 80
    """Number of mel filters."""
    window_ms: Annotated[float, Gt(0), Le(10_000)] = 25.0
    """Milliseconds of a frame."""
    hop_ms: Annotated[float, Gt(0), Le(10_000)] = 10.0
    """Milliseconds from one frame to the next; also of files of features."""
    lowest: Annotated[float, Ge(0), Le(384_000)] = 20.0
    """Lowest frequency of the filters."""
    highest: Annotated[float, Ge(-384_000), Le(384_000)] = 0.0
    """Highest frequency of the filters; 0 or less counts from half of the rate."""
    dynamic_range: Annotated[float, Gt(0), Le(1000)] | None = None
    """Decibels below the loudest feature of a recording at which features are cut off, such as 40: for recordings with
    samples of exactly 0 beside noise."""
    deltas: Annotated[int, Ge(0), Le(3)] = 0
    """Derivatives in time beside each feature; 2 are usual for cepstra."""
    normalize: Literal["utterance", "global", "none"] = "utterance"
    """Mean 0 and deviation 1 of each feature: in each utterance, over all training data (global), or none."""
    upsample: bool = False
    """Train on recordings of a lower rate too; their upper bands are empty. Otherwise they are left out."""


@settings
class TokenizerConfig:
    """How transcripts are split: learned from the training data and kept in the run."""

    kind: Literal["characters", "bpe", "unigram", "words"] = "characters"
    """characters; bpe and unigram learn subwords; words are also for phones with spaces between them."""
    size: Annotated[int, Ge(5), Le(1_000_000)] = 2000
    """Largest size of the vocabulary."""
    case: Literal["keep", "upper", "lower"] = "keep"
    """Whether transcripts are put into upper or lower case. In lower case I becomes i, in Turkish too."""


@settings
class SpecAugmentConfig:
    """SpecAugment: stretches of features and time that are masked in training. Default: none."""

    feature_masks: Annotated[int, Ge(0)] = 0
    """Masks over features."""
    feature_width: Annotated[int, Ge(0)] = 10
    """Largest number of features of each."""
    time_masks: Annotated[int, Ge(0)] = 0
    """Masks over time."""
    time_width: Annotated[int, Ge(0)] = 40
    """Largest number of frames of each."""
    time_share: Annotated[float, Ge(0), Le(1)] = 0.2
    """Largest share of an utterance of each mask over time."""


@settings
class CtcConfig:
    """The share of CTC in the loss, where the model has both a decoder and CTC."""

    weight: Annotated[float, Ge(0), Le(1)] = 0.5
    """At the beginning."""
    final_weight: Annotated[float, Ge(0), Le(1)] = 0.3
    """At the end."""
    steps: Annotated[int, Ge(1)] = 2000
    """Over how many steps it changes from the one to the other, linearly."""


@settings
class ModelConfig(RecognizerOptions):
    """Which model."""

    preset: Literal["tiny", "small", "base", "chorowski", "las"] = "small"
    """The sizes of the model by name."""
    encoder: Annotated[SpeechEncoderOptions, Field(discriminator="kind")] = ConvolutionalSpeechEncoderOptions()
    """The encoder of the frames."""
    decoder: Annotated[RecurrentDecoderOptions | NoDecoderOptions, Field(discriminator="kind")] = (
        RecurrentDecoderOptions()
    )
    """The decoder of the tokens, or none."""


@settings
class TranscribeConfig(TaskConfig):
    """All settings of a training."""

    flags = {
        **DATA_FLAGS,
        "rate": "features.sample_rate",
        "tokenizer": "tokenizer.kind",
        "encoder": "model.encoder.kind",
        "decoder": "model.decoder.kind",
        "attention": "model.attention.score",
        "preset": "model.preset",
    }
    demo = {
        "data": {"builtin": BUILT_IN},
        "training": {"max_steps": 1500, "learning_rate": 3e-3, "schedule": "cosine", "warmup": 50, "eval_every": 300},
    }
    promise = Promise("cer", 0.01, 0.015)
    smallest = {
        "data": {"builtin": 24, "morse_words": 1, "batch_size": 8},
        "features": {**MORSE_FEATURES, "hop_ms": 20.0},
        "model": {
            "encoder": {"hidden_dim": 16, "num_layers": 1, "subsampling_factor": 2},
            "decoder": {"hidden_dim": 16, "embedding_dim": 8},
            "attention": {"hidden_dim": 8, "kernel_size": 7},
        },
        "training": {"max_steps": 8, "eval_every": 4, "warmup": 2, "learning_rate": 0.01, "metrics_every": 1},
    }

    data: DataConfig = DataConfig()
    features: FeatureConfig = FeatureConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    spec_augment: SpecAugmentConfig = SpecAugmentConfig()
    ctc: CtcConfig = CtcConfig()
    model: ModelConfig = ModelConfig()
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Share of the target probability that is distributed over all tokens, in the decoder's loss."""
    diagonal_after: Annotated[int, Ge(1)] = 1000
    """Steps after which training says so if the attention does not follow the order of the sounds yet."""
    training: TrainingOptions = TrainingOptions(
        max_epochs=60, patience=15, learning_rate=1e-3, warmup=200, eval_every=200, metric_for_best_model="cer"
    )

    @classmethod
    def implied(cls, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Return features that fit the tones of Morse code, where no data is named."""
        if tables.get("data", {}).get("path") is not None:
            return super().implied(tables)
        model = {"preset": "tiny", **tables.get("model", {})}
        return {**super().implied({**tables, "model": model}), "features": MORSE_FEATURES}

    def unused(self) -> Iterator[tuple[str, str]]:
        """Add the share of CTC where there is no choice, and the sizes of masks that are not made."""
        yield from super().unused()
        if not self.model.ctc or isinstance(self.model.decoder, NoDecoderOptions):
            yield "ctc", "both a decoder and model.ctc"
        if not self.spec_augment.feature_masks:
            yield "spec_augment.feature_width", "spec_augment.feature_masks above 0"
        if not self.spec_augment.time_masks:
            yield from (
                (f"spec_augment.{name}", "spec_augment.time_masks above 0") for name in ("time_width", "time_share")
            )

    @classmethod
    def model_preset(cls, model: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that kind and preset of the model stand for."""
        return recognizer_preset(str(model.get("preset", "small")), kind_of(model, "encoder", "") or None)


@settings
class TranscriptSearchOptions:
    """How transcripts are searched for."""

    beam_size: Annotated[int, Ge(1)] = 4
    """Number of hypotheses of the beam search; 1 is greedy search."""
    ctc_weight: Annotated[float, Ge(0), Le(1)] = 0.3
    """Share of CTC's scores beside the decoder's, where the model has both."""
    length_penalty: Annotated[float, Ge(0), Le(100)] = 0.0
    """Above 0 favors longer transcripts."""
    max_length: Annotated[int, Ge(1)] | None = None
    """Longest transcript of a segment in tokens. Default: as many as the encoder has positions."""
    max_segment_seconds: Annotated[float, Gt(0), Le(86_400)] | None = None
    """Longer recordings are cut at silences into segments of at most this many seconds. Default: those are cut that are
    longer than every training utterance, into segments of usual length, since attention often fails on longer ones."""
    no_speech_threshold: Annotated[float, Ge(0), Le(1)] = 0.75
    """Sounds with a higher no-speech score have no transcript: noise, tones, silence, most beeps, some music. With 1
    everything is transcribed."""
    batch_frames: Annotated[int, Ge(1)] = 16_000
    """Frames that are read at once, padding included."""


@settings
class TranscribeOptions(TranscriptSearchOptions):
    """How recordings are transcribed."""

    n_best: Annotated[int, Ge(1)] = 1
    """Number of transcripts per recording, each with its score."""
    output_format: OutputFormat = "text"
    """What is printed: the text, NIST's CTM with the times of each word, or captions as .srt."""
    segment: Annotated[int, Ge(1)] = 1
    """Which segment of a recording that was cut is shown with its attention, counted from 1."""
    min_time_confidence: Annotated[float, Ge(0), Le(1)] = 0.1
    """Words whose times are less certain have a note."""

    def __post_init__(self) -> None:
        if self.n_best > self.beam_size:
            raise ConfigError(f"n_best is {self.n_best}, expected at most beam_size = {self.beam_size}.")
        if self.n_best > 1 and self.output_format != "text":
            raise ConfigError(
                f"n_best is {self.n_best} with output_format = {self.output_format!r}, which has one transcript per "
                "recording. Leave one of them out."
            )


@settings
class TranscribeEvaluateOptions(TranscriptSearchOptions):
    """How transcripts are evaluated."""

    worst: Annotated[int, Ge(0)] = 5
    """How many utterances with the most errors are shown, aligned with their references."""
