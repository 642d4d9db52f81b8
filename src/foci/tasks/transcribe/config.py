"""The settings of speech recognition: of a training, and of what is transcribed and evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt, MinLen

from foci.data.audio.features import FilterBank, Normalization
from foci.errors import ConfigError
from foci.models.recognizer import PRESETS, Recognizer
from foci.tasks.frame.config import FilePath, ModelChoice, TaskConfig
from foci.training.options import TrainingOptions

MORSE_FEATURES = {"rate": 8000, "bins": 1, "lowest": 300.0, "highest": 1200.0}
"""One filter over all pitches: with several, each sign has to be learned anew at every pitch."""
BUILT_IN = 4000
"""How many Morse messages are trained on where no data is named."""


Form = Literal["text", "ctm", "srt"]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The recordings with their transcripts: a manifest, or built-in Morse code."""

    path: FilePath | None = None
    """A manifest: .jsonl with audio and text, .tsv with two columns (also .gz, .xz), or a folder with Kaldi's wav.scp
    and text. Audio is wav, flac, ogg, mp3, or features (.npy, Sphinx .mfc). Without data, Morse code is used."""
    fields: tuple[int | str, int | str] | None = None
    """Columns (numbers from 0, or names) of audio and text in a TSV file, or their fields in a JSONL file."""
    valid: FilePath | None = None
    """A manifest that decides which checkpoint is the best one."""
    test: FilePath | None = None
    """A manifest that `foci evaluate` uses."""
    valid_share: Annotated[float, Ge(0), Lt(1)] = 0.05
    """Without such a manifest: the share of the utterances that is held out to validate."""
    test_share: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Without such a manifest: the share of the utterances that is held out to evaluate, and never trained on."""
    split_seed: Annotated[int, Ge(0)] = 0
    """Which utterances those are."""
    morse: Annotated[int, Ge(2)] | None = None
    """Train on this many built-in messages in Morse code instead, rendered as sound."""
    morse_words: Annotated[int, Ge(1)] = 2
    """Words of the longest of these messages."""
    max_seconds: Annotated[float, Gt(0)] = 30.0
    """Longer recordings are not trained on; they are named and counted."""
    max_frames: Annotated[int, Ge(1)] = 20_000
    """Frames per batch, padding included."""
    max_utterances: Annotated[int, Ge(1)] = 32
    """Utterances per batch."""
    speeds: Annotated[tuple[Annotated[float, Ge(0.5), Le(2.0)], ...], MinLen(1)] = (1.0,)
    """Speeds at which each training utterance is played, such as 0.9, 1.0, 1.1 for three times the data."""
    short_first: Annotated[int, Ge(0)] = 1
    """Epochs at the beginning that go from short utterances to long ones."""
    workers: Annotated[int, Ge(0)] = 0
    """Processes that prepare batches ahead of time."""


@dataclass(frozen=True, kw_only=True)
class FeatureConfig:
    """How sound becomes features: Kaldi's log-mel filter banks. Files of features are taken as they are."""

    rate: Annotated[int, Ge(1000), Le(96_000)] = 16_000
    """Samples per second; recordings at other rates are resampled."""
    bins: Annotated[int, Ge(1), Le(1000)] = 80
    """Number of mel filters."""
    frame: Annotated[float, Gt(0)] = 25.0
    """Milliseconds of a frame."""
    shift: Annotated[float, Gt(0)] = 10.0
    """Milliseconds from one frame to the next; also of files of features."""
    lowest: Annotated[float, Ge(0)] = 20.0
    """Lowest frequency of the filters."""
    highest: float = 0.0
    """Highest frequency of the filters; 0 or less counts from half of the rate."""
    dynamic_range: Annotated[float, Gt(0)] | None = None
    """Decibels below the loudest feature of a recording at which features are cut off, such as 40: for recordings with
    samples of exactly 0 beside noise."""
    deltas: Annotated[int, Ge(0), Le(3)] = 0
    """Derivatives in time beside each feature; 2 are usual for cepstra."""
    normalize: Normalization = "utterance"
    """Mean 0 and deviation 1 of each feature: in each utterance, over all training data (global), or none."""
    upsample: bool = False
    """Train on recordings of a lower rate too; their upper bands are empty. Otherwise they are left out."""

    @property
    def bank(self) -> FilterBank:
        """The filters."""
        return FilterBank(self.rate, self.bins, self.frame, self.shift, self.lowest, self.highest, self.dynamic_range)

    def __post_init__(self) -> None:
        self.bank.check()


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """How transcripts are split: learned from the training data and kept in the run."""

    kind: Literal["characters", "bpe", "unigram", "words"] = "characters"
    """characters; bpe and unigram learn subwords; words are also for phones with spaces between them."""
    size: Annotated[int, Ge(5), Le(1_000_000)] = 2000
    """Largest size of the vocabulary."""
    case: Literal["keep", "upper", "lower"] = "keep"
    """Whether transcripts are put into upper or lower case."""


@dataclass(frozen=True, kw_only=True)
class MaskingConfig:
    """SpecAugment: stretches of features and time that are masked in training; none unless given."""

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


@dataclass(frozen=True, kw_only=True)
class CtcConfig:
    """The share of CTC in the loss, where the model has both a decoder and CTC."""

    weight: Annotated[float, Ge(0), Le(1)] = 0.5
    """At the beginning."""
    final_weight: Annotated[float, Ge(0), Le(1)] = 0.3
    """At the end."""
    steps: Annotated[int, Ge(1)] = 2000
    """Over how many steps it changes from the one to the other, linearly."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ModelChoice):
    """Which model."""

    models = {"recognizer": (Recognizer, PRESETS)}
    trial_sizes = (11, 7)

    kind: str = "recognizer"
    """Kind of model."""
    preset: str = "small"
    """The sizes of the model by name."""


@dataclass(frozen=True, kw_only=True)
class TranscribeConfig(TaskConfig):
    """All settings of a training."""

    flags = {
        "data": "data.path",
        "valid": "data.valid",
        "test": "data.test",
        "morse": "data.morse",
        "rate": "features.rate",
        "tokenizer": "tokenizer.kind",
        "encoder": "model.encoder",
        "decoder": "model.decoder",
        "attention": "model.score",
        "preset": "model.preset",
    }
    demo = {
        "data": {"morse": BUILT_IN},
        "training": {"max_steps": 1500, "learning_rate": 3e-3, "schedule": "cosine", "warmup": 50, "eval_every": 300},
    }
    smallest = {
        "data": {"morse": 24, "morse_words": 1, "max_utterances": 8},
        "features": {**MORSE_FEATURES, "shift": 20.0},
        "model": {
            "hidden_dim": 16,
            "embedding_dim": 8,
            "attention_dim": 8,
            "width": 7,
            "num_layers": 1,
            "reduction": 2,
        },
        "training": {"max_steps": 8, "eval_every": 4, "warmup": 2, "learning_rate": 0.01, "metrics_every": 1},
    }

    data: DataConfig = field(default_factory=DataConfig)
    features: FeatureConfig = field(default_factory=FeatureConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    ctc: CtcConfig = field(default_factory=CtcConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Share of the target probability that is distributed over all tokens, in the decoder's loss."""
    diagonal_after: Annotated[int, Ge(1)] = 1000
    """Steps after which training says so if the attention does not follow the order of the sounds yet."""
    training: TrainingOptions = field(
        default_factory=lambda: TrainingOptions(
            max_epochs=60, patience=15, learning_rate=1e-3, warmup=200, eval_every=200, metric_for_best_model="cer"
        )
    )

    @classmethod
    def implied(cls, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Return features that fit the tones of Morse code, where no data is named."""
        if tables.get("data", {}).get("path") is not None:
            return {}
        return {"features": MORSE_FEATURES, "model": {"preset": "tiny"}}


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How transcripts are searched for."""

    beam: Annotated[int, Ge(1)] = 4
    """Number of hypotheses of the beam search; 1 is greedy search."""
    ctc_weight: Annotated[float, Ge(0), Le(1)] = 0.3
    """Share of CTC's scores beside the decoder's, where the model has both."""
    length_penalty: Annotated[float, Ge(0)] = 0.0
    """Above 0 favors longer transcripts."""
    max_length: Annotated[int, Ge(1)] | None = None
    """Longest transcript of a piece in tokens; as many as it has cells unless given."""
    piece: Annotated[float, Gt(0)] | None = None
    """Longer recordings are cut at silences into pieces of at most this many seconds. Unless given, those are cut that
    are longer than every training utterance, into pieces of usual length: attention often fails on longer ones."""
    batch_frames: Annotated[int, Ge(1)] = 16_000
    """Frames that are read at once, padding included."""


@dataclass(frozen=True, kw_only=True)
class TranscribeOptions(SearchOptions):
    """How recordings are transcribed."""

    n_best: Annotated[int, Ge(1)] = 1
    """Number of transcripts per recording, each with its score."""
    form: Form = "text"
    """What is printed: the text, NIST's CTM with the times of each word, or captions as .srt."""
    tolerance: Annotated[float, Gt(0)] = 0.5
    """Seconds by which the times of attention and CTC may differ without a note."""

    def __post_init__(self) -> None:
        if self.n_best > self.beam:
            raise ConfigError(f"n_best is {self.n_best}, expected at most beam = {self.beam}.")
        if self.n_best > 1 and self.form != "text":
            raise ConfigError(
                f"n_best is {self.n_best} with form = {self.form!r}, which has one transcript per recording. "
                "Leave one of them out."
            )


@dataclass(frozen=True, kw_only=True)
class TranscribeEvaluateOptions(SearchOptions):
    """How transcripts are evaluated."""

    worst: Annotated[int, Ge(0)] = 5
    """How many utterances with the most errors are shown, aligned with their references."""
